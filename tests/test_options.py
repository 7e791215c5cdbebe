"""Values of options: checked by the types of their fields, and read from text."""

import dataclasses

import pytest

from bert_jax.errors import OptionError
from bert_jax.options import typed_values


@dataclasses.dataclass
class Options:
    name: str = ""
    is_set: bool | None = None
    names: tuple[str, ...] | None = None
    layers: tuple[int, ...] = ()
    count: int = 1
    rate: float | None = None


@pytest.mark.parametrize(
    ("field", "value", "expected"),
    [
        ("name", "7", "7"),
        ("is_set", "True", True),
        ("is_set", None, None),
        ("names", "1,b", ("1", "b")),
        ("names", ["a"], ("a",)),
        ("layers", "-2,-1", (-2, -1)),
        ("layers", [3], (3,)),
        ("count", "7", 7),
        ("rate", "1e-3", 0.001),
    ],
)
def test_values_and_their_texts(field, value, expected):
    assert typed_values(Options, {field: value}) == {field: expected}


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("name", 5, "name is 5; give text"),
        ("name", None, "name is None; give text"),
        ("is_set", "maybe", "is_set is 'maybe'; give true or false"),
        ("is_set", 1, "is_set is 1; give true or false"),
        ("names", [1], "names is [1]; give names, such as a,b"),
        ("layers", 3, "layers is 3; give whole numbers, such as -4,-3,-2,-1"),
        ("layers", "1,x", "layers is '1,x'; give whole numbers, such as -4,-3,-2,-1"),
        ("count", "many", "count is 'many'; give a whole number"),
    ],
)
def test_values_of_another_type(field, value, message):
    with pytest.raises(OptionError) as caught:
        typed_values(Options, {field: value})
    assert str(caught.value) == message

"""Records as JSON."""

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as numpy_strategies

from bert_jax.data.outputs import float32_repr, to_json
from bert_jax.errors import UserError


def test_a_record_by_hand():
    record = {
        "id": "é",
        "scores": np.array([[0.1, 1.0], [-1e-12, 3e20]], np.float32),
        "tokens": ["[CLS]", '"'],
        "none": None,
    }
    assert to_json(record) == (
        '{"id": "é", "scores": [[0.1, 1.0], [-1e-12, 3e+20]], "tokens": ["[CLS]", "\\""], '
        '"none": null}'
    )
    assert to_json({}) == "{}"
    assert to_json({"empty": np.zeros((2, 0), np.float32)}) == '{"empty": [[], []]}'


@given(
    numpy_strategies.arrays(
        np.float32,
        numpy_strategies.array_shapes(min_dims=1, max_dims=3, max_side=4),
        elements=st.floats(width=32, allow_nan=False, allow_infinity=False),
    )
)
def test_every_float32_reads_back_as_itself(array):
    read = json.loads(to_json({"array": array}))["array"]
    np.testing.assert_array_equal(np.array(read, np.float32), array)
    for number in array.ravel():
        assert np.float32(float32_repr(float(number))) == number
        digits, all_digits = (
            str(decimal).replace(".", "").strip("0")
            for decimal in (float32_repr(float(number)), float(number))
        )
        assert len(digits) <= len(all_digits)


def test_the_shortest_decimal():
    assert str(float(np.float32(0.1))) == "0.10000000149011612"
    assert str(float32_repr(float(np.float32(0.1)))) == "0.1"


@pytest.mark.parametrize("number", [np.nan, np.inf])
def test_numbers_that_json_cannot_say(number):
    with pytest.raises(UserError, match="'vector' is not finite"):
        to_json({"vector": np.array([1.0, number], np.float32)})

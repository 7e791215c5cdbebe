"""The outcome of every field that may be in a file of a model directory.

A field is computed, carried over (load and save keep it), or refused by its name. `test_fields.py`
shows each row with its value, and, where the peers are installed, that they write no other field.

Fields are those that transformers 5.24 and sentence-transformers 6.2 write for the families and
modules of bert_jax, and those that their earlier versions wrote.
"""

import dataclasses
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

COMPUTED, CARRIED, REFUSED = "computed", "carried over", "refused"


@dataclasses.dataclass(frozen=True)
class Field:
    """The outcome of one field.

    Attributes:
        outcome: COMPUTED, CARRIED or REFUSED; of a refused field one value is allowed.
        value: a value with which this shows.
        shows: the name of an observable that a computed field changes, and its value.
        test: name of a test in another file that shows it, instead of value and observable.
    """

    outcome: str
    value: Any = None
    shows: tuple[str, Any] = ("", None)
    test: str = ""


def computed(value: Any, name: str, shown: Any = None) -> Field:
    """A field with which the observable `name` is `shown`, by default the value itself."""
    return Field(COMPUTED, value, (name, value if shown is None else shown))


def carried(value: Any) -> Field:
    """A field that load and save keep."""
    return Field(CARRIED, value)


def all_carried(names: str, value: Any = "kept") -> dict[str, Field]:
    """Fields that load and save keep, by their names; the value does not matter."""
    return {name: carried(value) for name in names.split()}


def refused(value: Any) -> Field:
    """A field that is an error with this value."""
    return Field(REFUSED, value)


def all_tested(names: str, outcome: str, test: str) -> dict[str, Field]:
    """Fields that another test shows, by their names."""
    return {name: Field(outcome, test=test) for name in names.split()}


def changed(content: Any, path: str, value: Any) -> Any:
    """A copy of the content of a JSON file with another value at a path such as "0.name"."""
    key, _, rest = path.partition(".")
    step = int(key) if isinstance(content, list) else key
    inner = content[step] if isinstance(content, list) else content.get(step, {})
    new = changed(inner, rest, value) if rest else value
    if isinstance(content, list):
        return [new if number == step else entry for number, entry in enumerate(content)]
    return {**content, step: new}


def at(content: Any, path: str) -> Any:
    """The value at a path; None if there is none."""
    for key in path.split("."):
        if isinstance(content, list):
            content = content[int(key)]
        else:
            content = content.get(key) if isinstance(content, dict) else None
    return content


def write(directory: Path, files: Mapping[str, Any]) -> None:
    for name, content in files.items():
        (directory / name).parent.mkdir(exist_ok=True)
        text = content if isinstance(content, str) else json.dumps(content)
        (directory / name).write_text(text)


# Files beside those whose fields are listed; docs/models.md says what becomes of each.
OTHER_FILES = (
    *("model.safetensors", "Dense/model.safetensors", "LayerNorm/model.safetensors"),
    *("config.json", "README.md"),
)

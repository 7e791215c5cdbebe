"""Records of a program as a file of JSON lines: dicts, rows of a frame, a data set."""

import datetime
import json
import math
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from bert_jax.errors import UserError, listed
from bert_jax.files import atomic_file

# How pandas writes a missing value, beside None and NaN.
_MISSING = ("NAType", "NaTType")


def write_records(path: Path, records: Any, name: str) -> None:
    """Writes a JSON object for each record.

    Missing values are null: None, NaN, and pandas' own. Arrays and tensors become lists, their
    scalars numbers, dates ISO 8601. A class of a data set of `datasets` (a `ClassLabel`) is written
    by its name, and -1, no class, as null.

    Args:
        path: the file, local or in a bucket.
        records: an iterable of dicts, read once; or a frame of pandas or polars, whose columns are
            the keys.
        name: name of the records in errors: "train:3" is the third one.

    Raises:
        UserError: they are something else, a value has no form in JSON, or the file cannot be
            written.
    """
    features = getattr(records, "features", None) or {}
    with atomic_file(path) as file:
        for number, record in enumerate(_rows(records, name), start=1):
            location = f"{name}:{number}"
            if not isinstance(record, Mapping):
                raise UserError(
                    f"{location} is {record!r:.40}, of type {type(record).__name__}; give dicts, "
                    "such as {'text': …, 'label': …}"
                )
            fields = {
                str(key): _plain(value, features.get(key), f"{location}: {key!r}")
                for key, value in record.items()
            }
            # JSON spells halves of a surrogate pair like Python.
            line = json.dumps(fields, ensure_ascii=False) + "\n"
            file.write(line.encode(errors="backslashreplace"))


def _rows(records: Any, name: str) -> Iterable[Any]:
    """The records, of a frame as dicts.

    Raises:
        UserError: they are one dict or text, cannot be iterated, or two columns have the same name.
    """
    if isinstance(records, Mapping):
        keys = listed([*map(repr, records)])
        rule = f"give a list of dicts, one for each example, or one split, as {name}=data['train']"
        raise UserError(f"{name} is one {type(records).__name__} with the keys {keys}; {rule}")
    columns = getattr(records, "columns", None)
    if columns is None:
        if isinstance(records, bytes) or not isinstance(records, Iterable):
            kind = type(records).__name__
            raise UserError(f"{name} is of type {kind}; give a file, or an iterable of dicts")
        return records
    names = list(columns)
    if len(set(names)) < len(names):
        raise UserError(f"{name}: two columns of the frame have the same name; rename one")
    rows = zip(*(records[name] for name in names), strict=True)
    return (dict(zip(names, row, strict=True)) for row in rows)


def _plain(value: Any, feature: Any, location: str) -> Any:
    """A value as JSON has it; `feature` is what a data set says about it, see `datasets.Features`.

    Raises:
        UserError: JSON has no such value.
    """
    if type(value).__name__ in _MISSING:
        return None
    if hasattr(value, "tolist"):  # a scalar or an array of NumPy, a tensor
        value = value.tolist()
    if isinstance(value, int) and hasattr(feature, "int2str") and not isinstance(value, bool):
        return None if value == -1 else feature.int2str(value)
    if isinstance(value, float) and math.isnan(value):
        return None
    if isinstance(value, str | bool | int | float | None):
        return value
    if isinstance(value, Mapping):
        features = feature if isinstance(feature, Mapping) else _inner(feature)
        features = features if isinstance(features, Mapping) else {}
        return {str(key): _plain(each, features.get(key), location) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(each, _inner(feature), location) for each in value]
    if isinstance(value, datetime.date | datetime.time):
        return value.isoformat()
    raise UserError(
        f"{location} is of type {type(value).__name__}, which JSON has not; make it a text, a "
        "number or a list, or leave it out"
    )


def _inner(feature: Any) -> Any:
    """The feature of the elements of a list, if it is known; one of a list of one is that one."""
    if isinstance(feature, list):
        return feature[0] if feature else None
    return getattr(feature, "feature", feature)

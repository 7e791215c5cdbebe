"""Records as JSON; a float32 with as few digits as it needs."""

import json
from collections.abc import Mapping
from typing import Any

import numpy as np

from bert_jax.errors import UserError

# `json.dumps` makes an encoder for each call.
_encode = json.JSONEncoder(ensure_ascii=False).encode


def to_json(record: Mapping[str, Any]) -> str:
    """A JSON object; a float32 becomes the shortest decimal that parses to the same float32."""
    if not any(isinstance(value, np.ndarray) for value in record.values()):
        return _encode(record)
    entries = (
        f"{_encode(key)}: "
        + (_array_to_json(key, value) if isinstance(value, np.ndarray) else _encode(value))
        for key, value in record.items()
    )
    return "{" + ", ".join(entries) + "}"


def shortest(number: float) -> float:
    """A float32 as the double that Python prints like the float32: 0.1, not 0.10000000149011612."""
    return float(str(np.float32(number)))


def _array_to_json(key: str, values: np.ndarray) -> str:
    if not np.isfinite(values).all():
        raise UserError(f"{key!r} is not finite; the parameters of the model are damaged")

    def nested(part: np.ndarray) -> str:
        items = map(str, part) if part.ndim == 1 else map(nested, part)
        return "[" + ", ".join(items) + "]"

    return nested(values)

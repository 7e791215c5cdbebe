"""Results with arrays in one short line."""

import dataclasses
import reprlib
from typing import Any, cast

import numpy as np


class ShortRepr:
    """The `repr` of a dataclass with arrays: their dtypes and shapes, and the first of many items.

    As in `AttentionMaps(tokens=['[CLS]', 'the', …], weights=float32 [2, 2, 8, 8], layers=(1, 2))`.
    """

    def __repr__(self) -> str:
        fields = dataclasses.fields(cast(Any, self))
        values = (f"{field.name}={_short(getattr(self, field.name))}" for field in fields)
        return f"{type(self).__name__}({', '.join(values)})"


def _short(value: Any) -> str:
    if isinstance(value, np.ndarray):
        return f"{value.dtype} {[*value.shape]}"
    return reprlib.repr(value).replace("...", "…")

"""The task: `defaults` and `create`, imported when they are first used."""

import importlib
from typing import Any


def __getattr__(name: str) -> Any:
    if name in ("create", "defaults"):
        return getattr(importlib.import_module(f"{__name__}.task"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

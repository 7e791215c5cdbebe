"""The fields of a dataclass as the keys of a config's section."""

import dataclasses
from collections.abc import Collection, Mapping
from typing import Any, TypeVar

Options = TypeVar("Options")


def keys_of(cls: type, omit: Collection[str] = ()) -> dict[str, Any]:
    """The fields of a dataclass and their defaults, except those in `omit`."""
    return {
        field.name: field.default for field in dataclasses.fields(cls) if field.name not in omit
    }


def from_keys(cls: type[Options], section: Mapping[str, Any], **values: Any) -> Options:
    """A dataclass with fields from a config's section and from `values`.

    The section may have other keys.
    """
    read = {name: section[name] for name in keys_of(cls, omit=values)}
    return cls(**read, **values)


def differing_names(then: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """The sorted names with different values, or with a value in one mapping only."""
    return sorted(name for name in {*then, *now} if then.get(name) != now.get(name))

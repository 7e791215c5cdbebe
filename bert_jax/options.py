"""The fields of a dataclass as the keys of a config's section."""

import dataclasses
import functools
from collections.abc import Collection, Mapping, Sequence
from numbers import Real
from types import UnionType
from typing import Any, TypeVar, get_args, get_type_hints

from bert_jax.errors import OptionError

Options = TypeVar("Options")

_DESCRIPTIONS: Mapping[Any, str] = {
    str: "text",
    bool: "true or false",
    int: "a whole number",
    float: "a number",
    tuple[str, ...]: "names, such as a,b",
    **dict.fromkeys((tuple[int, ...], Sequence[int]), "whole numbers, such as -4,-3,-2,-1"),
}


def keys_of(cls: type, omit: Collection[str] = ()) -> dict[str, Any]:
    """The fields of a dataclass and their defaults, except those in `omit`."""
    return {
        field.name: field.default for field in dataclasses.fields(cls) if field.name not in omit
    }


def from_keys(cls: type[Options], section: Mapping[str, Any]) -> Options:
    """A dataclass with the values of a config's section, which may have other keys."""
    return cls(**{name: section[name] for name in keys_of(cls)})


def typed_values(cls: type, values: Mapping[str, Any]) -> dict[str, Any]:
    """Values for fields of a dataclass; text is parsed for other types, and lists become tuples.

    The dataclass checks which numbers.

    Raises:
        OptionError: a value does not have the type of its field.
    """
    hints = _hints_of(cls)
    typed = {}
    for name, value in values.items():
        hint = hints[name]
        kinds = get_args(hint) if isinstance(hint, UnionType) else (hint,)
        try:
            typed[name] = _typed(value, kinds)
        except (KeyError, TypeError, ValueError):
            rule = f"give {_DESCRIPTIONS.get(kinds[0], f'a value of type {hint}')}"
            raise OptionError(name, value, rule) from None
    return typed


@functools.cache  # a server reads the options of each request
def _hints_of(cls: type) -> Mapping[str, Any]:
    return get_type_hints(cls)


def _typed(value: Any, kinds: tuple[Any, ...]) -> Any:
    """A value of one of some types.

    Raises:
        KeyError, TypeError, ValueError: it is none.
    """
    kind, *_ = kinds
    if type(value) in kinds:
        return value
    if items := get_args(kind):  # tuple[item, ...]
        parts = filter(None, value.split(",")) if isinstance(value, str) else value
        return tuple(_typed(part, items) for part in parts)
    if kind is bool and isinstance(value, str):
        return {"true": True, "false": False}[value.lower()]
    if kind in (int, float) and isinstance(value, str | Real):
        return kind(value) if isinstance(value, str) else value
    raise TypeError


def differing_names(then: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """The sorted names with different values, or with a value in one mapping only."""
    return sorted(name for name in {*then, *now} if then.get(name) != now.get(name))

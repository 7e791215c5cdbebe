"""Sources of text: "KIND:PLACE" strings to streams of blocks, one file per kind.

A new kind is a module with `open_source(spec, place)` and one entry in `KINDS`.
"""

import dataclasses
import difflib
import importlib
from collections.abc import Iterable, Mapping
from typing import cast

from bert_jax.data.pretraining.sources.source import Block, Source, SourceSpec
from bert_jax.errors import UserError

__all__ = ["KINDS", "Block", "Source", "SourceSpec", "open_source", "source_specs"]

KINDS = {
    "text": "bert_jax.data.pretraining.sources.text",
    "jsonl": "bert_jax.data.pretraining.sources.jsonl",
    "tfds": "bert_jax.data.pretraining.sources.tfds",
    "python-docs": "bert_jax.data.pretraining.sources.python_docs",
}


def open_source(spec: SourceSpec) -> Source:
    """Finds the source that a spec names, without reading it.

    Raises:
        UserError: the kind is unknown, or there is nothing at that place.
    """
    kind, colon, place = spec.source.partition(":")
    if not colon or kind not in KINDS:
        known = ", ".join(f"{name}:" for name in KINDS)
        raise UserError(
            f"data.source: {spec.source!r} does not begin with a known kind ({known}); "
            "write for example text:FILES"
        )
    module = importlib.import_module(KINDS[kind])
    return cast(Source, module.open_source(spec, place))


def source_specs(
    source: str | Iterable[str | Mapping[str, object]], defaults: Mapping[str, object] | None = None
) -> tuple[SourceSpec, ...]:
    """The specs of a config's `data.source`.

    Args:
        source: one "KIND:PLACE", or a mixture: a list whose entries are such strings or mappings
            with the key "source" and any other field of `SourceSpec`.
        defaults: fields of `SourceSpec` for entries that do not say otherwise.

    Raises:
        UserError: there is no source, a key is unknown or a value is out of range.
    """
    if not isinstance(source, str | list | tuple | None):
        raise UserError(f"data.source: {source!r} is neither text:FILES nor a list of such sources")
    entries = [source] if isinstance(source, str) else list(source or ())
    if not entries or entries == [""]:
        raise UserError("data.source is not set; write for example data.source=text:FILES")
    return tuple(_spec(entry, dict(defaults or {})) for entry in entries)


def _spec(entry: str | Mapping[str, object], defaults: dict[str, object]) -> SourceSpec:
    if not isinstance(entry, str) and not hasattr(entry, "items"):  # a ConfigDict is no Mapping
        raise UserError(f"data.source: the entry {entry!r} is neither text:FILES nor a mapping")
    fields = {"source": entry} if isinstance(entry, str) else dict(entry.items())
    known = [field.name for field in dataclasses.fields(SourceSpec)]
    for key in fields:
        if key not in known:
            nearest = difflib.get_close_matches(str(key), known, n=1, cutoff=0.0)[0]
            raise UserError(f"data.source: unknown key {key!r}; the nearest known is {nearest!r}")
    if not isinstance(fields.get("source"), str):
        raise UserError(f"data.source: the entry {fields} names no source ('source': 'text:FILES')")
    values = defaults | fields
    return SourceSpec(**values)  # type: ignore[arg-type]  # __post_init__ checks the values

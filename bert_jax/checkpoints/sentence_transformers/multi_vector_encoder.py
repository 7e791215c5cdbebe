"""The files of a model with vectors of tokens: `model_type` "MultiVectorEncoder", and PyLate's.

PyLate 1 has `model_type` "ColBERT" and keeps the lengths, the prefixes of texts and the tokens that
do not count in MODEL. Source: sentence-transformers 6.2, multi_vector_encoder/model.py, and PyLate
1.6, models/colbert.py.
"""

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bert_jax.checkpoints.sentence_transformers import (
    CONFIG,
    ENCODER,
    METADATA,
    MODEL,
    MODULES,
    kind_of,
    not_supported,
)
from bert_jax.checkpoints.sentence_transformers.layout import Entries, Layout
from bert_jax.checkpoints.sentence_transformers.parts import (
    PROMPTS,
    check_known,
    check_size,
    module_fields,
    named,
    read_encoder,
    read_module,
    read_prompts,
)
from bert_jax.errors import OptionError
from bert_jax.files import is_there, read_json_object
from bert_jax.models.heads.token_vectors import (
    FIXED,
    PUNCTUATION,
    SIMILARITIES,
    QueryExpansion,
    TokenVectors,
)
from bert_jax.models.vectors import DOCUMENT, SIDES, Dense, Module, Normalize

_TOKENS, _MASK = "token_embeddings", "MultiVectorMask"
_MODULES: dict[str, type[Module]] = {"Dense": Dense, "Normalize": Normalize}

DEFAULT_LENGTH = 32
"""The number of tokens of a query where these files do not say it."""


def _read(directory: Path, entries: Entries, model: Mapping[str, Any]) -> TokenVectors:
    encoder = read_encoder(directory / entries[0]["path"], directory)
    encoder.check_output()
    encoder.check_task()
    fields = dict(encoder.other)
    lengths = {f"{side}_length": fields.pop(f"{side}_length", None) for side in SIDES}
    for key, value in lengths.items():
        check_size(encoder.path, key, value)
    expansion = _expansion_of(encoder.path, fields.pop("query_expansion", None))
    modules: list[Module] = []
    mask: dict[str, Any] | None = None
    for entry in entries[1:]:
        path = directory / entry["path"] / CONFIG
        if (kind := kind_of(entry)) == _MASK and mask is None:
            mask = _mask(path, directory)
        elif kind in _MODULES:
            # A Normalize without this name normalises another vector.
            default = "sentence_embedding" if kind == "Normalize" else _TOKENS
            modules.append(read_module(_MODULES[kind], path, directory, _TOKENS, default))
        else:
            raise not_supported(directory / MODULES, f"the module {entry['type']}")
    if expansion and mask is None:
        raise not_supported(directory / MODULES, f"query_expansion without a {_MASK}")
    similarity = model.get("similarity_fn_name")
    return TokenVectors(
        modules=tuple(modules),
        **read_prompts(directory / MODEL, model),
        max_length=encoder.max_length,
        lower_case=encoder.lower_case,
        other=_other(directory, fields),
        **lengths,
        expansion=expansion,
        **(mask or {}),
        # As in sentence-transformers: files of one vector for each text have other names.
        similarity=similarity if similarity in SIMILARITIES else TokenVectors.similarity,
    )


def _other(directory: Path, encoder: Mapping[str, Any]) -> dict[str, Any]:
    """The fields that change no vector, of the encoder's file and of a model of Stanford's."""
    path = directory / METADATA
    settings = {METADATA: read_json_object(path)} if is_there(path) else {}
    return settings | ({ENCODER: encoder} if encoder else {})


def _mask(path: Path, directory: Path) -> dict[str, Any]:
    fields = read_json_object(path, directory)
    check_known(path, fields, ("skiplist_words", "skiplist_tasks", "keep_only_token_ids"))
    if kept := fields.get("keep_only_token_ids"):
        raise not_supported(path, f"keep_only_token_ids {kept!r:.80}")
    sides = fields.get("skiplist_tasks") or [DOCUMENT]
    with named(path):
        return {
            "skipped_words": tuple(map(str, fields.get("skiplist_words") or ())),
            "skipped_sides": (sides,) if isinstance(sides, str) else tuple(sides),
        }


def _expansion_of(path: Path, fields: Mapping[str, Any] | None) -> QueryExpansion | None:
    if fields is None:
        return None
    try:
        return QueryExpansion(**fields)
    except (OptionError, TypeError) as error:
        raise not_supported(path, f"query_expansion {fields!r:.80} ({error})") from error


def _read_pylate(directory: Path, entries: Entries, model: Mapping[str, Any]) -> TokenVectors:
    path = directory / MODEL
    vectors = _read(directory, entries, model)
    prefixes = {side: model.get(f"{side}_prefix") or "" for side in SIDES}
    lengths = {f"{side}_length": model.get(f"{side}_length") for side in SIDES}
    for key, value in lengths.items():
        check_size(path, key, value)
    with named(path):
        prompts = {
            side: prefix + vectors.all_prompts[side].removeprefix(prefix)
            for side, prefix in prefixes.items()
        }
        words = model.get("skiplist_words")
        skipped = PUNCTUATION if words is None else tuple(map(str, words))
    query_length, expansion = lengths["query_length"], None
    if model.get("do_query_expansion", True):
        attend = bool(model.get("attend_to_expansion_tokens", False))
        expansion = QueryExpansion(FIXED, query_length or DEFAULT_LENGTH, attend)
    return dataclasses.replace(
        vectors,
        modules=(*vectors.modules, Normalize()),
        prompts={**vectors.prompts, **prompts},
        markers=tuple(filter(None, prefixes.values())),
        skipped_words=skipped,
        query_length=None if expansion else query_length,
        document_length=lengths["document_length"],
        expansion=expansion,
    )


def _encoder(vectors: TokenVectors) -> dict[str, Any]:
    expansion = vectors.expansion and dataclasses.asdict(vectors.expansion)
    fields = {
        "query_length": vectors.query_length,
        "document_length": vectors.document_length,
        "query_expansion": expansion,
    }
    return {key: value for key, value in fields.items() if value is not None}


def _modules(vectors: TokenVectors, hidden_size: int) -> list[tuple[str, dict[str, Any]]]:
    names = {"module_input_name": _TOKENS, "module_output_name": _TOKENS}
    mask = {
        "skiplist_words": list(vectors.skipped_words),
        "skiplist_tasks": list(vectors.skipped_sides),
    }
    own = [(kind, fields | names) for kind, fields in map(module_fields, vectors.modules)]
    last = len(own) - vectors.ends_in_normalize
    return [*own[:last], (_MASK, mask), *own[last:]]


LAYOUT = Layout(
    TokenVectors,
    _read,
    model_fields=PROMPTS | {"similarity_fn_name": "similarity"},
    encoder=_encoder,
    modules=_modules,
)
PYLATE = dataclasses.replace(
    LAYOUT,
    read=_read_pylate,
    only_read=(
        *(f"{side}_{name}" for side in SIDES for name in ("prefix", "length")),
        *("do_query_expansion", "attend_to_expansion_tokens", "skiplist_words"),
    ),
)

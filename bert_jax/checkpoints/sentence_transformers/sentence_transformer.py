"""The files of a model with one vector for each text: `model_type` "SentenceTransformer"."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bert_jax.checkpoints.sentence_transformers import (
    CONFIG,
    FLAGS,
    MODEL,
    MODULES,
    TO_POOLER,
    kind_of,
    not_supported,
)
from bert_jax.checkpoints.sentence_transformers.layout import Entries, Layout
from bert_jax.checkpoints.sentence_transformers.parts import (
    MODULE_KINDS,
    PROMPTS,
    check_known,
    check_size,
    module_fields,
    read_encoder,
    read_module,
    read_prompts,
)
from bert_jax.files import read_json_object
from bert_jax.models.heads.text_vectors import POOLER, SIMILARITIES, TOKEN_POOLINGS, TextVectors
from bert_jax.models.vectors import Module

_SENTENCE = "sentence_embedding"
_POOLING_FIELDS = (
    *FLAGS.values(),
    *("word_embedding_dimension", "embedding_dimension", "pooling_mode", "include_prompt"),
)
# The poolings that version 2 does not know: their flags are written only if they are set.
_LATER = ("weightedmean", "lasttoken")


def _read(directory: Path, entries: Entries, model: Mapping[str, Any]) -> TextVectors:
    encoder = read_encoder(directory / entries[0]["path"], directory)
    is_pooled = encoder.output == (TO_POOLER, _SENTENCE)
    if not is_pooled:
        encoder.check_output()
        encoder.check_task()
    rest, path = entries[1:], directory / MODULES
    pooling: dict[str, Any] = {"poolings": (POOLER,)}
    if not is_pooled:
        if not rest or kind_of(rest[0]) != "Pooling":
            what = f"the module {rest[0]['type']} as the second" if rest else "an encoder alone"
            raise not_supported(path, what)
        pooling = _pooling_in(directory / rest.pop(0)["path"] / CONFIG, directory)
    modules: list[Module] = []
    for entry in rest:
        if (kind := MODULE_KINDS.get(kind_of(entry))) is None:
            raise not_supported(path, f"the module {entry['type']}")
        modules.append(read_module(kind, directory / entry["path"] / CONFIG, directory, _SENTENCE))
    path, dimension = directory / MODEL, model.get("truncate_dim")
    check_size(path, "truncate_dim", dimension)
    similarity = model.get("similarity_fn_name")
    return TextVectors(
        **pooling,
        **read_prompts(path, model),
        modules=tuple(modules),
        max_length=encoder.max_length,
        lower_case=encoder.lower_case,
        # As in sentence-transformers; other kinds of models have other names.
        similarity=similarity if similarity in SIMILARITIES else TextVectors.similarity,
        truncate_dim=dimension,
        other=encoder.carried,
    )


def _pooling_in(path: Path, directory: Path) -> dict[str, Any]:
    fields = read_json_object(path, directory)
    check_known(path, fields, _POOLING_FIELDS)
    flags = [name for name, flag in FLAGS.items() if fields.get(flag)]
    poolings = fields.get("pooling_mode", flags or "mean")
    poolings = [poolings] if isinstance(poolings, str) else poolings
    known = list(TOKEN_POOLINGS)  # a value of the file may have no hash
    if isinstance(poolings, list) and len(poolings) > len(known):
        raise not_supported(path, f"a pooling_mode of {len(poolings):,} names")
    if not isinstance(poolings, list) or not poolings or any(p not in known for p in poolings):
        raise not_supported(path, f"pooling_mode {fields.get('pooling_mode')!r}")
    include = bool(fields.get("include_prompt", True))
    return {"poolings": tuple(poolings), "include_prompt": include}


def _encoder(vectors: TextVectors) -> dict[str, Any]:
    if vectors.pools_tokens:
        return {}
    return {"modality_config": TO_POOLER, "module_output_name": _SENTENCE}


def _modules(vectors: TextVectors, hidden_size: int) -> list[tuple[str, dict[str, Any]]]:
    pooling = [("Pooling", _pooling(vectors, hidden_size))] if vectors.pools_tokens else []
    return [*pooling, *map(module_fields, vectors.modules)]


def _pooling(vectors: TextVectors, hidden_size: int) -> dict[str, Any]:
    fields: dict[str, Any] = {"word_embedding_dimension": hidden_size}
    poolings = vectors.poolings
    if poolings == tuple(name for name in TOKEN_POOLINGS if name in poolings):
        fields |= {
            flag: name in poolings
            for name, flag in FLAGS.items()
            if name in poolings or name not in _LATER
        }
    else:  # in another order than the flags have
        fields["pooling_mode"] = list(poolings)
    return fields if vectors.include_prompt else fields | {"include_prompt": False}


LAYOUT = Layout(
    TextVectors,
    _read,
    model_fields=PROMPTS | {"similarity_fn_name": "similarity", "truncate_dim": "truncate_dim"},
    encoder=_encoder,
    modules=_modules,
)

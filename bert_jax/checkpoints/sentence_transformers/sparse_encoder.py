"""The files of a model with sparse vectors: `model_type` "SparseEncoder"."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bert_jax.checkpoints.sentence_transformers import (
    CONFIG,
    MLM_ENCODER,
    MODEL,
    MODULES,
    TO_LOGITS,
    kind_of,
    not_supported,
)
from bert_jax.checkpoints.sentence_transformers.layout import Entries, Layout
from bert_jax.checkpoints.sentence_transformers.parts import (
    PROMPTS,
    check_known,
    check_size,
    read_encoder,
    read_prompts,
)
from bert_jax.files import read_json_object
from bert_jax.models.heads.sparse_vectors import ACTIVATIONS, POOLING_STRATEGIES, SparseVectors

_CHOICES = {"pooling_strategy": POOLING_STRATEGIES, "activation_function": tuple(ACTIVATIONS)}
# V, which the encoder's files have, too.
_WIDTHS = ("embedding_dimension", "word_embedding_dimension")


def _read(directory: Path, entries: Entries, model: Mapping[str, Any]) -> SparseVectors:
    if [kind_of(entry) for entry in entries[1:]] != ["SpladePooling"]:
        kinds = ", ".join(entry["type"] for entry in entries)
        raise not_supported(directory / MODULES, f"the list of modules {kinds}")
    encoder = read_encoder(directory / entries[0]["path"], directory)
    if kind_of(entries[0]) != MLM_ENCODER:
        encoder.check_task("fill-mask")
    encoder.check_output(TO_LOGITS)
    path = directory / MODEL
    if (similarity := model.get("similarity_fn_name")) not in (None, "dot"):
        raise not_supported(path, f"similarity_fn_name {similarity!r}")
    check_size(path, "max_active_dims", model.get("max_active_dims"))
    return SparseVectors(
        **_pooling_in(directory / entries[1]["path"] / CONFIG, directory),
        **read_prompts(path, model),
        max_active_dims=model.get("max_active_dims"),
        max_length=encoder.max_length,
        lower_case=encoder.lower_case,
        other=encoder.carried,
    )


def _pooling_in(path: Path, directory: Path) -> dict[str, Any]:
    fields = read_json_object(path, directory)
    check_known(path, fields, (*_CHOICES, *_WIDTHS))
    pooling = {key: fields[key] for key in _CHOICES if key in fields}
    for key, value in pooling.items():
        if value not in _CHOICES[key]:
            raise not_supported(path, f"{key} {value!r}")
    return pooling


def _modules(vectors: SparseVectors, hidden_size: int) -> list[tuple[str, dict[str, Any]]]:
    return [("SpladePooling", {key: getattr(vectors, key) for key in _CHOICES})]


LAYOUT = Layout(
    SparseVectors,
    _read,
    model_fields=PROMPTS | {"max_active_dims": "max_active_dims"},
    encoder=lambda vectors: {},
    modules=_modules,
    encoder_kind=MLM_ENCODER,
)

"""How the files of one `model_type` of sentence-transformers say how vectors are made."""

import dataclasses
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from bert_jax.models.vectors import StoredVectors

Entries = list[dict[str, Any]]
"""The entries of `modules.json`."""


@dataclasses.dataclass(frozen=True)
class Layout:
    """One `model_type`.

    Attributes:
        vectors: class of the description.
        read: (model directory, entries, content of MODEL) → description, with what MODEL says.
        model_fields: field of MODEL → field of the description.
        encoder: description → further fields of ENCODER.
        modules: description, D of the encoder → class and fields of each module after the encoder.
            Those of `parts.MODULE_KINDS` are the `modules` of the description.
        encoder_kind: class of the encoder in MODULES.
        only_read: further fields of MODEL that `read` computes from.
    """

    vectors: type[StoredVectors]
    read: Callable[[Path, Entries, Mapping[str, Any]], Any]
    model_fields: Mapping[str, str]
    encoder: Callable[[Any], dict[str, Any]]
    modules: Callable[[Any, int], list[tuple[str, dict[str, Any]]]]
    encoder_kind: str = "Transformer"
    only_read: tuple[str, ...] = ()

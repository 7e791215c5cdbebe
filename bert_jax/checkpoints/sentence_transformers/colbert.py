"""ColBERT models in the files of Stanford and of Hofstätter, which sentence-transformers has not.

    Stanford      `architectures` ["HF_ColBERT"] in config.json, the settings in artifact.metadata,
                  linear.weight [X, D] beside the tensors of the encoder
    Hofstätter    `model_type` "ColBERT" in config.json, compressor.weight [X, D] and
                  compressor.bias [X]; no file has the settings

Source: stanford-futuredata/ColBERT, colbert/infra/config/settings.py and colbert/modeling; the
notebook beside sebastian-hofstaetter/colbert-distilbert-margin_mse-T2-msmarco. They are written as
files of sentence-transformers.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bert_jax.checkpoints.sentence_transformers import CONFIG, METADATA, REMEDY
from bert_jax.checkpoints.sentence_transformers.multi_vector_encoder import DEFAULT_LENGTH
from bert_jax.checkpoints.sentence_transformers.parts import check_size
from bert_jax.checkpoints.tensors import open_tensors
from bert_jax.errors import UserError
from bert_jax.files import is_there, read_json_object
from bert_jax.models.heads.token_vectors import (
    APPEND,
    FIXED,
    PUNCTUATION,
    QueryExpansion,
    TokenVectors,
)
from bert_jax.models.vectors import IDENTITY, SIDES, Dense, Normalize

STANFORD, HOFSTAETTER = "linear", "compressor"
"""The name of the projection of the vectors in each."""

# The fields of METADATA that vectors and scores depend on.
_COMPUTED = (
    *("query_token_id", "doc_token_id", "query_maxlen", "doc_maxlen", "dim", "similarity"),
    *("attend_to_mask_tokens", "mask_punctuation"),
)
_DOCUMENT_LENGTH = 220


def projection_in(directory: Path) -> str:
    """`STANFORD` or `HOFSTAETTER`; "" for a model of another kind."""
    if not is_there(directory / CONFIG):
        return ""
    fields = read_json_object(directory / CONFIG)
    if fields.get("architectures") == ["HF_ColBERT"]:
        return STANFORD
    return HOFSTAETTER if fields.get("model_type") == "ColBERT" else ""


def read_colbert(directory: Path) -> TokenVectors | None:
    """How such a model makes vectors; None for a model of another kind.

    Raises:
        UserError: a file is damaged.
    """
    projection = projection_in(directory)
    if not projection:
        return None
    with open_tensors(directory) as file:
        name = f"{projection}.weight"
        if name not in file.tensors or len(file.tensors[name].shape) != 2:
            raise UserError(f"{file.path} has no matrix {name}, the projection; {REMEDY}")
        outputs, inputs = file.tensors[name].shape
    has_bias = projection == HOFSTAETTER
    dense = Dense(inputs, outputs, bias=has_bias, activation_function=IDENTITY)
    if projection == HOFSTAETTER:
        # In training, texts were cut to 30 and 200 tokens.
        return TokenVectors(
            modules=(dense,),
            query_length=30,
            document_length=200,
            expansion=QueryExpansion(APPEND, 8, attend=True),
        )
    path = directory / METADATA
    return _read_stanford(path, read_json_object(path) if is_there(path) else {}, dense)


def _read_stanford(path: Path, settings: Mapping[str, Any], dense: Dense) -> TokenVectors:
    if (similarity := settings.get("similarity", "cosine")) != "cosine":
        return TokenVectors(unsupported=f"{path}: similarity {similarity!r} is not supported")

    def setting(key: str, default: Any) -> Any:
        value = settings.get(key)
        return default if value is None else value

    lengths = setting("query_maxlen", DEFAULT_LENGTH), setting("doc_maxlen", _DOCUMENT_LENGTH)
    for length in lengths:
        check_size(path, "query_maxlen or doc_maxlen", length)
    markers = setting("query_token_id", "[unused0]"), setting("doc_token_id", "[unused1]")
    if not all(isinstance(marker, str) for marker in markers):
        raise UserError(f"{path}: the markers are {markers}; they must be tokens")
    expansion = QueryExpansion(FIXED, lengths[0], bool(setting("attend_to_mask_tokens", False)))
    return TokenVectors(
        modules=(dense, Normalize()),
        prompts={side: f"{marker} " for side, marker in zip(SIDES, markers, strict=True)},
        markers=markers,
        document_length=lengths[1],
        expansion=expansion,
        skipped_words=PUNCTUATION if setting("mask_punctuation", True) else (),
        other={METADATA: {key: settings[key] for key in settings if key not in _COMPUTED}},
    )

"""The files that sentence-transformers has beside a model: how it makes vectors of texts.

    modules.json                       list of modules, each with its type and its folder
    router_config.json                 of a module that is a Router: lists of modules, see `entries`
    FOLDER/config.json                 of a pooling, a dense map, …; their weights beside it
    sentence_bert_config.json          beside the encoder: the longest text, lower-casing
    config_sentence_transformers.json  prompts, similarity function, number of values of a vector

They are read in all forms since version 0: each field is computed, written back, or refused by its
name. Source: version 6.2, base/model.py, base/modules/ and sentence_transformer/modules/.
"""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from bert_jax.checkpoints.tensors import SAFETENSORS
from bert_jax.errors import UserError
from bert_jax.families.family import family_names

MODULES, MODEL = "modules.json", "config_sentence_transformers.json"
ENCODER, CONFIG = "sentence_bert_config.json", "config.json"
ROUTER = "router_config.json"
METADATA = "artifact.metadata"
"""A file of Stanford's ColBERT, see `colbert`."""

# Version 0 has a class, and a name of this file, for each family; its LSTM is a later module.
ENCODER_FILES = (
    ENCODER,
    *(f"sentence_{name.replace('_', '-')}_config.json" for name in family_names()),
)
ENCODERS = (
    "transformer",
    *(name.replace("_", "") for name in family_names() if name != "lstm"),
)

MLM_ENCODER = "MLMTransformer"
"""The class of an encoder with the head of the masked language model; since version 5.4 also
"Transformer"."""

VECTOR_FILES = (MODULES, ROUTER, MODEL, METADATA, "sentence_*_config.json")
"""Patterns of the files beside an encoder; for folders of modules see `entries.module_folders`."""

OBSOLETE = (*VECTOR_FILES, f"[0-9]*_*/{CONFIG}", f"[0-9]*_*/{SAFETENSORS}")
"""Patterns of all files that `write_vectors` writes."""

OBSOLETE_ROUTES = (*VECTOR_FILES, "*_[0-9]*_*/*")
"""Patterns of all files of an older model with a Router."""

FLAGS = {
    "cls": "pooling_mode_cls_token",
    "max": "pooling_mode_max_tokens",
    "mean": "pooling_mode_mean_tokens",
    "mean_sqrt_len_tokens": "pooling_mode_mean_sqrt_len_tokens",
    "weightedmean": "pooling_mode_weightedmean_tokens",
    "lasttoken": "pooling_mode_lasttoken",
}
"""The form of a pooling before version 6; several poolings are concatenated in this order."""

MULTI_VECTOR_FIELDS = ("unpad_inputs", "query_length", "document_length", "query_expansion")
"""Fields of ENCODER that only `multi_vector_encoder` reads: no vector of a text has them."""

TO_TOKENS = {"text": {"method": "forward", "method_output_name": "last_hidden_state"}}
TO_POOLER = {"text": {"method": "forward", "method_output_name": "pooler_output"}}
TO_LOGITS = {"text": {"method": "forward", "method_output_name": "logits"}}
"""`modality_config` of an encoder: its last hidden states, the output of its pooler, or the logits
of its head."""

_TENSORS = {
    "dense/kernel": "linear.weight",
    "dense/bias": "linear.bias",
    "residual/kernel": "residual.weight",
    "norm/scale": "norm.weight",
    "norm/bias": "norm.bias",
}
"""Parameter, without the number of its module → PyTorch's tensor, which is transposed."""

REMEDY = "copy it again"

MOST_MODULES = 32
"""The limit on the modules of a model; published ones have up to five. Each is compiled."""


class NotSupportedError(UserError):
    """The files require vectors that bert_jax does not compute; other tasks do not need them."""


def not_supported(path: Path, what: str) -> NotSupportedError:
    """The error for a file that names something unsupported, such as a pooling."""
    return NotSupportedError(f"{path}: {what} is not supported")


def kind_of(entry: Mapping[str, Any]) -> str:
    """The class of a module of sentence-transformers or PyLate; "" for one of somebody else."""
    package, _, kind = entry["type"].rpartition(".")
    return kind if package.partition(".")[0] in ("sentence_transformers", "pylate") else ""


def tensors_of(number: int, parameters: Iterable[str]) -> dict[str, str]:
    """{parameter: tensor} of the module with this number after the pooling."""
    prefix = f"{number}_"
    own = (name for name in parameters if name.startswith(prefix))
    return {name: _TENSORS[name.removeprefix(prefix)] for name in own}

"""The activation that sentence-transformers stores for the score of a cross-encoder.

Source: sentence-transformers 6, cross_encoder/model.py, `_parse_model_config` and
`get_default_activation_fn`.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bert_jax.checkpoints.sentence_transformers import (
    CONFIG,
    ENCODER,
    MODEL,
    MODULES,
    MULTI_VECTOR_FIELDS,
    REMEDY,
)
from bert_jax.checkpoints.sentence_transformers.entries import entries_of
from bert_jax.errors import UserError
from bert_jax.files import is_there, read_json_object

# The keys of `config.json`: since version 4, and before.
_SECTION, _OLD_KEY = "sentence_transformers", "sbert_ce_default_activation_function"
_KEY, _PROMPT = "activation_fn", "default_prompt_name"


def with_activation(directory: Path, other: Mapping[str, Any]) -> dict[str, Any]:
    """The other fields of a `config.json`, with a section for the fields of the files beside it.

    The activation in these files has precedence; versions 4 and later also read the section.

    Raises:
        UserError: a file is damaged.
    """
    files = [
        read_json_object(directory / name, directory) if is_there(directory / name) else {}
        for name in (MODEL, ENCODER)
    ]
    fields, encoder = ({key: value for key, value in file.items() if value} for file in files)
    # Without modules.json, sentence-transformers reads config.json alone.
    if fields.pop("model_type", None) != "CrossEncoder" or not is_there(directory / MODULES):
        return dict(other)
    if others := [entry["type"] for entry in entries_of(directory)[1:]]:
        fields[MODULES] = others
    harmless = {"transformer_task", "modality_config", "module_output_name", *MULTI_VECTOR_FIELDS}
    if encoder := {key: value for key, value in encoder.items() if key not in harmless}:
        fields[ENCODER] = encoder
    return {**other, _SECTION: {**_section(other), **fields}}


def check_computed(other: Mapping[str, Any]) -> None:
    """Raises UserError if the files set a prompt or other rules for texts, or have more modules.

    Also if a field that would say so has a wrong type.
    """
    for kind in _typed(_section(other), MODULES, list):
        raise UserError(
            f"{MODULES}: the module {kind} is not supported for cross-encoders; give a model with "
            "the classifier of its family alone"
        )
    if name := _section(other).get(_PROMPT):
        raise UserError(
            f"{MODEL}: {_PROMPT} is {name!r}; prompts of cross-encoders are not supported: put the "
            "prompt before the texts, and remove the key"
        )
    for key, value in _typed(_section(other), ENCODER, dict).items():
        raise UserError(
            f"{ENCODER}: {key} is {value!r:.80}; it is not supported for cross-encoders: remove "
            "the key, and set model_max_length or do_lower_case in tokenizer_config.json"
        )


def stored_activation(other: Mapping[str, Any]) -> Any:
    """The activation, such as "torch.nn.modules.activation.Sigmoid"; None: none is stored."""
    return _section(other).get(_KEY, other.get(_OLD_KEY))


def stored_as(activation: str) -> dict[str, Any]:
    """The fields of `config.json` for an activation, by the name of PyTorch's class."""
    module = "linear" if activation == "Identity" else "activation"
    return {_SECTION: {_KEY: f"torch.nn.modules.{module}.{activation}"}}


def _section(other: Mapping[str, Any]) -> dict[str, Any]:
    section: dict[str, Any] = _typed(other, _SECTION, dict)
    return section


def _typed(
    fields: Mapping[str, Any], key: str, kind: type[dict[Any, Any]] | type[list[Any]]
) -> Any:
    """A field of `config.json` that is a list or a dict; empty if there is none."""
    if (value := fields.get(key)) is None:
        return kind()
    if not isinstance(value, kind):
        needed = "a list" if kind is list else "an object"
        raise UserError(f"{CONFIG}: {key} is {value!r:.80}; it must be {needed}: {REMEDY}")
    return value

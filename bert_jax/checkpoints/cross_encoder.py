"""The function that a cross-encoder of sentence-transformers applies to its score.

Source: sentence-transformers 6, cross_encoder/model.py, `_parse_model_config` and
`get_default_activation_fn`.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bert_jax.errors import UserError
from bert_jax.files import is_there, read_json_object

_FILE = "config_sentence_transformers.json"
# The keys of `config.json`: since version 4, and before.
_SECTION, _OLD_KEY = "sentence_transformers", "sbert_ce_default_activation_function"
_KEY, _PROMPT = "activation_fn", "default_prompt_name"


def with_activation(directory: Path, other: Mapping[str, Any]) -> dict[str, Any]:
    """The further fields of a `config.json`, with what stands in a file beside it.

    There the function has precedence; in `config.json` versions 4 and later find it, too.

    Raises:
        UserError: the file is damaged.
    """
    if not is_there(directory / _FILE):
        return dict(other)
    fields = read_json_object(directory / _FILE, directory)
    found = {key: fields[key] for key in (_KEY, _PROMPT) if fields.get(key) is not None}
    if fields.get("model_type") != "CrossEncoder" or not found:
        return dict(other)
    return {**other, _SECTION: {**_section(other), **found}}


def check_no_prompt(other: Mapping[str, Any]) -> None:
    """Raises UserError if texts have a prompt by default, which is not supported here."""
    if name := _section(other).get(_PROMPT):
        raise UserError(
            f"{_FILE}: {_PROMPT} is {name!r}; prompts of cross-encoders are not supported: put the "
            "prompt before the texts, and remove the key"
        )


def stored_activation(other: Mapping[str, Any]) -> Any:
    """The name of the function, as "torch.nn.modules.activation.Sigmoid"; None if none is stored.

    Args:
        other: the further fields of a `config.json`.
    """
    return _section(other).get(_KEY, other.get(_OLD_KEY))


def _section(other: Mapping[str, Any]) -> Mapping[str, Any]:
    section = other.get(_SECTION)
    return section if isinstance(section, dict) else {}

"""The files that sentence-transformers adds to a model: the pooling of its vectors.

    modules.json            list of modules: encoder, pooling, normalisation to length 1 if used
    1_Pooling/config.json   kind of pooling

Without these files sentence-transformers uses the mean. They are written in the form of its version
2, which all later versions read.
"""

import json
from pathlib import Path
from typing import Any

from bert_jax.checkpoints.config_file import ModelDescription
from bert_jax.errors import UserError
from bert_jax.files import is_there, read_json, read_json_object
from bert_jax.models.config import Head

SENTENCE_POOLING = "sentence_pooling"
"""The key of `config.json` for the pooling that a model was trained with."""

SENTENCE_NORMALIZE = "sentence_normalize"
"""The key for normalisation by sentence-transformers: true, or left out."""

_MODULES = "modules.json"
_POOLING = "1_Pooling"
_NORMALIZE = "2_Normalize"
POOLING_FILES = (_MODULES, f"{_POOLING}/config.json")

# The forms of `1_Pooling/config.json`: since version 6, and the flags of earlier versions.
_SWITCHES = {
    "pooling_mode_cls_token": "cls",
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_max_tokens": "max",
}
_MEAN_OF_ROOTS = "pooling_mode_mean_sqrt_len_tokens"


def read_pooling(directory: Path) -> dict[str, Any]:
    """The pooling in the files of a directory, as our keys of `config.json`.

    Empty if there are no such files, or if they name an unsupported module.

    Raises:
        UserError: a file is damaged.
    """
    if not all(is_there(directory / name) for name in POOLING_FILES):
        return {}
    modules = read_json(directory / _MODULES)
    try:
        kinds = [module["type"].rpartition(".")[2] for module in modules]
    except (AttributeError, TypeError, LookupError) as error:
        raise UserError(f"{directory / _MODULES} is damaged: {error!r}; copy it again") from error
    fields = read_json_object(directory / _POOLING / "config.json", directory)
    chosen = [name for name, value in fields.items() if name.startswith("pooling_mode_") and value]
    pooling = fields.get("pooling_mode", [_SWITCHES.get(name) for name in chosen])
    pooling = [pooling] if isinstance(pooling, str) else pooling
    if set(kinds) - {"Transformer", "Pooling", "Normalize"}:
        return {}  # other modules, such as Dense, are not supported
    if pooling not in [[name] for name in _SWITCHES.values()]:
        return {}
    return {SENTENCE_POOLING: pooling[0]} | (
        {SENTENCE_NORMALIZE: True} if "Normalize" in kinds else {}
    )


def write_pooling(directory: Path, description: ModelDescription) -> None:
    """Writes the files next to an encoder that was trained to make vectors of texts.

    For any other model, nothing is written.
    """
    pooling = description.other.get(SENTENCE_POOLING)
    if pooling is None or description.head is not Head.ENCODER:
        return
    fields = {
        "word_embedding_dimension": description.config.hidden_size,
        **{name: pooling == value for name, value in _SWITCHES.items()},
        _MEAN_OF_ROOTS: False,
    }
    parts = [("", "Transformer"), (_POOLING, "Pooling")]
    if description.other.get(SENTENCE_NORMALIZE):
        parts.append((_NORMALIZE, "Normalize"))
    modules = [
        {
            "idx": number,
            "name": str(number),
            "path": path,
            "type": f"sentence_transformers.models.{kind}",
        }
        for number, (path, kind) in enumerate(parts)
    ]
    (directory / _POOLING).mkdir()
    (directory / _POOLING / "config.json").write_text(_as_json(fields), encoding="utf-8")
    (directory / _MODULES).write_text(_as_json(modules), encoding="utf-8")


def _as_json(value: Any) -> str:
    return json.dumps(value, indent=2) + "\n"

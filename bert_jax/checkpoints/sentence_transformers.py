"""What sentence-transformers has beside a model: how the vectors of tokens become one.

    modules.json            the parts: encoder, pooling, perhaps what makes vectors of length 1
    1_Pooling/config.json   which pooling

Without these files it takes the mean. They are written as its version 2 had them, which all later
ones read.
"""

import json
from pathlib import Path
from typing import Any

from bert_jax.checkpoints.config_file import ModelDescription
from bert_jax.errors import UserError
from bert_jax.files import read_json_object
from bert_jax.models.config import Head

SENTENCE_POOLING = "sentence_pooling"
"""The key of `config.json` that says how a model's vectors of texts were trained to be made."""

SENTENCE_NORMALIZE = "sentence_normalize"
"""The key that says whether sentence-transformers makes them of length 1: true, or left out."""

_MODULES = "modules.json"
_POOLING = "1_Pooling"
_NORMALIZE = "2_Normalize"
POOLING_FILES = (_MODULES, f"{_POOLING}/config.json")

# As `1_Pooling/config.json` has it since version 6, and the switches before.
_SWITCHES = {
    "pooling_mode_cls_token": "cls",
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_max_tokens": "max",
}
_MEAN_OF_ROOTS = "pooling_mode_mean_sqrt_len_tokens"


def read_pooling(directory: Path) -> dict[str, Any]:
    """What the files of a directory say, as our keys of `config.json`.

    Empty where there are none, or where they name what we do not have.

    Raises:
        UserError: a file is damaged.
    """
    if not all((directory / name).is_file() for name in POOLING_FILES):
        return {}
    try:
        modules = json.loads((directory / _MODULES).read_text(encoding="utf-8"))
        kinds = [str(module["type"]).rpartition(".")[2] for module in modules]
    except (ValueError, TypeError, KeyError) as error:
        raise UserError(f"{directory / _MODULES} is damaged: {error!r}; copy it again") from error
    fields = read_json_object(directory / _POOLING / "config.json")
    chosen = [name for name, value in fields.items() if name.startswith("pooling_mode_") and value]
    pooling = fields.get("pooling_mode", [_SWITCHES.get(name) for name in chosen])
    pooling = [pooling] if isinstance(pooling, str) else pooling
    if set(kinds) - {"Transformer", "Pooling", "Normalize"}:
        return {}  # what else happens to a vector, as in a Dense, we do not have
    if pooling not in [[name] for name in _SWITCHES.values()]:
        return {}
    return {SENTENCE_POOLING: pooling[0]} | (
        {SENTENCE_NORMALIZE: True} if "Normalize" in kinds else {}
    )


def write_pooling(directory: Path, description: ModelDescription) -> None:
    """Writes the files beside an encoder that was trained to make vectors of texts.

    Beside any other model, nothing is written.
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

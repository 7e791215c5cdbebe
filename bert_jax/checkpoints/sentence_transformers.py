"""What sentence-transformers reads beside a model: how the vectors of tokens become one.

    modules.json            the parts: encoder, pooling
    1_Pooling/config.json   which pooling

Without these files it takes the mean. They are written as its version 2 had them, which all later
ones read.
"""

import json
from pathlib import Path
from typing import Any

from bert_jax.checkpoints.config_file import ModelDescription
from bert_jax.errors import UserError
from bert_jax.files import write_atomically

SENTENCE_POOLING = "sentence_pooling"
"""The key of `config.json` that says how a model's vectors of texts were trained to be made."""

_MODULES = "modules.json"
_POOLING = "1_Pooling"


def write_pooling(directory: Path, description: ModelDescription) -> None:
    """Writes the files into the directory of an encoder that was trained to make vectors of texts.

    In that of any other model, nothing is written.

    Raises:
        UserError: they cannot be written.
    """
    pooling = description.other.get(SENTENCE_POOLING)
    if pooling is None or description.architecture != "BertModel":
        return
    fields = {
        "word_embedding_dimension": description.config.hidden_size,
        "pooling_mode_cls_token": pooling == "cls",
        "pooling_mode_mean_tokens": pooling == "mean",
        "pooling_mode_max_tokens": pooling == "max",
        "pooling_mode_mean_sqrt_len_tokens": False,
    }
    parts = [("", "Transformer"), (_POOLING, "Pooling")]
    modules = [
        {
            "idx": number,
            "name": str(number),
            "path": path,
            "type": f"sentence_transformers.models.{kind}",
        }
        for number, (path, kind) in enumerate(parts)
    ]
    try:
        (directory / _POOLING).mkdir(exist_ok=True)
        write_atomically(directory / _POOLING / "config.json", _as_json(fields))
        write_atomically(directory / _MODULES, _as_json(modules))
    except OSError as error:
        raise UserError(
            f"cannot write {directory / _POOLING}: {error.strerror or error}; free space or give "
            "another directory"
        ) from error


def _as_json(value: Any) -> bytes:
    return (json.dumps(value, indent=2) + "\n").encode()

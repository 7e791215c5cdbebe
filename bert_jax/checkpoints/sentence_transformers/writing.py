"""Writes the files of sentence-transformers beside an encoder, and the weights of its modules.

In the form of version 2, which all later versions read, where it can say the same.
"""

import dataclasses
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from flax.traverse_util import flatten_dict

from bert_jax.checkpoints.sentence_transformers import (
    CONFIG,
    ENCODER,
    FLAGS,
    MODEL,
    MODULES,
    OF_MODEL,
    TO_POOLER,
    folders_of,
    tensors_of,
)
from bert_jax.checkpoints.tensors import SAFETENSORS
from bert_jax.errors import UserError
from bert_jax.models.heads.text_vectors import TEXT_VECTORS, TOKEN_POOLINGS, TextVectors
from bert_jax.sharding.hosts import fetch

# The poolings that version 2 does not know: their flags are written only if they are set.
_LATER = ("weightedmean", "lasttoken")
_DEFAULT = TextVectors()


def write_vectors(
    directory: Path, vectors: TextVectors, hidden_size: int, tensors: Mapping[str, np.ndarray]
) -> None:
    """Writes all files, with the weights of the modules.

    Args:
        directory: model directory.
        vectors: how the model makes vectors.
        hidden_size: D of the encoder.
        tensors: parameters of the modules, see `module_tensors`.

    Raises:
        UserError: the files that the description was read from are not supported.
    """
    from safetensors.numpy import save_file

    for name, content in vector_files(vectors, hidden_size).items():
        (directory / name).parent.mkdir(exist_ok=True)
        (directory / name).write_bytes(content)
    for number, folder in enumerate(folders_of(vectors)[-len(vectors.modules) :]):
        if own := tensors_of(number, tensors):
            named = {tensor: tensors[name] for name, tensor in own.items()}
            save_file(named, directory / folder / SAFETENSORS, metadata={"format": "pt"})


def module_tensors(params: Mapping[str, Any]) -> dict[str, np.ndarray]:
    """The parameters of the modules in PyTorch's form; all hosts that hold them call it."""
    flat = flatten_dict(params.get(TEXT_VECTORS, {}), sep="/")
    return {name: np.ascontiguousarray(np.asarray(fetch(x)).T) for name, x in flat.items()}


def vector_files(vectors: TextVectors, hidden_size: int) -> dict[str, bytes]:
    """The content of the files, without weights, by their names in a model directory.

    Raises:
        UserError: the files that the description was read from are not supported.
    """
    if vectors.unsupported:
        raise UserError(f"{vectors.unsupported}, so it cannot be written")
    folders, carried = folders_of(vectors), vectors.other
    files: dict[str, Any] = {
        MODULES: _entries(folders, carried.get(MODULES, [])),
        ENCODER: {
            "max_seq_length": vectors.max_length,
            "do_lower_case": vectors.lower_case,
            **carried.get(ENCODER, {}),
        },
    }
    of_model = {
        key: getattr(vectors, name)
        for key, name in OF_MODEL.items()
        if getattr(vectors, name) != getattr(_DEFAULT, name)
    }
    if of_model or carried.get(MODEL):
        files[MODEL] = {**carried.get(MODEL, {}), **of_model}
    if vectors.pools_tokens:
        files[f"{folders[1]}/{CONFIG}"] = _pooling(vectors, hidden_size)
    else:
        files[ENCODER] |= {
            "modality_config": TO_POOLER,
            "module_output_name": "sentence_embedding",
        }
    for folder, module in zip(folders[-len(vectors.modules) :], vectors.modules, strict=False):
        fields = dataclasses.asdict(module)
        if not fields.get("use_residual", True):
            del fields["use_residual"]  # versions before 5.7 do not know it
        if fields:
            files[f"{folder}/{CONFIG}"] = fields
    return {
        name: (json.dumps(value, indent=2, ensure_ascii=False) + "\n").encode()
        for name, value in files.items()
    }


def _entries(folders: list[str], carried: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [
        {
            "idx": number,
            "name": str(number),
            **(carried[number] if number < len(carried) else {}),
            "path": folder,
            "type": f"sentence_transformers.models.{folder.partition('_')[2] or 'Transformer'}",
        }
        for number, folder in enumerate(folders)
    ]


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

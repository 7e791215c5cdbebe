"""Writes the files of sentence-transformers beside an encoder, and the weights of its modules.

Several models become one with a Router, see `join_routes`.

In the form of version 2, which all later versions read, where it can say the same.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from flax.traverse_util import flatten_dict

from bert_jax.checkpoints.sentence_transformers import (
    CONFIG,
    ENCODER,
    METADATA,
    MODEL,
    MODULES,
    ROUTER,
    kind_of,
    tensors_of,
)
from bert_jax.checkpoints.sentence_transformers.entries import entries_of
from bert_jax.checkpoints.sentence_transformers.layouts import SENTENCE_TRANSFORMER, layout_of
from bert_jax.checkpoints.sentence_transformers.parts import MODULE_KINDS
from bert_jax.checkpoints.tensors import SAFETENSORS
from bert_jax.errors import UserError
from bert_jax.files import read_json_object
from bert_jax.models.vectors import TEXT_VECTORS, StoredVectors
from bert_jax.sharding.hosts import fetch

# The package of a module is that of version 2, which all later versions read, or of a later one.
_PACKAGE = "sentence_transformers.models"
_PACKAGES = {
    "MultiVectorMask": "sentence_transformers.multi_vector_encoder.modules",
    "MLMTransformer": "sentence_transformers.sparse_encoder.models",
    "SpladePooling": "sentence_transformers.sparse_encoder.models",
}


_VERSION = "__version__"
"""The key of MODEL for the versions of the programs that have written it."""


def write_vectors(
    directory: Path, vectors: StoredVectors, hidden_size: int, tensors: Mapping[str, np.ndarray]
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
    folders = _folders(layout_of(vectors)[1].modules(vectors, hidden_size))
    own_folders = (folder for folder, kind in folders.items() if kind in MODULE_KINDS)
    for number, folder in enumerate(own_folders):
        if own := tensors_of(number, tensors):
            named = {tensor: tensors[name] for name, tensor in own.items()}
            save_file(named, directory / folder / SAFETENSORS, metadata={"format": "pt"})


def join_routes(directory: Path, default: str) -> None:
    """Makes one model of several model directories, the routes of a Router.

    Args:
        directory: has these directories alone, each in a folder with the name of its route.
        default: the route of texts of no kind.

    Raises:
        UserError: the directories differ in what a model has once, such as the similarity.
    """
    types: dict[str, str] = {}
    structure: dict[str, list[str]] = {}
    models: dict[str, dict[str, Any]] = {}
    for folder in sorted(directory.iterdir()):
        entries, route = entries_of(folder), folder.name
        path = folder / MODEL
        models[route] = read_json_object(path) if path.is_file() else {}
        for once in (path, folder / MODULES):
            once.unlink(missing_ok=True)
        names = [f"{route}_{number}_{kind_of(entry)}" for number, entry in enumerate(entries)]
        for entry, name in zip(entries[1:], names[1:], strict=True):
            if (folder / entry["path"]).is_dir():
                (folder / entry["path"]).rename(directory / name)
        folder.rename(directory / names[0])
        types |= {name: entry["type"] for entry, name in zip(entries, names, strict=True)}
        structure[route] = names
    files = {
        MODULES: [{"idx": 0, "name": "0", "path": "", "type": f"{_PACKAGE}.Router"}],
        ROUTER: {
            "types": types,
            "structure": structure,
            "parameters": {"default_route": default, "allow_empty_key": True},
        },
        MODEL: _shared_fields(models),
    }
    for name, fields in files.items():
        (directory / name).write_bytes(_json_bytes(fields))


def _shared_fields(models: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """The content of MODEL for several models, from that of each.

    Where only the versions of the programs that wrote them differ, those of the first are kept;
    an empty prompt is none.
    """
    compared = {
        route: {key: _without_empty(value) for key, value in fields.items() if key != _VERSION}
        for route, fields in models.items()
    }
    for key in dict.fromkeys(key for fields in compared.values() for key in fields):
        values = {route: fields.get(key) for route, fields in compared.items()}
        if len({repr(value or None) for value in values.values()}) > 1:
            differing = ", ".join(f"{value!r:.80} ({route})" for route, value in values.items())
            problem = f"the models have different {key}: {differing}"
            raise UserError(f"{problem}; write the same into {MODEL} of both")
    return {key: value for fields in reversed([*models.values()]) for key, value in fields.items()}


def _without_empty(value: Any) -> Any:
    """The same, a dict such as of prompts in order and without empty texts."""
    if not isinstance(value, dict):
        return value
    return dict(sorted((name, text) for name, text in value.items() if text != ""))


def module_tensors(params: Mapping[str, Any]) -> dict[str, np.ndarray]:
    """The parameters of the modules in PyTorch's form; all hosts that hold them call it."""
    flat = flatten_dict(params.get(TEXT_VECTORS, {}), sep="/")
    return {name: np.ascontiguousarray(np.asarray(fetch(x)).T) for name, x in flat.items()}


def vector_files(vectors: StoredVectors, hidden_size: int) -> dict[str, bytes]:
    """The content of the files, without weights, by their names in a model directory.

    Raises:
        UserError: the files that the description was read from are not supported.
    """
    if vectors.unsupported:
        raise UserError(f"{vectors.unsupported}, so it cannot be written")
    (model_type, layout), carried = layout_of(vectors), vectors.other
    modules = layout.modules(vectors, hidden_size)
    folders, default = _folders(modules), layout.vectors()
    files: dict[str, Any] = {
        MODULES: _entries({"": layout.encoder_kind, **folders}, carried.get(MODULES, [])),
        ENCODER: {
            "max_seq_length": vectors.max_length,
            "do_lower_case": vectors.lower_case,
            **carried.get(ENCODER, {}),
            **layout.encoder(vectors),
        },
    }
    stored = {
        key: getattr(vectors, name)
        for key, name in layout.model_fields.items()
        if getattr(vectors, name) != getattr(default, name)
    }
    if model_type != SENTENCE_TRANSFORMER:
        stored["model_type"] = model_type
    if stored or carried.get(MODEL):
        files[MODEL] = {**carried.get(MODEL, {}), **stored}
    if METADATA in carried:
        files[METADATA] = carried[METADATA]
    for folder, (_, fields) in zip(folders, modules, strict=True):
        if fields:
            files[f"{folder}/{CONFIG}"] = fields
    return {name: _json_bytes(fields) for name, fields in files.items()}


def _json_bytes(fields: Any) -> bytes:
    text = json.dumps(fields, indent=2, ensure_ascii=False) + "\n"
    return text.encode(errors="backslashreplace")  # half of a surrogate pair, as JSON spells it


def _folders(modules: list[tuple[str, dict[str, Any]]]) -> dict[str, str]:
    """The folder of each module after the encoder, with its class."""
    return {f"{number}_{kind}": kind for number, (kind, _) in enumerate(modules, start=1)}


def _entries(folders: Mapping[str, str], carried: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [
        {
            "idx": number,
            "name": str(number),
            **(carried[number] if number < len(carried) else {}),
            "path": folder,
            "type": f"{_PACKAGES.get(kind, _PACKAGE)}.{kind}",
        }
        for number, (folder, kind) in enumerate(folders.items())
    ]

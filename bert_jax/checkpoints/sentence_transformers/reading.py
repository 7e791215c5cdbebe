"""Reads the files of sentence-transformers beside a model, and the weights of its modules."""

import dataclasses
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax.traverse_util import flatten_dict, unflatten_dict
from jax.sharding import Mesh

from bert_jax.checkpoints.config_file import ModelDescription
from bert_jax.checkpoints.sentence_transformers import (
    CONFIG,
    ENCODERS,
    MODEL,
    MODULES,
    REMEDY,
    NotSupportedError,
    kind_of,
    not_supported,
    tensors_of,
)
from bert_jax.checkpoints.sentence_transformers.colbert import projection_in, read_colbert
from bert_jax.checkpoints.sentence_transformers.entries import encoder_directory, entries_of
from bert_jax.checkpoints.sentence_transformers.layouts import LAYOUTS, SENTENCE_TRANSFORMER
from bert_jax.checkpoints.sentence_transformers.parts import MODULE_KINDS, named
from bert_jax.checkpoints.tensors import open_tensors
from bert_jax.errors import UserError
from bert_jax.files import is_there, read_json_object
from bert_jax.models.heads.text_vectors import TextVectors
from bert_jax.models.parameter_sharding import state_shardings
from bert_jax.models.vectors import TEXT_VECTORS, StoredVectors, VectorModules


def read_vectors(directory: Path, route: str = "") -> StoredVectors | None:
    """How a model makes vectors, by the files in its directory; None without such files.

    Args:
        directory: the model directory.
        route: the kind of the texts, see `entries_of`.

    Raises:
        UserError: a file is damaged.
    """
    entries = entries_of(directory, route)
    model = read_json_object(directory / MODEL) if is_there(directory / MODEL) else {}
    model_type = model.get("model_type", SENTENCE_TRANSFORMER)
    if model_type == "CrossEncoder":
        return None  # as in that library, such a model makes vectors like any encoder
    if not entries:
        return read_colbert(directory)
    if (layout := LAYOUTS.get(str(model_type))) is None:
        return TextVectors(unsupported=f"{directory / MODEL}: model_type {model_type!r}")
    carried = {
        MODULES: [_without(entry, ("idx", "path", "type")) for entry in entries],
        MODEL: _without(model, (*layout.model_fields, *layout.only_read)),
    }
    try:
        if kind_of(entries[0]).lower() not in (*ENCODERS, layout.encoder_kind.lower()):
            raise not_supported(directory / MODULES, f"the module {entries[0]['type']}")
        with named(directory / MODEL):
            vectors = layout.read(directory, entries, model)
    except NotSupportedError as error:
        return layout.vectors(route=route, unsupported=str(error))
    return dataclasses.replace(vectors, route=route, other={**vectors.other, **carried})


def read_modules(directory: Path, description: ModelDescription, mesh: Mesh) -> dict[str, Any]:
    """The parameters of the modules, float32, on a mesh: {TEXT_VECTORS: tree}, or {}.

    Raises:
        UserError: a file of weights is missing or damaged, or has other tensors.
    """
    vectors = description.stored_vectors
    shapes = module_shapes(vectors, description.config.hidden_size)
    if not shapes:
        return {}
    parameters = flatten_dict(shapes[TEXT_VECTORS], sep="/")
    arrays: dict[str, np.ndarray] = {}
    for number, (folder, linear) in enumerate(_weights(directory, description.route)):
        own = {
            name: tensor.replace("linear.", f"{linear}.")
            for name, tensor in tensors_of(number, parameters).items()
        }
        if not own:
            continue
        with open_tensors(folder) as file:
            needed = {tensor: parameters[name].shape[::-1] for name, tensor in own.items()}
            is_shared = folder == encoder_directory(directory, description.route)
            stored = {
                tensor: info.shape
                for tensor, info in file.tensors.items()
                if not is_shared or tensor in needed
            }
            if stored != needed:
                raise UserError(
                    f"{file.path} has the tensors {stored}, and {CONFIG} says {needed}; {REMEDY}"
                )
            for name, tensor in own.items():
                arrays[name] = np.array(file.read(tensor), np.float32).T
    return jax.tree.map(
        lambda array, sharding: jax.make_array_from_callback(
            array.shape, sharding, lambda index: array[index]
        ),
        {TEXT_VECTORS: unflatten_dict(arrays, sep="/")},
        state_shardings(mesh, shapes),
    )


def _weights(directory: Path, route: str) -> list[tuple[Path, str]]:
    """The folder of the weights of each module, and the name of its linear layer there."""
    entries = entries_of(directory, route)
    if not entries:
        return [(directory, projection_in(directory))]
    own = (entry for entry in entries if kind_of(entry) in MODULE_KINDS)
    return [(directory / entry["path"], "linear") for entry in own]


def module_shapes(vectors: StoredVectors | None, hidden_size: int) -> Any:
    """The shapes of the parameters of the modules: {TEXT_VECTORS: tree}, or {}."""
    if vectors is None or not vectors.has_parameters:
        return {}
    vectors.width(hidden_size)  # the sizes fit
    width, init = vectors.input_width(hidden_size), VectorModules(vectors.modules).init
    shapes = jax.eval_shape(lambda: init(jax.random.key(0), jnp.zeros((1, width))))
    return {TEXT_VECTORS: shapes["params"]}


def _without(fields: Mapping[str, Any], keys: Iterable[str]) -> dict[str, Any]:
    return {key: value for key, value in fields.items() if key not in keys}

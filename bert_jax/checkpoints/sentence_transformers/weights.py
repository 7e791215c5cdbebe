"""The weights of the modules after the pooling, in their folders under PyTorch's names."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax.traverse_util import flatten_dict, unflatten_dict
from jax.sharding import Mesh

from bert_jax.checkpoints.config_file import ModelDescription
from bert_jax.checkpoints.sentence_transformers.layout import CONFIG, REMEDY, entries_of, folders_of
from bert_jax.checkpoints.tensors import SAFETENSORS, open_tensors
from bert_jax.errors import UserError
from bert_jax.models.heads.text_vectors import TEXT_VECTORS, TextVectors
from bert_jax.models.parameter_sharding import state_shardings
from bert_jax.sharding.hosts import fetch

# Name of a parameter, without the number of its module → its tensor, which is transposed.
_TENSORS = {
    "dense/kernel": "linear.weight",
    "dense/bias": "linear.bias",
    "residual/kernel": "residual.weight",
    "norm/scale": "norm.weight",
    "norm/bias": "norm.bias",
}


def read_modules(directory: Path, description: ModelDescription, mesh: Mesh) -> dict[str, Any]:
    """The parameters of the modules, float32, on a mesh: {TEXT_VECTORS: tree}, or {}.

    Raises:
        UserError: a file of weights is missing or damaged, or has other tensors.
    """
    vectors = description.vectors
    shapes = module_shapes(vectors, description.config.hidden_size)
    if not shapes:
        return {}
    folders = [entry["path"] for entry in entries_of(directory)][-len(vectors.modules) :]
    parameters = flatten_dict(shapes[TEXT_VECTORS], sep="/")
    arrays: dict[str, np.ndarray] = {}
    for number, folder in enumerate(folders):
        if not (own := _tensors_of(number, parameters)):
            continue
        with open_tensors(directory / folder) as file:
            stored = {tensor: info.shape for tensor, info in file.tensors.items()}
            needed = {tensor: parameters[name].shape[::-1] for name, tensor in own.items()}
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


def _tensors_of(number: int, parameters: Iterable[str]) -> dict[str, str]:
    """{parameter: tensor} of one module."""
    prefix = f"{number}_"
    own = (name for name in parameters if name.startswith(prefix))
    return {name: _TENSORS[name.removeprefix(prefix)] for name in own}


def module_shapes(vectors: TextVectors, hidden_size: int) -> Any:
    """The shapes of the parameters of the modules: {TEXT_VECTORS: tree}, or {}."""
    if not vectors.has_parameters:
        return {}
    vectors.width(hidden_size)  # the sizes fit
    hidden, mask = jnp.zeros((1, 1, hidden_size)), jnp.ones((1, 1), bool)
    init = vectors.pool().init
    shapes = jax.eval_shape(lambda: init(jax.random.key(0), hidden, mask, hidden[:, 0]))
    return {TEXT_VECTORS: shapes["params"]}


def module_tensors(params: Mapping[str, Any]) -> dict[str, np.ndarray]:
    """The parameters of the modules in PyTorch's form; all hosts that hold them call it."""
    flat = flatten_dict(params.get(TEXT_VECTORS, {}), sep="/")
    return {name: np.ascontiguousarray(np.asarray(fetch(x)).T) for name, x in flat.items()}


def write_modules(directory: Path, vectors: TextVectors, tensors: Mapping[str, np.ndarray]) -> None:
    """Writes the tensors of each module to its folder, which exists."""
    from safetensors.numpy import save_file

    for number, folder in enumerate(folders_of(vectors)[-len(vectors.modules) :]):
        if own := _tensors_of(number, tensors):
            named = {tensor: tensors[name] for name, tensor in own.items()}
            save_file(named, directory / folder / SAFETENSORS, metadata={"format": "pt"})

"""The weights of the modules after the pooling, in their folders under PyTorch's names."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax.traverse_util import flatten_dict, unflatten_dict
from jax.sharding import Mesh

from bert_jax.checkpoints.sentence_transformers.layout import (
    CONFIG,
    REMEDY,
    entries_of,
    folders_of,
)
from bert_jax.checkpoints.tensors import SAFETENSORS, open_tensors
from bert_jax.errors import UserError
from bert_jax.models.text_vectors import TEXT_VECTORS, TextVectors
from bert_jax.sharding.hosts import fetch
from bert_jax.sharding.rules import state_shardings

# Name of a parameter, without the number of its module → its tensor, and whether it is transposed.
_TENSORS = {
    "dense/kernel": ("linear.weight", True),
    "dense/bias": ("linear.bias", False),
    "residual/kernel": ("residual.weight", True),
    "norm/scale": ("norm.weight", False),
    "norm/bias": ("norm.bias", False),
}


def read_modules(
    directory: Path, vectors: TextVectors, hidden_size: int, mesh: Mesh
) -> dict[str, Any]:
    """The parameters of the modules, float32, on a mesh: {TEXT_VECTORS: tree}, or {}.

    Raises:
        UserError: a file of weights is missing or damaged, or has other tensors.
    """
    shapes = module_shapes(vectors, hidden_size)
    if not shapes:
        return {}
    folders = [entry["path"] for entry in entries_of(directory)][-len(vectors.modules) :]
    expected: dict[str, dict[str, tuple[int, ...]]] = {}
    for name, leaf in flatten_dict(shapes[TEXT_VECTORS], sep="/").items():
        number, _, parameter = name.partition("_")
        expected.setdefault(number, {})[parameter] = leaf.shape
    arrays = {
        f"{number}_{parameter}": array
        for number, own in expected.items()
        for parameter, array in _read(directory / folders[int(number)], own).items()
    }
    return jax.tree.map(
        lambda array, sharding: jax.make_array_from_callback(
            array.shape, sharding, lambda index: array[index]
        ),
        {TEXT_VECTORS: unflatten_dict(arrays, sep="/")},
        state_shardings(mesh, shapes),
    )


def _read(folder: Path, own: Mapping[str, tuple[int, ...]]) -> dict[str, np.ndarray]:
    """The parameters of one module, whose shapes are given."""
    with open_tensors(folder) as file:
        found = {name: info.shape for name, info in file.tensors.items()}
        needed = {
            tensor: own[parameter][::-1] if transposed else own[parameter]
            for parameter, (tensor, transposed) in _TENSORS.items()
            if parameter in own
        }
        if found != needed:
            raise UserError(
                f"{file.path} has the tensors {found}, and {CONFIG} says {needed}; {REMEDY}"
            )
        arrays = {
            parameter: np.array(file.read(_TENSORS[parameter][0]), np.float32) for parameter in own
        }
    return {name: array.T if _TENSORS[name][1] else array for name, array in arrays.items()}


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
    arrays = {name: np.asarray(fetch(value)) for name, value in flat.items()}
    return {
        name: np.ascontiguousarray(array.T if _TENSORS[name.partition("_")[2]][1] else array)
        for name, array in arrays.items()
    }


def write_modules(directory: Path, vectors: TextVectors, tensors: Mapping[str, np.ndarray]) -> None:
    """Writes the tensors of each module to its folder, which exists."""
    from safetensors.numpy import save_file

    folders = folders_of(vectors)[-len(vectors.modules) :]
    for number, folder in enumerate(folders if tensors else ()):
        own = {
            _TENSORS[name.partition("_")[2]][0]: tensor
            for name, tensor in tensors.items()
            if name.startswith(f"{number}_")
        }
        if own:
            save_file(own, directory / folder / SAFETENSORS, metadata={"format": "pt"})

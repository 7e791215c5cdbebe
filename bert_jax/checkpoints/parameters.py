"""Tensors of a file to parameters of a model, and back, by a name table."""

import dataclasses
import re
from collections.abc import Mapping
from typing import Any

import flax.linen as nn
import jax
import numpy as np
from flax.traverse_util import flatten_dict, unflatten_dict
from jax.sharding import Mesh, NamedSharding

from bert_jax.checkpoints.names.rule import NameTable, Rule, fill, tensor_shape, to_tensor
from bert_jax.checkpoints.tensors.interface import TensorFile
from bert_jax.errors import UserError
from bert_jax.models.encoder import Encoder, abstract_params, init_params
from bert_jax.models.surgery import WORD_ROWS
from bert_jax.sharding.hosts import fetch
from bert_jax.sharding.rules import state_shardings

ENCODER = "bert/"
# What a file may lack: heads are made anew for a new task. An encoder is whole or of no use.
_MAY_BE_NEW = ("bert/pooler/", "mlm_head/", "nsp_head/", "classifier/", "qa_outputs/", "crf_")

# Heads whose outputs are labels: with others, their parameters mean nothing.
HEADS_OF_LABELS = ("classifier/", "crf_")

# Of a line that a person reads; the report has them all.
_NAMES_SHOWN = 8

# What is read; float64 is rounded.
_DTYPES = ("float16", "bfloat16", "float32", "float64")

# XLA takes over host memory that begins at such a multiple, and copies any other.
_ALIGNMENT = 64


@dataclasses.dataclass(frozen=True)
class LoadReport:
    """Where the parameters of a model come from.

    Attributes:
        taken: names of the file's tensors that were read.
        new: our parameters that the file does not have, freshly initialised.
        unexpected_keys: names of the file's tensors that the model has no place for.
    """

    taken: tuple[str, ...]
    new: tuple[str, ...]
    unexpected_keys: tuple[str, ...]

    @property
    def complete(self) -> bool:
        """Whether file and model have the same parameters."""
        return not self.new and not self.unexpected_keys

    def __str__(self) -> str:
        parts = [f"{len(self.taken)} tensors taken"]
        if self.new:
            parts.append(f"new and untrained: {_some(self.new)}")
        if self.unexpected_keys:
            parts.append(f"left over: {_some(self.unexpected_keys)}")
        return "; ".join(parts)


def _some(names: tuple[str, ...]) -> str:
    """As many names as a line holds."""
    rest = len(names) - _NAMES_SHOWN
    return ", ".join(names[:_NAMES_SHOWN]) + (f" and {rest} more" if rest > 0 else "")


def locate(file: TensorFile, table: NameTable) -> dict[str, str]:
    """From the table's names to the names in a file."""
    found: dict[str, str] = {}
    for name in file.tensors:
        canonical = table.canonical(name)
        # Of two names for one parameter, the alias is what others compute with.
        if canonical is not None and (canonical not in found or name != canonical):
            found[canonical] = name
    return found


def read_parameters(
    file: TensorFile,
    table: NameTable,
    module: nn.Module,
    *,
    mesh: Mesh,
    seed: int = 0,
    reinitialize: tuple[str, ...] = (),
) -> tuple[Any, LoadReport]:
    """The parameters of a model, float32, on a mesh; a head that the file lacks is new.

    Rows that `Execution.pad_vocab_to_multiple_of` adds are 0, and in no file.

    The largest parameter is read first, so that the peak of memory is hardly above the model.

    Args:
        file: where the tensors are.
        table: what they are called there.
        module: the model that is wanted.
        mesh: where the parameters go.
        seed: of new parameters.
        reinitialize: beginnings of names of ours that are new whatever the file has.

    Raises:
        UserError: the encoder is not whole, or a tensor has another shape or no numbers in it.
    """
    prefix = ENCODER if isinstance(module, Encoder) else ""
    abstract = abstract_params(module)
    wanted = flatten_dict(abstract, sep="/")
    shardings = flatten_dict(state_shardings(mesh, abstract), sep="/")
    rules = {rule.ours: rule for rule in table.rules}
    located = locate(file, table)

    found: dict[str, jax.Array] = {}
    new: list[str] = []
    taken: set[str] = set()
    for ours, leaf in sorted(wanted.items(), key=lambda item: -item[1].size):
        rule = rules[prefix + ours]
        names = _tensor_names(rule, leaf.shape)
        missing = [name for name in names if name not in located]
        if missing and not (prefix + ours).startswith(_MAY_BE_NEW):
            raise UserError(
                f"{file.path} has no tensor {missing[0]}; the file or its config.json belongs to "
                "another model"
            )
        if missing or ours.startswith(reinitialize):
            new.append(ours)
            continue
        taken |= set(names)
        rows = module.config.vocab_size if re.search(WORD_ROWS, ours) else leaf.shape[0]
        theirs = [located[name] for name in names]
        found[ours] = _read(file, theirs, rule, leaf, rows, shardings[ours])
    found |= _initialise(module, new, shardings, seed)
    ignored = {name for name in file.tensors if table.canonical(name) is None}
    used = {name for name in file.tensors if table.canonical(name) in taken}
    report = LoadReport(
        taken=tuple(sorted(used)),
        new=tuple(sorted(new)),
        unexpected_keys=tuple(sorted(set(file.tensors) - used - ignored)),
    )
    return unflatten_dict(found, sep="/"), report


def to_tensors(params: Any, table: NameTable, module: nn.Module) -> dict[str, np.ndarray]:
    """The parameters of a model under the names of a table, as NumPy arrays.

    All hosts that hold a part of them must call it; each gets all.
    """
    prefix = ENCODER if isinstance(module, Encoder) else ""
    rules = {rule.ours: rule for rule in table.rules}
    tensors: dict[str, np.ndarray] = {}
    for ours, value in flatten_dict(params, sep="/").items():
        rule, array = rules[prefix + ours], np.asarray(fetch(value))
        parts = array if rule.stacked else [array]
        for name, part in zip(_tensor_names(rule, array.shape), parts, strict=True):
            tensors[name] = to_tensor(rule, part)
    return tensors


def _tensor_names(rule: Rule, shape: tuple[int, ...]) -> list[str]:
    """The tensors of one parameter."""
    if not rule.stacked:
        return [rule.theirs]
    return [rule.theirs.format(layer=layer) for layer in range(shape[0])]


def _read(
    file: TensorFile,
    names: list[str],
    rule: Rule,
    leaf: jax.ShapeDtypeStruct,
    rows: int,
    sharding: NamedSharding,
) -> jax.Array:
    """One parameter from its tensors, which have the first `rows` of its rows."""
    array = _empty(leaf.shape)
    array[rows:] = 0
    parts = array if rule.stacked else [array[:rows]]
    for name, part in zip(names, parts, strict=True):
        info, expected = file.tensors[name], tensor_shape(rule, part.shape)
        if info.shape != expected:
            raise UserError(
                f"{file.path}: tensor {name} has shape {info.shape}, the model asks for "
                f"{expected}; mend config.json, or give the model that the file belongs to"
            )
        if str(info.dtype) not in _DTYPES:
            raise UserError(
                f"{file.path}: tensor {name} has dtype {info.dtype}, not one of "
                f"{', '.join(_DTYPES)}; give a file of weights that are not quantised"
            )
        fill(rule, part, file.read(name))
    # Every process has the whole parameter and puts its own pieces on its own devices.
    return jax.make_array_from_callback(leaf.shape, sharding, lambda index: array[index])


def _empty(shape: tuple[int, ...]) -> np.ndarray:
    """An array of float32 that a CPU device can use where it lies."""
    size = 4 * int(np.prod(shape))
    memory = np.empty(size + _ALIGNMENT, np.uint8)
    start = -memory.ctypes.data % _ALIGNMENT
    return memory[start : start + size].view(np.float32).reshape(shape)


def _initialise(
    module: nn.Module, names: list[str], shardings: Mapping[str, NamedSharding], seed: int
) -> dict[str, jax.Array]:
    """New parameters; the compiler drops the draws of all the others."""
    if not names:
        return {}

    def draw(key: jax.Array) -> dict[str, jax.Array]:
        drawn = flatten_dict(init_params(module, key), sep="/")
        return {name: drawn[name] for name in names}

    return jax.jit(draw, out_shardings={name: shardings[name] for name in names})(
        jax.random.key(seed)
    )

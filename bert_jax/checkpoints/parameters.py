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

from bert_jax.checkpoints.tensors import TensorFile
from bert_jax.errors import UserError
from bert_jax.families.family import Rule, TensorNames
from bert_jax.models.config import ENCODER_SCOPE, HEAD_SCOPES, Head
from bert_jax.models.crf import PARAMETERS as CRF_PARAMETERS
from bert_jax.models.encoder import Encoder, abstract_params, init_params
from bert_jax.models.surgery import WORD_ROWS
from bert_jax.sharding.hosts import fetch
from bert_jax.sharding.rules import state_shardings

ENCODER = f"{ENCODER_SCOPE}/"
POOLER = f"{ENCODER}pooler/dense/kernel"
DECODER = "mlm_head/decoder"
WORD_EMBEDDINGS = f"{ENCODER}embeddings/word_embeddings/embedding"
CLASSIFIER = "classifier/kernel"

# Which head a file holds, by the parameters that it has. First match wins.
_HEADS = (
    (("mlm_head/dense/kernel", "nsp_head/kernel"), Head.PRETRAINING),
    (("mlm_head/dense/kernel",), Head.MASKED_LM),
    (("nsp_head/kernel",), Head.NEXT_SENTENCE),
    (("qa_outputs/kernel",), Head.QUESTION_ANSWERING),
    ((CLASSIFIER, POOLER), Head.CLASSIFICATION),
    ((CLASSIFIER,), Head.TAGGING),
)

# What a file may lack: a new task has a new head. An encoder must be complete.
_MAY_BE_NEW = (f"{ENCODER}pooler/", *(f"{scope}/" for scope in HEAD_SCOPES), *CRF_PARAMETERS)

# Of a line that a person reads; the report has them all.
_NAMES_SHOWN = 8

# What is read; float64 is rounded.
_DTYPES = ("float16", "bfloat16", "float32", "float64")

# Values of float32 in a cache line.
_STRIP = 16

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


def locate(file: TensorFile, names: TensorNames) -> dict[str, str]:
    """From the names of `TensorNames.rules` to the names in a file."""
    located: dict[str, str] = {}
    for name in file.tensors:
        canonical = names.canonical(name)
        # Of two names for one parameter, the alias is what others compute with.
        if canonical is not None and (canonical not in located or name != canonical):
            located[canonical] = name
    return located


def parameters_in(located: Mapping[str, str], names: TensorNames) -> set[str]:
    """The parameters that are in a file; of a stacked one, whether its first layer is.

    Args:
        located: see `locate`.
        names: of the file's format.
    """
    return {rule.parameter for rule in names.rules if rule.tensor.format(layer=0) in located}


def head_in(parameters: set[str]) -> Head:
    """The head of the model that has these parameters."""
    for needed, head in _HEADS:
        if parameters.issuperset(needed):
            return head
    return Head.ENCODER


def read_parameters(
    file: TensorFile,
    names: TensorNames,
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
        file: has the tensors.
        names: of the file's format.
        module: the model.
        mesh: where the parameters go.
        seed: of new parameters.
        reinitialize: beginnings of names of parameters that are new whatever the file has.

    Raises:
        UserError: the encoder is not whole, or a tensor has another shape or no numbers in it.
    """
    prefix = ENCODER if isinstance(module, Encoder) else ""
    abstract = abstract_params(module)
    expected = flatten_dict(abstract, sep="/")
    shardings = flatten_dict(state_shardings(mesh, abstract), sep="/")
    tensors = {name: names.canonical(name) for name in file.tensors}
    if module.config.tie_word_embeddings:  # then a decoder is a copy of the word embeddings
        copies = {rule.tensor for rule in names.rules if rule.parameter == DECODER}
        tensors = {key: None if name in copies else name for key, name in tensors.items()}
    located = locate(file, names)

    params: dict[str, jax.Array] = {}
    new: list[str] = []
    taken: set[str] = set()
    for name, leaf in sorted(expected.items(), key=lambda item: -item[1].size):
        rule = names.rule(prefix + name)
        parts = _tensor_names(rule, leaf.shape)
        missing = [part for part in parts if part not in located]
        if missing and not (prefix + name).startswith(_MAY_BE_NEW):
            raise UserError(
                f"{file.path} has no tensor {missing[0]}; the file or its config.json belongs to "
                "another model"
            )
        if missing or name.startswith(reinitialize):
            new.append(name)
            continue
        taken |= set(parts)
        rows = module.config.vocab_size if re.search(WORD_ROWS, name) else leaf.shape[0]
        sources = [located[part] for part in parts]
        params[name] = _read(file, sources, rule, leaf, rows, shardings[name])
    params |= _initialise(module, new, shardings, seed)
    used = {key for key, name in tensors.items() if name in taken}
    ignored = {key for key, name in tensors.items() if name is None}
    report = LoadReport(
        taken=tuple(sorted(used)),
        new=tuple(sorted(new)),
        unexpected_keys=tuple(sorted(set(file.tensors) - used - ignored)),
    )
    return unflatten_dict(params, sep="/"), report


def to_tensors(params: Any, names: TensorNames, module: nn.Module) -> dict[str, np.ndarray]:
    """The parameters of a model as NumPy arrays, by the names of their tensors.

    All hosts that hold a part of them must call it; each gets all.
    """
    prefix = ENCODER if isinstance(module, Encoder) else ""
    tensors: dict[str, np.ndarray] = {}
    for name, value in flatten_dict(params, sep="/").items():
        rule, array = names.rule(prefix + name), np.asarray(fetch(value))
        parts = array if rule.stacked else [array]
        for tensor, part in zip(_tensor_names(rule, array.shape), parts, strict=True):
            tensors[tensor] = to_tensor(rule, part)
    return tensors


def _tensor_names(rule: Rule, shape: tuple[int, ...]) -> list[str]:
    """The tensors of one parameter."""
    if not rule.stacked:
        return [rule.tensor]
    return [rule.tensor.format(layer=layer) for layer in range(shape[0])]


def tensor_shape(rule: Rule, shape: tuple[int, ...]) -> tuple[int, ...]:
    """The shape in a file of a parameter, or of one layer of it."""
    if rule.input_axes:
        inputs = int(np.prod(shape[: rule.input_axes]))
        outputs = int(np.prod(shape[rule.input_axes :]))
        return (outputs, inputs) if rule.transposed else (inputs, outputs)
    return (int(np.prod(shape)),) if rule.parameter.endswith("bias") else shape


def fill(rule: Rule, parameter: np.ndarray, tensor: np.ndarray) -> None:
    """Writes a tensor into a parameter (into one layer of it), in the parameter's dtype.

    Args:
        rule: how the parameter is stored in the file.
        parameter: written to; contiguous.
        tensor: of the shape that `tensor_shape` gives.
    """
    if not rule.transposed:
        parameter[...] = tensor.reshape(parameter.shape)
        return
    matrix = parameter.reshape(tensor.shape[::-1])
    # Strips as wide as a cache line: three times as fast as one transposed copy.
    for start in range(0, len(tensor), _STRIP):
        matrix[:, start : start + _STRIP] = tensor[start : start + _STRIP].T


def to_tensor(rule: Rule, parameter: np.ndarray) -> np.ndarray:
    """The tensor of a parameter (of one layer of it), contiguous."""
    shape = tensor_shape(rule, parameter.shape)
    if not rule.transposed:
        return np.ascontiguousarray(parameter).reshape(shape)
    return np.ascontiguousarray(parameter.reshape(shape[::-1]).T)


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
                f"{file.path}: tensor {name} has shape {info.shape}, the model needs "
                f"{expected}; fix config.json, or give the model that the file belongs to"
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
    """An array of float32 that a CPU device can use without a copy."""
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

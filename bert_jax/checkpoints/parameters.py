"""Conversion between the tensors of a file and the parameters of a model, by a name table."""

import dataclasses
import re
from collections.abc import Iterable, Mapping
from typing import Any, TypedDict

import flax.linen as nn
import jax
import numpy as np
from flax.traverse_util import flatten_dict, unflatten_dict
from jax.sharding import Mesh, NamedSharding

from bert_jax.checkpoints.config_file import HeadError
from bert_jax.checkpoints.tensors import TensorFile
from bert_jax.errors import UserError, listed, one_line
from bert_jax.families.family import Rule, TensorNames
from bert_jax.models.config import ENCODER_SCOPE, EncoderConfig
from bert_jax.models.encoder import Encoder, abstract_params, init_params
from bert_jax.models.head import BARE_ENCODER, all_heads, head_parameters
from bert_jax.models.parameter_sharding import sharded_shapes, state_shardings
from bert_jax.models.surgery import WORD_ROWS
from bert_jax.models.vectors import TEXT_VECTORS
from bert_jax.sharding.hosts import fetch
from bert_jax.sharding.mesh import lack_of_memory, one_device_mesh

ENCODER = f"{ENCODER_SCOPE}/"
POOLER = f"{ENCODER}pooler/dense/kernel"
DECODERS = ("mlm_head/decoder", "lm_head/decoder")
POSITION_EMBEDDINGS = f"{ENCODER}embeddings/position_embeddings/embedding"
WORD_EMBEDDINGS = f"{ENCODER}embeddings/word_embeddings/embedding"

# Sizes of an encoder: a field of its config, a parameter, and the axis of the parameter's tensor.
_SIZES = (
    ("vocab_size", WORD_EMBEDDINGS, 0),
    ("max_position_embeddings", POSITION_EMBEDDINGS, 0),
    ("embedding_size", WORD_EMBEDDINGS, 1),
    ("type_vocab_size", f"{ENCODER}embeddings/token_type_embeddings/embedding", 0),
    ("hidden_size", f"{ENCODER}encoder/layers/output/bias", 0),
    ("intermediate_size", f"{ENCODER}encoder/layers/intermediate/bias", 0),
)

# The maximum number of names in a line of text; the report contains all.
_NAMES_SHOWN = 8

# Dtypes that can be read; float64 is rounded.
_DTYPES = ("float16", "bfloat16", "float32", "float64")

# Number of float32 values in a cache line.
_STRIP = 16

# XLA adopts host memory at multiples of this address without a copy.
_ALIGNMENT = 64


@dataclasses.dataclass(frozen=True)
class LoadReport:
    """The source of each parameter of a model.

    Attributes:
        taken: names of the file's tensors that were read.
        new: parameters that the file does not have, freshly initialised.
        unexpected_keys: names of the file's tensors that the model does not have.
    """

    taken: tuple[str, ...]
    new: tuple[str, ...]
    unexpected_keys: tuple[str, ...]

    @property
    def complete(self) -> bool:
        """Whether file and model have the same parameters."""
        return not self.new and not self.unexpected_keys

    def __str__(self) -> str:
        parts = [f"{len(self.taken)} tensors loaded"]
        if self.new:
            parts.append(f"new and untrained: {listed(self.new, _NAMES_SHOWN)}")
        if self.unexpected_keys:
            parts.append(f"unexpected keys: {listed(self.unexpected_keys, _NAMES_SHOWN)}")
        return one_line("; ".join(parts))


def locate(file: TensorFile, names: TensorNames, config: EncoderConfig) -> dict[str, str]:
    """{name in `TensorNames.rules`: name in the file} of a file's tensors.

    A table that is tied by the config may be in the file under the name of the decoder alone, as
    `safetensors.torch.save_model` writes it.
    """
    located: dict[str, str] = {}
    for name in file.tensors:
        canonical = names.canonical(name)
        # Of two names for one parameter, other libraries read the alias.
        if canonical is not None and (canonical not in located or name != canonical):
            located[canonical] = name
    words, decoder = names.tensor_of(WORD_EMBEDDINGS), decoder_tensor(names)
    if config.tie_word_embeddings and words not in located and decoder in located:
        located[words] = located.pop(decoder)
    return located


def decoder_tensor(names: TensorNames) -> str:
    """The name in a file of the table that a head multiplies with; "" if it is never separate."""
    return next(filter(None, map(names.tensor_of, DECODERS)), "")


def parameters_in(located: Mapping[str, str], names: TensorNames) -> set[str]:
    """The parameters that are in a file; a stacked one if its first layer is.

    Args:
        located: tensor names, see `locate`.
        names: name table of the file's format.
    """
    first = {rule.parameter: rule.tensor.format(layer=rule.first_layer) for rule in names.rules}
    return {parameter for parameter, tensor in first.items() if tensor in located}


def check_sizes(
    file: TensorFile, located: Mapping[str, str], rules: Iterable[Rule], config: EncoderConfig
) -> None:
    """Checks the sizes in a config against the tensors, before any allocation.

    A tensor that is missing is left to `read_parameters`, except for a layer.

    Raises:
        UserError: the file has tensors of another size, or lacks a layer.
    """
    by_parameter = {rule.parameter: rule for rule in rules}
    for field, parameter, axis in _SIZES:
        rule, size = by_parameter.get(parameter), getattr(config, field)
        if parameter == POSITION_EMBEDDINGS:
            size = config.position_rows
        if rule is None or size is None:
            continue
        layers = range(config.num_stacked_layers if rule.stacked else 1)
        for tensor in (rule.tensor.format(layer=layer) for layer in layers):
            if tensor not in located:
                if not rule.stacked:
                    break
                raise _missing(file, tensor)
            name = located[tensor]
            shape = file.tensors[name].shape
            if shape[axis : axis + 1] != (size,):
                raise UserError(
                    f"{file.path}: tensor {name} has shape {shape}, but {field} is {size}; fix "
                    "config.json, or give the model that the file belongs to"
                )


def _missing(file: TensorFile, tensor: str) -> UserError:
    return UserError(
        f"{file.path} has no tensor {tensor}; the file or its config.json belongs to another model"
    )


def number_of_labels(
    file: TensorFile, located: Mapping[str, str], names: TensorNames
) -> int | None:
    """The number of outputs for labels that a file has; None if its head has no labels."""
    for head in all_heads().values():
        for tensor in map(names.tensor_of, head.label_kernels):
            if tensor in located:
                return file.tensors[located[tensor]].shape[0]
    return None


def heads_in(parameters: set[str], *, is_score: bool = False) -> list[str]:
    """The heads that these parameters show, the head of their model last.

    Args:
        parameters: parameters of a file.
        is_score: whether there is one output for labels, and `num_labels` is more.
    """
    shown = [
        (len(needed), kind, name)
        for name, head in all_heads().items()
        for kind, sets in enumerate((head.shown_by, head.shown_by_score if is_score else ()))
        for needed in sets
        if parameters.issuperset(needed)
    ]
    return [BARE_ENCODER, *(name for *_, name in sorted(shown))]


class ReadOptions(TypedDict, total=False):
    """How parameters are read, see `read_parameters`."""

    mesh: Mesh | None
    seed: int
    reinitialize: tuple[str, ...]


def read_parameters(
    file: TensorFile,
    names: TensorNames,
    module: nn.Module,
    *,
    mesh: Mesh | None = None,
    seed: int = 0,
    reinitialize: tuple[str, ...] = (),
) -> tuple[Any, LoadReport]:
    """The parameters of a model, float32, on a mesh; a head that the file lacks is initialised.

    Rows that `Execution.pad_vocab_to_multiple_of` adds are 0; files do not contain them.

    The largest parameter is read first, so that peak memory is hardly above the size of the model.

    Args:
        file: file with the tensors.
        names: name table of the file's format.
        module: the model.
        mesh: devices for the parameters; None: one device.
        seed: seed of new parameters.
        reinitialize: prefixes of parameters that are initialised even if the file has them.

    Raises:
        HeadError: a tensor of the head has another shape or dtype.
        UserError: the encoder is incomplete, one of its tensors has another shape or dtype, or the
            devices have too little memory.
    """
    mesh = mesh or one_device_mesh()
    located = locate(file, names, module.config)
    prefix = ENCODER if isinstance(module, Encoder) else ""
    abstract = abstract_params(module)
    # Modules after the pooling have their own files.
    abstract = {scope: tree for scope, tree in abstract.items() if scope != TEXT_VECTORS}
    expected = flatten_dict(abstract, sep="/")
    # The file may be of another family, with parts that the model lacks.
    rules = [rule for rule in names.rules if rule.parameter.removeprefix(prefix) in expected]
    check_sizes(file, located, rules, module.config)
    shardings = flatten_dict(state_shardings(mesh, abstract), sep="/")
    if problem := lack_of_memory(sharded_shapes(mesh, abstract), "the parameters"):
        raise UserError(f"{file.path}: {problem}; give a smaller model, or more devices")
    tensors = {name: names.canonical(name) for name in file.tensors}
    tensors |= {name: canonical for canonical, name in located.items()}
    if module.config.tie_word_embeddings:  # then the decoder is a copy of the word embeddings
        copies = {rule.tensor for rule in names.rules if rule.parameter in DECODERS}
        tensors = {key: None if name in copies else name for key, name in tensors.items()}

    stored: list[tuple[str, Rule, list[str]]] = []
    # A new task has a new head; an encoder must be complete.
    may_be_new = re.compile(rf"{ENCODER}pooler/|{head_parameters()}")
    new: list[str] = []
    taken: set[str] = set()
    for name, leaf in sorted(expected.items(), key=lambda item: -item[1].size):
        if may_be_new.match(prefix + name) and not names.tensor_of(prefix + name):
            new.append(name)  # a head of another family, or of trainings alone
            continue
        rule = names.rule(prefix + name)
        parts = _tensor_names(rule, leaf.shape)
        missing = [part for part in parts if part not in located]
        if missing and not may_be_new.match(prefix + name):
            raise _missing(file, missing[0])
        if missing or name.startswith(reinitialize):
            new.append(name)
            continue
        taken |= set(parts)
        sources = [located[part] for part in parts]
        try:
            _check_tensors(file, sources, rule, leaf.shape, _rows(module, name, leaf))
        except UserError as error:
            raise error if rule.parameter.startswith(ENCODER) else HeadError(str(error)) from None
        stored.append((name, rule, sources))
    # Only now is memory allocated.
    params = {
        name: _read(file, sources, rule, leaf, _rows(module, name, leaf), shardings[name])
        for name, rule, sources in stored
        for leaf in [expected[name]]
    }
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
    """The parameters of a model as NumPy arrays, by tensor name.

    All hosts that hold a part of them must call it; each gets all of them.
    """
    prefix = ENCODER if isinstance(module, Encoder) else ""
    tensors: dict[str, np.ndarray] = {}
    for name, value in flatten_dict(params, sep="/").items():
        rule, array = names.rule(prefix + name), np.asarray(fetch(value))
        parts = array[rule.first_layer :] if rule.stacked else [array]
        for tensor, part in zip(_tensor_names(rule, array.shape), parts, strict=True):
            own = to_tensor(rule, part)
            if rule.part == (0, 1):
                tensors[tensor] = own
            else:
                shape = tensor_shape(rule, part.shape)
                whole = tensors.setdefault(tensor, np.empty(shape, own.dtype))
                _own_part(rule, whole)[...] = own
    return tensors


def _tensor_names(rule: Rule, shape: tuple[int, ...]) -> list[str]:
    """The names of the tensors of one parameter."""
    if not rule.stacked:
        return [rule.tensor]
    return [rule.tensor.format(layer=layer) for layer in range(rule.first_layer, shape[0])]


def tensor_shape(rule: Rule, shape: tuple[int, ...]) -> tuple[int, ...]:
    """The shape in a file of a parameter, or of one of its layers."""
    _, parts = rule.part
    if rule.input_axes:
        inputs = int(np.prod(shape[: rule.input_axes]))
        outputs = int(np.prod(shape[rule.input_axes :])) * parts
        return (outputs, inputs) if rule.transposed else (inputs, outputs)
    if not rule.parameter.endswith("bias"):
        return shape
    length = int(np.prod(shape)) * parts
    return (1, length) if rule.is_row else (length,)


def _own_part(rule: Rule, tensor: np.ndarray) -> np.ndarray:
    """The part of a tensor that contains the parameter, or one of its layers; a view."""
    part, parts = rule.part
    return tensor if parts == 1 else np.split(tensor, parts, 0 if rule.transposed else -1)[part]


def fill(rule: Rule, parameter: np.ndarray, tensor: np.ndarray) -> None:
    """Copies a tensor into a parameter (or one of its layers), in the parameter's dtype.

    Args:
        rule: how the parameter is stored in the file.
        parameter: contiguous array that is written to.
        tensor: array with the shape of `tensor_shape`.
    """
    tensor = _own_part(rule, tensor)
    if not rule.transposed:
        parameter[...] = tensor.reshape(parameter.shape)
        return
    matrix = parameter.reshape(tensor.shape[::-1])
    # In strips as wide as a cache line: three times as fast as one transposed copy.
    for start in range(0, len(tensor), _STRIP):
        matrix[:, start : start + _STRIP] = tensor[start : start + _STRIP].T


def to_tensor(rule: Rule, parameter: np.ndarray) -> np.ndarray:
    """The tensor of a parameter (or of one of its layers), or its part of it, contiguous."""
    shape = tensor_shape(rule._replace(part=(0, 1)), parameter.shape)
    if not rule.transposed:
        return np.ascontiguousarray(parameter).reshape(shape)
    return np.ascontiguousarray(parameter.reshape(shape[::-1]).T)


def _rows(module: nn.Module, name: str, leaf: jax.ShapeDtypeStruct) -> int:
    """The number of rows of a parameter that files contain."""
    return module.config.vocab_size if re.search(WORD_ROWS, name) else leaf.shape[0]


def _check_tensors(
    file: TensorFile, names: list[str], rule: Rule, shape: tuple[int, ...], rows: int
) -> None:
    """Checks shapes and dtypes of the tensors of one parameter; arguments as in `_read`."""
    expected = tensor_shape(rule, shape[1:] if rule.stacked else (rows, *shape[1:]))
    for name in names:
        info = file.tensors[name]
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


def _read(
    file: TensorFile,
    names: list[str],
    rule: Rule,
    leaf: jax.ShapeDtypeStruct,
    rows: int,
    sharding: NamedSharding,
) -> jax.Array:
    """One parameter from its tensors, which fill the first `rows` of its rows."""
    array = _empty(leaf.shape)
    array[rows:] = 0
    array[: rule.first_layer] = 1
    parts = array[rule.first_layer :] if rule.stacked else [array[:rows]]
    for name, part in zip(names, parts, strict=True):
        fill(rule, part, file.read(name))
    # Every process has the whole parameter and puts its own parts on its own devices.
    return jax.make_array_from_callback(leaf.shape, sharding, lambda index: array[index])


def _empty(shape: tuple[int, ...]) -> np.ndarray:
    """A float32 array that a CPU device can use without a copy."""
    size = 4 * int(np.prod(shape))
    memory = np.empty(size + _ALIGNMENT, np.uint8)
    start = -memory.ctypes.data % _ALIGNMENT
    return memory[start : start + size].view(np.float32).reshape(shape)


def _initialise(
    module: nn.Module, names: list[str], shardings: Mapping[str, NamedSharding], seed: int
) -> dict[str, jax.Array]:
    """Initialised parameters of these names; the compiler removes all other random draws."""
    if not names:
        return {}

    def draw(key: jax.Array) -> dict[str, jax.Array]:
        drawn = flatten_dict(init_params(module, key), sep="/")
        return {name: drawn[name] for name in names}

    return jax.jit(draw, out_shardings={name: shardings[name] for name in names})(
        jax.random.key(seed)
    )

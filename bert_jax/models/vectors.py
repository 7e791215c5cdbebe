"""What all vectors of a model have in common: the prompts, and the modules after the encoder.

Fields and modules have the names and the meaning of sentence-transformers 6, see
`checkpoints.sentence_transformers`.
"""

import dataclasses
from collections.abc import Mapping
from typing import Any, ClassVar

import flax.linen as nn
import jax

from bert_jax.errors import OptionError
from bert_jax.models.activations import PYTORCH_ACTIVATIONS
from bert_jax.models.head import heads_with
from bert_jax.models.layers import l2_normalize

TEXT_VECTORS = "text_vectors"
"""The scope of the parameters of the modules after the encoder."""

QUERY, DOCUMENT = SIDES = ("query", "document")
"""The kinds of texts of a search."""

# Names of prompts before a text of each kind; the first that a model has is used.
_PROMPTS = {QUERY: (QUERY,), DOCUMENT: (DOCUMENT, "passage", "corpus")}

IDENTITY = "torch.nn.modules.linear.Identity"
"""The `activation_function` of a linear layer."""

_TORCH_NORM_EPSILON = 1e-5


@dataclasses.dataclass(frozen=True)
class Dense:
    """activation(x · kernel + bias), and x, or a linear layer on x, added with `use_residual`.

    `activation_function` is the full name of a class of PyTorch that `PYTORCH_ACTIVATIONS` has.
    """

    in_features: int
    out_features: int
    bias: bool = True
    activation_function: str = "torch.nn.modules.activation.Tanh"
    use_residual: bool = False


@dataclasses.dataclass(frozen=True)
class Normalize:
    """Division by the Euclidean length."""


@dataclasses.dataclass(frozen=True)
class LayerNorm:
    """LayerNorm over the `dimension` values of a vector."""

    dimension: int


@dataclasses.dataclass(frozen=True)
class Dropout:
    """Nothing at inference; sentence-transformers drops out this share in its own training."""

    dropout: float = 0.2


Module = Dense | Normalize | LayerNorm | Dropout


@dataclasses.dataclass(frozen=True)
class StoredVectors:
    """How a model makes vectors, of any kind.

    Attributes:
        method: the method of a `LoadedModel` that makes them, and the name of the task.
        modules: modules that are applied after the encoder and a pooling, in this order.
        prompts: texts that are put before a text, by name.
        include_prompt: whether the tokens of a prompt count in the pooling.
        default_prompt_name: name of the prompt that is used where the caller names none.
        max_length: maximum number of tokens of a text; None: no other limit than the model's.
        lower_case: whether texts are lower-cased before they are tokenised, by any tokenizer.
        unsupported: an unsupported content of the files, with its file; "": none.
        other: fields of the files that change no vector, by file; they are written back.
        route: the kind of the texts, where the files have modules of their own for each; "": there
            is one kind, or of no kind. It says where parameters are, and is no part of the model.
    """

    method: ClassVar[str]

    modules: tuple[Module, ...] = ()
    prompts: Mapping[str, str] = dataclasses.field(default_factory=dict)
    include_prompt: bool = True
    default_prompt_name: str | None = None
    max_length: int | None = None
    lower_case: bool = False
    unsupported: str = ""
    other: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    route: str = dataclasses.field(default="", repr=False, compare=False)

    @property
    def heads(self) -> tuple[str, ...]:
        """Heads of models that can make them; one for another task leaves the files behind."""
        return heads_with("makes_vectors")

    @property
    def has_parameters(self) -> bool:
        """Whether a module after the encoder has parameters."""
        return any(isinstance(module, Dense | LayerNorm) for module in self.modules)

    @property
    def ends_in_normalize(self) -> bool:
        """Whether the last module gives the vectors the length 1."""
        return self.modules[-1:] == (Normalize(),)

    @property
    def all_prompts(self) -> dict[str, str]:
        """The prompts, and the two that every model has."""
        return {"query": "", "document": "", **self.prompts}

    def prompt_name(self, side: str) -> str | None:
        """The name of the prompt before texts of one of `SIDES`; None if there is none."""
        return next((name for name in _PROMPTS[side] if name in self.prompts), None)

    def input_width(self, hidden_size: int) -> int:
        """The width of the vectors that the modules take, for hidden states of the width D."""
        return hidden_size

    def width(self, hidden_size: int) -> int:
        """X, the width of a vector, for hidden states of the width D.

        Raises:
            OptionError: a module takes vectors of another size.
        """
        width = self.input_width(hidden_size)
        for module in self.modules:
            taken = getattr(module, "in_features", getattr(module, "dimension", width))
            if taken != width:
                raise OptionError(
                    "pooling",
                    None,
                    "choose a pooling that fits, or fix the files in the folders of the model",
                    problem=f"the vectors have {width} values, and the model's "
                    f"{type(module).__name__} takes {taken}",
                )
            width = getattr(module, "out_features", width)
        return width

    def prompt(self, requested: str | None) -> str:
        """The prompt of a name, a text itself, or for None the prompt `default_prompt_name`.

        Raises:
            OptionError: a word that is not a name; as a text it would join the first word.
        """
        known = self.all_prompts
        name = self.default_prompt_name if requested is None else requested
        if name is None or name in known:
            return known.get(name or "", "")
        if not isinstance(name, str) or (name.isascii() and name.replace("-", "_").isidentifier()):
            raise OptionError(
                "prompt",
                name,
                f"it is none of the model's prompts, {', '.join(known)}; a text ends in a space "
                "or a sign",
            )
        return name


class VectorModules(nn.Module):
    """Modules after the encoder.

    Attributes:
        modules: modules, in this order.
    """

    modules: tuple[Module, ...]

    @nn.compact
    def __call__(self, vectors: jax.Array) -> jax.Array:
        """Vectors, float32 [..., X], after all modules."""
        return apply_modules(self.modules, vectors)


def apply_modules(modules: tuple[Module, ...], vectors: jax.Array) -> jax.Array:
    """Applies modules to vectors, float32 [..., X], within a compact method of a Linen module."""
    for number, module in enumerate(modules):
        vectors = _apply(number, module, vectors)
    return vectors


def _apply(number: int, module: Module, vectors: jax.Array) -> jax.Array:
    match module:
        case Normalize():
            return l2_normalize(vectors)
        case LayerNorm():
            return nn.LayerNorm(
                epsilon=_TORCH_NORM_EPSILON, use_fast_variance=False, name=f"{number}_norm"
            )(vectors)
        case Dropout():
            return vectors
    size, residual = module.out_features, vectors
    activation = PYTORCH_ACTIVATIONS[module.activation_function.rpartition(".")[2]]
    result = activation(_linear(size, f"{number}_dense", bias=module.bias)(vectors))
    if not module.use_residual:
        return result
    if size != module.in_features:
        residual = _linear(size, f"{number}_residual", bias=False)(vectors)
    return result + residual


def _linear(size: int, name: str, *, bias: bool) -> nn.Dense:
    return nn.Dense(size, use_bias=bias, precision=jax.lax.Precision.HIGHEST, name=name)

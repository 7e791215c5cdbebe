"""How a model makes vectors of texts: the prompt, the pooling, and the modules after it.

The description has the content of the files of sentence-transformers, see
`checkpoints.sentence_transformers`; fields and poolings have the names and the meaning of its
version 6. Source of the poolings: Sentence-BERT (Reimers and Gurevych, 2019,
https://arxiv.org/abs/1908.10084), section 3.
"""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp

from bert_jax.errors import OptionError, require_one_of
from bert_jax.models.activations import PYTORCH_ACTIVATIONS
from bert_jax.models.head import Head
from bert_jax.models.layers import gather_positions, l2_normalize

TEXT_VECTORS = "text_vectors"
"""The scope of the parameters of the modules after the pooling."""

SIMILARITIES = ("cosine", "dot", "euclidean", "manhattan")

_TORCH_NORM_EPSILON = 1e-5


POOLER = "pooler"
"""The pooling by the encoder's own pooler, which is no function of the token vectors alone."""


# Each pooling takes token vectors [B, T, D] and a mask, bool [B, T], False for padding and for a
# prompt that does not count, and returns [B, D].


def first_token(hidden: jax.Array, mask: jax.Array) -> jax.Array:
    """The vector of the first token that counts, which is [CLS] without a prompt to leave out."""
    return gather_positions(hidden, mask.argmax(axis=1, keepdims=True))[:, 0]


def last_token(hidden: jax.Array, mask: jax.Array) -> jax.Array:
    """The vector of the last token that counts; zeros for a row without tokens."""
    last = hidden.shape[1] - 1 - mask[:, ::-1].argmax(axis=1, keepdims=True)  # B1
    return jnp.where(mask.any(axis=1, keepdims=True), gather_positions(hidden, last)[:, 0], 0)


def masked_mean(hidden: jax.Array, mask: jax.Array) -> jax.Array:
    """The mean over the tokens, including [CLS] and [SEP]; zeros for a row without tokens."""
    return _sum(hidden, mask) / _total(mask)


def mean_of_root_length(hidden: jax.Array, mask: jax.Array) -> jax.Array:
    """The sum over the tokens, divided by the root of their number."""
    return _sum(hidden, mask) / jnp.sqrt(_total(mask))


def weighted_mean(hidden: jax.Array, mask: jax.Array) -> jax.Array:
    """The mean over the tokens, weighted with their positions 1, 2, … in the row."""
    weights = mask * jnp.arange(1, mask.shape[1] + 1)  # BT
    return _sum(hidden, weights) / _total(weights)


def masked_max(hidden: jax.Array, mask: jax.Array) -> jax.Array:
    """The maximum of each dimension; the lowest finite number for a row without tokens."""
    least = jnp.finfo(hidden.dtype).min
    return jnp.where(mask[:, :, None], hidden, least).max(axis=1)


def _sum(hidden: jax.Array, weights: jax.Array) -> jax.Array:
    return (hidden * weights[:, :, None].astype(hidden.dtype)).sum(axis=1)


def _total(weights: jax.Array) -> jax.Array:
    return jnp.maximum(weights.sum(axis=1, keepdims=True), 1)


TOKEN_POOLINGS: dict[str, Callable[[jax.Array, jax.Array], jax.Array]] = {
    "cls": first_token,
    "max": masked_max,
    "mean": masked_mean,
    "mean_sqrt_len_tokens": mean_of_root_length,
    "weightedmean": weighted_mean,
    "lasttoken": last_token,
}
"""The poolings without parameters, by the names of sentence-transformers, in the order in which its
older files concatenate several of them."""

POOLINGS = (*TOKEN_POOLINGS, POOLER)


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
class TextVectors:
    """How a model makes vectors of texts.

    Attributes:
        poolings: names of `POOLINGS`; the results are concatenated.
        include_prompt: whether the tokens of a prompt count in the pooling.
        modules: modules that are applied after the pooling, in this order.
        prompts: texts that are put before a text, by name.
        default_prompt_name: name of the prompt that is used where the caller names none.
        similarity: one of `SIMILARITIES`, how two vectors are compared.
        truncate_dim: number of leading values of a vector that are kept; None: all.
        max_length: maximum number of tokens of a text; None: no other limit than the model's.
        lower_case: whether texts are lower-cased before they are tokenised, by any tokenizer.
        unsupported: an unsupported content of the files, with its file; "": none.
        other: fields of the files that change no vector, by file; they are written back.
    """

    poolings: tuple[str, ...] = ("mean",)
    include_prompt: bool = True
    modules: tuple[Module, ...] = ()
    prompts: Mapping[str, str] = dataclasses.field(default_factory=dict)
    default_prompt_name: str | None = None
    similarity: str = "cosine"
    truncate_dim: int | None = None
    max_length: int | None = None
    lower_case: bool = False
    unsupported: str = ""
    other: Mapping[str, Any] = dataclasses.field(default_factory=dict)

    @property
    def pools_tokens(self) -> bool:
        """Whether the vectors are pooled from token vectors."""
        return POOLER not in self.poolings

    @property
    def has_parameters(self) -> bool:
        """Whether a module after the pooling has parameters."""
        return any(isinstance(module, Dense | LayerNorm) for module in self.modules)

    @property
    def all_prompts(self) -> dict[str, str]:
        """The prompts, and the two that every model has."""
        return {"query": "", "document": "", **self.prompts}

    def width(self, hidden_size: int) -> int:
        """X, the width of a vector, for hidden states of the width D.

        Raises:
            OptionError: a module takes vectors of another size.
        """
        width = len(self.poolings) * hidden_size
        for module in self.modules:
            taken = getattr(module, "in_features", getattr(module, "dimension", width))
            if taken != width:
                raise OptionError(
                    "pooling",
                    ",".join(self.poolings),
                    "choose a pooling that fits, or fix the files in the folders of the model",
                    problem=f"the vectors have {width} values, and the model's "
                    f"{type(module).__name__} takes {taken}",
                )
            width = getattr(module, "out_features", width)
        return min(width, self.truncate_dim or width)

    def chosen(self, pooling: str | Sequence[str] | None, normalize: bool | None) -> "TextVectors":
        """The description with the pooling and normalisation that a caller names.

        Args:
            pooling: one of `POOLINGS`, or several, also as "cls,max"; None: unchanged.
            normalize: False leaves out a normalisation at the end; for True see `embed`.

        Raises:
            OptionError: the pooling is unknown, or none is named and the files of the model have an
                unsupported content.
        """
        if self.unsupported and pooling is None:
            rule = "name a pooling for the vectors of the encoder alone, or give another model"
            raise OptionError("pooling", None, rule, self.unsupported)
        vectors = TextVectors() if self.unsupported else self
        if pooling is not None:
            names = pooling.split(",") if isinstance(pooling, str) else pooling
            for name in names or ("",):
                require_one_of("pooling", name, POOLINGS)
            vectors = dataclasses.replace(vectors, poolings=tuple(names))
        if normalize is False and vectors.modules[-1:] == (Normalize(),):
            vectors = dataclasses.replace(vectors, modules=vectors.modules[:-1])
        return vectors

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

    def pool(self, prompt_length: int = 0) -> "TextPooling":
        """The module that computes poolings and modules; see `TextPooling` for the argument."""
        return TextPooling(self.poolings, self.modules, prompt_length)


class TextPooling(nn.Module):
    """Token vectors → text vectors.

    Attributes:
        poolings, modules: see `TextVectors`.
        prompt_length: number of first tokens that do not count.
    """

    poolings: tuple[str, ...] = ("mean",)
    modules: tuple[Module, ...] = ()
    prompt_length: int = 0

    @nn.compact
    def __call__(self, hidden: jax.Array, mask: jax.Array, pooler_output: Any = None) -> jax.Array:
        """The vectors, float32 [B, X].

        Args:
            hidden: [B, T, D], the last hidden states.
            mask: bool [B, T], False for padding.
            pooler_output: [B, D], for the pooling "pooler"; else None.
        """
        hidden = hidden.astype(jnp.float32)
        if self.prompt_length:
            mask &= jnp.arange(mask.shape[1]) >= self.prompt_length
        parts = [
            pooler_output.astype(jnp.float32)
            if name == POOLER
            else TOKEN_POOLINGS[name](hidden, mask)
            for name in self.poolings
        ]
        vectors = jnp.concatenate(parts, axis=-1)
        for number, module in enumerate(self.modules):
            vectors = self._apply(number, module, vectors)
        return vectors

    def _apply(self, number: int, module: Module, vectors: jax.Array) -> jax.Array:
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


HEAD = Head(axes=((rf"{TEXT_VECTORS}/\w+/(kernel|bias)", ()),))

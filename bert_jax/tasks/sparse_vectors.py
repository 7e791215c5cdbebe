"""Sparse vectors of texts: the weights of words (SPLADE, https://arxiv.org/abs/2107.05720)."""

import dataclasses
import functools
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import numpy as np

from bert_jax.checkpoints.config_file import ModelDescription
from bert_jax.data.examples import Text
from bert_jax.data.outputs import float32_repr
from bert_jax.errors import UserError, require_at_least
from bert_jax.models.dual_encoder import VectorInputs
from bert_jax.models.encoder_with_head import model_inputs
from bert_jax.models.head import heads_with
from bert_jax.models.heads.sparse_vectors import SparseEncoder, SparseVectors
from bert_jax.process import say
from bert_jax.search import sparse
from bert_jax.sharding.hosts import is_main_host
from bert_jax.tasks.base.predict_spec import TEXTS, PredictSpec, TextPredictOptions
from bert_jax.tasks.base.predictor import EncodedExample, Model, check_finite, check_head
from bert_jax.tasks.base.short_repr import ShortRepr
from bert_jax.tasks.base.text_rows import TextPredictor
from bert_jax.tasks.embed import TextPreparation, stored_length
from bert_jax.tokenization import Encoding


@dataclasses.dataclass(frozen=True)
class SparsePredictOptions(TextPredictOptions):
    """The options of `bert-jax predict` for sparse vectors.

    Attributes:
        prompt: name of a prompt of the model, or a text, which is put before each text; None: the
            model's default prompt.
        max_active_dims: number of the largest weights that are kept; None: as the model's files
            say.
    """

    REQUEST = ("max_active_dims",)

    prompt: str | None = None
    max_active_dims: int | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        require_at_least("max_active_dims", self.max_active_dims, 1)


@dataclasses.dataclass(frozen=True, repr=False)
class SparseVector(ShortRepr):
    """The words of a text with a weight above 0, the largest weight first; n of V.

    Attributes:
        tokens: n pieces; "#ID" where the tokenizer has none for a row of the model's table.
        ids: int32 [n].
        weights: float32 [n]; equal ones in the order of their ids.
    """

    tokens: list[str]
    ids: np.ndarray
    weights: np.ndarray

    def largest(self, count: int | None) -> "SparseVector":
        """The words with the largest weights; None: all."""
        return SparseVector(self.tokens[:count], self.ids[:count], self.weights[:count])

    @property
    def by_token(self) -> dict[str, float]:
        """The weight of each word."""
        return dict(zip(self.tokens, self.weights.tolist(), strict=True))


def dot_products(queries: Sequence[SparseVector], documents: Sequence[SparseVector]) -> np.ndarray:
    """The score of each query with each document, float32 [queries, documents]."""
    width = 1 + max(vector.ids.max(initial=0) for vector in (*queries, *documents))
    left, right = (
        sparse.matrix(((vector.ids, vector.weights) for vector in vectors), width)
        for vectors in (queries, documents)
    )
    scores: np.ndarray = (left @ right.T).toarray()
    return scores


def sparse_description(description: ModelDescription) -> SparseVectors:
    """How a model makes sparse vectors; without such files, by the maximum over the tokens.

    Raises:
        UserError: the files of the model are not supported.
    """
    stored = description.stored_vectors
    if not isinstance(stored, SparseVectors):
        return SparseVectors()
    if stored.unsupported:
        raise UserError(f"{stored.unsupported}; give another model")
    return stored


class SparsePredictor(TextPredictor[SparseVector]):
    """The sparse vector of a text.

    Attributes:
        vectors: how it is made.
        width: V.
    """

    def __init__(self, model: Model, options: SparsePredictOptions) -> None:
        """Resolves the options.

        Raises:
            UserError: the model has no head of the masked language model, its files are not
                supported, or the prompt is unknown.
        """
        check_head(model, PREDICT.heads, "make sparse vectors")
        self.vectors = sparse_description(model.description)
        if not isinstance(model.description.stored_vectors, SparseVectors) and is_main_host():
            say_default()
        prompt = self.vectors.prompt(options.prompt)
        prepare = TextPreparation(self.vectors, prompt, model.tokenizer)
        super().__init__(model, options, prepare=prepare)
        self.width = model.config.vocab_size
        self._module = SparseEncoder(
            model.config,
            model.module.execution,
            pooling_strategy=self.vectors.pooling_strategy,
            activation_function=self.vectors.activation_function,
        )

    @property
    def stored_length(self) -> int | None:
        return stored_length(self.model.description, self.model.tokenizer)

    def compute(self, batch: dict[str, jax.Array]) -> jax.Array:
        return _weights(self.model.compute_params, batch, module=self._module)

    def decode(self, example: Text, encoded: EncodedExample, outputs: list[Any]) -> SparseVector:
        vector = super().decode(example, encoded, outputs)
        request: Any = encoded.request or self.options
        return vector.largest(request.max_active_dims or self.vectors.max_active_dims)

    def decode_row(self, encoding: Encoding, output: np.ndarray) -> SparseVector:
        check_finite(output, "the weights of words")
        ids = np.flatnonzero(output)
        ids = ids[np.argsort(-output[ids], kind="stable")].astype(np.int32)
        tokenizer = self.model.tokenizer
        known = tokenizer.vocab_size
        tokens = [tokenizer.id_to_token(id) if id < known else f"#{id}" for id in ids.tolist()]
        return SparseVector(tokens, ids, output[ids])


@functools.cache
def say_default() -> None:
    """Says, once in a process, which sparse vectors a model makes if its files do not say it."""
    say(
        "the model has no files of a SparseEncoder: weights of words are the maximum of "
        "log(1 + relu(logit)) over the tokens"
    )


@functools.partial(jax.jit, static_argnames="module")
def _weights(params: Any, batch: dict[str, jax.Array], *, module: SparseEncoder) -> Any:
    """A batch → float32 [B, V]."""
    return module.apply({"params": params}, model_inputs(batch, VectorInputs), method="encode")


def to_record(text: Text, vector: SparseVector) -> Mapping[str, Any]:
    """The weight of each word of a text, as the field of a JSON line."""
    return {"weights": {word: float32_repr(weight) for word, weight in vector.by_token.items()}}


PREDICT = PredictSpec(
    TEXTS,
    SparsePredictOptions,
    SparsePredictor,
    to_record,
    heads=heads_with("fills_masks"),
    is_default=False,  # without files that say so, such a model fills masks
)

"""How alike texts are: the cosine of their vectors (Sentence-BERT, Reimers and Gurevych, 2019)."""

import dataclasses
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import jax
import numpy as np

from bert_jax.checkpoints.config_file import ModelDescription
from bert_jax.checkpoints.sentence_transformers import SENTENCE_POOLING
from bert_jax.errors import UserError
from bert_jax.tasks.base.predictor import BatchOptions, ExampleError, Model, Predictor, check_finite
from bert_jax.tasks.features import EmbeddingPredictor
from bert_jax.tokenization import Encoding

DEFAULT_POOLING = "mean"


@dataclasses.dataclass(frozen=True, slots=True)
class Match:
    """A text that was found.

    Attributes:
        index: which one of the texts it is, from 0.
        text: itself.
        score: the cosine with what was looked for.
    """

    index: int
    text: str
    score: float


class PairPredictor(Predictor[tuple[str, str], Any]):
    """The vectors of both texts of each pair, float32 [2, D]."""

    def __init__(self, model: Model, options: BatchOptions, *, pooling: str | None = None) -> None:
        """Takes a model.

        Args:
            model: any model with an encoder.
            options: sizes; `batch_size` counts texts.
            pooling: see `LoadedModel.embed`; None: that of `config.json`, else the mean.

        Raises:
            UserError: the pooling is unknown, or the model has no pooler.
        """
        # A pair has two rows: half as many examples are as many rows.
        self.options = dataclasses.replace(options, window=options.window // 2)
        self._texts = EmbeddingPredictor(
            model, options, pooling=pooling or stored_pooling(model.description)
        )

    def prepare(self, example: tuple[str, str], index: int) -> tuple[str, str]:
        if not isinstance(example, tuple) or [type(text) for text in example] != [str, str]:
            raise ExampleError(f"{example!r:.80} is no pair of texts; give two strings", index)
        return example

    def encode(self, examples: Sequence[tuple[str, str]]) -> list[list[Encoding]]:
        rows = self._texts.encode([text for pair in examples for text in pair])
        return [[*first, *second] for first, second in zip(rows[::2], rows[1::2], strict=True)]

    def compute(self, batch: dict[str, jax.Array]) -> jax.Array:
        return self._texts.compute(batch)

    def decode(
        self, example: tuple[str, str], encodings: list[Encoding], outputs: list[np.ndarray]
    ) -> np.ndarray:
        return check_finite(np.stack(outputs), "the vectors of a pair")

    def characters(self, example: tuple[str, str]) -> int:
        return len(example[0]) + len(example[1])

    def report(self) -> None:
        self._texts.report()


def cosine(vectors: np.ndarray) -> float:
    """Of two vectors, float32 [2, D], in double precision; 0 if one of them is zero."""
    first, second = vectors.astype(np.float64)
    norms = float(np.linalg.norm(first) * np.linalg.norm(second))
    return float(np.clip(first @ second / norms, -1, 1)) if norms else 0.0


def stored_pooling(description: ModelDescription) -> str:
    """How a model was trained to make vectors of texts; the mean where nobody says.

    Raises:
        UserError: `config.json` has something else in its place.
    """
    value = description.other.get(SENTENCE_POOLING, DEFAULT_POOLING)
    if not isinstance(value, str):
        raise UserError(f"config.json: {SENTENCE_POOLING} is {value!r}; it must be a pooling")
    return value


def checked_texts(texts: Iterable[str]) -> Iterator[str]:
    """The same texts.

    Raises:
        UserError: `texts` is one string, which is an iterable of characters.
        ExampleError: something is no string.
    """
    if isinstance(texts, str):
        raise UserError("the texts are one string; give a list of strings")
    for index, text in enumerate(texts):
        if not isinstance(text, str):
            raise ExampleError(f"text {index} is {text!r:.80}; give a string", index)
        yield text

"""The similarity of two texts: the cosine of their vectors (Sentence-BERT, 2019)."""

import contextlib
import dataclasses
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import jax
import numpy as np

from bert_jax.checkpoints.config_file import ModelDescription
from bert_jax.checkpoints.sentence_transformers import SENTENCE_POOLING
from bert_jax.data.examples import Entries, Entry
from bert_jax.data.records import shortest
from bert_jax.errors import OptionError, UserError
from bert_jax.tasks.base.predict_spec import (
    JSONL,
    PredictOptions,
    PredictSpec,
    json_lines,
    open_texts,
)
from bert_jax.tasks.base.predictor import (
    BatchOptions,
    ExampleError,
    Model,
    Predictor,
    check_finite,
    not_one_string,
    softmax,
)
from bert_jax.tasks.embed import EmbeddingPredictor
from bert_jax.tokenization import Encoding

Pair = tuple[str, str]

DEFAULT_POOLING = "mean"


@dataclasses.dataclass(frozen=True, slots=True)
class Match:
    """A text that a search returns.

    Attributes:
        index: number of the text among all texts, from 0.
        text: the text itself.
        score: cosine with the query.
    """

    index: int
    text: str
    score: float


@dataclasses.dataclass(frozen=True, slots=True)
class PairPrediction:
    """The prediction for a pair of texts.

    Attributes:
        vectors: vectors of both texts, float32 [2, D].
        logits: scores of the labels, float32 [C], if the model has a classifier.
        labels: names of the labels.
    """

    vectors: np.ndarray
    logits: np.ndarray | None = None
    labels: tuple[str, ...] = ()


class PairPredictor(Predictor[Pair, PairPrediction]):
    """The vectors of both texts of each pair."""

    def __init__(self, model: Model, options: BatchOptions, *, pooling: str | None = None) -> None:
        """For a model with any head.

        Args:
            model: a model with any head.
            options: batch options; `batch_size` counts texts.
            pooling: pooling, see `LoadedModel.embed`; None: that of `config.json`, else the mean.

        Raises:
            OptionError: the pooling is unknown, or the model has no pooler.
        """
        # A pair has two rows, so a batch holds half as many examples.
        super().__init__(model, dataclasses.replace(options, window=options.window // 2))
        self._texts = EmbeddingPredictor(
            model, options, pooling=pooling or stored_pooling(model.description)
        )

    def prepare(self, example: Pair, index: int) -> Pair:
        if not isinstance(example, tuple) or [type(text) for text in example] != [str, str]:
            raise ExampleError(f"{example!r:.80} is not a pair of texts; give two strings", index)
        return example

    def encode(self, examples: Sequence[Pair]) -> list[list[Encoding]]:
        rows = self._texts.encode([text for pair in examples for text in pair])
        return [[*first, *second] for first, second in zip(rows[::2], rows[1::2], strict=True)]

    def compute(self, batch: dict[str, jax.Array]) -> jax.Array:
        return self._texts.compute(batch)

    def decode(
        self, example: Pair, encodings: Sequence[Encoding], outputs: list[np.ndarray]
    ) -> PairPrediction:
        return PairPrediction(check_finite(np.stack(outputs), "the vectors of a pair"))

    def characters(self, example: Pair) -> int:
        return len(example[0]) + len(example[1])

    def report(self) -> None:
        self._texts.report()


def cosine(vectors: np.ndarray) -> float:
    """Cosine of two vectors, float32 [2, D], in double precision; 0 if one of them is zero."""
    first, second = vectors.astype(np.float64)
    norms = float(np.linalg.norm(first) * np.linalg.norm(second))
    return float(np.clip(first @ second / norms, -1, 1)) if norms else 0.0


def stored_pooling(description: ModelDescription) -> str:
    """The pooling that a model was trained with, from `config.json`; without one, the mean.

    Raises:
        UserError: the value is not a string.
    """
    value = description.other.get(SENTENCE_POOLING, DEFAULT_POOLING)
    if not isinstance(value, str):
        raise UserError(f"config.json: {SENTENCE_POOLING} is {value!r}; it must be a pooling")
    return value


def checked_texts(texts: Iterable[str]) -> Iterator[str]:
    """Returns the texts, after checking them.

    Raises:
        UserError: `texts` is one string, which is an iterable of characters.
        ExampleError: an element is not a string.
    """
    for index, text in enumerate(not_one_string(texts)):
        if not isinstance(text, str):
            raise ExampleError(f"text {index} is {text!r:.80}; give a string", index)
        yield text


def no_second_text(place: str) -> OptionError:
    return OptionError(
        "text_column",
        None,
        "set {text_column} and {pair_column}",
        problem=f"{place}: there is no second text to compare the first one with",
    )


@contextlib.contextmanager
def _open_pairs(source: str | Path, options: PredictOptions) -> Iterator[Entries[Pair]]:
    def pairs(entries: Entries[str | Pair]) -> Iterator[Entry[Pair]]:
        for entry in entries:
            if isinstance(entry.item, str):
                raise no_second_text(entry.place)
            yield cast(Entry[Pair], entry)

    with open_texts(source, options) as entries:
        yield Entries(pairs(entries), entries.fraction)


def _as_record(pair: Pair, prediction: PairPrediction) -> Mapping[str, Any]:
    record: dict[str, Any] = {"similarity": shortest(cosine(prediction.vectors))}
    if prediction.logits is not None:
        probabilities = map(shortest, softmax(prediction.logits))
        record["label"] = prediction.labels[int(prediction.logits.argmax())]
        record["probabilities"] = dict(zip(prediction.labels, probabilities, strict=True))
    return record


PREDICT = PredictSpec(
    _open_pairs,
    lambda model, options: PairPredictor(model, options.batches(), pooling=options.pooling),
    {JSONL: json_lines(_as_record)},
    options=("pooling",),
)

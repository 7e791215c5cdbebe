"""The similarity of two texts: most often the cosine of their vectors (Sentence-BERT, 2019)."""

import contextlib
import dataclasses
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import jax
import numpy as np

from bert_jax.data.examples import Example, Examples, Pair, Text, each_example
from bert_jax.data.outputs import float32_repr
from bert_jax.data.readers.tables import Record
from bert_jax.data.readers.texts import TextParser, open_texts
from bert_jax.errors import OptionError
from bert_jax.metrics.similarity import similarity_of_pair
from bert_jax.models.sentence_pairs import pair_features
from bert_jax.tasks.base.predict_spec import InputReader, PredictSpec
from bert_jax.tasks.base.predictor import (
    EncodedExample,
    ExampleError,
    Model,
    Predictor,
    check_finite,
    is_sequence_of_texts,
    not_one_string,
    softmax,
)
from bert_jax.tasks.embed import EmbeddingPredictor, EmbedPredictOptions, VectorPredictOptions


def checked_pair(example: Example[Text]) -> Example[Pair]:
    """Returns an example of two texts.

    Raises:
        OptionError: it has one.
    """
    if isinstance(example.input, str):
        raise OptionError(
            "data.text_column",
            None,
            "set {data.text_column} and {data.pair_column}",
            problem=f"{example.location}: there is no second text to compare the first one with",
        )
    return cast(Example[Pair], example)


def two_views(example: Example[Text]) -> Example[Pair]:
    """An example of two texts; a single text is its own pair.

    Dropout makes two vectors of it (SimCSE: Gao et al., 2021, https://arxiv.org/abs/2104.08821).
    """
    if isinstance(example.input, str):
        example = dataclasses.replace(example, input=(example.input, example.input))
    return checked_pair(example)


def _parser(options: VectorPredictOptions) -> Callable[[Record, int], Example[Pair]]:
    parse = TextParser(options)
    return lambda record, number: checked_pair(parse(record, number))


@contextlib.contextmanager
def _open(source: str | Path, options: VectorPredictOptions) -> Iterator[Examples[Pair]]:
    with open_texts(source, options) as examples:
        yield each_example(checked_pair, examples)


@dataclasses.dataclass(frozen=True, slots=True)
class Match:
    """A text that a search or a ranking returns.

    Attributes:
        index: number of the text among all texts, from 0.
        text: the text itself.
        score: similarity to the query, most often the cosine; or the score of a cross-encoder.
    """

    index: int
    text: str
    score: float


@dataclasses.dataclass(frozen=True, slots=True)
class PairPrediction:
    """The prediction for a pair of texts.

    Attributes:
        vectors: vectors of both texts, float32 [2, X].
        similarity: how similar they are, by the model's similarity function.
        logits: scores of the labels, float32 [C], if the model has a classifier.
        labels: names of the labels.
    """

    vectors: np.ndarray
    similarity: float
    logits: np.ndarray | None = None
    labels: tuple[str, ...] = ()


class PairPredictor(Predictor[Pair, PairPrediction]):
    """The vectors of both texts of each pair, and the scores of a classifier, if there is one."""

    # A pair has two rows, so a batch holds half as many examples.
    chunk_batches = Predictor.chunk_batches // 2

    def __init__(
        self,
        model: Model,
        options: VectorPredictOptions,
        *,
        labels: tuple[str, ...] = (),
        head: Any = None,
    ) -> None:
        """For a model with any head, see `EmbeddingPredictor`; `batch_size` counts texts.

        `head` has the parameters of the classifier that `SentencePairs` trains for C labels.
        """
        super().__init__(model, options)
        self._labels, self._head = labels, head
        self._texts = EmbeddingPredictor(model, EmbedPredictOptions(**vars(options)))

    @property
    def stored_length(self) -> int | None:
        return self._texts.stored_length

    def encode(self, examples: Sequence[Pair]) -> list[EncodedExample | ExampleError]:
        return self._texts.encode_texts.groups(list(map(_pair_or_error, examples)))

    def compute(self, batch: dict[str, jax.Array]) -> jax.Array:
        return self._texts.compute(batch)

    def decode(
        self, example: Pair, encoded: EncodedExample, outputs: list[np.ndarray]
    ) -> PairPrediction:
        stacked = np.stack([self._texts.vector(output) for output in outputs])
        vectors = check_finite(stacked, "the vectors of a pair")
        similarity = similarity_of_pair(vectors, self._texts.vectors.similarity)
        if self._head is None:
            return PairPrediction(vectors, similarity)
        features = np.asarray(pair_features(*vectors))
        logits = features @ self._head["kernel"] + self._head["bias"]
        return PairPrediction(vectors, similarity, logits, self._labels)


def _pair_or_error(example: Pair) -> Pair | ExampleError:
    if isinstance(example, tuple) and len(example) == 2 and is_sequence_of_texts(example):
        return example
    return ExampleError(f"{example!r:.80} is not a pair of texts; give two strings")


def checked_texts(texts: Iterable[str]) -> Iterator[str]:
    """Returns the texts, after checking them.

    Raises:
        UserError: `texts` is one string, which is an iterable of characters.
        ExampleError: an element is not a string.
    """
    for index, text in enumerate(not_one_string(texts)):
        if not isinstance(text, str):
            raise ExampleError(f"{text!r:.80} is no text; give a string", index)
        yield text


def to_record(pair: Pair, prediction: PairPrediction) -> Mapping[str, Any]:
    """The similarity, and the label and probabilities if there are logits, for a JSON line."""
    record: dict[str, Any] = {"similarity": float32_repr(prediction.similarity)}
    if prediction.logits is not None:
        probabilities = map(float32_repr, softmax(prediction.logits))
        record["label"] = prediction.labels[int(prediction.logits.argmax())]
        record["probabilities"] = dict(zip(prediction.labels, probabilities, strict=True))
    return record


PREDICT = PredictSpec(
    InputReader(_parser, _open),
    VectorPredictOptions,
    PairPredictor,
    to_record,
    variants=lambda description: (),  # the programs are those of `embed`
)

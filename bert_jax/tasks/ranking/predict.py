"""The scores of a query's documents: of a cross-encoder, which reads them with the query; files.

As JSON lines, `{"query": …, "documents": […], "scores": […]}`, they are training files with the
scores of a teacher, see `data.readers.candidate_columns`; as TREC's runs, they can be evaluated.
"""

import contextlib
import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import jax
import numpy as np

from bert_jax.data.examples import Candidates, Example, Examples, Pair, Text, texts_of
from bert_jax.data.outputs import float32_repr
from bert_jax.data.readers.candidate_columns import RankingOptions
from bert_jax.data.readers.candidates import CandidateParser
from bert_jax.data.readers.ranking import read_candidates
from bert_jax.data.runs import run_lines
from bert_jax.errors import UserError
from bert_jax.files.paths import TREC_ENDINGS
from bert_jax.tasks.base.predict_spec import InputReader, OutputFile, PredictOptions, PredictSpec
from bert_jax.tasks.base.predictor import (
    EncodedExample,
    ExampleError,
    Model,
    Predictor,
    check_finite,
)
from bert_jax.tasks.base.text_rows import text_error
from bert_jax.tasks.classification.predict import ClassificationPredictor

Prediction = TypeVar("Prediction")


def candidates_error(example: Candidates) -> ExampleError | None:
    """Why a query and its documents cannot be scored; None if they can."""
    if not example.documents:
        return ExampleError("the query has no documents; give one or more")
    return text_error(
        example.query, *(part for text in example.documents for part in texts_of(text))
    )


def _pairs(example: Candidates) -> list[Pair] | ExampleError:
    """The query with each of its documents, a title before the text."""
    if error := candidates_error(example):
        return error
    return [(example.query, " ".join(texts_of(text))) for text in example.documents]


@dataclasses.dataclass(frozen=True)
class RankingPredictOptions(PredictOptions, RankingOptions):
    """The options of `bert-jax rerank`.

    Attributes:
        raw_scores: whether scores are the model's outputs, without an activation, as Margin-MSE
            needs them.
    """

    raw_scores: bool = False


class CandidatesPredictor(Predictor[Candidates, Prediction]):
    """A predictor that reads the query with each of its documents."""

    def characters(self, example: Candidates) -> int:
        length = super().characters
        return len(example.documents) * length(example.query) + sum(map(length, example.documents))


class CrossEncoderPredictor(CandidatesPredictor[np.ndarray]):
    """The scores of the K documents of each query, float32 [K], the higher the better."""

    def __init__(self, model: Model, options: RankingPredictOptions) -> None:
        """Makes the predictor of the pairs.

        Raises:
            UserError: the model has several outputs, or reads no pairs; see also
                `ClassificationPredictor`.
        """
        super().__init__(model, options)
        self._pairs = ClassificationPredictor(model, options, raw_scores=options.raw_scores)
        model.tokenizer.check_pairs(model.config.type_vocab_size, "a query with its document")
        if model.config.num_labels != 1:
            raise UserError(
                f"this model scores {model.config.num_labels} labels, and documents are ranked by "
                "a single score; give a model with one output"
            )

    def encode(self, examples: Sequence[Candidates]) -> list[EncodedExample | ExampleError]:
        return self._pairs.encode_texts.groups(list(map(_pairs, examples)))

    def compute(self, batch: dict[str, jax.Array]) -> Any:
        return self._pairs.compute(batch)

    def decode(
        self, example: Candidates, encoded: EncodedExample, outputs: list[Any]
    ) -> np.ndarray:
        return check_finite(np.concatenate(outputs), "the scores of a query's documents")


DOCUMENT_IDS = "document_ids"
"""Field of an example with the ids of its documents; without it they are numbered from 0."""


def to_record(example: Candidates, scores: np.ndarray) -> Mapping[str, Any]:
    """The texts and the scores of the documents, as the fields of a JSON line."""
    return {
        "query": example.query,
        "documents": [json_of(text) for text in example.documents],
        "scores": [float32_repr(score) for score in scores],
    }


def json_of(text: Text) -> str | dict[str, str]:
    """A text, or the title and text of a document, as a value of JSON."""
    return text if isinstance(text, str) else dict(zip(("title", "text"), text, strict=True))


def _run(example: Example[Candidates], scores: np.ndarray) -> str:
    ids = example.fields.get(DOCUMENT_IDS) or map(str, range(len(scores)))
    return run_lines(example.id, dict(zip(ids, map(float, scores), strict=True)))


@contextlib.contextmanager
def _open(source: str | Path, options: RankingOptions) -> Iterator[Examples[Candidates]]:
    yield Examples(map(_with_fields, read_candidates(source, options, for_training=False)))


def _with_fields(example: Example[Candidates]) -> Example[Candidates]:
    """The example with the fields that its output keeps; without a positive no labels."""
    grades = example.label.grades
    labels = {"labels": list(grades)} if max(grades, default=0) > 0 else {}
    return dataclasses.replace(example, fields={"id": example.id, **labels}, label_field="")


RERANK = PredictSpec(
    InputReader(CandidateParser, _open),
    RankingPredictOptions,
    CrossEncoderPredictor,
    to_record,
    {"run": lambda options: (OutputFile(_run),)},
    endings=dict.fromkeys(TREC_ENDINGS, "run"),
    heads=("classification",),
)
"""What `bert-jax rerank` reads and writes, and the predictions of an evaluation."""

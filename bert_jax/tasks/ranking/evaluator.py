"""Evaluation of cross-encoders: the documents of each query in the order of their scores."""

import dataclasses
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from bert_jax.data.examples import Candidates, Example, texts_of
from bert_jax.errors import OptionError
from bert_jax.metrics.ranking import ranking_metrics
from bert_jax.tasks.base.labelled_evaluator import LabelledEvaluator
from bert_jax.tasks.base.ranked_task import RankedData, say_not_counted
from bert_jax.tasks.base.splits import EvalSet
from bert_jax.tasks.ranking.predict import RERANK


@dataclasses.dataclass(frozen=True, eq=False)
class CrossEncoderEvaluator(LabelledEvaluator[Candidates, np.ndarray]):
    """A prediction is the scores of a query's documents, float32 [K].

    Attributes:
        data: options of the metrics.
    """

    PREDICT = RERANK
    lower_is_better = ()

    data: RankedData

    def check(self) -> None:
        """Refuses sets where each order is perfect; see also `LabelledEvaluator`."""
        super().check()
        for eval_set in (*self.splits.validation, *self.splits.test):
            examples = eval_set.examples
            alone = sum(not example.label.has_others for example in examples)
            if alone == len(examples):
                key = "test" if eval_set in self.splits.test else "validation"
                raise OptionError(
                    f"data.{key}",
                    eval_set.source,
                    "give lists with others, as `bert-jax mine` writes them",
                    f"{eval_set.source} has relevant documents alone",
                )
            say_not_counted(eval_set.name, alone, len(examples))

    def metrics(
        self, examples: list[Example[Candidates]], predictions: Sequence[np.ndarray]
    ) -> dict[str, float]:
        """The means over queries where an order can be wrong; documents have numbers in a list."""
        judgements = {
            str(query): {str(number): grade for number, grade in enumerate(label.grades)}
            for query, label in enumerate(example.label for example in examples)
            if label.has_others
        }
        run = {
            str(query): {str(number): float(score) for number, score in enumerate(scores)}
            for query, scores in enumerate(predictions)
        }
        names, relevant_from = self.data.metrics, self.data.relevant_from
        return ranking_metrics(judgements, run, names, relevant_from=relevant_from)

    def metric_names(self, examples: list[Example[Candidates]]) -> Iterable[str]:
        return self.metrics([], [])

    def baseline_metrics(self, examples: list[Example[Candidates]]) -> dict[str, float]:
        """`<metric>_overlap`: by the share of words that a document shares with the query."""
        scores = [_overlaps(example.input) for example in examples]
        return {f"{name}_overlap": value for name, value in self.metrics(examples, scores).items()}

    def expected(self, example: Example[Candidates]) -> Any:
        return list(example.label.grades)

    def further_files(self, eval_set: EvalSet[Candidates]) -> Iterable[str]:
        """A run as of TREC, if the ids of the queries can be in one."""
        ids = {example.id for example in eval_set.examples if len(example.id.split()) == 1}
        return (f"{eval_set.name}.run",) if len(ids) == len(eval_set.examples) else ()


def _overlaps(candidates: Candidates) -> np.ndarray:
    """The Jaccard index of the words of the query and of each document, float64 [K]."""
    query = {*candidates.query.lower().split()}
    words = [{*" ".join(texts_of(text)).lower().split()} for text in candidates.documents]
    return np.array([len(query & each) / max(len(query | each), 1) for each in words])

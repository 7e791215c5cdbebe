"""Evaluation of retrieval models: the documents of each query, ranked by their scores."""

import dataclasses
import functools
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from bert_jax.data.examples import Candidates, Example, Text, texts_of
from bert_jax.data.runs import check_names, write_run
from bert_jax.errors import OptionError
from bert_jax.metrics import unknown_metric
from bert_jax.metrics.ranking import Run, cutoff_of, ranking_metrics
from bert_jax.metrics.recall_curve import draw_recall
from bert_jax.models.vectors import DOCUMENT, QUERY
from bert_jax.process import say
from bert_jax.search.bm25 import WordSearcher
from bert_jax.tasks.base.labelled_evaluator import metrics_of_sets, result_of_sets
from bert_jax.tasks.base.labelled_options import LabelledOptions
from bert_jax.tasks.base.predictor import BatchOptions, Model
from bert_jax.tasks.base.retrieval.interaction import Interaction
from bert_jax.tasks.base.retrieval.options import RetrievalData
from bert_jax.tasks.base.retrieval.sets import RankedSet, ranked_set
from bert_jax.tasks.base.splits import Splits
from bert_jax.tasks.base.task import Content, EvalResult, Evaluator, Predict

# Documents of a query in a run: as many as trec_eval reads.
_DEPTH = 1000
# BM25 is the baseline of collections up to this size: its index takes some seconds.
_MAX_BM25_DOCUMENTS = 200_000


@dataclasses.dataclass(frozen=True, eq=False)
class RankingEvaluator(Evaluator):
    """Metrics of `metrics.ranking`, for lists of candidates and for searches in a collection.

    Attributes:
        splits: validation and test sets, see `sets.ranked_set`.
        collection: texts of its documents by their ids.
        interaction: makes and compares the vectors.
        options: options of the task.
        data: the metrics.
        limits: maximum number of tokens by side.
    """

    splits: Splits[Candidates]
    collection: Mapping[str, Text]
    interaction: Interaction
    options: LabelledOptions
    data: RetrievalData
    limits: Mapping[str, int]

    @property
    def best_metric(self) -> tuple[str, bool]:  # type: ignore[override]
        return self.options.best_metric, True

    @functools.cached_property
    def sets(self) -> dict[str, RankedSet]:
        """All sets by their names."""
        eval_sets = (*self.splits.validation, *self.splits.test)
        return {each.name: ranked_set(each, self.collection) for each in eval_sets}

    def check(self) -> None:
        if self.best_metric[0] not in self.data.metrics:
            raise unknown_metric(self.best_metric[0], self.data.metrics)
        for each in self.sets.values():
            check_names(each.queries)
            if each.documents is None:
                self._check_collected(each)
            deeper = [name for name in self.data.metrics if cutoff_of(name) > _DEPTH]
            if each.lists is None and deeper:
                say(f"{each.name}: {', '.join(deeper)}: a query has at most {_DEPTH:,} results")
        check_names(self.collection)

    def _check_collected(self, ranked: RankedSet) -> None:
        """Raises OptionError if the collection has no judged document; says if it lacks some."""
        documents = {document for grades in ranked.judgements.values() for document in grades}
        if not (missing := documents - self.collection.keys()):
            return
        count = f"{len(missing)} of {len(documents)} judged documents"
        problem = f"{ranked.name}: {count} are not in the collection, as {min(missing)!r:.80}"
        if missing == documents:
            rule = "give the collection of the judgements as {data.corpus}"
            raise OptionError("data.corpus", None, rule, problem)
        say(f"{problem}: they count as not retrieved")

    def evaluate(self, model: Model, predict: Predict, *, with_test: bool) -> EvalResult:
        sets = [*self.splits.validation, *(self.splits.test if with_test else ())]
        runs: dict[str, Run] = {}
        collection: list[Any] = []  # its vectors, made for the first set that needs them
        for each in sets:
            ranked = self.sets[each.name]
            if ranked.documents is None and not collection:
                collection = self._vectors(DOCUMENT, self.collection, ranked, model, predict)
            runs[each.name] = self._run(ranked, collection, model, predict)
        metrics = {name: self._metrics(self.sets[name], run) for name, run in runs.items()}
        description = self.interaction.description
        rankings = {name: list(run.items()) for name, run in runs.items()}
        return result_of_sets(self.splits, self.best_metric[0], metrics, description, rankings)

    def _run(
        self, ranked: RankedSet, collection: list[Any], model: Model, predict: Predict
    ) -> dict[str, dict[str, float]]:
        """The scores of the first documents of each query."""
        documents, vectors = self.collection, collection
        if ranked.documents is not None:
            documents = ranked.documents
            vectors = self._vectors(DOCUMENT, documents, ranked, model, predict)
        queries = self._vectors(QUERY, ranked.queries, ranked, model, predict)
        if ranked.lists is None:
            ids = list(documents)
            depth = min(_DEPTH, len(ids))
            hits = self.interaction.search(queries, vectors, depth, model.mesh)
            return {
                query: {ids[number]: float(score) for score, number in zip(*row, strict=True)}
                for query, *row in zip(ranked.queries, *hits, strict=True)
            }
        run, by_id = {}, dict(zip(documents, vectors, strict=True))
        for query, vector in zip(ranked.queries, queries, strict=True):
            chosen = ranked.lists[query]
            scores = self.interaction.similarities([vector], [by_id[each] for each in chosen])[0]
            run[query] = dict(zip(chosen, map(float, scores), strict=True))
        return run

    def _vectors(
        self,
        side: str,
        texts: Mapping[str, Text],
        ranked: RankedSet,
        model: Model,
        predict: Predict,
    ) -> list[Any]:
        options = BatchOptions(self.options.batch_size, self.limits[side])
        predictor = self.interaction.predictor(model, options, side)
        name, locations = ranked.name, ranked.locations
        examples = [
            Example(text, location=locations.get(text, f"{name}: {side} {id!r}"))
            for id, text in texts.items()
        ]
        return predict(predictor, examples, f"{name}.{side}")

    def _metrics(self, ranked: RankedSet, run: Run) -> dict[str, float]:
        judgements, relevant_from = ranked.judgements, self.data.relevant_from
        return ranking_metrics(judgements, run, self.data.metrics, relevant_from=relevant_from)

    def baselines(self) -> dict[str, float]:
        return metrics_of_sets(self.splits.validation, self._bm25_metrics)

    @functools.cached_property
    def _bm25_metrics(self) -> dict[str, dict[str, float]]:
        """The metrics of BM25 by the name of the set."""
        metrics = {}
        for each in self.splits.validation:
            ranked = self.sets[each.name]
            if len(self.collection) <= _MAX_BM25_DOCUMENTS:
                run = _word_run(ranked, self.collection, _DEPTH)
                values = self._metrics(ranked, run)
                metrics[each.name] = {f"{name}_bm25": value for name, value in values.items()}
        return metrics

    def files(self, result: EvalResult) -> Iterator[tuple[str, Content]]:
        """`<set>.run`, in the format of TREC, and `<set>.recall.png`."""
        for name, rankings in result.predictions.items():
            run = dict(rankings)
            yield f"{name}.run", functools.partial(write_run, run=run)
            draw = functools.partial(
                draw_recall,
                title=name,
                judgements=self.sets[name].judgements,
                run=run,
                relevant_from=self.data.relevant_from,
            )
            yield f"{name}.recall.png", draw


def _word_run(ranked: RankedSet, collection: Mapping[str, Text], depth: int) -> Run:
    """The first documents of each query by BM25, for English; of a list all its documents.

    It is the baseline: the search by words that vectors should beat.
    """
    documents = collection if ranked.documents is None else ranked.documents
    ids = np.array(list(documents), object)
    searcher = WordSearcher.from_texts(" ".join(texts_of(text)) for text in documents.values())
    run = {}
    for query, text in ranked.queries.items():
        # One query at a time: of a list, every document that shares a word has a score.
        (scores,), (numbers,) = searcher.search(
            [text], min(depth, len(ids)) if ranked.lists is None else len(ids)
        )
        score_of = dict(zip(ids[numbers[numbers >= 0]], map(float, scores), strict=False))
        if ranked.lists is not None:
            score_of = {document: score_of.get(document, 0.0) for document in ranked.lists[query]}
        run[query] = score_of
    return run

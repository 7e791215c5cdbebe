"""Metrics of rankings, with the ties and gains of trec_eval.

Documents are ranked by score, equal scores by id in descending order. The gain of a document is its
grade (nDCG: Järvelin and Kekäläinen, 2002); grades below 0 count as 0. Sums are in the order of
trec_eval 9, so that a query's values equal those of pytrec_eval to the last digit.
"""

import functools
import math
import operator
from collections.abc import Callable, Iterable, Mapping, Sequence

import numpy as np

from bert_jax.errors import OptionError, require_between

Judgements = Mapping[str, Mapping[str, float]]
"""Query id → document id → grade; documents without a grade are not relevant."""

Run = Mapping[str, Mapping[str, float]]
"""Query id → document id → score."""

_Grades = list[float]

DEFAULT_METRICS = ("ndcg@10", "map", "mrr@10", "recall@10", "recall@100")


def ranked(scores: Mapping[str, float]) -> list[str]:
    """The ids of documents, the best first."""
    # trec_eval holds scores in single precision. A stable sort keeps the order of equal scores.
    single = {document: np.float32(score) for document, score in scores.items()}
    return sorted(sorted(single, reverse=True), key=single.__getitem__, reverse=True)


def ranking_metrics(
    judgements: Judgements,
    run: Run,
    metrics: Sequence[str] = DEFAULT_METRICS,
    *,
    relevant_from: float | None = None,
) -> dict[str, float]:
    """The means over all queries with judgements; a query without results counts as 0.

    For the arguments and for errors see `query_metrics`.
    """
    by_query = query_metrics(judgements, run, metrics, relevant_from=relevant_from)
    count = max(1, len(by_query))
    return {name: sum(each[name] for each in by_query.values()) / count for name in metrics}


def query_metrics(
    judgements: Judgements,
    run: Run,
    metrics: Sequence[str] = DEFAULT_METRICS,
    *,
    relevant_from: float | None = None,
) -> dict[str, dict[str, float]]:
    """The metrics of each query with judgements; see `ranking_metrics`.

    Args:
        judgements: the grades.
        run: the results; of a query without judgements they are not used.
        metrics: names: "ndcg", "binary_ndcg" (each relevant document has the gain 1), "map", "mrr",
            "recall", "precision", "success" (a relevant document is among the first k); of the
            first k documents with "@k".
        relevant_from: the lowest grade of a relevant document, above 0; None: each grade above 0 is
            one. Graded nDCG does not use it.

    Raises:
        OptionError: a metric is unknown, or unjudged documents would be relevant.
    """
    require_between("relevant_from", relevant_from, 0, without_low=True)
    least = math.ulp(0.0) if relevant_from is None else relevant_from
    parsed = {name: _parsed(name) for name in metrics}
    result = {}
    for query, grades in judgements.items():
        ranked_grades = [grades.get(document, 0) for document in ranked(run.get(query, {}))]
        all_grades = list(grades.values())
        result[query] = {
            name: metric(ranked_grades[: cutoff or None], all_grades, cutoff, least)
            for name, (metric, cutoff) in parsed.items()
        }
    return result


def cutoff_of(metric: str) -> int:
    """The k of a metric, see `query_metrics`; 0: all documents.

    Raises:
        OptionError: the metric is unknown.
    """
    return _parsed(metric)[1]


def _ndcg(ranked_grades: _Grades, all_grades: _Grades, cutoff: int, least: float) -> float:
    ideal = _dcg(sorted(all_grades, reverse=True)[: cutoff or None])
    return _dcg(ranked_grades) / ideal if ideal else 0.0


def _binary_ndcg(ranked_grades: _Grades, all_grades: _Grades, cutoff: int, least: float) -> float:
    ranked_grades = [int(grade >= least) for grade in ranked_grades]
    all_grades = [int(grade >= least) for grade in all_grades]
    return _ndcg(ranked_grades, all_grades, cutoff, least)


def _dcg(grades: _Grades) -> float:
    gains = (grade / math.log2(rank + 1) for rank, grade in enumerate(grades, 1) if grade > 0)
    return _plain_sum(gains)


def _plain_sum(values: Iterable[float]) -> float:
    # `sum` corrects rounding errors since Python 3.12; trec_eval does not.
    return functools.reduce(operator.add, values, 0.0)


def _map(ranked_grades: _Grades, all_grades: _Grades, cutoff: int, least: float) -> float:
    ranks = [rank for rank, grade in enumerate(ranked_grades, 1) if grade >= least]
    total = _plain_sum(number / rank for number, rank in enumerate(ranks, 1))
    return _share(total, all_grades, least)


def _mrr(ranked_grades: _Grades, all_grades: _Grades, cutoff: int, least: float) -> float:
    ranks = (rank for rank, grade in enumerate(ranked_grades, 1) if grade >= least)
    return 1 / next(ranks, math.inf)


def _recall(ranked_grades: _Grades, all_grades: _Grades, cutoff: int, least: float) -> float:
    return _share(_relevant(ranked_grades, least), all_grades, least)


def _precision(ranked_grades: _Grades, all_grades: _Grades, cutoff: int, least: float) -> float:
    return _relevant(ranked_grades, least) / (cutoff or len(ranked_grades) or 1)


def _success(ranked_grades: _Grades, all_grades: _Grades, cutoff: int, least: float) -> float:
    return float(_relevant(ranked_grades, least) > 0)


def _relevant(grades: _Grades, least: float) -> int:
    return sum(grade >= least for grade in grades)


def _share(total: float, all_grades: _Grades, least: float) -> float:
    count = _relevant(all_grades, least)
    return total / count if count else 0.0


# (grades of the first documents, all grades of the query, k or 0, lowest relevant grade) → value.
_Metric = Callable[[_Grades, _Grades, int, float], float]
_METRICS: dict[str, _Metric] = {
    "ndcg": _ndcg,
    "binary_ndcg": _binary_ndcg,
    "map": _map,
    "mrr": _mrr,
    "recall": _recall,
    "precision": _precision,
    "success": _success,
}


def _parsed(name: str) -> tuple[_Metric, int]:
    """A metric and its k; 0: all documents."""
    kind, at, cutoff = name.partition("@")
    if kind not in _METRICS or (at and not (cutoff.isdecimal() and int(cutoff))):
        raise OptionError("metrics", name, f"one of {', '.join(_METRICS)}, also with @10 and so on")
    return _METRICS[kind], int(cutoff or 0)

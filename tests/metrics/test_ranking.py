"""Metrics of rankings against values by hand, and against pytrec_eval on random runs with ties."""

import math
import random

import pytest
import pytrec_eval

from bert_jax.errors import OptionError
from bert_jax.metrics.ranking import query_metrics, ranked, ranking_metrics

OF_TREC_EVAL = {
    "ndcg": "ndcg",
    "ndcg@10": "ndcg_cut_10",
    "map": "map",
    "map@10": "map_cut_10",
    "mrr": "recip_rank",
    "recall@5": "recall_5",
    "precision@5": "P_5",
    "success@1": "success_1",
}


def test_equal_scores_are_ranked_by_id_in_descending_order():
    # 1 + 1e-9 is 1 in single precision, the precision of trec_eval.
    assert ranked({"a": 1.0, "b": 2.0, "c": 1.0 + 1e-9, "d": 1.0}) == ["b", "d", "c", "a"]


def test_values_by_hand():
    grades = {"a": 3, "b": 1, "c": 0, "d": -1, "e": 2}
    scores = {"b": 5.0, "c": 4.0, "a": 3.0, "d": 2.0}  # grades 1, 0, 3, -1; e is missing
    names = ("ndcg@3", "binary_ndcg@3", "map", "mrr", "mrr@1", "recall@3", "precision@3")
    names += ("success@1",)
    (actual,) = query_metrics({"q": grades}, {"q": scores}, names).values()
    ideal = 3 + 2 / math.log2(3) + 1 / 2
    assert actual == pytest.approx(
        {
            "ndcg@3": (1 + 3 / 2) / ideal,
            "binary_ndcg@3": (1 + 1 / 2) / (1 + 1 / math.log2(3) + 1 / 2),
            "map": (1 / 1 + 2 / 3) / 3,
            "mrr": 1,
            "mrr@1": 1,
            "recall@3": 2 / 3,
            "precision@3": 2 / 3,
            "success@1": 1,
        }
    )
    (strict,) = query_metrics({"q": grades}, {"q": scores}, names, relevant_from=2).values()
    assert (strict["map"], strict["mrr"], strict["mrr@1"]) == pytest.approx((1 / 3 / 2, 1 / 3, 0))


def test_grades_need_not_be_whole_numbers():
    grades, scores = {"a": 0.5, "b": 1.5, "c": 0.0}, {"c": 3.0, "a": 2.0, "b": 1.0}
    names = ("ndcg", "mrr", "precision@2")
    (actual,) = query_metrics({"q": grades}, {"q": scores}, names).values()
    ideal = 1.5 + 0.5 / math.log2(3)
    expected = {"ndcg": (0.5 / math.log2(3) + 1.5 / 2) / ideal, "mrr": 1 / 2, "precision@2": 1 / 2}
    assert actual == pytest.approx(expected)
    (strict,) = query_metrics({"q": grades}, {"q": scores}, names, relevant_from=0.7).values()
    assert strict == pytest.approx({**expected, "mrr": 1 / 3, "precision@2": 0})


def test_means_are_over_all_judged_queries():
    judgements = {"with results": {"a": 1}, "without": {"a": 1}}
    run = {"with results": {"a": 1.0}, "not judged": {"a": 1.0}}
    assert ranking_metrics(judgements, run, ("map", "precision")) == {"map": 0.5, "precision": 0.5}
    assert ranking_metrics({}, run, ("map",)) == {"map": 0.0}


@pytest.mark.parametrize("name", ["ndgc", "map@", "map@0", "map@-1", "recall@ten"])
def test_an_unknown_metric_is_refused(name):
    with pytest.raises(OptionError, match=f"metrics is '{name}'.*ndcg, binary_ndcg, map"):
        ranking_metrics({}, {}, (name,))


@pytest.mark.parametrize("queries", [1000, pytest.param(20_000, marks=pytest.mark.slow)])
def test_every_query_has_the_values_of_pytrec_eval(queries):
    draw = random.Random(queries)
    for _ in range(queries):
        documents = [draw.choice("dDé文") + str(number) for number in range(draw.randint(1, 30))]
        judged = draw.sample(documents, draw.randint(1, len(documents)))
        # pytrec_eval does not return if all grades are negative.
        grades = {each: draw.choice((-1, 0, 0, 1, 2, 3)) for each in judged} | {judged[0]: 1}
        score = draw.choice(
            (lambda: draw.choice((1.0, 2.0)), draw.random, lambda: 1 + draw.random() * 1e-7)
        )
        scores = {each: score() for each in draw.sample(documents, draw.randint(1, len(documents)))}
        least = draw.choice((1, 2))
        reference = pytrec_eval.RelevanceEvaluator(
            {"q": grades}, set(pytrec_eval.supported_measures), relevance_level=least
        ).evaluate({"q": scores})["q"]
        (actual,) = query_metrics(
            {"q": grades}, {"q": scores}, tuple(OF_TREC_EVAL), relevant_from=least
        ).values()
        assert actual == {name: reference[theirs] for name, theirs in OF_TREC_EVAL.items()}


def test_unjudged_documents_cannot_be_relevant():
    with pytest.raises(OptionError, match=r"^relevant_from is 0; it must be above 0$"):
        ranking_metrics({"q": {"d": 0}}, {"q": {"d": 1.0}}, relevant_from=0)

"""SQuAD's metrics of questions that may have no answer, and the threshold that is best for them."""

from collections.abc import Sequence

from bert_jax.data.examples import Question
from bert_jax.metrics.squad import score_v2

# What google-research/bert takes where nobody has tuned it.
UNTUNED_THRESHOLD = 0.0


def gold_texts(questions: Sequence[Question]) -> dict[str, list[str]]:
    """The accepted answers of each question, by its id; none where there are none."""
    return {one.id: [answer.text for answer in one.answers or ()] for one in questions}


def scores_v2(
    gold: dict[str, list[str]],
    predictions: dict[str, str],
    odds: dict[str, float],
    threshold: float,
) -> dict[str, float]:
    """The metrics of 2.0 under the names of 1.1, at a threshold, and what the best would give."""
    official = score_v2(gold, predictions, odds, threshold=threshold)
    names = {
        "exact": "exact_match",
        "f1": "f1",
        "HasAns_exact": "has_answer_exact_match",
        "HasAns_f1": "has_answer_f1",
        "NoAns_f1": "no_answer_f1",
        "best_f1": "best_f1",
        "best_f1_thresh": "best_f1_threshold",
    }
    found = {ours: official[theirs] for theirs, ours in names.items() if theirs in official}
    return {**found, "null_threshold": threshold}

"""SQuAD's metrics of questions that may have no answer, and the threshold that is best for them."""

from collections.abc import Sequence

from bert_jax.data.examples import Question
from bert_jax.metrics.squad import score_v2

# What google-research/bert takes where nobody has tuned it.
UNTUNED_THRESHOLD = 0.0


def gold_texts(questions: Sequence[Question]) -> dict[str, list[str]]:
    """The accepted answers of each question, by its id; none where there are none."""
    return {one.id: [answer.text for answer in one.answers or ()] for one in questions}


def best_threshold(
    gold: dict[str, list[str]], predictions: dict[str, str], odds: dict[str, float]
) -> float:
    """A threshold with the best F1 of the official script.

    The script names the odds of the last question that is answered, where rounding decides. Half
    way to the next question the answers are the same, and stay so on another machine.
    """
    found = score_v2(gold, predictions, odds, threshold=UNTUNED_THRESHOLD)
    best = found["best_f1_thresh"]
    following = min((value for value in odds.values() if value > best), default=best + 2)
    threshold = (best + following) / 2
    reached = score_v2(gold, predictions, odds, threshold=threshold)["f1"]
    # The script says 0 where it is best to answer nothing, which does not always do that.
    return threshold if reached >= found["best_f1"] else min(odds.values()) - 1


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

"""Exact match and F1 of answers, equal to SQuAD's official scripts to the last digit.

Written from the descriptions in the papers (Rajpurkar et al. 2016, section 6.1, for 1.1; Rajpurkar,
Jia and Liang 2018 for 2.0). The two scripts differ for answers that are empty when normalised: 1.1
gives two of them F1 0 (they share no word), 2.0 gives 1.
"""

import re
import string
from collections import Counter
from collections.abc import Mapping, Sequence

import numpy as np

_PUNCTUATION = str.maketrans("", "", string.punctuation)
_ARTICLES = re.compile(r"\b(?:a|an|the)\b")


def normalise_answer(text: str) -> str:
    """The form in which two answers are compared.

    In this order: lower case; no ASCII punctuation (words on both sides of it join); no articles;
    words separated by one space. Dashes, quotes and accents beyond ASCII stay.
    """
    without_articles = _ARTICLES.sub(" ", text.lower().translate(_PUNCTUATION))
    return " ".join(without_articles.split())


def exact_match(gold: str, predicted: str) -> bool:
    """Whether two answers are equal when normalised."""
    return normalise_answer(gold) == normalise_answer(predicted)


def token_f1(gold: str, predicted: str) -> float:
    """F1 of the words of two answers, counted with repetitions; 0 if none is shared."""
    return _f1_of_words(normalise_answer(gold).split(), normalise_answer(predicted).split())


def score_v1(gold: Mapping[str, Sequence[str]], predicted: Mapping[str, str]) -> dict[str, float]:
    """The metrics of SQuAD 1.1, in percent.

    Args:
        gold: one or more accepted answers by id of the question; the best match counts.
        predicted: answer by id. A question without one scores 0; other ids are ignored.

    Returns:
        `exact_match` and `f1`.
    """
    exact = 0
    f1 = 0.0
    # Added up one by one in the order of the questions, like the script: the last digit depends on
    # it.
    for identity, answers in gold.items():
        if identity in predicted:
            guess = predicted[identity]
            exact += max(exact_match(answer, guess) for answer in answers)
            f1 += max(token_f1(answer, guess) for answer in answers)
    return {"exact_match": 100.0 * exact / len(gold), "f1": 100.0 * f1 / len(gold)}


def score_v2(
    gold: Mapping[str, Sequence[str]],
    predicted: Mapping[str, str],
    null_scores: Mapping[str, float] | None = None,
    *,
    threshold: float = 1.0,
) -> dict[str, float]:
    """The metrics of SQuAD 2.0, in percent.

    Args:
        gold: accepted answers by id of the question; empty if it has no answer.
        predicted: answer by id, "" for no answer. Every question needs one; other ids are ignored.
        null_scores: by id, the certainty that there is no answer; called `na_probs` in the script.
            Every question needs one. `predicted` then has the best answer, for any null score.
        threshold: a question with a higher null score is scored as if answered by "". The script's
            default is meant for probabilities.

    Returns:
        `exact`, `f1`, `total`, and if there are such questions the same with the prefixes `HasAns_`
        and `NoAns_`; with null scores also `best_exact`, `best_f1`, and the thresholds at which
        they are reached, `best_exact_thresh`, `best_f1_thresh` (0 if "" for all questions is best).
    """
    per_question = _scores_v2(gold, predicted)
    best = {}
    if null_scores is not None:
        for name, scores in per_question.items():
            best[f"best_{name}"], best[f"best_{name}_thresh"] = _best_threshold(
                gold, predicted, scores, null_scores
            )
        per_question = {
            name: _apply_threshold(gold, scores, null_scores, threshold)
            for name, scores in per_question.items()
        }
    return _averages(gold, per_question) | best


def best_f1_threshold(
    gold: Mapping[str, Sequence[str]],
    predicted: Mapping[str, str],
    null_scores: Mapping[str, float],
) -> float:
    """The `threshold` with the best F1 of `score_v2`; of several such, the lowest.

    The script returns the null score of the last answered question, and rounding decides whether it
    is answered. Half way to the next null score the answers are the same, and stay the same on
    another machine. If "" for all questions is best, the threshold is below all null scores.
    """
    f1 = _scores_v2(gold, predicted)["f1"]
    order = sorted(gold, key=lambda identity: null_scores[identity])
    scores = np.array([null_scores[identity] for identity in order], np.float64)
    gains = np.array([f1[identity] - float(not gold[identity]) for identity in order])
    # One running sum over all thresholds, from "" for all to an answer for all. Questions with
    # equal null scores are answered together.
    totals = np.cumsum([sum(not answers for answers in gold.values()), *gains])
    counts = np.append(0, np.flatnonzero(np.append(np.diff(scores) > 0, True)) + 1)
    count = counts[totals[counts].argmax()]
    if count == 0:
        return float(scores[0] - 1)
    if count == len(scores):
        return float(scores[-1] + 1)
    last, following = scores[count - 1], scores[count]
    middle = (last + following) / 2
    return float(middle if middle < following else last)  # no number lies between neighbours


def _scores_v2(
    gold: Mapping[str, Sequence[str]], predicted: Mapping[str, str]
) -> dict[str, dict[str, float]]:
    """`exact` and `f1` of the prediction for each question, by id, from 0 to 1."""
    exact, f1 = {}, {}
    for identity, answers in gold.items():
        # An answer that is empty when normalised cannot be matched; without any other, "" is right.
        accepted = [answer for answer in answers if normalise_answer(answer)] or [""]
        guess = predicted[identity]
        exact[identity] = float(max(exact_match(answer, guess) for answer in accepted))
        f1[identity] = max(_token_f1_v2(answer, guess) for answer in accepted)
    return {"exact": exact, "f1": f1}


def _f1_of_words(gold: Sequence[str], predicted: Sequence[str]) -> float:
    shared = (Counter(gold) & Counter(predicted)).total()
    if not shared:
        return 0.0
    precision, recall = shared / len(predicted), shared / len(gold)
    return 2 * precision * recall / (precision + recall)


def _token_f1_v2(gold: str, predicted: str) -> float:
    gold_words, words = normalise_answer(gold).split(), normalise_answer(predicted).split()
    if not gold_words or not words:
        return float(gold_words == words)
    return _f1_of_words(gold_words, words)


def _apply_threshold(
    gold: Mapping[str, Sequence[str]],
    scores: Mapping[str, float],
    null_scores: Mapping[str, float],
    threshold: float,
) -> dict[str, float]:
    return {
        identity: float(not gold[identity]) if null_scores[identity] > threshold else score
        for identity, score in scores.items()
    }


def _averages(
    gold: Mapping[str, Sequence[str]], per_question: Mapping[str, Mapping[str, float]]
) -> dict[str, float]:
    """Averages over all questions, those with an answer, and those without."""
    groups = {
        "": list(gold),
        "HasAns_": [identity for identity, answers in gold.items() if answers],
        "NoAns_": [identity for identity, answers in gold.items() if not answers],
    }
    result: dict[str, float] = {}
    for prefix, group in groups.items():
        if group:
            for name, scores in per_question.items():
                # `sum`, as in the script: since Python 3.12 it rounds differently from a loop.
                total = sum(scores[identity] for identity in group)
                result[prefix + name] = 100.0 * total / len(group)
            result[f"{prefix}total"] = len(group)
    return result


def _best_threshold(
    gold: Mapping[str, Sequence[str]],
    predicted: Mapping[str, str],
    scores: Mapping[str, float],
    null_scores: Mapping[str, float],
) -> tuple[float, float]:
    """The best average, and the highest null score that is answered for it.

    Starts with "" for every question and adds answers one by one, the most certain first.
    """
    score: float = sum(not answers for answers in gold.values())
    best, threshold = score, 0.0
    for identity in sorted(null_scores, key=lambda identity: null_scores[identity]):
        if identity not in scores:
            continue
        if gold[identity]:
            score += scores[identity]
        elif predicted[identity]:
            score -= 1  # "" was right; any answer is wrong, even one that is empty when normalised
        if score > best:
            best, threshold = score, null_scores[identity]
    return 100.0 * best / len(scores), threshold

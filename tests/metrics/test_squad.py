"""SQuAD's metrics: by hand, and against another reading of their description, to the last digit."""

import itertools
import json
import random
import string

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bert_jax.errors import UserError
from bert_jax.metrics.squad import (
    best_f1_threshold,
    exact_match,
    normalise_answer,
    score_v1,
    score_v2,
    token_f1,
)

# ---------------------------------------------------------------- by hand


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("The Sun", "sun"),
        ("  a  sun\tand THE\nsea ", "sun and sea"),
        ("an", ""),
        ("A. A. Milne", "milne"),  # punctuation goes first, so that "A." is an article
        ("U.S.A.", "usa"),
        ("well-known", "wellknown"),
        ("the-end", "theend"),  # no article any more
        ("Another theme and a", "another theme and"),
        ("1,000.50 $", "100050"),
        ("don't", "dont"),
        ("a_an_the", "aanthe"),
        ("a—b", "—b"),  # a dash that is not ASCII stays, and ends a word
        ("“The” sun", "“ ” sun"),
        ("10\u202f000\u00a0km", "10 000 km"),  # both are white space
        ("THÉ", "thé"),
        ("the\u0301", "\u0301"),  # a combining accent is no letter to the script
        ("İ", "i\u0307"),
        ("Straße", "straße"),  # lower case, not folded
        ("!?", ""),
        ("", ""),
    ],
)
def test_what_answers_are_compared_by(text, expected):
    assert normalise_answer(text) == expected


def test_exact_match():
    assert exact_match("The Sun!", "sun")
    assert not exact_match("sun", "suns")
    assert exact_match("a", "the")


def test_token_f1():
    assert token_f1("the red sun", "red sun") == 1
    # 2 of 3 words are right, and 2 of 4 found: 2 · ⅔ · ½ / (⅔ + ½) = 4/7
    assert token_f1("big red sun today", "red sun set") == pytest.approx(4 / 7, abs=1e-15)
    # A word counts as often as both have it.
    assert token_f1("sun sun sea", "sun sun sun") == pytest.approx(2 / 3, abs=1e-15)
    assert token_f1("sun", "sea") == 0
    assert token_f1("a", "the") == 0


GOLD = {
    "q1": ("Denver Broncos", "The Broncos"),
    "q2": ("1,000",),
    "q3": ("in the sea",),
    "q4": ("a",),
}


def test_version_1_by_hand():
    predicted = {"q1": "broncos", "q2": "1000", "q3": "sea", "q4": "the", "unknown": "x"}
    # F1: 1, 1, 2 · 1 · ½ / 1½ = ⅔; and of two answers without words, 0 though they match.
    assert score_v1(GOLD, predicted) == {"exact_match": 75.0, "f1": 100 * (2 + 2 / 3) / 4}
    # A question without a prediction scores nothing, and counts.
    assert score_v1(GOLD, {"q1": "broncos"}) == {"exact_match": 25.0, "f1": 25.0}
    assert score_v1(GOLD, {}) == {"exact_match": 0.0, "f1": 0.0}


def test_version_1_knows_no_question_without_answer():
    with pytest.raises(UserError, match="question 'q' has no answer, which SQuAD 1.1 does not al"):
        score_v1({"q": ()}, {"q": ""})
    for score in (score_v1, score_v2):
        with pytest.raises(UserError, match="there are no questions to score"):
            score({}, {})


def test_version_2_by_hand():
    gold = {**GOLD, "n1": (), "n2": (), "n3": ()}
    predicted = {"q1": "", "q2": "1000", "q3": "sea", "q4": "", "n1": "", "n2": "sun", "n3": "the"}
    # q4: of "a" nothing is left, so "" is right. n3: "the" is as good as "".
    expected = {
        "exact": 100 * 4 / 7,
        "f1": 100 * (0 + 1 + 2 / 3 + 1 + 1 + 0 + 1) / 7,
        "total": 7,
        "HasAns_exact": 50.0,
        "HasAns_f1": 100 * (2 + 2 / 3) / 4,
        "HasAns_total": 4,
        "NoAns_exact": 100 * 2 / 3,
        "NoAns_f1": 100 * 2 / 3,
        "NoAns_total": 3,
    }
    # Since Python 3.12 `sum` rounds once.
    assert score_v2(gold, predicted) == pytest.approx(expected, rel=1e-15)


def test_version_2_without_one_kind_of_question():
    assert score_v2({"q": ("sun",)}, {"q": "sun"}) == {
        "exact": 100.0,
        "f1": 100.0,
        "total": 1,
        "HasAns_exact": 100.0,
        "HasAns_f1": 100.0,
        "HasAns_total": 1,
    }
    assert set(score_v2({"n": ()}, {"n": ""})) == {
        *("exact", "f1", "total", "NoAns_exact", "NoAns_f1", "NoAns_total")
    }


def test_the_best_threshold_by_hand():
    gold = {"q1": ("sun",), "q2": ("sea",), "n1": (), "n2": ()}
    predicted = {"q1": "sun", "q2": "sea", "n1": "x", "n2": "x"}
    null_scores = {"n2": 9.0, "q2": 0.5, "n1": 0.4, "q1": -3.0, "unknown": -9.0}
    # "" throughout: 2 right; with q1's answer 3; with n1's 2; with q2's 3 again, which is no more.
    found = score_v2(gold, predicted, null_scores)
    assert (found["best_exact"], found["best_exact_thresh"]) == (75.0, -3.0)
    assert (found["best_f1"], found["best_f1_thresh"]) == (75.0, -3.0)
    # The threshold of the call, 1: only n2 is answered by "".
    assert found["exact"] == 75.0
    assert found["NoAns_exact"] == 50.0
    assert score_v2(gold, predicted, null_scores, threshold=-3.0)["exact"] == 75.0
    # A question with an answer loses it above the threshold.
    assert score_v2(gold, predicted, null_scores, threshold=-4.0)["HasAns_f1"] == 0.0


def test_a_threshold_of_nothing_but_no_answers():
    found = score_v2({"q": ("sun",), "n": ()}, {"q": "sea", "n": "x"}, {"q": 0.1, "n": 0.2})
    assert (found["best_f1"], found["best_f1_thresh"]) == (50.0, 0.0)


def threshold_and_f1(gold, predicted, odds):
    threshold = best_f1_threshold(gold, predicted, odds)
    return threshold, score_v2(gold, predicted, odds, threshold=threshold)["f1"]


def test_the_threshold_of_the_best_f1_by_hand():
    gold = {"q0": ["red green blue"], "q1": ["red green blue"], "q2": []}
    predicted = {
        "q0": "red green blue cat dog", "q1": "red green blue cat", "q2": "red green blue"
    }  # fmt: skip
    odds = {"q0": -3.0, "q1": -6.99, "q2": -1.98}
    # Two sums of the same F1 in another order differ in the last digit.
    assert threshold_and_f1(gold, predicted, odds) == (
        -2.49,
        pytest.approx(100 * (3 / 4 + 6 / 7 + 1) / 3),
    )
    # Equal scores are answered together: x and d, or with them b (right) and c (wrong).
    gold, odds = {"a": ["x"], "b": ["y"], "c": [], "d": ["z"]}, {"a": -3, "b": -2, "c": -1, "d": -1}
    assert threshold_and_f1(gold, dict(zip("abcd", "xywz", strict=True)), odds) == (-1.5, 75.0)
    # No answer at all, and all of them.
    assert threshold_and_f1({"a": []}, {"a": "x"}, {"a": 2.0}) == (1.0, 100.0)
    assert threshold_and_f1({"a": ["x"]}, {"a": "x"}, {"a": 2.0}) == (3.0, 100.0)
    with pytest.raises(UserError, match="there are no questions to score"):
        best_f1_threshold({}, {}, {})


def test_the_threshold_of_the_best_f1_is_better_than_any_other():
    draw = random.Random(0)

    def text(most):
        return " ".join(
            draw.choices(["red", "green", "blue", "the", "cat"], k=draw.randint(0, most))
        )

    for _ in range(600):
        names = [f"q{number}" for number in range(draw.randint(1, 6))]
        gold = {name: [text(3)] if draw.random() < 0.6 else [] for name in names}
        predicted = {name: text(4) for name in names}
        has_ties = draw.random() < 0.5
        odds = {
            name: float(draw.randint(-2, 2)) if has_ties else draw.gauss(0, 3) for name in names
        }
        _, f1 = threshold_and_f1(gold, predicted, odds)
        others = [min(odds.values()) - 1, *odds.values()]
        reached = [score_v2(gold, predicted, odds, threshold=other) for other in others]
        assert f1 == pytest.approx(max(scores["f1"] for scores in reached), abs=1e-9)
        # The script's best: it answers equal null scores one by one, and counts an answer of which
        # nothing is left as wrong where there is none.
        if len(set(odds.values())) == len(odds) and all(
            gold[name] or normalise_answer(predicted[name]) or not predicted[name] for name in names
        ):
            assert f1 == pytest.approx(reached[0]["best_f1"], abs=1e-9)


def test_version_2_wants_everything():
    with pytest.raises(UserError, match="1 of 2 questions have no prediction, first 'b'; SQuAD"):
        score_v2({"a": (), "b": ()}, {"a": ""})
    with pytest.raises(UserError, match="2 of 2 questions have no null score, first 'a'"):
        score_v2({"a": (), "b": ()}, {"a": "", "b": ""}, {})


# ---------------------------------------------------------------- another reading


def independent_words(text: str) -> list[str]:
    """The words of an answer, letter by letter, without regular expressions."""
    kept = [c for c in text.lower() if c not in string.punctuation]
    pieces = ["".join(run) for _, run in itertools.groupby(kept, key=str.isalnum)]
    return "".join(" " if piece in ("a", "an", "the") else piece for piece in pieces).split()


def independent_f1(gold: list[str], words: list[str]) -> float:
    left, same = list(gold), 0
    for word in words:
        if word in left:
            left.remove(word)
            same += 1
    if same == 0:
        return 0.0
    precision, recall = same / len(words), same / len(gold)
    return 2 * precision * recall / (precision + recall)


def independent_v1(questions: list[dict], predicted: dict[str, str]) -> dict[str, float]:
    """From `{"id": ..., "answers": [{"text": ...}]}` as in the file."""
    exact, f1 = [], []
    for question in questions:
        words = independent_words(predicted.get(question["id"], ""))
        golds = [independent_words(answer["text"]) for answer in question["answers"]]
        answered = question["id"] in predicted
        exact.append(1.0 if answered and words in golds else 0.0)
        f1.append(max(independent_f1(gold, words) for gold in golds) if answered else 0.0)
    # A running sum, in order.
    means = [100.0 * float(np.cumsum(scores)[-1]) / len(questions) for scores in (exact, f1)]
    return dict(zip(("exact_match", "f1"), means, strict=True))


def independent_v2(
    questions: list[dict], predicted: dict[str, str], null_scores: dict[str, float], limit: float
) -> dict[str, float]:
    answerable = np.array([len(question["answers"]) > 0 for question in questions])
    guesses = [predicted[question["id"]] for question in questions]
    nulls = np.array([null_scores[question["id"]] for question in questions])
    raw = {"exact": [], "f1": []}
    for question, guess in zip(questions, guesses, strict=True):
        words = independent_words(guess)
        golds = [independent_words(answer["text"]) for answer in question["answers"]]
        golds = [gold for gold in golds if gold] or [[]]
        raw["exact"].append(1.0 if words in golds else 0.0)
        f1 = [independent_f1(gold, words) if gold and words else gold == words for gold in golds]
        raw["f1"].append(float(max(f1)))
    result = {}
    for prefix, chosen in (
        ("", answerable | True),
        ("HasAns_", answerable),
        ("NoAns_", ~answerable),
    ):
        if not chosen.any():
            continue
        for name, scores in raw.items():
            judged = np.where(nulls > limit, (~answerable).astype(float), scores)[chosen]
            result[prefix + name] = 100.0 * sum(judged.tolist()) / int(chosen.sum())
        result[prefix + "total"] = int(chosen.sum())
    # The order in which questions come to be answered, as a file sorted by null score.
    rank = {identity: i for i, identity in enumerate(null_scores)}
    order = sorted(range(len(questions)), key=lambda i: (nulls[i], rank[questions[i]["id"]]))
    for name, scores in raw.items():
        spoken = np.array([-1.0 if guess else 0.0 for guess in guesses])
        gains = np.where(answerable, scores, spoken)[order]
        totals = np.cumsum([float((~answerable).sum()), *gains])
        best = int(totals.argmax())
        result[f"best_{name}"] = 100.0 * float(totals[best]) / len(questions)
        result[f"best_{name}_thresh"] = float(nulls[order[best - 1]]) if best else 0.0
    return result


def gold_of(questions: list[dict]) -> dict[str, tuple[str, ...]]:
    return {
        question["id"]: tuple(answer["text"] for answer in question["answers"])
        for question in questions
    }


def perturbed(answer: str, random_number: random.Random) -> str:
    """An answer as a model may give it, or as it would break a scorer."""
    words = answer.split(" ")
    cut = random_number.randrange(len(words) + 1)
    others = [
        answer, "", answer.swapcase(), f"the {answer}", f"A, {answer}!", f"{answer} of the a an",
        " ".join(words[:cut]), " ".join(words[cut:]), " ".join(reversed(words)),
        f"{answer} {answer}", "".join(words), "-".join(words), "—".join(words),
        "\u202f".join(words), "\u00a0".join(words), answer.replace("e", "e\u0301"),
        answer.replace("a", "а"),  # Cyrillic
        f"“{answer}”", f"  {answer}\n", answer.replace(",", ""), f"{answer}.0", "the", "...",
        "\u200b",
    ]  # fmt: skip
    return random_number.choice(others)


TEXTS = [
    "Denver Broncos", "the Denver Broncos!", "February 7, 2016", "1,000.5", "$5–10 million", "a",
    "The", "—", "“golden anniversary”", "Beyoncé Knowles", "Beyonce\u0301 Knowles",
    "10\u202f000 km", "in the 10th and the 11th centuries", "Łódź", "北京 大学", "İstanbul",
    "the\u0301", "the²", "a_b", "cat\u00adalogue", "A. A. Milne", "well-known", "x\u2028y\x1fz",
]  # fmt: skip


@pytest.mark.parametrize("seed", range(5))
def test_another_reading_gives_the_same_digits(seed):
    chance = random.Random(seed)
    questions = [
        {
            "id": f"q{number}",
            "answers": [{"text": text} for text in chance.choices(TEXTS, k=chance.randrange(4))],
        }
        for number in range(300)
    ]
    gold = gold_of(questions)
    predicted = {
        identity: perturbed(chance.choice(answers or TEXTS), chance)
        for identity, answers in gold.items()
    }
    # Ties among the null scores, too.
    nulls = {identity: round(chance.gauss(0.5, 1), 1) for identity in gold}
    for limit in (1.0, 0.0, -0.3):
        expected = independent_v2(questions, predicted, nulls, limit)
        assert score_v2(gold, predicted, nulls, threshold=limit) == expected

    answered = [question for question in questions if question["answers"]]
    some = {identity: text for identity, text in predicted.items() if chance.random() < 0.9}
    for given_answers in (predicted, some):
        found = score_v1(gold_of(answered), given_answers)
        assert found == independent_v1(answered, given_answers)
        assert json.loads(json.dumps(found)) == found


LETTERS = st.text(st.sampled_from("aAnthe THE.,-_—'\u0301\u202f1²é "), max_size=12)


@given(LETTERS)
def test_any_text_has_the_same_words(text):
    assert normalise_answer(text).split() == independent_words(text)


@given(st.text())
def test_any_unicode_has_the_same_words(text):
    assert normalise_answer(text).split() == independent_words(text)

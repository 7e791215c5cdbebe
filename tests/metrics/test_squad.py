"""SQuAD's metrics by hand, and as recorded from an independent implementation."""

import itertools
import random
import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bert_jax.metrics.squad import (
    best_f1_threshold,
    exact_match,
    normalise_answer,
    score_v1,
    score_v2,
    token_f1,
)


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
        ("the\u0301", "\u0301"),  # a combining accent is not a letter to the script
        ("İ", "i\u0307"),
        ("Straße", "straße"),  # lower case, not folded
        ("!?", ""),
        ("", ""),
    ],
)
def test_normalised_answers(text, expected):
    assert normalise_answer(text) == expected


def test_exact_match_and_f1_of_tokens():
    assert exact_match("The Sun!", "sun")
    assert not exact_match("sun", "suns")
    assert exact_match("a", "the")
    assert token_f1("the red sun", "red sun") == 1
    # precision ⅔ and recall ½: 2 · ⅔ · ½ / (⅔ + ½) = 4/7
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
    # Without questions of one kind, there are no metrics of it.
    perfect = {"exact": 100.0, "f1": 100.0, "total": 1}
    with_prefix = {f"HasAns_{name}": value for name, value in perfect.items()}
    assert score_v2({"q": ("sun",)}, {"q": "sun"}) == perfect | with_prefix


def test_the_best_threshold_by_hand():
    gold = {"q1": ("sun",), "q2": ("sea",), "n1": (), "n2": ()}
    predicted = {"q1": "sun", "q2": "sea", "n1": "x", "n2": "x"}
    null_scores = {"n2": 9.0, "q2": 0.5, "n1": 0.4, "q1": -3.0, "unknown": -9.0}
    # "" throughout: 2 right; with q1's answer 3; with n1's 2; with q2's 3 again, which is no more.
    scores = score_v2(gold, predicted, null_scores)
    assert (scores["best_exact"], scores["best_exact_thresh"]) == (75.0, -3.0)
    assert (scores["best_f1"], scores["best_f1_thresh"]) == (75.0, -3.0)
    # The threshold of the call, 1: only n2 is answered by "".
    assert (scores["exact"], scores["NoAns_exact"]) == (75.0, 50.0)
    assert score_v2(gold, predicted, null_scores, threshold=-3.0)["exact"] == 75.0
    # A question with an answer loses it above the threshold.
    assert score_v2(gold, predicted, null_scores, threshold=-4.0)["HasAns_f1"] == 0.0
    # "" for all questions is best.
    scores = score_v2({"q": ("sun",), "n": ()}, {"q": "sea", "n": "x"}, {"q": 0.1, "n": 0.2})
    assert (scores["best_f1"], scores["best_f1_thresh"]) == (50.0, 0.0)


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


def test_the_threshold_of_the_best_f1_is_better_than_any_other():
    draw = random.Random(0)

    def text(most):
        return " ".join(
            draw.choices(["red", "green", "blue", "the", "cat"], k=draw.randint(0, most))
        )

    for _ in range(200):
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


# Of an independent implementation of the two papers.
RECORDED_V1 = {"exact_match": 49.107142857142854, "f1": 49.5514455782313}
RECORDED_V2 = {
    "exact": 29.333333333333332,
    "f1": 31.750000000000007,
    "total": 300,
    "HasAns_exact": 15.625,
    "HasAns_f1": 18.861607142857142,
    "HasAns_total": 224,
    "NoAns_exact": 69.73684210526316,
    "NoAns_f1": 69.73684210526316,
    "NoAns_total": 76,
    "best_exact": 42.333333333333336,
    "best_exact_thresh": 1.4,
    "best_f1": 48.181746031746044,
    "best_f1_thresh": 2.2,
}


def test_recorded_scores():
    chance = random.Random(0)
    gold = {f"q{number}": chance.choices(TEXTS, k=chance.randrange(4)) for number in range(300)}
    predicted = {
        identity: perturbed(chance.choice(answers or TEXTS), chance)
        for identity, answers in gold.items()
    }
    nulls = {identity: round(chance.gauss(0.5, 1), 1) for identity in gold}  # with ties
    scores = score_v2(gold, predicted, nulls, threshold=0.0)
    assert scores == pytest.approx(RECORDED_V2, rel=1e-15)
    answered = {identity: answers for identity, answers in gold.items() if answers}
    some = {identity: text for identity, text in predicted.items() if chance.random() < 0.9}
    assert score_v1(answered, some) == RECORDED_V1


def independent_words(text: str) -> list[str]:
    """The words of an answer, letter by letter, without regular expressions."""
    kept = [c for c in text.lower() if c not in string.punctuation]
    pieces = ["".join(run) for _, run in itertools.groupby(kept, key=str.isalnum)]
    return "".join(" " if piece in ("a", "an", "the") else piece for piece in pieces).split()


@given(st.text() | st.text(st.sampled_from("aAnthe THE.,-_—'\u0301\u202f1²é "), max_size=12))
def test_any_text_has_the_words_of_an_independent_implementation(text):
    assert normalise_answer(text).split() == independent_words(text)

"""Answers in texts, and accuracy of retrieval, by literal values."""

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bert_jax.metrics.answers import find_answers, has_answer, retrieval_accuracy


@pytest.mark.parametrize(
    ("answer", "text", "expected"),
    [
        ("the Beatles", "Then THE BEATLES came", True),
        ("Beatle", "the Beatles", False),  # words, not characters
        ("caf\u00e9", "a cafe\u0301 in", True),  # one character, or two
        ("cafe", "a caf\u00e9 in", False),  # an accent counts
        ("U.S.", "the U.S. is", True),
        ("U.S.", "the US is", False),  # a sign is a word
        ("us is", "the U . S. us, is", False),
        ("1,000", "some 1,000 men", True),
        ("1,000", "some 1 , 000 men", True),
        ("new\u00a0york", "in New \n York", True),
        ("a_b", "A_B", True),
        ("b", "a_b", True),
        ("\u092e\u0928\u094d", "\u092e\u0928\u094d", True),  # with a mark that is no letter
        ("\u092e\u0928", "\u092e\u0928\u094d", False),
        ("x\u200by", "x y", True),  # a character without a width is a blank
        ("", "anything", False),
        (" \t", "anything", False),
        ("one two", "one", False),
    ],
)
def test_an_answer_is_a_sequence_of_words(answer, text, expected):
    assert has_answer([answer], text) is expected
    assert has_answer(["zzz", answer], text) is expected


def test_places_are_characters_of_the_text():
    text = "A caf\u00e9, and a CAFE\u0301."
    places = list(find_answers(["caf\u00e9", "a"], text))
    assert [text[start:stop] for start, stop in places] == ["caf\u00e9", "CAFE\u0301", "A", "a"]
    assert places[0] == (2, 6)


@given(st.text(), st.text(max_size=5), st.text())
def test_an_answer_between_blanks_is_found_at_its_place(before, answer, after):
    text, start = f"{before} {answer} {after}", len(before) + 1
    places = find_answers([answer], text)
    inside = [each for each in places if start <= each[0] and each[1] <= start + len(answer)]
    assert bool(inside) == has_answer([answer], answer)


# Characters that one version of Unicode has may be letters in the next one.
ASSIGNED = st.characters(exclude_categories=("Cn", "Cs"))
PARTS = st.one_of(st.text(ASSIGNED, max_size=4), st.sampled_from(["a", "\u00e9", "B", " "]))


@pytest.mark.slow
@given(st.lists(PARTS, max_size=12), st.data())
def test_words_are_those_of_unicode_categories(parts, data):
    """As with `\\p{L}`, `\\p{N}`, `\\p{M}`, `\\p{Z}` and `\\p{C}` of the package regex."""
    regex = pytest.importorskip("regex")
    text = "".join(parts)
    start = data.draw(st.integers(0, len(text)))
    answer = text[start : data.draw(st.integers(start, len(text)))]

    def words(text):
        text = unicodedata.normalize("NFD", text)
        found = regex.findall(r"[\p{L}\p{N}\p{M}]+|[^\p{Z}\p{C}]", text)
        return [word.lower() for word in found]

    wanted, present = words(answer), words(text)
    starts = range(len(present) - len(wanted) + 1)
    expected = any(present[at : at + len(wanted)] == wanted for at in starts)
    assert has_answer([answer], text) == (expected and bool(wanted))


def test_accuracy_counts_the_first_passages():
    found = [[True, False, False], [False, False, True], [False, False], []]
    assert retrieval_accuracy(found, (1, 2, 3)) == {
        "accuracy@1": 25,
        "accuracy@2": 25,
        "accuracy@3": 50,
    }

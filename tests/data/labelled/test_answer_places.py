"""Answers that are, are nearly, and are not where a file says."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bert_jax.data.examples import GoldAnswer
from bert_jax.data.windows.answer_places import Place, find_answer

#          0   4   8   12 15  19   24
PASSAGE = "the sea and the sea and the sun"


def found(passage, text, start):
    """The text that is found, and whether it is where the file says."""
    place = find_answer(passage, GoldAnswer(text, start))
    return place and (passage[place.start : place.stop], place.start, place.is_stated)


def test_where_the_file_says():
    assert find_answer(PASSAGE, GoldAnswer("sea", 16)) == Place(16, 19, is_stated=True)
    assert find_answer(PASSAGE, GoldAnswer("sea", 4)) == Place(4, 7, is_stated=True)


@pytest.mark.parametrize(
    ("start", "nearest"), [(3, 4), (5, 4), (9, 4), (11, 16), (17, 16), (99, 16), (-1, 4), (-9, 4)]
)
def test_the_nearest_one_elsewhere(start, nearest):
    assert found(PASSAGE, "sea", start) == ("sea", nearest, False)


@pytest.mark.parametrize(
    ("passage", "answer", "expected"),
    [
        ("it cost 5\u202f000 francs", "5 000", "5\u202f000"),
        ("it cost 5\u00a0000 francs", "5 000", "5\u00a0000"),
        ("the  long\n\tsong", "long song", "long\n\tsong"),
        ("a long song", " long  song ", "long song"),
        ("at the cafe\u0301 now", "caf\u00e9", "cafe\u0301"),
        ("at the caf\u00e9 now", "cafe\u0301", "caf\u00e9"),
        ("to \ufb01nd it", "find", "\ufb01nd"),
        ("５０ boys", "50", "５０"),
    ],
)
def test_the_same_written_otherwise(passage, answer, expected):
    text, start, is_stated = found(passage, answer, 1)
    assert text == expected
    assert start == passage.index(expected)
    assert not is_stated


def test_the_nearest_of_those_written_otherwise():
    passage = "½ " * 20 + "the\u00a0sea " + "½ " * 20 + "the\u00a0sea"
    assert found(passage, "the sea", 40)[1] == 40
    assert found(passage, "the sea", 45)[1] == 40
    assert found(passage, "the sea", 80)[1] == 88


def test_what_is_not_there():
    assert find_answer(PASSAGE, GoldAnswer("moon", 4)) is None
    assert find_answer(PASSAGE, GoldAnswer("Sea", 4)) is None
    assert find_answer("", GoldAnswer("sea", 0)) is None
    assert find_answer(PASSAGE, GoldAnswer(" \u00a0", 4)) is None


def test_the_longest_passages_take_linear_time():
    passage = "the sea " * 125_000 + "the\u00a0sun"
    assert found(passage, "the sun", 0) == ("the\u00a0sun", 1_000_000, False)
    assert found(passage, "the moon", 0) is None


@given(
    words=st.lists(st.sampled_from(["sea", "é", "½", "ﬁn", "中"]), min_size=1, max_size=9),
    data=st.data(),
)
def test_a_part_of_a_passage_is_always_found(words, data):
    spaces = st.sampled_from([" ", "  ", "\n", "\u202f"])
    passage = "".join(word + data.draw(spaces) for word in words)
    first = data.draw(st.integers(0, len(words) - 1))
    last = data.draw(st.integers(first, len(words) - 1))
    answer = " ".join(words[first : last + 1])
    text, _, _ = found(passage, answer, data.draw(st.integers(-1, len(passage))))
    assert text.split() == answer.split()

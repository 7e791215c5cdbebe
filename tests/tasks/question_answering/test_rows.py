"""Training rows by hand, and the questions that are left out."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bert_jax.data.examples import Example, GoldAnswer, Question
from bert_jax.data.windows.passages import PassageWindows
from bert_jax.tasks.question_answering.spans import SpanRows

PASSAGE = "The dogs ran up."


def ask(question, passage, *answers, location="a:1"):
    return Example(
        Question(question, passage), tuple(GoldAnswer(*gold) for gold in answers), "0", location
    )


@pytest.fixture
def rows(tokenizer):
    def rows(*questions, answer_length=30, **options):
        return SpanRows.from_questions(
            questions, PassageWindows(tokenizer, **options), answer_length
        )

    return rows


def test_positions_by_hand(rows, tokenizer):
    # 0     1  2     3   4   5   6   7  8 9
    # [CLS] it [SEP] the dog ##s ran up . [SEP]
    actual = rows(
        ask("it", PASSAGE, ("dogs", 4)),
        ask("it", PASSAGE, ("dog", 4)),
        ask("it", PASSAGE, ("The dogs ran up.", 0)),
        ask("it", PASSAGE, ("an", 10)),  # inside "ran"
        ask("it", PASSAGE),
    )
    assert actual.positions.tolist() == [[4, 5], [4, 4], [3, 8], [6, 6], [0, 0]]
    assert actual.positions.dtype == np.int32
    assert actual.sequences.lengths.tolist() == [10] * 5
    padded = actual.sequences.pad(np.array([0, -1]), 12, tokenizer)
    assert padded["input_ids"].tolist() == [[2, 8, 3, 6, 11, 37, 21, 31, 5, 3, 0, 0], [0] * 12]
    assert padded["token_type_ids"].tolist() == [[0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 0, 0], [0] * 12]
    assert actual.report == ()


def test_windows_without_the_answer_are_labelled_zero(rows):
    # [CLS] it [SEP] the dog ##s ran [SEP]
    #                    dog ##s ran up [SEP]  … every step a window
    actual = rows(ask("it", PASSAGE, ("dogs ran", 4)), length=8, step=1)
    assert actual.positions.tolist() == [[4, 6], [3, 5], [0, 0]]
    assert actual.sequences.lengths.tolist() == [8, 8, 8]
    beyond = rows(ask("it", PASSAGE, ("dogs ran up.", 4)), length=8, step=1)
    assert beyond.positions.tolist() == [[0, 0]] * 3
    assert actual.report == ()
    assert beyond.report == (
        "1 of 1 training questions have an answer that is whole in no window, as if none: raise "
        "data.length (a:1)",
    )


def test_the_first_answer_that_is_there_counts(rows):
    actual = rows(ask("it", PASSAGE, ("cat", 0), ("ran", 9), ("dogs", 4)))
    assert actual.positions.tolist() == [[6, 6]]
    assert actual.report == ()


def test_questions_that_are_left_out(rows):
    actual = rows(
        ask("it", PASSAGE, ("cat", 0), location="a:1"),
        ask("it", PASSAGE, ("ran", 9), location="a:2"),
        ask(" ", PASSAGE, ("ran", 9), location="a:3"),
        ask("it", "", ("ran", 9), location="a:4"),
        ask("it", "The \u200d dogs", ("\u200d", 4), location="a:5"),  # no token of it
        ask("it", PASSAGE, ("up", 0), location="a:6"),  # elsewhere
        ask("it", PASSAGE, ("up", -1), location="a:7"),  # the file does not say where
        ask("it", PASSAGE, ("song", 0), location="a:8"),
        ask("it", PASSAGE, ("sea", 0), location="a:9"),
        ask("it the it", PASSAGE, location="a:10"),
        question_length=2,
    )
    assert actual.positions.tolist() == [[6, 6], [7, 7], [7, 7], [0, 0]]
    assert actual.report == (
        "2 of 10 training questions are empty or have an empty passage: left out (a:3, a:4)",
        "4 of 10 training questions have no answer that is in the passage: left out "
        "(a:1, a:5, a:8 and 1 more)",
        "answers at another position than the file says: 1",
        "1 of 10 training questions were longer than 2 tokens: cut",
    )
    assert rows().positions.shape == (0, 2)


def test_answers_that_are_too_long_or_in_the_passage_twice_are_counted(rows):
    twice = "the sea, the sea"
    actual = rows(
        ask("it", PASSAGE, ("dogs", 4), location="a:1"),  # 2 tokens
        ask("it", PASSAGE, ("dogs ran", 4), location="a:2"),
        ask("it", PASSAGE, ("The dogs ran up.", -1), location="a:3"),
        ask("it", twice, ("sea", -1), location="a:4"),
        ask("it", twice, ("sea", 13), location="a:5"),  # the file says which
        ask("it", twice, ("sea", 12), location="a:6"),  # the nearest
        ask("it", twice, ("sea,", -1), location="a:7"),
        ask("it", "he\u0301 he\u0301", ("h\u00e9", -1), location="a:8"),  # in another spelling
        answer_length=2,
    )
    assert actual.report == (
        "2 of 8 training questions have an answer that is in the passage several times, and no "
        "position of it: the first is learned; give answer_start (a:4, a:8)",
        "2 of 8 training questions have an answer of more than 2 tokens, which is never predicted: "
        "raise data.answer_length (a:2, a:3)",
        "answers at another position than the file says: 1",
    )


@given(data=st.data())
def test_positions_are_those_of_the_answer(tokenizer, data):
    words = data.draw(st.lists(st.sampled_from(["dogs", "walked", "the", "."]), min_size=1))
    passage = " ".join(words)
    starts = np.cumsum([0, *(len(word) + 1 for word in words)])
    first = data.draw(st.integers(0, len(words) - 1))
    last = data.draw(st.integers(first, len(words) - 1))
    answer = " ".join(words[first : last + 1])
    length, step = data.draw(st.integers(6, 40)), data.draw(st.integers(1, 40))
    rows = SpanRows.from_questions(
        [ask("it", passage, (answer, int(starts[first])))],
        PassageWindows(tokenizer, length, step),
        answer_length=99,
    )
    expected = tokenizer.encode_batch([answer], add_special_tokens=False)[0].ids
    inside = 0
    for row, (start, end) in enumerate(rows.positions):
        ids = rows.sequences.pad(np.array(row), length, tokenizer)["input_ids"]
        if end:
            assert ids[start : end + 1].tolist() == expected
            inside += 1
    # With one window, or with so much overlap, the answer is whole in some window.
    if len(rows.positions) == 1 or step + len(expected) <= length - 4:
        assert inside

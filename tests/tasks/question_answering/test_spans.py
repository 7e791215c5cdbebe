"""Spans out of scores, by hand; and gold spans out of their own scores."""

import dataclasses
import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bert_jax.data.windows.passages import PassageWindows
from bert_jax.errors import UserError
from bert_jax.tasks.question_answering.spans import (
    AnswerSpan,
    SpanPrediction,
    best_spans,
    whole_words,
)

# Characters:  0   4   8   12 15  19 22
PASSAGE = "The cat sat on the mat."
ROW = ["[CLS]", "it", "[SEP]", "the", "cat", "sat", "on", "the", "mat", ".", "[SEP]"]


@pytest.fixture
def read(tokenizer):
    """Reads the passage with scores by position in `ROW`; all others are 0."""

    def read(starts, ends, passage=PASSAGE, padding=0, **options):
        (windows,) = PassageWindows(tokenizer)([("it", passage)])
        logits = np.zeros((2, len(windows[0]) + padding), np.float32)
        for row, scores in zip(logits, (starts, ends), strict=True):
            for position, score in scores.items():
                row[position] = score
        return best_spans(passage, windows, [tuple(logits)], **options)

    return read


def with_threshold(prediction, threshold):
    return dataclasses.replace(prediction, null_threshold=threshold)


def test_the_best_span_by_hand(read):
    actual = read({4: 3.0}, {5: 2.0})
    assert actual.best[0] == AnswerSpan("cat sat", 4, 11, 3.0, 2.0)
    assert actual.best[0].score == 5.0
    assert actual.null == AnswerSpan("", 0, 0, 0.0, 0.0)
    assert actual.null_odds == -5.0


def test_the_order_of_the_spans(read):
    actual = read({4: 4.0, 7: 3.0}, {5: 2.0, 8: 1.0}, n_best=6)
    assert [(span.text, span.score) for span in actual.best] == [
        ("cat sat", 6.0),
        ("cat sat on the mat", 5.0),
        ("cat", 4.0),  # equal ones in the order of the passage
        ("cat sat on", 4.0),
        ("cat sat on the", 4.0),
        ("cat sat on the mat.", 4.0),
    ]


def test_only_spans_of_the_passage_are_answers(read):
    # The question, [CLS], both [SEP] and padding score high; and the end before the start.
    wrong = {0: 9.0, 1: 9.0, 2: 9.0, 10: 9.0, 11: 9.0, 12: 9.0}
    actual = read(wrong | {5: 2.0}, wrong | {4: 2.0, 6: 1.0}, padding=2)
    assert actual.best[0] == AnswerSpan("sat on", 8, 14, 2.0, 1.0)
    assert actual.null.score == 18.0


def test_the_longest_answer(read):
    assert read({4: 5.0}, {8: 5.0}, answer_length=5).best[0].text == "cat sat on the mat"
    shorter = read({4: 5.0}, {8: 5.0, 7: 1.0}, answer_length=4).best
    assert shorter[0].text == "cat sat on the"
    assert all(len(span.text.split()) <= 4 for span in shorter)
    # As many spans as there are: 7 + 6 + … + 1.
    assert len(read({}, {}, answer_length=30, n_best=100).best) == 28
    assert len(read({}, {}, answer_length=1, n_best=100).best) == 7


def test_equal_texts_count_once(read):
    scores = {3: 2.0, 7: 3.0}, {3: 5.0, 7: 5.0}
    actual = read(*scores, passage=PASSAGE.lower(), n_best=2)
    assert [(span.text, span.start) for span in actual.best] == [
        ("the", 15),
        ("the cat sat on the", 0),
    ]
    # As the original has it, the case of letters tells texts apart.
    assert [span.text for span in read(*scores, n_best=2).best] == ["the", "The"]
    many = read({}, {}, passage="sun " * 300, n_best=3, answer_length=3)
    assert [span.text for span in many.best] == ["sun", "sun sun", "sun sun sun"]
    # Hundreds of spans have the best text, and the next text is still returned.
    ends = dict.fromkeys(range(3, 303), 1.0)
    scores = ends | {4: 0.5}
    twenty = read(scores, ends, passage="sun " * 299 + "sea", n_best=2, answer_length=1)
    assert [span.text for span in twenty.best] == ["sun", "sea"]


def test_the_text_is_that_of_the_passage(read):
    passage = "  A  Cat\u202fSAT\n\ton ."
    # [CLS] it [SEP] a cat sat on . [SEP]
    actual = read({4: 5.0}, {6: 5.0}, passage=passage)
    assert actual.best[0].text == "Cat\u202fSAT\n\ton"
    assert passage[actual.best[0].start : actual.best[0].end] == actual.best[0].text


def test_no_answer_begins_or_ends_inside_a_word(read):
    """Pieces of words as the vocabulary has them: cat ##s, 2 , 700, and letters."""
    cases = [
        # passage, positions of the first and the last token from 3, answer
        ("the cats ran", 4, 4, "cats"),
        ("the cats ran", 5, 5, "cats"),
        ("the cats ran", 5, 6, "cats ran"),
        ("the cat's mat", 4, 4, "cat"),
        ("the cat-mat", 4, 4, "cat"),
        ("(cats)", 4, 4, "cats"),
    ]
    for passage, first, last, answer in cases:
        actual = read({first: 3.0}, {last: 3.0}, passage=passage).best[0]
        assert actual.text == answer
        assert passage[actual.start : actual.end] == answer
    # Both spans of pieces are the same word, which counts once.
    actual = read({4: 3.0, 5: 2.0}, {4: 3.0, 5: 2.0}, passage="the cats", n_best=2)
    assert [(span.text, span.start, span.score) for span in actual.best] == [
        ("cats", 4, 6.0),
        ("the cats", 0, 3.0),
    ]


@pytest.mark.parametrize(
    ("passage", "start", "end", "expected"),
    [
        ("unheard of", 2, 5, "unheard"),
        ("in the 1990s", 7, 11, "1990s"),
        ("2,700 km²", 0, 4, "2,700"),
        ("2,700 km²", 6, 8, "km²"),
        ("at 45°", 3, 5, "45"),
        ("Straße", 0, 4, "Straße"),
        ("cafe\u0301s", 0, 4, "cafe\u0301s"),
        ("Нормандия", 0, 4, "Нормандия"),
        ("snake_case", 0, 5, "snake"),
        ("  sun  ", 2, 5, "sun"),
        # Particles, or no spaces between words: the model alone knows where a word ends.
        ("赤本ブームを", 0, 5, "赤本ブーム"),
        ("서울에서", 0, 2, "서울"),
        ("ครูสิบปี", 3, 8, "สิบปี"),
        ("بالرهبان", 1, 8, "الرهبان"),
    ],
)
def test_words_of_scripts_with_spaces_are_whole(passage, start, end, expected):
    start, end = whole_words(passage, start, end)
    assert passage[start:end] == expected


def test_probabilities(read):
    actual = read({3: 1.0}, {3: 1.0, 0: 1.5}, n_best=2)
    assert [span.score for span in actual.best] == [2.0, 1.0]
    both = with_threshold(actual, 0.0).n_best()
    total = np.exp(2.0) + np.exp(1.5) + np.exp(1.0)
    assert [span.text for span, _ in both] == ["The", "", "The cat"]
    assert [share for _, share in both] == pytest.approx(np.exp([2.0, 1.5, 1.0]) / total)
    spans = actual.n_best()
    assert [share for _, share in spans] == pytest.approx(
        [np.exp(2.0) / (np.exp(2.0) + np.exp(1.0)), np.exp(1.0) / (np.exp(2.0) + np.exp(1.0))]
    )
    # Scores so high that their exponentials are not numbers.
    assert sum(share for _, share in with_threshold(read({3: 1e4}, {3: 1e4}), 0.0).n_best()) == 1.0


def test_the_threshold_of_no_answer(read):
    actual = read({4: 3.0, 0: 2.0}, {4: 2.0, 0: 2.5})
    assert actual.null_odds == -0.5
    assert actual.answer().text == "cat"
    assert with_threshold(actual, -0.4).answer().text == "cat"
    assert with_threshold(actual, -0.5).answer().text == "cat"  # not above the threshold
    assert with_threshold(actual, -0.6).answer().text == ""


def test_a_passage_without_tokens_has_no_answer(read):
    actual = read({}, {}, passage=" ")
    assert actual == SpanPrediction((), AnswerSpan("", 0, 0, 0.0, 0.0))
    assert actual.null_odds == 0.0
    assert actual.answer().text == with_threshold(actual, 9.0).answer().text == ""
    assert actual.n_best() == [(actual.null, 1.0)]


def test_two_windows(tokenizer):
    # [CLS] it sat [SEP] the cat sat on the [SEP]
    #                            sat on the mat .   : "the" and what follows are read here
    (windows,) = PassageWindows(tokenizer, length=10, step=2)([("it sat", PASSAGE)])
    start, end = np.zeros((2, 2, 10), np.float32)
    # [CLS] of the second window is the lower one, though its start alone is higher.
    start[:, 0], end[:, 0] = [1.0, 2.0], [4.0, 2.5]
    start[0, 8] = 9.0  # "the" in the window where it has less context
    start[1, 6], end[1, 7] = 3.0, 1.0  # "the" and "mat" in the other
    end[0, 8] = 2.0
    actual = best_spans(PASSAGE, windows, list(zip(start, end, strict=True)))
    assert actual.best[0] == AnswerSpan("the mat", 15, 22, 3.0, 1.0)
    assert actual.null == AnswerSpan("", 0, 0, 2.0, 2.5)
    # A span may end where another window has more context: "sat on the".
    assert ("sat on the", 2.0) in [(span.text, span.score) for span in actual.best]


@given(data=st.data())
def test_gold_spans_are_read_out_of_their_own_scores(tokenizer, data):
    words = data.draw(st.lists(st.sampled_from(["the", "cats", "ran", "up", "."]), min_size=1))
    passage = data.draw(st.sampled_from([" ", "  ", " \n"])).join(words)
    space = data.draw(st.integers(2, 20))
    step = data.draw(st.integers(1, space))
    # [CLS] sun [SEP] … [SEP]; shorter rows would have no question.
    (windows,) = PassageWindows(tokenizer, length=space + 4, step=step)([("sun", passage)])
    tokens = windows[0].passage
    # Every token has so much context on its right in the window where it is read.
    step = step if step < space else max(space // 2, 1)
    longest = max((space - step) // 2, 1)
    first = data.draw(st.integers(0, len(tokens) - 1))
    last = data.draw(st.integers(first, min(first + longest, len(tokens)) - 1))
    logits = []
    for window in windows:
        scores = np.zeros((2, len(window)), np.float32)
        for row, token in zip(scores, (first, last), strict=True):
            position = token - window.first + window.positions[0]
            if window.positions[0] <= position < window.positions[1]:
                row[position] = 10.0
        logits.append(tuple(scores))
    best = best_spans(passage, windows, logits).best[0]
    spaced = list(re.finditer(r"\S+", passage))  # an answer has whole words
    start = max(word.start() for word in spaced if word.start() <= tokens.offsets[first][0])
    stop = min(word.end() for word in spaced if word.end() >= tokens.offsets[last][1])
    assert (best.start, best.end, best.text) == (start, stop, passage[start:stop])
    assert best.score == 20.0


@settings(max_examples=40)
@given(data=st.data())
def test_no_span_of_several_windows_is_better_than_the_best(tokenizer, data):
    length, step = data.draw(st.integers(6, 9)), data.draw(st.integers(1, 3))
    (windows,) = PassageWindows(tokenizer, length=length, step=step)([("it", PASSAGE)])
    assert len(windows) > 1
    # Few different scores: many ties.
    scores = st.integers(-2, 2)
    logits = [
        tuple(
            np.array(data.draw(st.lists(scores, min_size=len(w), max_size=len(w))), np.float32)
            for _ in range(2)
        )
        for w in windows
    ]
    longest = data.draw(st.integers(1, 8))
    actual = best_spans(PASSAGE, windows, logits, 4, longest)
    every, nulls = {}, []
    for window, (start, end) in zip(windows, logits, strict=True):
        nulls.append(start[0] + end[0])
        begin, stop = window.positions
        for first in range(*window.max_context):
            assert begin <= first < stop
            for last in range(first, min(first + longest, stop)):
                text = PASSAGE[window.offsets[first][0] : window.offsets[last][1]]
                every[text] = max(every.get(text, -np.inf), start[first] + end[last])
    best = [span.score for span in actual.best]
    assert best == sorted(every.values(), reverse=True)[:4]
    assert [every[span.text] for span in actual.best] == best
    assert actual.null.score == min(nulls)


def test_damaged_parameters(read):
    for broken in (np.nan, np.inf):
        with pytest.raises(UserError, match="scores of a question are not finite; the parameters"):
            read({4: broken}, {})


def test_the_largest_options_cost_no_memory(tokenizer):
    windows = PassageWindows(tokenizer, 16, 2**31 - 1, 2**31 - 1)([("cat", "the dog ran")])[0]
    logits = [(np.arange(16.0), np.arange(16.0)[::-1])]
    most = best_spans("the dog ran", windows, logits, n_best=2**31 - 1, answer_length=2**31 - 1)
    assert most == best_spans("the dog ran", windows, logits, n_best=6, answer_length=3)
    assert len(most.best) == 6  # all spans of three words

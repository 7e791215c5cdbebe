"""Windows by hand, and what holds for all of them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bert_jax.data.windows.passage_windows import (
    PassageWindows,
    WindowOptions,
    best_ranges,
    token_span,
    window_spans,
)
from bert_jax.errors import UserError

PASSAGE = "The cat sat on the mat."


@pytest.fixture
def cut(tokenizer):
    def cut(question, passage, **options):
        (windows,) = PassageWindows(tokenizer, WindowOptions(**options))([(question, passage)])
        return windows

    return cut


def test_one_window_by_hand(cut):
    (window,) = cut("It walks?", "The dogs ran.")
    assert " ".join(window.tokens) == "[CLS] it walk ##s [UNK] [SEP] the dog ##s ran . [SEP]"
    assert window.ids == [2, 8, 23, 37, 1, 3, 6, 11, 37, 21, 5, 3]
    assert window.type_ids == [0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1]
    assert window.special_tokens_mask == [1, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 1]
    # Of the question, then of the passage.
    assert window.offsets[1:5] == [(0, 2), (3, 7), (7, 8), (8, 9)]
    assert window.offsets[6:11] == [(0, 3), (4, 7), (7, 8), (9, 12), (12, 13)]
    assert window.word_ids == [None, 0, 1, 1, 2, None, 0, 1, 1, 2, 3, None]
    assert (window.begin, window.first, window.best) == (6, 0, (6, 11))


def test_a_window_is_what_the_tokenizer_makes_of_a_pair(cut, tokenizer):
    (pair,) = tokenizer.encode_batch(["was it low"], [PASSAGE])
    (window,) = cut("was it low", PASSAGE)
    for field in ("ids", "type_ids", "tokens", "offsets", "word_ids", "special_tokens_mask"):
        assert getattr(window, field) == getattr(pair, field)


def test_two_windows_by_hand(cut):
    #   window 0:  the  cat  sat  on   the            context 0 1 2 1 0
    #   window 1:            sat  on   the  mat  .            0 1 2 1 0
    # "on" has as much context in both: the first counts.
    first, second = cut("it sat", PASSAGE, length=10, step=2)
    assert " ".join(first.tokens) == "[CLS] it sat [SEP] the cat sat on the [SEP]"
    assert " ".join(second.tokens) == "[CLS] it sat [SEP] sat on the mat . [SEP]"
    assert (first.begin, first.first, first.best) == (4, 0, (4, 8))
    assert (second.begin, second.first, second.best) == (4, 2, (6, 9))
    assert second.offsets[4:9] == [(8, 11), (12, 14), (15, 18), (19, 22), (22, 23)]


def test_steps_as_in_the_original():
    assert window_spans(7, 5, 2) == [(0, 5), (2, 7)]
    assert window_spans(8, 5, 2) == [(0, 5), (2, 7), (4, 8)]
    assert window_spans(5, 5, 2) == [(0, 5)]
    assert window_spans(0, 5, 2) == [(0, 0)]
    # No overlap, or a gap: half a window instead.
    assert window_spans(9, 4, 4) == [(0, 4), (2, 6), (4, 8), (6, 9)]
    assert window_spans(9, 4, 128) == [(0, 4), (2, 6), (4, 8), (6, 9)]
    assert window_spans(3, 1, 128) == [(0, 1), (1, 2), (2, 3)]


def test_the_shorter_last_window_has_less_context():
    # Token 4 is third from the left of the last window, (4, 8), and last of the first, (0, 5).
    assert best_ranges([(0, 5), (2, 7), (4, 8)]) == [(0, 4), (4, 6), (6, 8)]
    assert best_ranges([(0, 3)]) == [(0, 3)]


sizes = st.tuples(st.integers(0, 60), st.integers(1, 20), st.integers(1, 25))


@given(sizes)
def test_every_token_is_in_a_window_and_at_its_best_in_one(size):
    count, room, step = size
    spans = window_spans(count, room, step)
    assert {token for start, stop in spans for token in range(start, stop)} == set(range(count))
    assert all(stop - start == room for start, stop in spans[:-1])

    def context(token, span):
        start, stop = span
        return min(token - start, stop - 1 - token) + 0.01 * (stop - start)

    best = best_ranges(spans)
    for token in range(count):
        having = [number for number, (start, stop) in enumerate(spans) if start <= token < stop]
        # `max` gives the first of equals.
        expected = max(having, key=lambda number: context(token, spans[number]))
        found = [number for number, (start, stop) in enumerate(best) if start <= token < stop]
        assert found == [expected]


def test_questions_are_cut_and_counted(cut, tokenizer):
    windows = PassageWindows(tokenizer, WindowOptions(length=20, step=4, question_length=3))
    long, short = windows([("the sun was low", PASSAGE), ("the sun was", PASSAGE)])
    expected = "[CLS] the sun was [SEP] the cat sat on the mat . [SEP]"
    assert " ".join(long[0].tokens) == " ".join(short[0].tokens) == expected
    assert (windows.count, windows.cut_questions) == (2, 1)
    windows([("a", "b")])
    assert (windows.count, windows.cut_questions) == (3, 1)
    # A question never takes more than half of what is left beside the special tokens.
    first, *_ = cut("the sun " * 50, PASSAGE, length=10)
    assert " ".join(first.tokens) == "[CLS] the sun the [SEP] the cat sat on [SEP]"


def test_nothing_to_read(cut):
    (window,) = cut("the sun", " ")
    assert " ".join(window.tokens) == "[CLS] the sun [SEP] [SEP]"
    assert window.best == (4, 4)
    (window,) = cut("", "the sun")
    assert " ".join(window.tokens) == "[CLS] [SEP] the sun [SEP]"


def test_passages_are_tokenised_once(tokenizer, monkeypatch):
    asked = []
    encode = tokenizer.encode_batch
    monkeypatch.setattr(
        tokenizer, "encode_batch", lambda texts, **how: asked.extend(texts) or encode(texts, **how)
    )
    windows = PassageWindows(tokenizer, WindowOptions(length=12, step=2))
    rows = windows([("sun", PASSAGE), ("sea", "a song " * 30), ("cat", PASSAGE)])
    assert sorted(asked) == sorted(["sun", "sea", "cat", PASSAGE, "a song " * 30])
    assert [row[0].tokens[1] for row in rows] == ["sun", "sea", "cat"]
    assert rows[0][0].passage is rows[2][0].passage


@pytest.mark.parametrize(
    ("start", "stop", "expected"),
    [
        (4, 7, (1, 1)),  # dog
        (4, 8, (1, 2)),  # dogs
        (5, 6, (1, 1)),  # the "o" of it: the whole piece
        (7, 12, (2, 3)),  # "s ran"
        (3, 9, (1, 2)),  # white space around it
        (0, 13, (0, 4)),
        (8, 9, None),  # white space alone
        (13, 13, None),
    ],
)
def test_tokens_of_characters(cut, start, stop, expected):
    (window,) = cut("sun", "The dogs ran.")
    assert token_span(window.passage, start, stop) == expected


def test_where_an_answer_stands_in_each_window(cut):
    windows = cut("it sat", PASSAGE, length=10, step=2)
    # "sat on": tokens 2 and 3, in both windows.
    assert [window.positions((2, 3)) for window in windows] == [(6, 7), (4, 5)]
    # "cat sat" and "the mat" are in one of them, the whole passage in none.
    assert [window.positions((1, 2)) for window in windows] == [(5, 6), (0, 0)]
    assert [window.positions((4, 5)) for window in windows] == [(0, 0), (6, 7)]
    assert [window.positions((0, 6)) for window in windows] == [(0, 0), (0, 0)]
    # What stands before the first token of a window is no position of the question.
    assert windows[1].positions((0, 1)) == (0, 0)


def test_options_that_cannot_be():
    with pytest.raises(UserError, match="length is 4; a question and a passage need at least 5"):
        WindowOptions(length=4)
    with pytest.raises(UserError, match="step is 0; it must be at least 1"):
        WindowOptions(step=0)
    with pytest.raises(UserError, match="question_length is -1; it must be at least 1"):
        WindowOptions(question_length=-1)


def test_the_longest_passages_take_linear_time(tokenizer):
    passage = "the cat sat on the mat . " * 40_000
    (windows,) = PassageWindows(tokenizer, WindowOptions())([("the sun", passage)])
    assert len(passage) == 1_000_000
    assert windows[-1].offsets[-2] == (999_998, 999_999)
    assert sum(stop - start for window in windows for start, stop in [window.best]) == 280_000


@pytest.mark.slow
@pytest.mark.parametrize(("length", "overlap"), [(20, 4), (16, 8), (64, 16)])
def test_the_windows_of_transformers(tokenizer, tmp_path, length, overlap):
    transformers = pytest.importorskip("transformers")
    tokenizer.save(tmp_path)
    theirs = transformers.AutoTokenizer.from_pretrained(tmp_path)
    passage = "The dogs sat on a mat, and the bird walked to the shells by the sea. " * 4
    expected = theirs(
        "Was it low?",
        passage,
        truncation="only_second",
        max_length=length,
        stride=overlap,  # what they call doc_stride
        return_overflowing_tokens=True,
        return_offsets_mapping=True,
    )
    question_tokens = 4  # was it low [UNK]
    step = length - question_tokens - 3 - overlap
    (windows,) = PassageWindows(tokenizer, WindowOptions(length, step))([("Was it low?", passage)])
    assert [window.ids for window in windows] == expected["input_ids"]
    assert [window.type_ids for window in windows] == expected["token_type_ids"]
    assert [window.offsets for window in windows] == expected["offset_mapping"]
    assert len(windows) > 1

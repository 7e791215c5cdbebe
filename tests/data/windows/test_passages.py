"""Windows over passages, and gold answers in them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bert_jax.data.examples import GoldAnswer
from bert_jax.data.windows.passages import PassageWindows, find_answer, token_span
from bert_jax.errors import UserError

PASSAGE = "The cat sat on the mat."


@pytest.fixture
def cut(tokenizer):
    def cut(question, passage, **options):
        (windows,) = PassageWindows(tokenizer, **options)([(question, passage)])
        return windows

    return cut


def test_one_window_by_hand(cut):
    (window,) = cut("It walks?", "The dogs ran.")
    assert " ".join(window.tokens) == "[CLS] it walk ##s [UNK] [SEP] the dog ##s ran . [SEP]"
    assert window.ids == [2, 8, 23, 37, 1, 3, 6, 11, 37, 21, 5, 3]
    assert window.type_ids == [0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1]
    assert window.special_tokens_mask == [1, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 1]
    # Characters of the question, then of the passage.
    assert window.offsets[1:5] == [(0, 2), (3, 7), (7, 8), (8, 9)]
    assert window.offsets[6:11] == [(0, 3), (4, 7), (7, 8), (9, 12), (12, 13)]
    assert window.word_ids == [None, 0, 1, 1, 2, None, 0, 1, 1, 2, 3, None]
    assert (window.first, window.positions, window.max_context) == (0, (6, 11), (6, 11))


def test_a_window_equals_the_encoding_of_a_pair(cut, tokenizer):
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
    assert (first.first, first.positions, first.max_context) == (0, (4, 9), (4, 8))
    assert (second.first, second.positions, second.max_context) == (2, (4, 9), (6, 9))
    assert second.offsets[4:9] == [(8, 11), (12, 14), (15, 18), (19, 22), (22, 23)]


def test_long_questions_are_cut(cut, tokenizer):
    windows = PassageWindows(tokenizer, length=20, step=4, question_length=3)
    long, short = windows([("the sun was low", PASSAGE), ("the sun was", PASSAGE)])
    expected = "[CLS] the sun was [SEP] the cat sat on the mat . [SEP]"
    assert " ".join(long[0].tokens) == " ".join(short[0].tokens) == expected
    assert [window.is_cut for window in (long[0], short[0])] == [True, False]
    # A question takes at most half of the row without special tokens.
    first, *_ = cut("the sun " * 50, PASSAGE, length=10)
    assert " ".join(first.tokens) == "[CLS] the sun the [SEP] the cat sat on [SEP]"


def test_empty_texts(cut):
    (window,) = cut("the sun", " ")
    assert " ".join(window.tokens) == "[CLS] the sun [SEP] [SEP]"
    assert window.positions == window.max_context == (4, 4)
    (window,) = cut("", "the sun")
    assert " ".join(window.tokens) == "[CLS] [SEP] the sun [SEP]"


def test_passages_are_tokenised_once(tokenizer, monkeypatch):
    tokenised = []
    encode = tokenizer.encode_batch
    monkeypatch.setattr(
        tokenizer,
        "encode_batch",
        lambda texts, **how: tokenised.extend(texts) or encode(texts, **how),
    )
    windows = PassageWindows(tokenizer, length=12, step=2)
    rows = windows([("sun", PASSAGE), ("sea", "a song " * 30), ("cat", PASSAGE)])
    assert sorted(tokenised) == sorted(["sun", "sea", "cat", PASSAGE, "a song " * 30])
    assert [row[0].tokens[1] for row in rows] == ["sun", "sea", "cat"]
    assert rows[0][0].passage is rows[2][0].passage


def test_tokens_of_characters(cut):
    (window,) = cut("sun", "The dogs ran.")
    for start, stop, expected in [
        (4, 7, (1, 1)),  # dog
        (4, 8, (1, 2)),  # dogs
        (5, 6, (1, 1)),  # the "o" of it: the whole piece
        (7, 12, (2, 3)),  # "s ran"
        (3, 9, (1, 2)),  # white space around it
        (0, 13, (0, 4)),
        (8, 9, None),  # only white space
        (13, 13, None),
    ]:
        assert token_span(window.passage, start, stop) == expected


def test_positions_of_an_answer_in_each_window(cut):
    windows = cut("it sat", PASSAGE, length=10, step=2)
    # "sat on": tokens 2 and 3, in both windows.
    assert [window.answer_positions((2, 3)) for window in windows] == [(6, 7), (4, 5)]
    # "cat sat" and "the mat" are in one of them, the whole passage in none.
    assert [window.answer_positions((1, 2)) for window in windows] == [(5, 6), (0, 0)]
    assert [window.answer_positions((4, 5)) for window in windows] == [(0, 0), (6, 7)]
    assert [window.answer_positions((0, 6)) for window in windows] == [(0, 0), (0, 0)]
    # A token before the window is not mistaken for a token of the question.
    assert windows[1].answer_positions((0, 1)) == (0, 0)


def test_rows_without_space_and_long_passages(tokenizer):
    with pytest.raises(UserError, match="length is 4; a question and a passage need at least 5"):
        PassageWindows(tokenizer, length=4)
    # Linear time.
    (windows,) = PassageWindows(tokenizer)([("the sun", "the cat sat on the mat . " * 5_000)])
    assert windows[-1].offsets[-2] == (124_998, 124_999)
    assert sum(stop - start for start, stop in (each.max_context for each in windows)) == 35_000


@pytest.mark.slow
@pytest.mark.parametrize(("length", "overlap"), [(20, 4), (16, 8)])
def test_windows_equal_transformers(tokenizer, tmp_path, length, overlap):
    transformers = pytest.importorskip("transformers")
    tokenizer.save(tmp_path)
    peer = transformers.AutoTokenizer.from_pretrained(tmp_path)
    passage = "The dogs sat on a mat, and the bird walked to the shells by the sea. " * 4
    expected = peer(
        "Was it low?",
        passage,
        truncation="only_second",
        max_length=length,
        stride=overlap,
        return_overflowing_tokens=True,
        return_offsets_mapping=True,
    )
    question_tokens = 4  # was it low [UNK]
    step = length - question_tokens - 3 - overlap
    (windows,) = PassageWindows(tokenizer, length, step)([("Was it low?", passage)])
    assert [window.ids for window in windows] == expected["input_ids"]
    assert [window.type_ids for window in windows] == expected["token_type_ids"]
    assert [window.offsets for window in windows] == expected["offset_mapping"]
    assert len(windows) > 1


#          0   4   8   12 15  19   24
SEA = "the sea and the sea and the sun"


def span_of(passage, text, start):
    """The text of the span, its start, and whether the file states the start."""
    span = find_answer(passage, GoldAnswer(text, start))
    return span and (passage[span.start : span.stop], span.start, span.is_stated)


@pytest.mark.parametrize(
    ("start", "nearest"), [(3, 4), (5, 4), (9, 4), (11, 16), (17, 16), (99, 16), (-1, 4), (-9, 4)]
)
def test_the_nearest_occurrence(start, nearest):
    assert span_of(SEA, "sea", start) == ("sea", nearest, False)
    assert span_of(SEA, "sea", nearest) == ("sea", nearest, True)


@pytest.mark.parametrize(
    ("passage", "answer", "expected"),
    [
        ("it cost 5\u202f000 francs", "5 000", "5\u202f000"),
        ("the  long\n\tsong", "long song", "long\n\tsong"),
        ("a long song", " long  song ", "long song"),
        ("at the cafe\u0301 now", "caf\u00e9", "cafe\u0301"),
        ("at the caf\u00e9 now", "cafe\u0301", "caf\u00e9"),
        ("to \ufb01nd it", "find", "\ufb01nd"),
        ("５０ boys", "50", "５０"),
        ("the sea " * 125_000 + "the\u00a0sun", "the sun", "the\u00a0sun"),
    ],
)
def test_other_spellings(passage, answer, expected):
    assert span_of(passage, answer, 1) == (expected, passage.index(expected), False)


def test_the_nearest_other_spelling():
    passage = "½ " * 20 + "the\u00a0sea " + "½ " * 20 + "the\u00a0sea"
    starts = [span_of(passage, "the sea", start)[1] for start in (40, 45, 80)]
    assert starts == [40, 40, 88]


@pytest.mark.parametrize("answer", ["moon", "Sea", " \u00a0"])
def test_answers_that_the_passage_does_not_contain(answer):
    assert find_answer(SEA, GoldAnswer(answer, 4)) is None
    assert find_answer("", GoldAnswer(answer, 0)) is None


@given(
    words=st.lists(st.sampled_from(["sea", "é", "½", "ﬁn", "中"]), min_size=1, max_size=9),
    data=st.data(),
)
def test_every_part_of_a_passage_has_a_span(words, data):
    spaces = st.sampled_from([" ", "  ", "\n", "\u202f"])
    passage = "".join(word + data.draw(spaces) for word in words)
    first = data.draw(st.integers(0, len(words) - 1))
    last = data.draw(st.integers(first, len(words) - 1))
    answer = " ".join(words[first : last + 1])
    text, _, _ = span_of(passage, answer, data.draw(st.integers(-1, len(passage))))
    assert text.split() == answer.split()

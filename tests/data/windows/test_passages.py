"""Windows by hand, and what holds for all of them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bert_jax.data.examples import GoldAnswer
from bert_jax.data.windows.passages import AnswerPlace, PassageWindows, find_answer, token_span
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
    # Of the question, then of the passage.
    assert window.offsets[1:5] == [(0, 2), (3, 7), (7, 8), (8, 9)]
    assert window.offsets[6:11] == [(0, 3), (4, 7), (7, 8), (9, 12), (12, 13)]
    assert window.word_ids == [None, 0, 1, 1, 2, None, 0, 1, 1, 2, 3, None]
    assert (window.first, window.positions, window.max_context) == (0, (6, 11), (6, 11))


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
    assert (first.first, first.positions, first.max_context) == (0, (4, 9), (4, 8))
    assert (second.first, second.positions, second.max_context) == (2, (4, 9), (6, 9))
    assert second.offsets[4:9] == [(8, 11), (12, 14), (15, 18), (19, 22), (22, 23)]


def test_long_questions_are_cut(cut, tokenizer):
    windows = PassageWindows(tokenizer, length=20, step=4, question_length=3)
    long, short = windows([("the sun was low", PASSAGE), ("the sun was", PASSAGE)])
    expected = "[CLS] the sun was [SEP] the cat sat on the mat . [SEP]"
    assert " ".join(long[0].tokens) == " ".join(short[0].tokens) == expected
    assert [window.is_cut for window in (long[0], short[0])] == [True, False]
    # A question never takes more than half of what is left beside the special tokens.
    first, *_ = cut("the sun " * 50, PASSAGE, length=10)
    assert " ".join(first.tokens) == "[CLS] the sun the [SEP] the cat sat on [SEP]"


def test_nothing_to_read(cut):
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
        (8, 9, None),  # white space alone
        (13, 13, None),
    ]:
        assert token_span(window.passage, start, stop) == expected


def test_where_an_answer_stands_in_each_window(cut):
    windows = cut("it sat", PASSAGE, length=10, step=2)
    # "sat on": tokens 2 and 3, in both windows.
    assert [window.answer_positions((2, 3)) for window in windows] == [(6, 7), (4, 5)]
    # "cat sat" and "the mat" are in one of them, the whole passage in none.
    assert [window.answer_positions((1, 2)) for window in windows] == [(5, 6), (0, 0)]
    assert [window.answer_positions((4, 5)) for window in windows] == [(0, 0), (6, 7)]
    assert [window.answer_positions((0, 6)) for window in windows] == [(0, 0), (0, 0)]
    # What stands before the first token of a window is no position of the question.
    assert windows[1].answer_positions((0, 1)) == (0, 0)


def test_rows_without_space(tokenizer):
    with pytest.raises(UserError, match="length is 4; a question and a passage need at least 5"):
        PassageWindows(tokenizer, length=4)


def test_the_longest_passages_take_linear_time(tokenizer):
    passage = "the cat sat on the mat . " * 20_000
    (windows,) = PassageWindows(tokenizer)([("the sun", passage)])
    assert len(passage) == 500_000
    assert windows[-1].offsets[-2] == (499_998, 499_999)
    assert (
        sum(stop - start for window in windows for start, stop in [window.max_context]) == 140_000
    )


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
    (windows,) = PassageWindows(tokenizer, length, step)([("Was it low?", passage)])
    assert [window.ids for window in windows] == expected["input_ids"]
    assert [window.type_ids for window in windows] == expected["token_type_ids"]
    assert [window.offsets for window in windows] == expected["offset_mapping"]
    assert len(windows) > 1


#          0   4   8   12 15  19   24
SEA = "the sea and the sea and the sun"


def found(passage, text, start):
    """The text that is found, and whether it is where the file says."""
    place = find_answer(passage, GoldAnswer(text, start))
    return place and (passage[place.start : place.stop], place.start, place.is_stated)


def test_where_the_file_says():
    assert find_answer(SEA, GoldAnswer("sea", 16)) == AnswerPlace(16, 19, is_stated=True)
    assert find_answer(SEA, GoldAnswer("sea", 4)) == AnswerPlace(4, 7, is_stated=True)


@pytest.mark.parametrize(
    ("start", "nearest"), [(3, 4), (5, 4), (9, 4), (11, 16), (17, 16), (99, 16), (-1, 4), (-9, 4)]
)
def test_the_nearest_one_elsewhere(start, nearest):
    assert found(SEA, "sea", start) == ("sea", nearest, False)


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
    assert find_answer(SEA, GoldAnswer("moon", 4)) is None
    assert find_answer(SEA, GoldAnswer("Sea", 4)) is None
    assert find_answer("", GoldAnswer("sea", 0)) is None
    assert find_answer(SEA, GoldAnswer(" \u00a0", 4)) is None


def test_answers_in_the_longest_passages():
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

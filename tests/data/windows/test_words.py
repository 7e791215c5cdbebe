"""Plain text to words, and words to rows: no word is lost, each is read with most context."""

import hypothesis
import hypothesis.strategies as st
import pytest

from bert_jax.data.windows.words import WordWindows, join_words, split_words
from bert_jax.errors import UserError


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", []),
        (" \t\n", []),
        ("Angela Merkel's trip.", ["Angela", "Merkel", "'", "s", "trip", "."]),
        ("U.S. 3.5% $5", ["U", ".", "S", ".", "3", ".", "5", "%", "$", "5"]),
        ("„Bonn“, São Paulo…", ["„", "Bonn", "“", ",", "São", "Paulo", "…"]),
        ("हिन्दी में", ["हिन्दी", "में"]),  # vowel signs are not letters to Python
        ("北京 is big", ["北", "京", "is", "big"]),
        ("서울에서 東京", ["서울에서", "東", "京"]),
        ("non\u00a0breaking", ["non", "breaking"]),
        ("😀!x", ["😀", "!", "x"]),
        ("a_b $ x² a\x1fb", ["a", "_", "b", "$", "x²", "a", "b"]),
    ],
)
def test_words_by_eye(text, words):
    split = split_words(text)
    assert [word.text for word in split] == words
    assert [text[word.start : word.end] for word in split] == words


def test_half_of_a_surrogate_pair_is_refused():
    with pytest.raises(UserError, match="half of a surrogate pair"):
        split_words("a\ud83d")


def test_joined_words():
    assert [tuple(word) for word in join_words(["EU", "", "rejects"])] == [
        ("EU", 0, 2),
        ("", 3, 3),
        ("rejects", 4, 11),
    ]
    assert join_words(()) == []


# Pieces of `tests/corpora.py`: cat, dog, bird, sat, … ; walk ##ed, play ##er ##s; "zzz" is
# unknown, and of "\u200b" the normaliser leaves nothing.
ONE, TWO, THREE, UNKNOWN, NOTHING = "cat", "walked", "players", "zzz", "\u200b"


def test_a_sentence_that_fits_by_eye(tokenizer):
    ((row,),) = WordWindows(tokenizer, 16)([["the", "players", "zzz", "ran", "."]])
    #          0      1      2       3       4      5        6      7    8
    assert row.tokens == ["[CLS]", "the", "play", "##er", "##s", "[UNK]", "ran", ".", "[SEP]"]
    assert row.ids == [tokenizer.token_to_id(token) for token in row.tokens]
    assert row.words == (0, 1, 2, 3, 4)
    assert row.positions == (1, 2, 5, 6, 7)
    assert row.word_ids == [None, 0, 1, 1, 1, 2, 3, 4, None]
    assert row.type_ids == [0] * 9
    assert row.special_tokens_mask == [1, *[0] * 7, 1]
    assert row.offsets[2] == (4, 8)  # of "the players zzz ran ."


def test_words_without_tokens_are_in_no_window(tokenizer):
    rows = WordWindows(tokenizer, 16)(
        [["\u200b", "cat", "", "\x07", "dog", "\u3000"], ["\u200b"], []]
    )
    assert [row.words for (row,) in rows] == [(1, 4), (), ()]
    assert [row.tokens for (row,) in rows] == [
        ["[CLS]", "cat", "dog", "[SEP]"],
        ["[CLS]", "[SEP]"],
        ["[CLS]", "[SEP]"],
    ]


def test_words_with_white_space_in_them(tokenizer):
    ((row,),) = WordWindows(tokenizer, 16)([["the cat", "on\tthe", "mat"]])
    assert row.word_ids == [None, 0, 0, 1, 1, 2, None]
    assert row.positions == (1, 3, 5)


def test_a_long_sentence_by_eye(tokenizer):
    """A row has 4 tokens of text: windows begin every 2 tokens, and share words at the middle."""
    words = ["the", "cat", "sat", "on", "a", "mat", "up"]
    (rows,) = WordWindows(tokenizer, 6)([words])
    assert [row.tokens[1:-1] for row in rows] == [
        ["the", "cat", "sat", "on"],
        ["sat", "on", "a", "mat"],
        ["a", "mat", "up"],
    ]
    assert [row.words for row in rows] == [(0, 1, 2), (3, 4), (5, 6)]
    assert [row.positions for row in rows] == [(1, 2, 3), (2, 3), (2, 3)]


def test_a_word_longer_than_a_window_keeps_its_first_token(tokenizer):
    """Of the 21 pieces of the long word, 3 stay: half of the 6 tokens of text in a row."""
    words = ["the", "play" + "er" * 20, "sat", "on", "a", "mat"]
    (rows,) = WordWindows(tokenizer, 8)([words])
    assert [row.tokens[1:-1] for row in rows] == [
        ["the", "play", "##er", "##er", "sat", "on"],
        ["sat", "on", "a", "mat"],
    ]
    assert [row.words for row in rows] == [(0, 1, 2), (3, 4, 5)]


def test_a_long_word_is_cut_only_where_the_sentence_does_not_fit(tokenizer):
    word = "play" + "er" * 9
    ((row,),) = WordWindows(tokenizer, 12)([[word]])
    assert len(row) == 12
    (rows,) = WordWindows(tokenizer, 11)([[word]])
    assert [row.tokens for row in rows] == [["[CLS]", "play", *["##er"] * 3, "[SEP]"]]


@hypothesis.given(
    st.lists(st.sampled_from([ONE, TWO, THREE, UNKNOWN, NOTHING, "play" + "er" * 30]), max_size=60),
    st.integers(3, 40),
)
def test_every_word_with_tokens_is_read_exactly_once(tokenizer, words, length):
    (rows,) = WordWindows(tokenizer, length)([words])
    expected = [number for number, word in enumerate(words) if word != NOTHING]
    assert [number for row in rows for number in row.words] == expected
    for row in rows:
        assert len(row) <= length
        assert row.tokens[0] == "[CLS]"
        assert row.tokens[-1] == "[SEP]"
        for number, position in zip(row.words, row.positions, strict=True):
            assert row.word_ids[position] == number
            assert row.word_ids[position - 1] != number  # it is the first of the word
    if len(rows) > 1:
        assert all(row.words for row in rows)


def test_rows_without_space(tokenizer):
    with pytest.raises(UserError, match="length is 2; a word needs at least 3 tokens"):
        WordWindows(tokenizer, 2)

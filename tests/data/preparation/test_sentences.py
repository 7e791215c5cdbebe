"""Sentences of literal paragraphs, and that no text is lost."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bert_jax.data.pretraining.preparation.encoding import (
    PIECE_CHARACTERS,
    check_mode,
    split_sentences,
)
from bert_jax.errors import UserError


def test_english_sentences():
    paragraph = " Mr. Smith paid 3.50 dollars in the U.S. last week.  Did he? He said: “I did!” "
    assert split_sentences(paragraph) == [
        "Mr. Smith paid 3.50 dollars in the U.S. last week.",
        "Did he?",
        "He said: “I did!”",
    ]


def test_other_languages():
    assert split_sentences("今天天气很好。我们去公园吧！", "split", "zh") == [
        "今天天气很好。",
        "我们去公园吧！",
    ]
    assert split_sentences("Das sind z. B. drei Hunde. Sie bellen.", "split", "de") == [
        "Das sind z. B. drei Hunde.",
        "Sie bellen.",
    ]


def test_a_line_is_a_sentence_by_choice():
    assert split_sentences(" One. Two. ", "lines") == ["One. Two."]
    assert split_sentences("  ", "lines") == split_sentences("  ", "split") == []


def test_a_sentence_across_the_end_of_a_piece_stays_whole():
    sentence = "This sentence has exactly forty letters. "
    paragraph = sentence * 1000
    assert len(sentence) == 41
    assert PIECE_CHARACTERS % len(sentence)
    assert split_sentences(paragraph) == [sentence.strip()] * 1000


def test_a_line_of_10_mb_is_cut_at_white_space():
    for mode in ("split", "lines"):
        pieces = split_sentences("word " * 2_000_000, mode)
        assert max(map(len, pieces)) <= PIECE_CHARACTERS
        assert set(" ".join(pieces).split()) == {"word"}
        assert len(" ".join(pieces).split()) == 2_000_000
    assert split_sentences("x" * 20_000) == ["x" * 8192, "x" * 8192, "x" * 3616]


@settings(deadline=None)
@given(
    st.text(st.characters(codec="utf-8", exclude_characters="\n"), max_size=200),
    st.integers(1, 120),
)
def test_nothing_but_white_space_is_lost(text, times):
    paragraph = text * times
    for mode in ("split", "lines"):
        joined = "".join(split_sentences(paragraph, mode))
        assert "".join(joined.split()) == "".join(paragraph.split())


def test_wrong_choices_are_named():
    check_mode("split", "zh-hant")
    with pytest.raises(
        UserError, match=r"data.sentences: 'words' is unknown; known are split, lines"
    ):
        check_mode("words", "en")
    with pytest.raises(UserError, match=r"data.language: 'English' is not a language code"):
        check_mode("split", "English")

"""Text to sentences to token ids, by literal values."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bert_jax.data.pretraining.options import PrepareOptions
from bert_jax.data.pretraining.preparation.encoding import (
    PIECE_CHARACTERS,
    NumberedBlock,
    encode_blocks,
    split_sentences,
)
from bert_jax.data.pretraining.sources import SourceSpec
from bert_jax.errors import UserError
from bert_jax.tokenization import load_tokenizer


def encode(vocabulary, blocks, mode="lines"):
    options = PrepareOptions((SourceSpec("text:a"),), sentences=mode)
    return encode_blocks(
        [NumberedBlock(*block) for block in blocks], load_tokenizer(vocabulary), options
    )


def test_documents_of_both_splits(tiny_vocabulary):
    encoded = encode(
        tiny_vocabulary,
        [
            (7, "train", "the cat sat.\nthe bird ran!"),
            (8, "validation", "cats"),
            (9, "train", "dogs"),
            (9, "train", "dog dog"),
        ],
    )
    train, validation = encoded["train"], encoded["validation"]
    assert train.tokens.tolist() == [5, 6, 8, 11, 5, 1, 9, 12, 7, 10, 7, 7]
    assert train.tokens.dtype == np.uint16
    assert train.sentence_lengths.tolist() == [4, 4, 2, 2]
    # number, sentences, tokens, unknown, cut
    assert train.documents.tolist() == [[7, 2, 8, 1, 0], [9, 2, 4, 0, 0]]
    assert validation.tokens.tolist() == [6, 10]
    assert validation.documents.tolist() == [[8, 1, 2, 0, 0]]


def test_paragraphs_are_split_into_sentences(tiny_vocabulary):
    blocks = [(0, "train", "The cat sat. The dog ran!\nCats")]
    train = encode(tiny_vocabulary, blocks, "split")["train"]
    assert train.sentence_lengths.tolist() == [4, 4, 2]


def test_sentences_without_a_token_are_dropped(tiny_vocabulary):
    # The bell is a control character, which BERT's cleaning removes.
    blocks = [(0, "train", "\x07"), (1, "train", "\x07\ncat\n\x07\ndog"), (2, "train", "\x07")]
    train = encode(tiny_vocabulary, blocks)["train"]
    assert train.tokens.tolist() == [6, 7]
    assert train.sentence_lengths.tolist() == [1, 1]
    assert train.documents.tolist() == [[1, 2, 2, 0, 0]]


def test_long_sentences_are_cut_at_512_tokens(tiny_vocabulary):
    text = "\n".join(["dog", "cat " * 1200, "dog", "zebra " * 1024, "dog"])
    train = encode(tiny_vocabulary, [(0, "train", text)])["train"]
    assert train.sentence_lengths.tolist() == [1, 512, 512, 176, 1, 512, 512, 1]
    assert train.documents.tolist() == [[0, 8, 2227, 1024, 2]]


def test_an_empty_batch(tiny_vocabulary):
    train = encode(tiny_vocabulary, [(0, "validation", "cat")])["train"]
    assert (len(train.tokens), len(train.sentence_lengths)) == (0, 0)
    assert train.documents.shape == (0, 5)


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


def test_a_line_of_1_mb_is_cut_at_white_space():
    for mode in ("split", "lines"):
        pieces = split_sentences("word " * 200_000, mode)
        assert max(map(len, pieces)) <= PIECE_CHARACTERS
        assert set(" ".join(pieces).split()) == {"word"}
        assert len(" ".join(pieces).split()) == 200_000
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
    sources = (SourceSpec("text:a"),)
    PrepareOptions(sources, sentences="split", language="zh-hant")
    with pytest.raises(UserError, match="^data.sentences is 'words'; known are split, lines$"):
        PrepareOptions(sources, sentences="words")
    with pytest.raises(UserError, match="^data.language is 'English'; it must be a language code"):
        PrepareOptions(sources, language="English")

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
    assert encoded.tokens.tolist() == [5, 6, 8, 11, 5, 1, 9, 12, 6, 10, 7, 10, 7, 7]
    assert encoded.tokens.dtype == np.uint16
    assert encoded.sentence_lengths.tolist() == [4, 4, 2, 2, 2]
    # number, split, sentences, tokens, unknown, cut
    expected = [[7, 0, 2, 8, 1, 0], [8, 1, 1, 2, 0, 0], [9, 0, 2, 4, 0, 0]]
    assert encoded.documents.tolist() == expected
    train, validation = encoded.in_split("train"), encoded.in_split("validation")
    assert train.tokens.tolist() == [5, 6, 8, 11, 5, 1, 9, 12, 7, 10, 7, 7]
    assert train.sentence_lengths.tolist() == [4, 4, 2, 2]
    assert train.documents.tolist() == expected[::2]
    assert (validation.tokens.tolist(), validation.documents.tolist()) == ([6, 10], expected[1:2])


@pytest.mark.parametrize(
    ("text", "mode", "lengths", "documents"),
    [
        ("The cat sat. The dog ran!\nCats", "split", [4, 4, 2], [[0, 0, 3, 10, 0, 0]]),
        # The bell is a control character, which BERT's cleaning removes.
        ("\x07\ncat\n\x07\ndog", "lines", [1, 1], [[0, 0, 2, 2, 0, 0]]),
        ("\x07", "lines", [], []),
        (
            "\n".join(["dog", "cat " * 1200, "dog", "zebra " * 1024, "dog"]),
            *("lines", [1, 512, 512, 176, 1, 512, 512, 1], [[0, 0, 8, 2227, 1024, 2]]),
        ),
    ],
)
def test_sentences_are_split_cut_at_512_tokens_and_dropped_without_a_token(
    tiny_vocabulary, text, mode, lengths, documents
):
    encoded = encode(tiny_vocabulary, [(0, "train", text)], mode)
    assert encoded.sentence_lengths.tolist() == lengths
    assert encoded.documents.tolist() == documents
    assert encoded.documents.shape[1] == 6


@pytest.mark.parametrize(
    ("language", "paragraph", "sentences"),
    [
        (
            "en",
            " Mr. Smith paid 3.50 dollars in the U.S. last week.  Did he? He said: “I did!” ",
            ["Mr. Smith paid 3.50 dollars in the U.S. last week.", "Did he?", "He said: “I did!”"],
        ),
        ("zh", "今天天气很好。我们去公园吧！", ["今天天气很好。", "我们去公园吧！"]),
        ("de", "Das sind z. B. drei Hunde. Wuff.", ["Das sind z. B. drei Hunde.", "Wuff."]),
        ("en", "  ", []),
    ],
)
def test_sentences_of_a_language(language, paragraph, sentences):
    assert split_sentences(paragraph, "split", language) == sentences
    assert split_sentences(paragraph, "lines") == ([paragraph.strip()] if sentences else [])


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

"""Literal batches for the vocabulary of conftest.py."""

import numpy as np

from bert_jax.data.pretraining.preparation.encoding import NumberedBlock, TextBatch, encode_batch
from bert_jax.tokenization import load_tokenizer


def encode(vocabulary, blocks, mode="lines"):
    batch = TextBatch(0, tuple(NumberedBlock(*block) for block in blocks), position=0)
    return encode_batch(batch, load_tokenizer(vocabulary), mode, "en")


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

"""Lengths and row counts that batches are padded to; rows of tokens, packed and cut out again."""

import numpy as np

from bert_jax.data.padding import Sequences, bucket_length, bucket_rows


def test_lengths_take_few_values():
    asked = [1, 2, 16, 17, 32, 33, 48, 49, 64, 65, 96, 97, 128, 129, 192, 193, 257, 384, 385, 512]
    found = [bucket_length(length, 512) for length in asked]
    assert found == [
        *(16, 16, 16, 32, 32, 48, 48, 64, 64, 96, 96, 128, 128, 192, 192, 256, 384, 384, 512, 512),
    ]
    assert len({bucket_length(length, 4096) for length in range(1, 4097)}) == 16
    assert [bucket_length(length, 40) for length in (33, 40)] == [40, 40]


def test_rows_take_few_values():
    assert [bucket_rows(rows, 32, 1) for rows in (1, 2, 3, 5, 16, 17, 32)] == [
        *(1, 2, 4, 8, 16, 32, 32),
    ]
    assert [bucket_rows(rows, 20, 1) for rows in (16, 17, 20)] == [16, 20, 20]
    assert [bucket_rows(rows, 32, 8) for rows in (1, 8, 9, 32)] == [8, 8, 16, 32]
    assert [bucket_rows(rows, 32, 6) for rows in (1, 9, 32)] == [6, 18, 36]


def test_sequences_by_hand(tokenizer):
    texts, pairs = ["the cat sat", "sun", "a dog"], ["a bird", "", "sea"]
    encodings = tokenizer.encode_batch(texts, pairs)
    sequences = Sequences.of(encodings)
    assert sequences.lengths.tolist() == [len(encoding) for encoding in encodings] == [8, 4, 6]
    found = sequences.pad(np.array([2, -1, 0]), 10, tokenizer)
    assert found["input_ids"][0].tolist() == [*encodings[2].ids, 0, 0, 0, 0]
    assert found["token_type_ids"][2].tolist() == [*encodings[0].type_ids, 0, 0]
    assert found["attention_mask"].sum(axis=1).tolist() == [6, 0, 8]
    assert found["input_ids"][1].tolist() == [tokenizer.special_ids.pad] * 10
    assert {array.dtype for array in found.values()} == {np.dtype(np.int32)}


def test_rows_of_several_axes(tokenizer):
    sequences = Sequences.of(tokenizer.encode_batch(["the cat sat", "sun", "a dog"]))
    found = sequences.pad(np.array([[0, 1, -1], [2, 1, 0]]), 6, tokenizer)
    assert found["input_ids"].shape == (2, 3, 6)
    assert found["attention_mask"].sum(axis=-1).tolist() == [[5, 3, 0], [4, 3, 5]]


def test_no_rows_at_all(tokenizer):
    assert Sequences.of([]).lengths.tolist() == []

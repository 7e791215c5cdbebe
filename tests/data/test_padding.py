"""Lengths and row counts that batches are padded to; rows of tokens, packed and cut out again."""

import numpy as np

from bert_jax.data.padding import Sequences, bucket_length, bucket_rows


def test_lengths_take_few_values():
    lengths = [1, 16, 17, 32, 33, 48, 49, 64, 65, 96, 97, 128, 129, 192, 193, 257, 384, 385, 512]
    assert [bucket_length(length, 512) for length in lengths] == [
        *(16, 16, 32, 32, 48, 48, 64, 64, 96, 96, 128, 128, 192, 192, 256, 384, 384, 512, 512),
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
    sequences = Sequences.from_encodings(encodings, tokenizer)
    assert sequences.lengths.tolist() == [len(encoding) for encoding in encodings] == [8, 4, 6]
    batch = sequences.pad(np.array([2, -1, 0]), 10, tokenizer)
    assert batch["input_ids"][0].tolist() == [*encodings[2].ids, 0, 0, 0, 0]
    assert batch["token_type_ids"][2].tolist() == [*encodings[0].type_ids, 0, 0]
    assert batch["attention_mask"].sum(axis=1).tolist() == [6, 0, 8]
    assert batch["input_ids"][1].tolist() == [tokenizer.special_ids.pad] * 10
    assert {array.dtype for array in batch.values()} == {np.dtype(np.int32)}
    batch = sequences.pad(np.array([[0, 1, -1], [2, 1, 0]]), 8, tokenizer)
    assert batch["input_ids"].shape == (2, 3, 8)
    assert batch["attention_mask"].sum(axis=-1).tolist() == [[8, 4, 0], [6, 4, 8]]
    assert Sequences.from_encodings([], tokenizer).lengths.tolist() == []

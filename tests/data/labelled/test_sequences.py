"""Token rows of a data set, packed and cut out again."""

import numpy as np

from bert_jax.data.padding import Sequences


def test_rows_by_hand(tokenizer):
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

"""Rows of an encoder-decoder: literal arrays, and what every packing keeps."""

from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bert_jax.data.labelled_batches import LabelledBatches
from bert_jax.data.padding import Sequences
from bert_jax.data.pair_rows import EncodedPairs, PairRows

SOURCES = [[11, 12, 1], [13, 1], [14, 15, 16, 1]]
TARGETS = [[21, 1], [22, 23, 1], [24, 1]]
PADDING = SimpleNamespace(padding_id=9)


def sequences(rows):
    ids = np.array([token for row in rows for token in row], np.int32)
    lengths = np.array([len(row) for row in rows], np.int64)
    return Sequences(ids, np.zeros(len(ids), np.int8), lengths, np.zeros(0, np.int32), {})


def encoded(sources=SOURCES, targets=TARGETS, source_length=6, target_length=6):
    texts = sequences(sources), sequences(targets)
    return EncodedPairs(*texts, source_length, target_length, start_id=7, tokenizer=PADDING)


def as_lists(batch):
    return {key: array.tolist() for key, array in batch.items()}


def test_one_pair_a_row():
    rows = PairRows(encoded(), packed=False, seed=0)
    assert rows.lengths.tolist() == [3, 3, 4]
    batch = rows.batch(np.array([2, 1, -1]), 4)
    assert as_lists(batch) == {
        "input_ids": [[14, 15, 16, 1], [13, 1, 9, 9], [9, 9, 9, 9]],
        "attention_mask": [[1, 1, 1, 1], [1, 1, 0, 0], [0, 0, 0, 0]],
        "decoder/input_ids": [[7, 24, 9, 9, 9, 9], [7, 22, 23, 9, 9, 9], [9, 9, 9, 9, 9, 9]],
        "decoder/labels": [[24, 1, 9, 9, 9, 9], [22, 23, 1, 9, 9, 9], [9, 9, 9, 9, 9, 9]],
        "decoder/weights": [[1, 1, 0, 0, 0, 0], [1, 1, 1, 0, 0, 0], [0, 0, 0, 0, 0, 0]],
    }
    assert {array.dtype.name for array in batch.values()} == {"int32", "float32"}


def test_several_pairs_a_row():
    """Pairs of the sizes 3, 3 and 4 in rows of 6: the first two share one."""
    rows = PairRows(encoded(), packed=True, seed=3)
    assert rows.lengths.tolist() == [4, 6]
    batch = as_lists(rows.batch(np.array([1, -1]), 6))
    assert batch == {
        "input_ids": [[11, 12, 1, 13, 1, 9], [9] * 6],
        "segment_ids": [[1, 1, 1, 2, 2, 0], [0] * 6],
        "position_ids": [[0, 1, 2, 0, 1, 0], [0] * 6],
        "decoder/input_ids": [[7, 21, 7, 22, 23, 9], [9] * 6],
        "decoder/labels": [[21, 1, 22, 23, 1, 9], [9] * 6],
        "decoder/weights": [[1, 1, 1, 1, 1, 0], [0] * 6],
        "decoder/segment_ids": [[1, 1, 2, 2, 2, 0], [0] * 6],
        "decoder/position_ids": [[0, 1, 0, 1, 2, 0], [0] * 6],
    }


def test_lengths_of_both_sides_have_a_ratio():
    """A summary of 3 tokens takes as much of a row as an article of 12."""
    pairs = encoded([[1] * 5, [1] * 40], [[1] * 3, [1] * 2], source_length=64, target_length=16)
    assert pairs.sizes.tolist() == [12, 40]
    assert [pairs.row_length(length) for length in (16, 48, 64)] == [16, 16, 16]
    long = encoded(source_length=512, target_length=128)
    assert [long.row_length(length) for length in (64, 96, 256, 512)] == [16, 32, 64, 128]


def of_batch(batch):
    """The pairs of a batch of packed rows, without shifted tokens."""
    found = []
    for row in range(len(batch["input_ids"])):
        for number in range(1, 1 + batch["segment_ids"][row].max()):
            inside = batch["decoder/segment_ids"][row] == number
            labels = batch["decoder/labels"][row][inside].tolist()
            assert batch["decoder/input_ids"][row][inside].tolist() == [7, *labels[:-1]]
            source = batch["input_ids"][row][batch["segment_ids"][row] == number].tolist()
            found.append((source, labels))
    return found


TEXTS = st.lists(st.tuples(st.integers(1, 12), st.integers(1, 6)), min_size=1, max_size=60)


@given(TEXTS, st.integers(0, 3), st.sampled_from([1, 2, 4]))
def test_packed_rows_have_every_pair_once_in_each_epoch(lengths, seed, batch_size):
    sources = [[100 + number] * count for number, (count, _) in enumerate(lengths)]
    targets = [[200 + number] * count for number, (_, count) in enumerate(lengths)]
    rows = PairRows(encoded(sources, targets, 12, 6), packed=True, seed=seed)
    batches = LabelledBatches(
        rows.lengths, rows.batch, batch_size=batch_size, seed=seed, most=12, epochs=2
    )
    expected = sorted(zip(sources, targets, strict=True))
    for epoch in range(2):
        numbers = range(epoch * batches.batches_per_epoch, (epoch + 1) * batches.batches_per_epoch)
        made = [pair for number in numbers for pair in of_batch(batches.batch(number))]
        assert sorted(made) == expected


def test_rows_are_full_and_the_same_on_every_host():
    random = np.random.default_rng(0)
    sources = [[5] * count for count in random.integers(4, 40, 2000)]
    targets = [[6] * (len(source) + random.integers(-3, 4)) for source in sources]
    pairs = encoded(sources, targets, 128, 128)
    rows = PairRows(pairs, packed=True, seed=0)
    assert pairs.sizes.sum() / (128 * len(rows.lengths)) > 0.98
    batches = LabelledBatches(rows.lengths, rows.batch, batch_size=8, seed=1, most=128)
    whole, shares = batches.batch(5), [batches.batch(5, host=host, hosts=2) for host in range(2)]
    again = LabelledBatches(
        PairRows(pairs, packed=True, seed=0).lengths, rows.batch, batch_size=8, seed=1, most=128
    )
    for key, array in whole.items():
        np.testing.assert_array_equal(array, np.concatenate([share[key] for share in shares]))
        np.testing.assert_array_equal(array, again.batch(5)[key])
    assert whole["input_ids"].shape == whole["decoder/labels"].shape == (8, 128)


@pytest.mark.parametrize("packed", [False, True])
def test_a_text_without_tokens(packed):
    rows = PairRows(encoded([[]], [[1]]), packed=packed, seed=0)
    batch = as_lists(rows.batch(np.array([0]), 6))
    assert batch["input_ids"] == [[9] * 6]
    assert batch["decoder/labels"] == [[1, 9, 9, 9, 9, 9]]

"""Rows in packed rows: by eye, no token lost whatever the lengths, and hardly any padding."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bert_jax.data.padding import bucket_length
from bert_jax.data.prediction_batches import (
    least_work_batches,
    packed_batches,
    padded_batches,
    row_counts,
)


def packed(lengths, *, batch_size=32, limit=512, row_multiple=1):
    return list(
        packed_batches(lengths, batch_size=batch_size, limit=limit, row_multiple=row_multiple)
    )


def computed(batches):
    """The tokens that the layers compute."""
    return sum(
        batch.indices["pack_indices"].size if batch.indices else batch.count * batch.length
        for batch in batches
    )


def test_by_eye():
    (batch,) = packed([2, 5, 3, 1], limit=6, batch_size=2)
    # 5 has a packed row, and 3, 2 and 1 share one; the rows of the batch are in that order.
    assert batch.rows == {0: 1, 1: 2, 2: 0, 3: 3}
    assert (batch.count, batch.length) == (12, 6)
    assert batch.indices["pack_indices"].tolist() == [[[0, 1, 2, 3, 4, -1], [6, 7, 8, 12, 13, 18]]]
    assert batch.indices["unpack_indices"][:4].tolist() == [
        [0, 1, 2, 3, 4, -1],
        [6, 7, 8, -1, -1, -1],
        [9, 10, -1, -1, -1, -1],
        [11, -1, -1, -1, -1, -1],
    ]
    assert (batch.indices["unpack_indices"][4:] == -1).all()


def test_each_device_packs_its_own_rows():
    (batch,) = packed([2, 5, 3, 1], limit=6, batch_size=2, row_multiple=2)
    assert batch.rows == {0: 1, 6: 2, 7: 0, 8: 3}
    assert batch.count == 12
    assert batch.indices["pack_indices"].tolist() == [
        [[0, 1, 2, 3, 4, -1]],
        [[0, 1, 2, 6, 7, 12]],
    ]


def test_long_rows_are_filled_with_short_ones():
    batches = packed([500, 300, 200, 10, 60, 40, 20])
    # Rows of 512 tokens have 500, 300 and 200, and 10; rows of 64 tokens have 60, 40 and 20.
    assert [batch.indices["pack_indices"].shape for batch in batches] == [(1, 2, 512), (1, 2, 64)]
    assert [sorted(batch.rows.values()) for batch in batches] == [[0, 1, 2, 3], [4, 5, 6]]


def test_rows_that_nothing_fits_beside_are_not_packed():
    (batch,) = packed([100] * 6)
    assert (batch.count, batch.length, batch.indices) == (6, 128, {})
    assert batch.rows == dict(enumerate(range(6)))


@pytest.mark.parametrize("mean", [15, 30, 60])
def test_uneven_texts_are_computed_with_hardly_any_padding_in_few_shapes(mean):
    generator = np.random.default_rng(0)
    lengths = generator.lognormal(np.log(mean), 0.8, 2048).clip(3, 512).astype(int).tolist()
    batches = packed(lengths)
    assert sum(lengths) > 0.96 * computed(batches)
    padded = padded_batches(lengths, batch_size=32, limit=512, row_multiple=1)
    assert sum(lengths) < 0.85 * computed(padded)
    shapes = {
        (batch.count, *batch.indices.get("pack_indices", np.zeros(0)).shape) for batch in batches
    }
    assert len(shapes) <= 8


def cut(lengths, batch_work, *, batch_size=32, limit=512, row_multiple=1):
    sizes = {"batch_size": batch_size, "limit": limit, "row_multiple": row_multiple}
    return list(least_work_batches(lengths, batch_work=batch_work, **sizes))


def test_what_packing_would_save_a_server_and_in_how_many_shapes():
    """The figures of docs/serving.md: a server compiles all its shapes at the start."""
    random, shapes, saved = np.random.default_rng(0), set(), []
    for count in (8, 16, 32, 64, 128, 256) * 4:
        for median in (12, 30, 120):
            lengths = np.exp(random.normal(np.log(median), 0.6, count)).clip(3, 512).astype(int)
            batches = packed(lengths.tolist())
            arrays = ((each.count, each.indices.get("pack_indices")) for each in batches)
            shapes |= {(count, *array.shape) for count, array in arrays if array is not None}
            saved.append(1 - computed(batches) / computed(cut(lengths.tolist(), 256)))
    assert 0.3 < np.mean(saved[::3]) < 0.5  # short texts
    assert 0.05 < np.mean(saved[2::3]) < 0.15  # long ones
    assert computed(packed([12])) == 4 * computed(cut([12], 256))
    lengths = {bucket_length(length, 512) for length in range(1, 513)}
    assert len(row_counts(32, 1)) * len(lengths) == 60
    assert len(shapes) > 60  # in 72 rounds


def test_rows_are_cut_into_batches_with_the_least_work():
    lengths = [10, 200, 10, 16, 20]
    by_work = {
        1: [(1, 256), (1, 32), (1, 16), (2, 16)],
        30: [(1, 256), (1, 32), (4, 16)],
        100: [(1, 256), (4, 32)],
        10_000: [(8, 256)],
    }
    for batch_work, shapes in by_work.items():
        batches = cut(lengths, batch_work)
        assert [(batch.count, batch.length) for batch in batches] == shapes
    assert [batch.rows for batch in cut(lengths, 100)] == [{0: 1}, {0: 4, 1: 3, 2: 0, 3: 2}]


@given(
    st.lists(st.integers(1, 70), max_size=60),
    st.integers(70, 90),
    st.integers(1, 9),
    st.integers(1, 3),
    st.sampled_from([0, 100, 100_000]),
)
def test_each_row_is_in_one_batch_of_a_known_shape(lengths, limit, batch_size, multiple, work):
    sizes = {"batch_size": batch_size, "limit": limit, "row_multiple": multiple}
    batches = cut(lengths, work, **sizes)
    assert sorted(row for batch in batches for row in batch.rows.values()) == [*range(len(lengths))]
    for batch in batches:
        assert batch.count in row_counts(batch_size, multiple)
        assert len(batch.rows) <= batch.count
        assert max(lengths[row] for row in batch.rows.values()) <= batch.length <= limit
    assert computed(batches) + work * len(batches) <= computed(
        padded := list(padded_batches(lengths, **sizes))
    ) * (1 + limit / 512) + work * len(padded)


@given(
    st.lists(st.integers(1, 70), min_size=1, max_size=60),
    st.integers(70, 90),
    st.integers(1, 9),
    st.integers(1, 3),
)
def test_every_token_is_packed_once_and_texts_stay_whole(lengths, limit, batch_size, row_multiple):
    batches = packed(lengths, limit=limit, batch_size=batch_size, row_multiple=row_multiple)
    assert sorted(row for batch in batches for row in batch.rows.values()) == [*range(len(lengths))]
    for batch in batches:
        assert batch.count % row_multiple == 0
        assert max(lengths[row] for row in batch.rows.values()) <= batch.length <= limit
        if not batch.indices:
            assert len(batch.rows) <= batch.count
            continue
        pack_indices, unpack_indices = batch.indices.values()
        groups, rows, width = pack_indices.shape
        assert groups == row_multiple
        assert rows * groups < batch_size + row_multiple
        group_rows = batch.count // groups
        for b in range(batch.count):
            length = lengths[batch.rows[b]] if b in batch.rows else 0
            group, in_group = divmod(b, group_rows)
            packed_at = unpack_indices[b, :length]
            assert (unpack_indices[b, length:] == -1).all()
            assert len({index // width for index in packed_at.tolist()}) <= 1
            expected = in_group * batch.length + np.arange(length)
            assert (pack_indices[group].ravel()[packed_at] == expected).all()
        assert (pack_indices >= 0).sum() == sum(lengths[row] for row in batch.rows.values())

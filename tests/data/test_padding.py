"""Lengths and row counts that batches are padded to."""

from bert_jax.data.padding import bucket_length, bucket_rows


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

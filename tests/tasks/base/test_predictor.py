"""Items through an encoder, a part of them at a time."""

import itertools

import pytest

from bert_jax.tasks.base.labelled_task import encode_in_chunks


@pytest.mark.parametrize("count", [0, 1, 1999, 2000, 2001, 6000])
def test_every_item_once_and_in_order(count):
    found = encode_in_chunks(lambda items: [[-item] for item in items], range(count))
    assert list(found) == [[-item] for item in range(count)]


def test_no_more_is_read_and_encoded_than_is_requested():
    sizes = []
    items = iter(range(10_000))

    def encode(chunk):
        sizes.append(len(chunk))
        return chunk

    found = encode_in_chunks(encode, items)
    assert sizes == []
    assert list(itertools.islice(found, 2000)) == list(range(2000))
    assert (sizes, next(items)) == ([2000], 2000)
    assert len(list(found)) == 7999
    assert sizes == [2000, 2000, 2000, 2000, 1999]

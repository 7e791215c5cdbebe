"""Micro-batches of a source whose items arrive slowly."""

import threading
import time

import pytest

from bert_jax.inference.streams import micro_batches


def test_micro_batches_have_all_items_in_order():
    assert [item for batch in micro_batches(range(10_000)) for item in batch] == [*range(10_000)]
    assert [list(batch) for batch in micro_batches([])] == [[]]

    def slow():
        for number in range(50):
            time.sleep(0.02)  # each item comes soon, and all of them do not
            yield number

    batches = [list(batch) for batch in micro_batches(slow())]
    assert [number for batch in batches for number in batch] == list(range(50))
    assert len(batches) > 3


def test_a_micro_batch_does_not_wait_for_the_next_item():
    answered = threading.Event()

    def source():
        yield "one"
        yield "two"
        assert answered.wait(60)
        yield "three"
        raise ValueError("the fourth")

    batches = micro_batches(source())
    items = []
    while len(items) < 2:  # in two, should the machine be slow
        items += list(next(batches))
    assert items == ["one", "two"]
    answered.set()
    rest = (item for batch in batches for item in batch)
    assert next(rest) == "three"
    with pytest.raises(ValueError, match="the fourth"):
        next(rest)

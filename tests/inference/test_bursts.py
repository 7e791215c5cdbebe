"""Sources that wait: what has come is given, nothing is lost, errors come where they belong."""

import threading
import time

import pytest

from bert_jax.inference.streams import bursts


def test_all_items_in_their_order():
    assert [item for burst in bursts(range(10_000)) for item in burst] == list(range(10_000))


def test_slow_items_are_not_waited_for():
    def source():
        for number in range(50):
            time.sleep(0.02)  # each is there soon, and all of them are not
            yield number

    found = [list(burst) for burst in bursts(source())]
    assert [number for burst in found for number in burst] == list(range(50))
    assert len(found) > 3


def test_nothing():
    assert [list(burst) for burst in bursts([])] == [[]]


def test_what_has_come_is_given_before_the_next_comes():
    answered = threading.Event()

    def source():
        yield "one"
        yield "two"
        assert answered.wait(60)
        yield "three"

    found = bursts(source())
    got = []
    while len(got) < 2:  # in two, should the machine be slow
        got += list(next(found))
    assert got == ["one", "two"]
    answered.set()
    assert [item for burst in found for item in burst] == ["three"]


def test_an_error_comes_behind_what_was_read_before_it():
    def source():
        yield 1
        yield 2
        raise ValueError("the third")

    found = (item for burst in bursts(source()) for item in burst)
    assert [next(found), next(found)] == [1, 2]
    with pytest.raises(ValueError, match="the third"):
        next(found)

"""A signal sets a flag once; a second one has the effect that it has outside."""

import os
import signal

import pytest

from bert_jax.training.signals import Interrupted, StopSignals


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_is_remembered_and_the_next_one_is_left_to_others(number):
    before = {n: signal.getsignal(n) for n in (signal.SIGTERM, signal.SIGINT)}
    with StopSignals() as stop:
        assert not stop.requested
        assert not stop.stop_after(1)
        os.kill(os.getpid(), number)
        assert stop.requested
        assert stop.stop_after(2)
        assert signal.getsignal(number) == before[number]
    assert {n: signal.getsignal(n) for n in before} == before


def test_the_message_names_the_step():
    assert str(Interrupted(7)) == "stopped by a signal after saving step 7"
    assert Interrupted(7).step == 7

"""Batches ahead of time: their order, and that nothing hangs or leaks when one stops early."""

import subprocess
import sys

import numpy as np
import pytest

from bert_jax.data import pipeline
from bert_jax.data.pipeline import batches_in_order


def make_batch(number: int) -> dict[str, np.ndarray]:
    return {
        "ids": np.full((2, 3), number, np.int32),
        "weights": np.array([number / 2, 1.0], np.float32),
    }


@pytest.fixture
def few_numbers(monkeypatch):
    """Up to eight batches are made when they are read."""
    monkeypatch.setattr(pipeline, "_FEW_NUMBERS", 8 * 8)


@pytest.mark.usefixtures("few_numbers")
def test_batches_come_in_order():
    batches = list(batches_in_order(make_batch, 3, 40))
    assert len(batches) == 37
    for number, batch in enumerate(batches, start=3):
        expected = make_batch(number)
        assert list(batch) == list(expected)
        for name in expected:
            assert batch[name].dtype == expected[name].dtype
            assert batch[name].tolist() == expected[name].tolist()


@pytest.mark.usefixtures("few_numbers")
def test_an_error_in_a_batch_reaches_the_caller():
    def fail_at_three(number: int) -> dict[str, np.ndarray]:
        if number == 3:
            raise ValueError("batch three is broken")
        return make_batch(number)

    for stop in (5, 40):  # made when read, and made ahead
        batches = batches_in_order(fail_at_three, 0, stop)
        assert next(batches)["ids"][0, 0] == 0
        with pytest.raises(ValueError, match=r"^batch three is broken$"):
            list(batches)


@pytest.mark.usefixtures("few_numbers")
def test_few_batches_need_no_tensorflow(monkeypatch):
    """To time a step, or to plan one, where TensorFlow is not installed."""
    monkeypatch.setitem(sys.modules, "tensorflow", None)  # an import fails
    batches = batches_in_order(make_batch, 3, 11)
    assert [batch["ids"][0, 0] for batch in batches] == list(range(3, 11))
    assert list(batches_in_order(make_batch, 5, 5)) == []
    with pytest.raises(ImportError):
        next(batches_in_order(make_batch, 3, 12))


# How a caller may leave: by a break, by close, by dropping it, or with an error.
LEAVE = {
    "break": "for batch in batches:\n    break",
    "close": "next(batches)\nbatches.close()",
    "drop": "next(batches)\ndel batches",
    "error": "next(batches)\nraise SystemExit(0)",
}


@pytest.mark.slow
@pytest.mark.parametrize("way", LEAVE)
def test_leaving_early_ends_the_process(way):
    ending = "" if way == "error" else "\nprint('left')\n"
    script = (
        "import numpy as np\n"
        "from bert_jax.data.pipeline import batches_in_order\n"
        "def make(number):\n"
        "    return {'ids': np.full((256, 128), number, np.int32)}\n"
        "batches = batches_in_order(make, 0, 10**9)\n" + LEAVE[way] + ending
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    assert done.stdout == ("" if way == "error" else "left\n")

"""Which examples make which batch."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bert_jax.data.labelled_batches import LabelledBatches


def make(examples, length):
    return {"examples": examples, "length": np.array(length)}


def planned(lengths, *, batch_size=4, seed=0, most=128):
    return LabelledBatches(np.array(lengths), make, batch_size=batch_size, seed=seed, most=most)


@given(
    st.lists(st.integers(3, 128), min_size=1, max_size=100),
    st.sampled_from([1, 2, 4, 8]),
    st.integers(0, 5),
)
def test_an_epoch_has_every_example_once(lengths, batch_size, seed):
    batches = planned(lengths, batch_size=batch_size, seed=seed)
    assert batches.batches_per_epoch == -(-len(lengths) // batch_size)
    for epoch in range(2):
        plan = batches.plan(epoch).ravel()
        assert sorted(plan[plan >= 0]) == list(range(len(lengths)))
        assert (plan < 0).sum() == batches.batches_per_epoch * batch_size - len(lengths)


def test_batches_do_not_depend_on_the_batches_made_before():
    lengths = np.arange(3, 103)
    in_order = planned(lengths)
    orders = [in_order.batch(number)["examples"].tolist() for number in range(60)]
    in_any_order = planned(lengths)
    for number in (59, 3, 30, 0, 58):
        assert in_any_order.batch(number)["examples"].tolist() == orders[number]
    assert orders[0] != orders[25]  # the next epoch is another shuffle
    assert planned(lengths, seed=1).batch(0)["examples"].tolist() != orders[0]


@pytest.mark.parametrize("hosts", [2, 4])
def test_hosts_share_a_batch(hosts):
    batches = planned(range(3, 33), batch_size=8)
    for number in range(8):
        whole = batches.batch(number)
        parts = [batches.batch(number, host=host, hosts=hosts) for host in range(hosts)]
        assert np.concatenate([part["examples"] for part in parts]).tolist() == (
            whole["examples"].tolist()
        )
        assert {int(part["length"]) for part in parts} == {int(whole["length"])}


def test_a_batch_is_a_fair_sample():
    """Short and long examples are mixed as chance mixes them."""
    lengths = np.where(np.arange(4000) % 2, 100, 3)
    plan = planned(lengths).plan(0)
    both = [len(set(lengths[row])) > 1 for row in plan]
    assert np.mean(both) == pytest.approx(1 - 2 / 2**4, abs=0.03)


@pytest.mark.parametrize(("short", "lengths"), [(4, {32, 48}), (3, {48})])
def test_batches_with_a_rare_length_take_the_next_one(short, lengths):
    """Of 64 batches of one example, `short` need 32 tokens and the others 48."""
    batches = planned([20] * short + [40] * (64 - short), batch_size=1)
    assert {int(batches.batch(number)["length"]) for number in range(128)} == lengths


def test_the_longest_length_is_kept_however_rare_it_is():
    batches = planned([20] * 99 + [100], batch_size=1, most=120)
    lengths = [int(batches.batch(number)["length"]) for number in range(100)]
    assert sorted(lengths) == [32] * 99 + [120]


@pytest.mark.parametrize(("epochs", "lengths"), [(3, {48}), (4, {32, 48})])
def test_a_short_training_has_few_lengths(epochs, lengths):
    """Half of the 64 batches of an epoch need 32 tokens: enough for a length if there are 128."""
    rows = np.array([20] * 32 + [40] * 32)
    batches = LabelledBatches(rows, make, batch_size=1, seed=0, most=128, epochs=epochs)
    assert {int(batches.batch(number)["length"]) for number in range(128)} == lengths

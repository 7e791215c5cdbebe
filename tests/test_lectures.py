"""What docs/lectures.md says about its pictures."""

import importlib
from pathlib import Path

import numpy as np
import pytest


@pytest.fixture
def lectures(monkeypatch):
    monkeypatch.syspath_prepend(Path(__file__).parents[1] / "docs")
    return importlib.import_module("lectures")


@pytest.mark.slow
def test_a_smoothed_target_has_a_share_for_every_other_word(lectures):
    expected = [0.025, 0.025, 0.9, 0.025, 0.025]
    np.testing.assert_allclose(lectures.smoothed_target(2, 0.1, 5), expected, atol=1e-6)
    np.testing.assert_allclose(lectures.smoothed_target(2, 0.0, 5), [0, 0, 1, 0, 0], atol=1e-6)
    # The loss is least, 0, at the target itself: more certainty costs.
    losses = lectures.smoothed_loss(np.float32([0.8, 0.9, 0.99]), 0.1, 5)
    assert losses[0] > 0.01 < losses[2]
    assert losses[1] == pytest.approx(0, abs=1e-6)


@pytest.mark.slow
def test_beams_find_what_greedy_search_misses_and_miss_what_no_beam_keeps(lectures):
    """A is the best first word, C the first word of the best text, and worse than A and B."""
    assert lectures.beam_search(1) == ("A A A", pytest.approx(0.45 * 0.40 * 0.50))
    assert lectures.beam_search(2) == ("B A A", pytest.approx(0.40 * 0.60 * 0.50))
    assert lectures.beam_search(3) == ("C C C", pytest.approx(0.15 * 0.95 * 0.95))
    assert lectures.exhaustive_search() == lectures.beam_search(3)


@pytest.mark.slow
def test_without_positions_permuted_tokens_have_permuted_outputs(lectures):
    assert lectures.equivariance_error(with_positions=False) < 1e-5
    assert lectures.equivariance_error(with_positions=True) > 0.1


@pytest.mark.slow
def test_only_a_decoder_that_sees_all_states_copies(lectures):
    whole = lectures.accuracy(lectures.train(lectures.copy), lectures.copy)
    last_state = lectures.accuracy(
        lectures.train(lectures.copy, lectures.LastStateModel), lectures.copy
    )
    assert whole > 0.99
    assert last_state < 0.5


@pytest.mark.slow
def test_cross_attention_follows_the_order_of_the_task(lectures):
    """It is the diagonal for copying and the other diagonal in reverse; the decoder is masked."""
    forward = np.arange(lectures.LENGTH)
    for task, columns in ((lectures.copy, forward), (lectures.reverse, forward[::-1])):
        trained = lectures.train(task)
        assert lectures.accuracy(trained, task) > 0.99
        weights = lectures.attentions(trained, task, lectures.draw_texts(0, 1))
        np.testing.assert_array_equal(weights.decoder, np.tril(weights.decoder))
        np.testing.assert_allclose(weights.encoder.sum(axis=-1), 1, atol=1e-5)
        best = weights.cross.max(axis=0).argmax(axis=-1)  # of the head that looks most
        assert (best == columns).mean() > 0.6


@pytest.mark.slow
def test_the_pictures_are_drawn(lectures):
    for draw in lectures.PICTURES.values():
        assert draw().axes

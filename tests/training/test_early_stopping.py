"""When evaluations that are no better end a training."""

import json
import math
import random

import pytest

from bert_jax.errors import OptionError, UserError
from bert_jax.training.early_stopping import EarlyStopping

HIGHER, LOWER = ("accuracy", True), ("loss", False)


def waits(limit, metric, values) -> list[tuple[int, bool]]:
    """How long was num_bad_evals, and whether that is too long, after each value."""
    patience = EarlyStopping(limit, metric)
    actual = []
    for value in values:
        is_best = patience.update({metric[0]: value, "other": 1.0})
        assert is_best == (patience.num_bad_evals == 0)
        actual.append((patience.num_bad_evals, patience.is_over))
    return actual


def test_higher_or_lower_is_better():
    values = [0.5, 0.6, 0.6, 0.4, 0.7]
    # The same value again is no better one.
    assert waits(2, HIGHER, values) == [(0, False), (0, False), (1, False), (2, True), (0, False)]
    assert waits(0, HIGHER, [0.5, 0.4, 0.3]) == [(0, False), (1, False), (2, False)]  # never
    assert waits(3, LOWER, values) == [(0, False), (1, False), (2, False), (0, False), (1, False)]


def test_it_counts_the_evaluations_since_the_first_best_one():
    draw = random.Random(0)
    for _ in range(300):
        limit, metric = draw.randrange(1, 4), draw.choice((HIGHER, LOWER))
        values = [draw.choice((0.0, 0.25, 0.5, math.nan)) for _ in range(draw.randrange(8))]
        expected = []
        for end in range(1, len(values) + 1):
            numbers = [value for value in values[:end] if not math.isnan(value)]
            best = (max if metric is HIGHER else min)(numbers, default=None)
            since = end if best is None else end - 1 - values.index(best)
            expected.append((since, since >= limit))
        assert waits(limit, metric, values) == expected


def test_it_survives_in_a_checkpoint():
    patience = EarlyStopping(2, HIGHER)
    assert json.loads(json.dumps(patience.as_position())) == {"best": None, "num_bad_evals": 0}
    for value in (0.5, 0.25):
        patience.update({"accuracy": value})
    position = json.loads(json.dumps({"next_example": 80, **patience.as_position()}))
    assert position == {"next_example": 80, "best": 0.5, "num_bad_evals": 1}
    again = EarlyStopping.restored(2, HIGHER, position)
    assert again == patience
    again.update({"accuracy": 0.5})
    assert again.is_over
    assert str(again) == "no better accuracy than 0.5000 in 2 evaluations"
    # A checkpoint from before there was patience.
    assert EarlyStopping.restored(2, HIGHER, {"next_example": 80}) == EarlyStopping(2, HIGHER)


def test_a_metric_that_is_not_there():
    with pytest.raises(OptionError) as raised:
        EarlyStopping(0, HIGHER).update({"f1": 1.0, "f1_{patience}": 2.0})  # of a label in braces
    assert (raised.value.key, raised.value.value) == ("data.best_metric", "accuracy")
    assert str(raised.value) == (
        "there is no metric 'accuracy', only f1, f1_{patience}; set data.best_metric to one of them"
    )
    assert not EarlyStopping(0, HIGHER).update({})
    with pytest.raises(UserError, match="^train.patience is 1; it needs labelled examples"):
        EarlyStopping(1, HIGHER).update({})

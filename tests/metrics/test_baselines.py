"""A metric against its baselines."""

from bert_jax.metrics import baseline_warning, baselines_of

BASELINES = {"accuracy_majority": 0.75, "f1_majority": 0.0, "loss_majority": 0.5}


def test_the_baselines_of_a_metric():
    assert baselines_of("accuracy", BASELINES) == {"accuracy_majority": 0.75}
    parts = {"dev_a_accuracy_majority": 0.5, "dev_b_accuracy_majority": 1.0}
    assert baselines_of("accuracy", parts) == {"accuracy_majority": 0.75}


def test_a_value_that_is_not_better():
    assert baseline_warning(("accuracy", True), 0.76, BASELINES) == ""
    for value in (0.75, 0.5):
        expected = f"accuracy {value:.4f} is not better than accuracy_majority 0.7500"
        assert baseline_warning(("accuracy", True), value, BASELINES) == expected
    assert baseline_warning(("loss", False), 0.4, BASELINES) == ""
    assert baseline_warning(("loss", False), 0.6, BASELINES).startswith("loss 0.6000 is not better")
    assert baseline_warning(("exact_match", True), 0.0, BASELINES) == ""

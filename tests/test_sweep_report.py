"""The report of several runs, by literal values."""

import json
import math

import pytest

from bert_jax.experiment import sweep_report
from bert_jax.experiment.sweep_report import Outcome, Report

BASELINES = {"accuracy_majority": 0.5}
OUTCOMES = (
    Outcome("seed-1", {"loss": 0.5, "accuracy": 0.75, **BASELINES}, ""),
    Outcome("seed-2", {"loss": 0.7, "accuracy": 0.5, **BASELINES}, ""),
    Outcome("seed-3", {}, "the loss of step 7 is not finite"),
    Outcome("seed-4", {"loss": 0.3, "accuracy": 1.0, **BASELINES}, ""),
)


def report(outcomes=OUTCOMES, best_metric=("accuracy", True), baselines=BASELINES, kind="seeds"):
    return Report(outcomes, best_metric, baselines, kind)


def test_the_shape_of_the_result():
    actual = json.loads(json.dumps(report().as_dict()))
    assert actual == {
        "best_metric": "accuracy",
        "higher_is_better": True,
        "best": "seed-4",
        "failed": {"seed-3": "the loss of step 7 is not finite"},
        "not_better": {"seed-2": "accuracy 0.5000 is not better than accuracy_majority 0.5000"},
        # Over 1, 2 and 4: 3/4, 1/2 and 1; their deviation is sqrt(2 · (1/4)² / 2).
        "mean": {"loss": pytest.approx(0.5), "accuracy": 0.75},
        "deviation": {"loss": pytest.approx(0.2), "accuracy": 0.25},
        "baselines": {"accuracy_majority": 0.5},
        "runs": {
            "seed-1": {"loss": 0.5, "accuracy": 0.75},
            "seed-2": {"loss": 0.7, "accuracy": 0.5},
            "seed-3": {"loss": None, "accuracy": None},
            "seed-4": {"loss": 0.3, "accuracy": 1.0},
        },
    }


def test_the_table_by_eye():
    assert report().as_text() == (
        "run        accuracy    loss\n"
        "seed-1       0.7500  0.5000\n"
        "seed-2       0.5000  0.7000\n"
        "seed-3            -       -\n"
        "seed-4 *     1.0000  0.3000\n"
        "mean         0.7500  0.5000\n"
        "deviation    0.2500  0.2000\n"
        "* best by accuracy\n"
        "not better: seed-2: accuracy 0.5000 is not better than accuracy_majority 0.5000\n"
        "failed: seed-3: the loss of step 7 is not finite"
    )


def test_a_sweep_is_ranked_and_has_no_mean():
    actual = report(kind="sweep")
    assert list(actual.as_dict()["runs"]) == ["seed-4", "seed-1", "seed-2", "seed-3"]
    assert not {"mean", "deviation"} & set(actual.as_dict())
    assert actual.as_markdown() == (
        "| run | accuracy | loss |\n"
        "| --- | ---: | ---: |\n"
        "| seed-4 * | 1.0000 | 0.3000 |\n"
        "| seed-1 | 0.7500 | 0.5000 |\n"
        "| seed-2 | 0.5000 | 0.7000 |\n"
        "| seed-3 | - | - |\n"
        "\n* best by accuracy\n"
        "\nnot better: seed-2: accuracy 0.5000 is not better than accuracy_majority 0.5000\n"
        "\nfailed: seed-3: the loss of step 7 is not finite\n"
    )


def test_diverged_seeds_count_against_the_mean():
    outcomes = [
        Outcome("lucky", {"accuracy": 0.9}, "2 of 3 seeds diverged", 2),
        Outcome("one lost", {"accuracy": 0.8}, "1 of 3 seeds diverged", 1),
        Outcome("sound", {"accuracy": 0.7}, ""),
        Outcome("none left", {}, "3 of 3 seeds diverged", 3),
        Outcome("better", {"accuracy": 0.75}, ""),
    ]
    actual = report(outcomes, kind="sweep")
    ranked = ["better", "sound", "one lost", "lucky", "none left"]
    assert [outcome.name for outcome in actual.ranked] == ranked
    assert actual.best is outcomes[-1]
    assert actual.failed == {
        "lucky": "2 of 3 seeds diverged",
        "one lost": "1 of 3 seeds diverged",
        "none left": "3 of 3 seeds diverged",
    }


def test_lower_is_better_for_a_loss_and_the_first_of_equals_is_the_best():
    outcomes = [Outcome(str(n), {"loss": x}, "") for n, x in enumerate((0.5, 0.25, 0.25))]
    actual = report(outcomes, ("loss", False), {"loss_uniform": 0.5})
    assert [outcome.name for outcome in actual.ranked] == ["1", "2", "0"]
    assert actual.not_better == {"0": "loss 0.5000 is not better than loss_uniform 0.5000"}


def test_without_a_baseline_only_diverged_runs_fail():
    # `f1_macro` is another metric, not a baseline of f1.
    outcomes = [Outcome("1", {"f1": 0.0, "f1_macro": 0.5}, "")]
    assert report(outcomes, ("f1", True), {}).not_better == {}
    actual = report(outcomes, ("f1", True), {"nsp_accuracy_majority": 0.9})
    assert actual.failed == actual.not_better == {}
    assert actual.deviations == {"f1": None, "f1_macro": None}


def test_the_baseline_of_a_mean_over_parts_is_the_mean_of_their_baselines():
    baselines = {"matched_accuracy_majority": 0.3, "mismatched_accuracy_majority": 0.4}
    outcomes = [Outcome(str(x), {"accuracy": x}, "") for x in (0.34, 0.36)]
    assert report(outcomes, baselines=baselines).not_better == {
        "0.34": "accuracy 0.3400 is not better than accuracy_majority 0.3500"
    }


def test_nan_is_neither_best_nor_counted():
    outcomes = [Outcome("1", {"accuracy": math.nan}, ""), Outcome("2", {"accuracy": 0.6}, "")]
    actual = report(outcomes)
    assert actual.best is outcomes[1]
    assert actual.means == {"accuracy": 0.6}
    assert actual.failed == {"1": "it has no accuracy"}
    assert actual.as_dict()["runs"]["1"] == {"accuracy": None}


def test_nothing_has_ended():
    actual = report([OUTCOMES[2]])
    assert actual.best is None
    assert actual.as_dict()["mean"] == {}
    assert "no run has ended" in actual.as_text()


def test_a_picture(tmp_path, monkeypatch):
    report().draw(tmp_path / "result.png")
    assert (tmp_path / "result.png").read_bytes().startswith(b"\x89PNG")
    drawn = []
    monkeypatch.setattr(sweep_report, "save_figure", lambda path, figure: drawn.append(figure))
    report().draw(tmp_path / "seeds.png")
    report(kind="sweep").draw(tmp_path / "sweep.png")
    legends = [figure.axes[0].get_legend_handles_labels()[1] for figure in drawn]
    assert legends == [
        ["mean 0.7500 ± 0.2500", "accuracy_majority (baseline)"],
        ["accuracy_majority (baseline)"],
    ]

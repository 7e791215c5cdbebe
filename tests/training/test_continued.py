"""A model that goes on with another text: what it learns and what it forgets is measured."""

import json

import pytest

from tests.runs import completed

pytestmark = pytest.mark.slow


def test_both_corpora_are_evaluated_before_during_and_after(
    train_command, make_tiny_corpus, tiny_corpus, tmp_path
):
    other = make_tiny_corpus(validation=0.4)
    keys = {
        "data.objective": "none",
        "train.steps": 4,
        "optimizer.warmup_steps": 1,
        "train.eval_every": 2,
        "train.evaluate_first": True,
        "data.general_corpus": str(other),
    }
    done = completed(train_command(tmp_path / "run", keys))
    assert done.returncode == 0, done.stderr
    lines = (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()
    actual = [row for row in map(json.loads, lines) if row["split"] == "validation"]
    assert [row["step"] for row in actual] == [0, 2, 4]
    for name in ("mlm_loss", "mlm_accuracy"):
        for row in actual:
            assert {name, f"general_{name}"} <= row.keys()
    assert actual[0]["general_mlm_loss"] != actual[0]["mlm_loss"]
    # Evaluated as the general corpus, the corpus itself has the loss that it has.
    same = keys | {"data.general_corpus": str(tiny_corpus)}
    done = completed(train_command(tmp_path / "same", same))
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout.splitlines()[-1])
    assert result["general_mlm_loss"] == result["mlm_loss"]
    assert result["general_mlm_accuracy"] == result["mlm_accuracy"]
    # A run of another general corpus does not go on as if nothing had changed.
    done = completed(train_command(tmp_path / "run", same | {"train.steps": 6}))
    assert done.returncode == 2
    assert "general_corpus" in done.stderr

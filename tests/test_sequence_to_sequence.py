"""What docs/before_bert.md says about copying, by one seed of its program."""

import importlib
import json
from pathlib import Path

import pytest


@pytest.mark.slow
@pytest.mark.usefixtures("optimized")
def test_reversing_helps_to_copy_and_attention_solves_it(monkeypatch, tmp_path):
    """The accuracy of a letter where those before it are given, and greedy search at 30 letters."""
    monkeypatch.syspath_prepend(Path(__file__).parents[1] / "docs")
    program = importlib.import_module("sequence_to_sequence")
    monkeypatch.setattr(program, "SEEDS", (0,))
    monkeypatch.setattr(program, "TRAINED", 10_000)
    monkeypatch.setattr(program, "TEXTS", 10)
    program.copy(tmp_path / "runs", tmp_path)
    accuracy, shares = {}, {}
    for name in program.MODELS:
        run = tmp_path / "runs" / f"{name}-0"
        accuracy[name] = json.loads((run / "result.json").read_text())["accuracy"]
        shares[name] = program.copied(run)[30]
    assert accuracy["plain"] < 0.3
    assert accuracy["reversed"] > accuracy["plain"] + 0.1
    assert accuracy["attention"] > 0.95
    assert shares["plain"] < 0.15 < 0.7 < shares["attention"]
    assert (tmp_path / "before_bert_copy.png").is_file()

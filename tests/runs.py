"""The log of a run, and the output of its processes."""

import json
import re
import subprocess
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest


def completed(command: Iterable[object], **options: Any) -> "subprocess.CompletedProcess[str]":
    """Runs a command to its end; `options` as for `subprocess.run`."""
    words = list(map(str, command))
    return subprocess.run(words, capture_output=True, text=True, check=False, **options)


def records_of(workdir: Path) -> list[dict]:
    """The lines of a run's log, without the speeds; [] before the first."""
    path = workdir / "metrics.jsonl"
    records = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
    return [{k: v for k, v in row.items() if not k.endswith("per_second")} for row in records]


def logged_step(workdir: Path) -> int:
    """The newest training step that a run has logged."""
    return max((row["step"] for row in records_of(workdir) if row["split"] == "train"), default=0)


def assert_same_metrics(workdir: Path, expected: Path) -> None:
    """Every loss, accuracy and norm of every step and evaluation, up to rounding."""
    rows, references = records_of(workdir), records_of(expected)
    assert [(row["step"], row["split"]) for row in rows] == [
        (row["step"], row["split"]) for row in references
    ]
    for row, reference in zip(rows, references, strict=True):
        for name in reference.keys() - {"split"}:
            # A sum of many more terms than a loss; and the exponential of one.
            tolerance = 1e-4 if name in ("gradient_norm", "mlm_perplexity") else 1e-5
            assert row[name] == pytest.approx(reference[name], rel=tolerance), (row["step"], name)


def printed_lines(output: str) -> list[str]:
    """The lines printed by bert_jax itself.

    Gloo, the collectives of CPUs, prints how many ranks are connected, and its threads tear lines.
    """
    return [
        line
        for line in output.splitlines()
        if not re.search(r"\[Gloo\]|ranks|connected|^[\d .]*$", line)
    ]

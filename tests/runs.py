"""The log of a run, and the output of its processes."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import pytest


def completed(command: Iterable[object], **options: Any) -> "subprocess.CompletedProcess[str]":
    """Runs a command to its end; `options` as for `subprocess.run`."""
    words = list(map(str, command))
    return subprocess.run(words, capture_output=True, text=True, check=False, **options)


_IN_TURN = """
import json, sys
from bert_jax import cli
sys.exit(max(map(cli.main, json.loads(sys.argv[1]))))
"""


def run_on_devices(count: int, *commands: Sequence[str]) -> None:
    """Runs commands `python -m bert_jax …` in turn in one process with so many CPU devices.

    A process takes seconds to import what a training needs, longer than a tiny training.
    """
    verbs = [command[3:] for command in commands]
    done = completed(
        [sys.executable, "-c", _IN_TURN, json.dumps(verbs)],
        env=os.environ | {"JAX_NUM_CPU_DEVICES": str(count)},
    )
    assert done.returncode == 0, done.stderr


def records_of(workdir: Path) -> list[dict]:
    """The lines of a run's log, without speeds and where it was resumed; [] before the first.

    The last line is left out while it is being written.
    """
    path = workdir / "metrics.jsonl"
    lines = path.read_text().splitlines(keepends=True) if path.exists() else []
    records = [json.loads(line) for line in lines if line.endswith("\n")]
    records = [record for record in records if record["split"] != "resumed"]
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
            is_sum = name == "gradient_norm" or name.endswith("perplexity")
            tolerance = 1e-4 if is_sum else 1e-5
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

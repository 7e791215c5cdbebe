"""What a run logs, and what its processes print."""

import json
import re
from pathlib import Path


def records_of(workdir: Path) -> list[dict]:
    """The lines of a run's log, without the speeds; [] before the first."""
    path = workdir / "metrics.jsonl"
    records = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
    return [{k: v for k, v in row.items() if not k.endswith("per_second")} for row in records]


def logged_step(workdir: Path) -> int:
    """The newest training step that a run has logged."""
    return max((row["step"] for row in records_of(workdir) if row["split"] == "train"), default=0)


def printed_lines(output: str) -> list[str]:
    """The lines printed by bert_jax itself.

    Gloo, the collectives of CPUs, prints how many ranks are connected, and its threads tear lines.
    """
    return [
        line
        for line in output.splitlines()
        if not re.search(r"\[Gloo\]|ranks|connected|^[\d .]*$", line)
    ]

"""What a run writes down: `metrics.jsonl` and TensorBoard events."""

import json
import os
from pathlib import Path

from bert_jax.files import write_atomically


class RunLog:
    """Appends metrics of training ("train") and evaluation ("held_out") to a work directory.

    A line of `metrics.jsonl` is `{"step": 100, "split": "train", "loss": …, …}`. A resumed run
    drops what was written after the checkpoint it resumes from, so that no step stands there twice.
    """

    def __init__(self, workdir: Path, *, resume_step: int, enabled: bool = True) -> None:
        """Opens the files; `enabled` is False on all hosts but one."""
        self._path = workdir / "metrics.jsonl"
        self._enabled = enabled
        if not enabled:
            return
        from tensorboardX import SummaryWriter

        lines = self._path.read_text().splitlines() if self._path.exists() else []
        kept = [f"{line}\n" for line in lines if _step_of(line) <= resume_step]
        write_atomically(self._path, "".join(kept).encode())
        self._file = self._path.open("a")
        self._events = SummaryWriter(str(workdir / "tensorboard"), purge_step=resume_step + 1)

    def write(self, step: int, split: str, metrics: dict[str, float]) -> None:
        """Appends one line and its TensorBoard scalars."""
        if not self._enabled:
            return
        self._file.write(json.dumps({"step": step, "split": split, **metrics}) + "\n")
        self._file.flush()
        for name, value in metrics.items():
            self._events.add_scalar(f"{split}/{name}", value, step)

    def close(self) -> None:
        """Writes everything out."""
        if self._enabled:
            os.fsync(self._file.fileno())
            self._file.close()
            self._events.close()


def read_metrics(workdir: Path, split: str) -> list[dict[str, float]]:
    """The lines of one split, in the order of the steps."""
    path = workdir / "metrics.jsonl"
    records = [json.loads(line) for line in path.read_text().splitlines()]
    return [record for record in records if record.pop("split") == split]


def _step_of(line: str) -> float:
    """The step of a line; a line that a kill cut short belongs to no step that is kept."""
    try:
        return json.loads(line)["step"]
    except json.JSONDecodeError:
        return float("inf")

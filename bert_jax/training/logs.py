"""The logs of a run: `metrics.jsonl`, TensorBoard events, and `curves.png` drawn from them."""

import json
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Collection, Mapping
from pathlib import Path

from bert_jax.errors import RetryableError, UserError
from bert_jax.files import is_remote, reachable, save_figure, upload, write_atomically

METRICS = "metrics.jsonl"
# A bucket stores whole files only: the local files are uploaded at this interval.
UPLOAD_SECONDS = 60.0
_PANELS_IN_A_ROW = 2


class RunLog:
    """Appends metrics of training ("train") and evaluation ("validation") to a work directory.

    A line of `metrics.jsonl` is `{"step": 100, "split": "train", "loss": …, …}`. A resumed run
    drops the lines after the checkpoint that it resumes from, so that no step appears twice.
    """

    def __init__(self, workdir: Path, *, resume_step: int, enabled: bool = True) -> None:
        """Opens the files; `enabled` is False on all hosts but one."""
        self._workdir = workdir
        self._enabled = enabled
        if not enabled:
            return
        from tensorboardX import SummaryWriter

        kept = [f"{line}\n" for line in _lines(workdir) if _step_of(line) <= resume_step]
        self._place = Path(tempfile.mkdtemp(prefix="bert-jax-")) if is_remote(workdir) else workdir
        write_atomically(self._place / METRICS, "".join(kept).encode())
        self._file = (self._place / METRICS).open("a")
        events = str(self._place / "tensorboard")
        self._events = SummaryWriter(events, purge_step=resume_step + 1)
        self._saved = time.monotonic()

    def write(self, step: int, split: str, metrics: dict[str, float]) -> None:
        """Appends one line and its TensorBoard scalars."""
        if not self._enabled:
            return
        self._file.write(json.dumps({"step": step, "split": split, **metrics}) + "\n")
        self._file.flush()
        for name, value in metrics.items():
            self._events.add_scalar(f"{split}/{name}", value, step)
        if self._place != self._workdir and time.monotonic() - self._saved >= UPLOAD_SECONDS:
            self.save()

    def save(self) -> None:
        """Makes all lines survive a crash: flushes them, and uploads them to a bucket.

        A bucket that cannot be reached now does not end the run: the next save uploads everything.
        """
        if not self._enabled:
            return
        self._flush()
        self._saved = time.monotonic()
        if self._place != self._workdir:
            try:
                upload(self._place, self._workdir)
            except UserError as error:
                sys.stderr.write(f"bert-jax: {error} (metrics: tried again at the next save)\n")

    def close(self) -> None:
        """Flushes, uploads and closes the files.

        Raises:
            RetryableError: the bucket cannot be reached.
        """
        if not self._enabled:
            return
        self._flush()
        self._file.close()
        self._events.close()
        if self._place != self._workdir:
            try:
                upload(self._place, self._workdir)
            except UserError as error:
                raise RetryableError(f"{error}; the metrics are in {self._place}") from error
            shutil.rmtree(self._place)

    def _flush(self) -> None:
        os.fsync(self._file.fileno())
        self._events.flush()


def read_metrics(workdir: Path, split: str) -> list[dict[str, float]]:
    """The lines of one split, in the order of the steps."""
    records = [json.loads(line) for line in _lines(workdir)]
    return [record for record in records if record.pop("split") == split]


def draw_curves(
    workdir: Path, baselines: Mapping[str, float], *, derived_metrics: Collection[str] = ()
) -> Path:
    """Draws `WORKDIR/curves.png` from `metrics.jsonl`.

    Each validation metric gets a panel, with the same metric of the training where it has one; of a
    loss that is the sum of parts, the parts are enough. A baseline `<metric>_<name>`, or
    `<part>_<name>` for the accuracy of a part, is a dashed line.

    Args:
        workdir: of the run.
        baselines: metrics of answers that need no model.
        derived_metrics: validation metrics without a panel, see `Task`.

    Returns:
        The path of the picture.
    """
    from matplotlib.figure import Figure

    records = {split: read_metrics(workdir, split) for split in ("train", "validation")}
    metrics = _panels(records["validation"][0], derived_metrics)
    rows = -(-len(metrics) // _PANELS_IN_A_ROW)
    figure = Figure(figsize=(5 * _PANELS_IN_A_ROW, 3.2 * rows), layout="constrained")
    grid = figure.subplots(rows, _PANELS_IN_A_ROW, squeeze=False, sharex=True).ravel()
    for axes in grid[len(metrics) :]:
        axes.set_visible(False)
    for axes, metric in zip(grid, metrics, strict=False):
        for split, style in (("train", {"alpha": 0.5}), ("validation", {"marker": "o"})):
            points = [record for record in records[split] if metric in record]
            if points:
                steps = [record["step"] for record in points]
                values = [record[metric] for record in points]
                axes.plot(steps, values, label=split.replace("_", " "), markersize=3, **style)
        for name, value in baselines.items():
            if (label := _baseline_of(metric, name)) is not None:
                axes.axhline(value, linestyle="--", color="gray", label=f"{label} (baseline)")
        axes.set_title(metric.replace("_", " "))
        axes.set_xlabel("step")
        axes.grid(alpha=0.3)
        axes.legend()
    path = workdir / "curves.png"
    save_figure(path, figure)
    return path


def _panels(record: Mapping[str, float], derived_metrics: Collection[str]) -> list[str]:
    """The metrics of a record that are drawn."""
    names = [name for name in record if name not in ("step", *derived_metrics)]
    has_parts = any(name.endswith("_loss") for name in names)
    return [name for name in names if not (has_parts and name == "loss")]


def _baseline_of(metric: str, name: str) -> str | None:
    """The label of a baseline in the panel of a metric; None: it belongs to another metric."""
    for owner in (metric, metric.removesuffix("_accuracy")):
        if owner and not owner.endswith("loss") and name.startswith(f"{owner}_"):
            return name.removeprefix(f"{owner}_").replace("_", " ")
    return None


def _lines(workdir: Path) -> list[str]:
    path = workdir / METRICS
    with reachable(path):
        return path.read_text().splitlines() if path.exists() else []


def _step_of(line: str) -> float:
    """The step of a line; infinity for a line that is incomplete because the run was killed."""
    try:
        return json.loads(line)["step"]
    except json.JSONDecodeError:
        return float("inf")

"""The logs of a run: `metrics.jsonl`, TensorBoard events, and `curves.png` drawn from them."""

import contextlib
import json
import math
import os
import shutil
import tempfile
import time
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

from bert_jax.errors import RetryableError, UserError
from bert_jax.files import (
    is_remote,
    is_there,
    open_regular,
    reachable,
    save_figure,
    upload,
    write_atomically,
)
from bert_jax.process import say

METRICS = "metrics.jsonl"
RESUMED = "resumed"
"""The split of the lines that say from which steps a run was resumed."""
# A bucket stores whole files only: the local files are uploaded at this interval.
SAVE_SECONDS = 60.0
_PANELS_IN_A_ROW = 2
_STYLES: dict[str, dict[str, Any]] = {
    "train": {"color": "C0", "alpha": 0.4, "linewidth": 1},
    "validation": {"color": "C1", "marker": "o", "markersize": 3},
}


class RunLog:
    """Appends metrics of training ("train") and evaluation ("validation") to a work directory.

    A line of `metrics.jsonl` is `{"step": 100, "split": "train", "loss": …, …}`. A resumed run
    drops the lines after the checkpoint that it resumes from, so that no step appears twice, and
    writes `{"step": 100, "split": "resumed"}`.
    """

    def __init__(self, workdir: Path, *, resume_step: int, enabled: bool = True) -> None:
        """Opens the files; `enabled` is False on all hosts but the main one."""
        self._workdir = workdir
        self._enabled = enabled
        if not enabled:
            return
        # Not tensorboardX's `SummaryWriter`, which writes in a thread. When a disk is full, that
        # thread ends with a traceback, and the training waits for it after ten more events.
        from tensorboardX.event_file_writer import EventsWriter
        from tensorboardX.proto.event_pb2 import SessionLog

        kept = [f"{line}\n" for line, record in _lines(workdir) if record["step"] <= resume_step]
        self._local = Path(tempfile.mkdtemp(prefix="bert-jax-")) if is_remote(workdir) else workdir
        write_atomically(self._local / METRICS, "".join(kept).encode())
        events = self._local / "tensorboard"
        if is_there(events) and not events.is_dir():
            raise UserError(f"{events} is not a directory; move it away")
        with self._writing():
            self._file = (self._local / METRICS).open("ab")
            events.mkdir(exist_ok=True)
            # A new file: TensorBoard shows all files of a directory as one, and of older ones no
            # events from this step on.
            self._events = EventsWriter(str(events / "events"))
            self._add_event(resume_step + 1, session_log=SessionLog(status=SessionLog.START))
        self._saved = time.monotonic()
        if resume_step and not self.has(resume_step, RESUMED):
            self.write(resume_step, RESUMED, {})

    def write(self, step: int, split: str, metrics: dict[str, float]) -> None:
        """Appends one line and its TensorBoard scalars.

        Raises:
            UserError: the disk is full, or cannot be written.
        """
        if not self._enabled:
            return
        from tensorboardX.summary import scalar

        line = json.dumps({"step": step, "split": split, **metrics}) + "\n"
        with self._writing():
            self._file.write(line.encode())
            self._file.flush()
            for name, value in metrics.items():
                self._add_event(step, summary=scalar(f"{split}/{name}", value))
        if time.monotonic() - self._saved >= SAVE_SECONDS:
            self.save()

    def has(self, step: int, split: str) -> bool:
        """Whether a step of this split is logged."""
        if not self._enabled:
            return True
        return any(record["step"] == step for record in read_metrics(self._local, split))

    def save(self) -> None:
        """Makes all lines survive a crash: flushes them, and uploads them to a bucket.

        A bucket that cannot be reached now does not end the run: the next save uploads everything.

        Raises:
            UserError: the disk is full, or cannot be written.
        """
        if not self._enabled:
            return
        self._flush()
        self._saved = time.monotonic()
        if self._local != self._workdir:
            try:
                upload(self._local, self._workdir)
            except UserError as error:
                say(f"warning: {error} (metrics: tried again at the next save)")

    def close(self) -> None:
        """Flushes, uploads and closes the files.

        Raises:
            RetryableError: the bucket cannot be reached.
            UserError: the disk is full, or cannot be written.
        """
        if not self._enabled:
            return
        self._flush()
        with self._writing():
            self._file.close()
            self._events.close()
        if self._local != self._workdir:
            try:
                upload(self._local, self._workdir)
            except UserError as error:
                raise RetryableError(f"{error}; the metrics are in {self._local}") from error
            shutil.rmtree(self._local)

    def _add_event(self, step: int, **content: Any) -> None:
        from tensorboardX.proto.event_pb2 import Event

        self._events.write_event(Event(wall_time=time.time(), step=step, **content))

    def _flush(self) -> None:
        with self._writing():
            os.fsync(self._file.fileno())
            self._events.flush()

    @contextlib.contextmanager
    def _writing(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise UserError(
                f"cannot write the metrics in {self._local}: {error.strerror or error}; free space "
                "and run the same command again"
            ) from error


def read_metrics(workdir: Path, split: str) -> list[dict[str, float]]:
    """The lines of one split, in the order of the steps."""
    records = [record for _, record in _lines(workdir)]
    return [record for record in records if record.pop("split") == split]


def draw_curves(
    workdir: Path,
    baselines: Mapping[str, float],
    *,
    derived_metrics: Collection[str] = (),
    teacher: Mapping[str, float] = MappingProxyType({}),
) -> Path:
    """Draws `WORKDIR/curves.png` from `metrics.jsonl`.

    Each validation metric gets a panel, together with the same training metric if there is one, of
    the logged batches and as their mean between two evaluations; for a loss that is a sum of parts,
    only the parts are drawn. Baselines `<metric>_<name>` and the
    teacher's value are dashed lines; where the run was resumed, there is a dotted one.

    Args:
        workdir: directory of the run.
        baselines: metrics of trivial predictions.
        derived_metrics: validation metrics without a panel, see `Task`.
        teacher: metrics of the teacher of a distillation.

    Returns:
        The path of the picture.
    """
    from matplotlib.figure import Figure

    records = {split: read_metrics(workdir, split) for split in (*_STYLES, RESUMED)}
    metrics = _panels(records["validation"][0], derived_metrics)
    by_metric = _baselines_by_metric(metrics, baselines)
    rows = -(-len(metrics) // _PANELS_IN_A_ROW)
    figure = Figure(figsize=(5 * _PANELS_IN_A_ROW, 3.2 * rows), layout="constrained")
    name = "/".join(workdir.parts[-2:])
    figure.suptitle(name, parse_math=False)
    grid = figure.subplots(rows, _PANELS_IN_A_ROW, squeeze=False, sharex=True).ravel()
    for axes in grid[len(metrics) :]:
        axes.set_visible(False)
    for axes, metric in zip(grid, metrics, strict=False):
        for split, style in _STYLES.items():
            points = [record for record in records[split] if metric in record]
            if points:
                steps = [record["step"] for record in points]
                values = [record[metric] for record in points]
                label = "train, single batches" if split == "train" else split
                axes.plot(steps, values, label=label, **style)
        if means := _means_between(records, metric):
            label = "train, mean since the last validation"
            axes.plot(*zip(*means, strict=True), label=label, color="C0", marker="o", markersize=3)
        for baseline, value in by_metric[metric].items():
            label = f"{baseline.replace('_', ' ')} (baseline)"
            axes.axhline(value, linestyle="--", color="gray", label=label)
        if metric in teacher:
            axes.axhline(teacher[metric], linestyle="--", color="C2", label="teacher")
        for number, record in enumerate(records[RESUMED]):
            label = "_" if number else "resumed"  # an underscore: not in the legend
            axes.axvline(record["step"], linestyle=":", color="black", linewidth=1, label=label)
        axes.set_title(metric.replace("_", " "))
        axes.set_xlabel("step")
        axes.tick_params(labelbottom=True)  # also above another row
        axes.grid(alpha=0.3)
        axes.legend()
    path = workdir / "curves.png"
    save_figure(path, figure, names=(name, *metrics))
    return path


def _means_between(
    records: Mapping[str, list[dict[str, float]]], metric: str
) -> list[tuple[float, float]]:
    """(step, mean of the training's values since the evaluation before) of each evaluation."""
    points = [(line["step"], line[metric]) for line in records["train"] if metric in line]
    means, before = [], -math.inf
    for step in (line["step"] for line in records["validation"]):
        values = [value for at, value in points if before < at <= step]
        if values:
            means.append((step, sum(values) / len(values)))
        before = step
    return means


def _panels(record: Mapping[str, float], derived_metrics: Collection[str]) -> list[str]:
    """The metrics of a record that get a panel."""
    names = [name for name in record if name not in ("step", *derived_metrics)]
    has_parts = any(name.endswith("_loss") for name in names)
    return [name for name in names if not (has_parts and name == "loss")]


def _baselines_by_metric(
    metrics: Collection[str], baselines: Mapping[str, float]
) -> dict[str, dict[str, float]]:
    """{metric: {name: value}} of baselines `<metric>_<name>`, for the longest such metric."""
    grouped: dict[str, dict[str, float]] = {metric: {} for metric in metrics}
    for name, value in baselines.items():
        owners = [metric for metric in metrics if name.startswith(f"{metric}_")]
        if owner := max(owners, key=len, default=""):
            grouped[owner][name.removeprefix(f"{owner}_")] = value
    return grouped


def _lines(workdir: Path) -> list[tuple[str, dict[str, Any]]]:
    """The lines of `metrics.jsonl` and their records, but for damaged ones.

    The last one is incomplete if the run was killed.
    """
    path = workdir / METRICS
    if not is_there(path):
        return []
    with open_regular(path, remedy="move it away") as file, reachable(path):
        text = file.read().decode(errors="replace")
    records = ((line, _record(line)) for line in text.splitlines())
    return [(line, record) for line, record in records if record is not None]


def _record(line: str) -> dict[str, Any] | None:
    try:
        record = json.loads(line)
    except ValueError:
        return None
    is_logged = isinstance(record, dict) and isinstance(record.get("step"), int)
    return record if is_logged and "split" in record else None

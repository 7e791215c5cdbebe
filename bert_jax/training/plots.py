"""Curves of a run: its metrics over the steps, with the baselines."""

import io
from collections.abc import Mapping
from pathlib import Path

from bert_jax.files import write_atomically
from bert_jax.training.logs import read_metrics

COLUMNS = 2


def draw_curves(workdir: Path, baselines: Mapping[str, float]) -> Path:
    """Draws `WORKDIR/curves.png` from `metrics.jsonl`.

    Each validation metric gets a panel, with the same metric of the training where it has one; of a
    loss that is the sum of parts, the parts are enough. A baseline `<metric>_<name>`, or
    `<part>_<name>` for the accuracy of a part, is a dashed line.

    Returns:
        The path of the picture.
    """
    from matplotlib.figure import Figure

    records = {split: read_metrics(workdir, split) for split in ("train", "validation")}
    metrics = _metrics(records["validation"][0])
    rows = -(-len(metrics) // COLUMNS)
    figure = Figure(figsize=(5 * COLUMNS, 3.2 * rows), layout="constrained")
    grid = figure.subplots(rows, COLUMNS, squeeze=False, sharex=True).ravel()
    for axes in grid[len(metrics) :]:
        axes.set_visible(False)
    for axes, metric in zip(grid, metrics, strict=False):
        for split, style in (("train", {"alpha": 0.5}), ("validation", {"marker": "o"})):
            found = [record for record in records[split] if metric in record]
            if found:
                steps = [record["step"] for record in found]
                values = [record[metric] for record in found]
                axes.plot(steps, values, label=split.replace("_", " "), markersize=3, **style)
        for name, value in baselines.items():
            if (label := _baseline_of(metric, name)) is not None:
                axes.axhline(value, linestyle="--", color="gray", label=f"{label} (baseline)")
        axes.set_title(metric.replace("_", " "))
        axes.set_xlabel("step")
        axes.grid(alpha=0.3)
        axes.legend()
    path = workdir / "curves.png"
    picture = io.BytesIO()
    figure.savefig(picture, dpi=120)
    write_atomically(path, picture.getvalue())
    return path


def _metrics(record: Mapping[str, float]) -> list[str]:
    """The metrics of a record that are drawn."""
    names = [name for name in record if name not in ("step", "mlm_perplexity")]
    has_parts = any(name.endswith("_loss") for name in names)
    return [name for name in names if not (has_parts and name == "loss")]


def _baseline_of(metric: str, name: str) -> str | None:
    """What a baseline is called beside a metric; None: it is not one of that metric."""
    for owner in (metric, metric.removesuffix("_accuracy")):
        if owner and not owner.endswith("loss") and name.startswith(f"{owner}_"):
            return name.removeprefix(f"{owner}_").replace("_", " ")
    return None

"""Curves of a run: losses and accuracies over the steps, with the baselines."""

from collections.abc import Mapping
from pathlib import Path

from bert_jax.training.logs import read_metrics


def draw_curves(workdir: Path, baselines: Mapping[str, float]) -> Path:
    """Draws `WORKDIR/curves.png` from `metrics.jsonl`.

    Each part of the loss gets a row: its loss on the left, its accuracy on the right, training and
    held out. A baseline `<part>_<name>` is a dashed line beside the accuracy of that part.

    Returns:
        The path of the picture.
    """
    from matplotlib.figure import Figure

    records = {split: read_metrics(workdir, split) for split in ("train", "held_out")}
    parts = sorted(
        {key.removesuffix("_accuracy") for key in records["train"][0] if key.endswith("_accuracy")}
    )
    figure = Figure(figsize=(10, 3.2 * len(parts)), layout="constrained")
    grid = figure.subplots(len(parts), 2, squeeze=False, sharex=True)
    for row, part in zip(grid, parts, strict=True):
        for axes, metric in zip(row, ("loss", "accuracy"), strict=True):
            for split, style in (("train", {"alpha": 0.5}), ("held_out", {"marker": "o"})):
                steps = [record["step"] for record in records[split]]
                values = [record[f"{part}_{metric}"] for record in records[split]]
                axes.plot(steps, values, label=split.replace("_", " "), markersize=3, **style)
            axes.set_title(f"{part.upper()} {metric}")
            axes.grid(alpha=0.3)
        for name, value in baselines.items():
            if name.startswith(f"{part}_"):
                label = name.removeprefix(f"{part}_").replace("_", " ")
                row[1].axhline(value, linestyle="--", color="gray", label=f"{label} (baseline)")
        row[1].legend()
    for axes in grid[-1]:
        axes.set_xlabel("step")
    path = workdir / "curves.png"
    figure.savefig(path, dpi=120)
    return path

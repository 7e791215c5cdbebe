"""A report of one training run, or of several side by side: results, curves, mistakes."""

import dataclasses
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from bert_jax.pictures.page import COLOURS, Page, asset, figure, name, table, text

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# Points of a line: more cannot be told apart.
MOST_POINTS = 500
_FIRST = ("loss", "learning_rate", "gradient_norm", "tokens_per_second")

Metrics = Mapping[str, float]


@dataclasses.dataclass(frozen=True)
class Run:
    """A run, finished or not.

    Attributes:
        name: its name in the report.
        keys: the keys of its config, "train.steps", and their values.
        train, validation: the lines of its log, with "step".
        resumed: the steps from which it was resumed.
        result: the final metrics; empty for a run that is not finished.
        warnings: the warnings in its result.
        mistakes: HTML by the name of the set, see `mistakes.mistakes`.
    """

    name: str
    keys: Mapping[str, Any]
    train: Sequence[Metrics]
    validation: Sequence[Metrics]
    result: Metrics
    resumed: Sequence[float] = ()
    warnings: Sequence[str] = ()
    mistakes: Mapping[str, str] = dataclasses.field(default_factory=dict)


def report_page(runs: Sequence[Run]) -> Page:
    """The report."""
    parts = [*_summary(runs), *_curves(runs), *(part for run in runs for part in _details(run))]
    return Page("Report of training", "".join(parts), asset("run_report.css"))


def _title(runs: Sequence[Run], number: int) -> str:
    """The name of a run, with the colour of its lines."""
    colour = COLOURS[number % len(COLOURS)]
    return f'<span class="run" style="--colour: {colour}">{name(runs[number].name)}</span>'


def _summary(runs: Sequence[Run]) -> Iterator[str]:
    """Final metrics, and the keys of the configs in which the runs differ."""
    titles = [_title(runs, number) for number in range(len(runs))]
    metrics = dict.fromkeys(metric for run in runs for metric in run.result)
    rows = [["steps", *(f"{_last_step(run):,}" for run in runs)]]
    rows += [[text(_spaced(m)), *(_number(run.result.get(m)) for run in runs)] for m in metrics]
    yield table(["", *titles], rows, "Results")
    unfinished = [name(run.name) for run in runs if not run.result]
    if unfinished:
        yield f"<p>Not finished: {', '.join(unfinished)}.</p>\n"
    keys = sorted({key for run in runs for key in run.keys})
    values = {key: [repr(run.keys.get(key)) for run in runs] for key in keys}
    differing = [[text(k), *map(name, v)] for k, v in values.items() if len(set(v)) > 1]
    if differing:
        yield table(["", *titles], differing, "Keys of the configs that differ")


def _last_step(run: Run) -> int:
    return max((int(line["step"]) for line in (*run.train, *run.validation)), default=0)


def _curves(runs: Sequence[Run]) -> Iterator[str]:
    """A panel for each metric of the logs."""
    lines = [line for run in runs for line in (*run.train, *run.validation)]
    metrics = dict.fromkeys((*_FIRST, *(metric for line in lines for metric in line)))
    yield "<h2>Curves</h2>\n<p>Lines are single batches of the training, dots the validation; a "
    yield "dotted line is where the run was resumed.</p>\n"
    yield '<div class="panels">\n'
    for metric in metrics:
        if metric != "step" and any(metric in line for line in lines):
            yield _panel(metric, runs)
    yield "</div>\n"


def _panel(metric: str, runs: Sequence[Run]) -> str:
    def draw(made: "Figure") -> None:
        axes = made.subplots()
        for number, run in enumerate(runs):
            colour = COLOURS[number % len(COLOURS)]
            axes.plot(*_points(run.train, metric), color=colour, linewidth=1.2)
            style: dict[str, Any] = {"marker": "o", "markersize": 4, "linestyle": ":"}
            axes.plot(*_points(run.validation, metric), color=colour, **style)
            for step in run.resumed:
                axes.axvline(step, color=colour, linestyle=":", linewidth=0.8)
        axes.set_title(_spaced(metric))
        axes.set_xlabel("step")
        axes.grid(alpha=0.25)
        axes.spines[["top", "right"]].set_visible(False)

    values = ", ".join(f"{run.name} {_number(_last(run, metric))}" for run in runs)
    return figure(draw, f"{_spaced(metric)} over the steps; at the end {values}", height=2.6)


def _points(lines: Sequence[Metrics], metric: str) -> tuple[list[float], list[float]]:
    """Steps and values, of long logs the last of each of `MOST_POINTS` stretches."""
    points = [(line["step"], line[metric]) for line in lines if metric in line]
    stride = math.ceil(len(points) / MOST_POINTS) or 1
    kept = points[::-1][::stride][::-1]
    return [step for step, _ in kept], [value for _, value in kept]


def _last(run: Run, metric: str) -> float | None:
    """The last value of the training, else of the validation."""
    for lines in (run.train, run.validation):
        if values := [line[metric] for line in lines if metric in line]:
            return values[-1]
    return None


def _details(run: Run) -> Iterator[str]:
    """Warnings, confusion matrices and mistakes of a run."""
    if not (run.warnings or any(run.mistakes.values())):
        return
    yield f"<h2>{name(run.name)}</h2>\n"
    if run.warnings:
        yield f"<ul>{''.join(f'<li>{text(each)}</li>' for each in run.warnings)}</ul>\n"
    for dataset, mistakes in run.mistakes.items():
        if mistakes:
            yield f"<h3>{name(dataset)}</h3>\n{mistakes}"


def _number(value: float | None) -> str:
    return "–" if value is None else f"{value:,.5g}"


def _spaced(metric: str) -> str:
    return metric.replace("_", " ")

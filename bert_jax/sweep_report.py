"""The results of several runs: values, mean, deviation, best and failed, as table and JSON."""

import dataclasses
import math
import re
import statistics
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from bert_jax.files import save_figure
from bert_jax.metrics.tables import aligned


@dataclasses.dataclass(frozen=True)
class Outcome:
    """How a run ended.

    Attributes:
        name: of its directory.
        metrics: validation metrics of its model; none if it diverged.
        diverged: why it has none.
    """

    name: str
    metrics: dict[str, float]
    diverged: str


@dataclasses.dataclass(frozen=True)
class Report:
    """The outcomes of runs that differ in their seeds or in some values.

    Attributes:
        outcomes: of the runs, in their order.
        best_metric: what the best run is chosen by, and whether the higher value is better.
        baselines: metrics of answers that need no model, named `<metric>_<name>`.
        kind: "seeds" or "sweep".
    """

    outcomes: Sequence[Outcome]
    best_metric: tuple[str, bool]
    baselines: dict[str, float]
    kind: str

    @property
    def ranked(self) -> list[Outcome]:
        """The best first; the order of the runs decides between equals."""
        higher_is_better = self.best_metric[1]

        def key(outcome: Outcome) -> float:
            value = self._value(outcome)
            if math.isnan(value):
                return math.inf
            return -value if higher_is_better else value

        return sorted(self.outcomes, key=key)

    @property
    def best(self) -> Outcome | None:
        """The run with the best metric, None if there is no run with one."""
        first = self.ranked[0]
        return None if math.isnan(self._value(first)) else first

    @property
    def failed(self) -> dict[str, str]:
        """Why each failed run failed: it diverged, or is no better than an answer without model."""
        return {outcome.name: why for outcome in self.outcomes if (why := self._failure(outcome))}

    @property
    def metrics(self) -> list[str]:
        """Names of all metrics but the baselines, which are the same for all runs."""
        names = dict.fromkeys(name for outcome in self.outcomes for name in outcome.metrics)
        return [name for name in names if name not in self.baselines]

    @property
    def means(self) -> dict[str, float]:
        """The mean of each metric over all runs that have it; the failed are not left out."""
        return {name: statistics.fmean(values) for name, values in self._columns()}

    @property
    def deviations(self) -> dict[str, float | None]:
        """Sample standard deviation (divided by n - 1) of each metric; None for a single run."""
        return {
            name: statistics.stdev(values) if len(values) > 1 else None
            for name, values in self._columns()
        }

    def as_dict(self) -> dict[str, Any]:
        """What stands in `result.json`.

        best_metric       what the best run is chosen by
        higher_is_better  whether its higher value is the better one
        best              name of the best run, null if none has ended
        failed            {run: why}
        mean, deviation   {metric: value} over the runs that have ended, the failed included;
                          the deviation is that of a sample, null for a single run
        baselines         {metric: value} of answers that need no model
        runs              {run: {metric: value}}, in the order of the runs (a sweep: best first)
        """
        outcomes = self.ranked if self.kind == "sweep" else self.outcomes
        over_seeds = {"mean": self.means, "deviation": self.deviations}
        return {
            "best_metric": self.best_metric[0],
            "higher_is_better": self.best_metric[1],
            "best": self.best.name if self.best else None,
            "failed": self.failed,
            **(over_seeds if self.kind == "seeds" else {}),
            "baselines": self.baselines,
            "runs": {
                outcome.name: {name: _finite(outcome.metrics.get(name)) for name in self.metrics}
                for outcome in outcomes
            },
        }

    def as_text(self) -> str:
        """The table in aligned columns, with what has failed below it."""
        return "\n".join([*aligned(self._table()), *self._remarks()])

    def as_markdown(self) -> str:
        """The table in Markdown, with what has failed below it."""
        head, *rows = self._table()
        ruler = ["---", *["---:"] * (len(head) - 1)]
        lines = ["| " + " | ".join(row) + " |" for row in (head, ruler, *rows)]
        return "\n".join([*lines, *(f"\n{line}" for line in self._remarks()), ""])

    def draw(self, path: Path) -> None:
        """A picture: a row for each run, and how far its best metric came, with the baselines.

        Raises:
            UserError: it cannot be written; an old one is whole.
        """
        from matplotlib.figure import Figure

        name = self.best_metric[0]
        shown = [outcome for outcome in self.ranked if math.isfinite(self._value(outcome))]
        figure = Figure(figsize=(8, 1.5 + 0.3 * len(shown)), layout="constrained")
        axes = figure.subplots()
        axes.plot([self._value(outcome) for outcome in shown], range(len(shown)), "o")
        axes.set_yticks(range(len(shown)), [outcome.name for outcome in shown])
        axes.invert_yaxis()
        for baseline, value in self._baselines_of(name).items():
            axes.axvline(value, linestyle="--", color="gray", label=f"{baseline} (baseline)")
            axes.legend()
        axes.set_xlabel(name.replace("_", " "))
        axes.grid(alpha=0.3)
        save_figure(path, figure)

    def _table(self) -> list[list[str]]:
        """A row for each run, the best first in a sweep; seeds have their mean and deviation."""
        first = self.best_metric[0]
        names = sorted(self.metrics, key=lambda name: name != first)
        outcomes = self.ranked if self.kind == "sweep" else self.outcomes
        rows = [["run", *names]]
        for outcome in outcomes:
            mark = " *" if outcome is self.best else ""
            cells = [_shown(outcome.metrics.get(name)) for name in names]
            rows.append([outcome.name + mark, *cells])
        if self.kind == "seeds":
            for title, values in (("mean", self.means), ("deviation", self.deviations)):
                rows.append([title, *(_shown(values.get(name)) for name in names)])
        return rows

    def _remarks(self) -> list[str]:
        best = f"* best by {self.best_metric[0]}" if self.best else "no run has ended"
        failed = [f"failed: {name}: {why}" for name, why in self.failed.items()]
        return [best, *failed]

    def _columns(self) -> Iterator[tuple[str, list[float]]]:
        for name in self.metrics:
            values = [outcome.metrics.get(name, math.nan) for outcome in self.outcomes]
            if known := [value for value in values if not math.isnan(value)]:
                yield name, known

    def _value(self, outcome: Outcome) -> float:
        return outcome.metrics.get(self.best_metric[0], math.nan)

    def _failure(self, outcome: Outcome) -> str:
        """Why a run has failed, "" if it has not."""
        if outcome.diverged:
            return outcome.diverged
        name, higher_is_better = self.best_metric
        value = self._value(outcome)
        if math.isnan(value):
            return f"it has no {name}"
        for key, base in self._baselines_of(name).items():
            if (value <= base) if higher_is_better else (value >= base):
                return f"{name} {value:.4f} is not better than {key} {base:.4f}"
        return ""

    def _baselines_of(self, metric: str) -> dict[str, float]:
        """The baselines of a metric; of a mean over parts, the mean of the parts' baselines."""
        parts: dict[str, list[float]] = {}
        for name, value in self.baselines.items():
            match = re.search(rf"(?:^|_){re.escape(metric)}_.+$", name)
            if match:
                parts.setdefault(match[0].removeprefix("_"), []).append(value)
        return {name: statistics.fmean(values) for name, values in parts.items()}


def _finite(value: float | None) -> float | None:
    """None for NaN and infinity, which JSON does not have."""
    return None if value is None or not math.isfinite(value) else value


def _shown(value: float | None) -> str:
    return "-" if value is None else f"{value:.4f}"

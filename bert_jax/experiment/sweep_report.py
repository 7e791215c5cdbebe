"""The results of several runs: values, mean, deviation, best and failed, as table and JSON."""

import dataclasses
import math
import statistics
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from bert_jax.files import save_figure
from bert_jax.metrics import baseline_warning, baselines_of
from bert_jax.metrics.tables import aligned


@dataclasses.dataclass(frozen=True)
class Outcome:
    """The result of a run.

    Attributes:
        name: name of its directory.
        metrics: validation metrics of its model, or their means over seeds; empty if it diverged.
        diverged: the error if the run, or how many of its seeds, diverged; else "".
        diverged_seeds: number of seeds without metrics, which are not in the means.
    """

    name: str
    metrics: dict[str, float]
    diverged: str
    diverged_seeds: int = 0


@dataclasses.dataclass(frozen=True)
class Report:
    """The outcomes of runs that differ in their seeds or in some values.

    Attributes:
        outcomes: outcomes of the runs, in their order.
        best_metric: metric that chooses the best run, and whether higher is better.
        baselines: metrics of trivial predictions, named `<metric>_<name>`.
        kind: "seeds" or "sweep".
    """

    outcomes: Sequence[Outcome]
    best_metric: tuple[str, bool]
    baselines: dict[str, float]
    kind: str

    @property
    def ranked(self) -> list[Outcome]:
        """Outcomes, best first; ties stay in the order of the runs.

        A run with diverged seeds comes after all with fewer of them: its mean covers fewer seeds.
        """
        higher_is_better = self.best_metric[1]

        def key(outcome: Outcome) -> tuple[bool, int, float]:
            value = self._value(outcome)
            if math.isnan(value):
                return True, 0, 0.0
            return False, outcome.diverged_seeds, -value if higher_is_better else value

        return sorted(self.outcomes, key=key)

    @property
    def best(self) -> Outcome | None:
        """The run with the best metric; None if no run has one."""
        first = self.ranked[0]
        return None if math.isnan(self._value(first)) else first

    @property
    def failed(self) -> dict[str, str]:
        """The reason of each failed run: it diverged, or has no value of the best metric."""
        return {
            outcome.name: outcome.diverged or f"it has no {self.best_metric[0]}"
            for outcome in self.outcomes
            if outcome.diverged or math.isnan(self._value(outcome))
        }

    @property
    def not_better(self) -> dict[str, str]:
        """Each other run that is no better than a trivial prediction, with both values."""
        compared = {
            outcome.name: baseline_warning(self.best_metric, self._value(outcome), self.baselines)
            for outcome in self.outcomes
            if outcome.name not in self.failed
        }
        return {name: why for name, why in compared.items() if why}

    @property
    def metrics(self) -> list[str]:
        """The names of all metrics except baselines, which are the same for all runs."""
        names = dict.fromkeys(name for outcome in self.outcomes for name in outcome.metrics)
        return [name for name in names if name not in self.baselines]

    @property
    def means(self) -> dict[str, float]:
        """The mean of each metric over all runs that have it, including failed runs."""
        return {name: statistics.fmean(values) for name, values in self._columns()}

    @property
    def deviations(self) -> dict[str, float | None]:
        """Sample standard deviation (divided by n - 1) of each metric; None for a single run."""
        return {
            name: statistics.stdev(values) if len(values) > 1 else None
            for name, values in self._columns()
        }

    def as_dict(self) -> dict[str, Any]:
        """The contents of `result.json`.

        best_metric       metric that chooses the best run
        higher_is_better  whether a higher value of it is better
        best              name of the best run, null if none has ended
        failed            {run: reason}
        not_better        {run: why}: runs no better than a baseline
        mean, deviation   {metric: value} over the runs that have ended, including failed ones;
                          sample standard deviation, null for a single run
        baselines         {metric: value} of trivial predictions
        runs              {run: {metric: value}}, in the order of the runs (a sweep: best first)
        """
        outcomes = self.ranked if self.kind == "sweep" else self.outcomes
        over_seeds = {"mean": self.means, "deviation": self.deviations}
        return {
            "best_metric": self.best_metric[0],
            "higher_is_better": self.best_metric[1],
            "best": self.best.name if self.best else None,
            "failed": self.failed,
            "not_better": self.not_better,
            **(over_seeds if self.kind == "seeds" else {}),
            "baselines": self.baselines,
            "runs": {
                outcome.name: {name: _finite(outcome.metrics.get(name)) for name in self.metrics}
                for outcome in outcomes
            },
        }

    def as_text(self) -> str:
        """The table in aligned columns, followed by poor and failed runs."""
        return "\n".join([*aligned(self._table()), *self._remarks()])

    def as_markdown(self) -> str:
        """The table in Markdown, followed by poor and failed runs."""
        head, *rows = self._table()
        ruler = ["---", *["---:"] * (len(head) - 1)]
        lines = ["| " + " | ".join(row) + " |" for row in (head, ruler, *rows)]
        return "\n".join([*lines, *(f"\n{line}" for line in self._remarks()), ""])

    def draw(self, path: Path) -> None:
        """Draws the best metric of each run, one row per run, with the baselines.

        Of seeds also their mean, with the sample standard deviation to both sides.

        Raises:
            UserError: the picture cannot be written; an older one is unchanged.
        """
        from matplotlib.figure import Figure

        name = self.best_metric[0]
        shown = [outcome for outcome in self.ranked if math.isfinite(self._value(outcome))]
        figure = Figure(figsize=(8, 1.5 + 0.3 * len(shown)), layout="constrained")
        axes = figure.subplots()
        axes.plot([self._value(outcome) for outcome in shown], range(len(shown)), "o")
        axes.set_yticks(range(len(shown)), [outcome.name for outcome in shown])
        axes.invert_yaxis()
        if self.kind == "seeds" and name in self.means:
            mean, deviation = self.means[name], self.deviations[name]
            label = f"mean {_shown(mean)}"
            if deviation is not None:
                label += f" ± {_shown(deviation)}"
                axes.axvspan(mean - deviation, mean + deviation, color="C0", alpha=0.15)
            axes.axvline(mean, color="C0", label=label)
        for baseline, value in baselines_of(name, self.baselines).items():
            axes.axvline(value, linestyle="--", color="gray", label=f"{baseline} (baseline)")
        if axes.get_legend_handles_labels()[1]:
            axes.legend(loc="center left", bbox_to_anchor=(1, 0.5))
        axes.set_xlabel(name.replace("_", " "))
        axes.grid(alpha=0.3)
        save_figure(path, figure)

    def _table(self) -> list[list[str]]:
        """One row per run, in a sweep the best first; for seeds also mean and deviation."""
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
        poor = [f"not better: {name}: {why}" for name, why in self.not_better.items()]
        failed = [f"failed: {name}: {why}" for name, why in self.failed.items()]
        return [best, *poor, *failed]

    def _columns(self) -> Iterator[tuple[str, list[float]]]:
        for name in self.metrics:
            values = [outcome.metrics.get(name, math.nan) for outcome in self.outcomes]
            if known := [value for value in values if not math.isnan(value)]:
                yield name, known

    def _value(self, outcome: Outcome) -> float:
        return outcome.metrics.get(self.best_metric[0], math.nan)


def _finite(value: float | None) -> float | None:
    """The value; None for NaN and infinity, which JSON does not have."""
    return None if value is None or not math.isfinite(value) else value


def _shown(value: float | None) -> str:
    return "-" if value is None else f"{value:.4f}"

"""Metrics of labelled tasks, and whether a metric beats its baselines.

The metrics equal the official scripts to the last digit.
"""

import re
import statistics
from collections.abc import Iterable, Mapping

from bert_jax.errors import OptionError


def baselines_of(metric: str, baselines: Mapping[str, float]) -> dict[str, float]:
    """The baselines of a metric; for a mean over parts, the mean of the parts' baselines.

    Args:
        metric: name of a metric, such as "accuracy".
        baselines: metrics of trivial predictions, named `<metric>_<baseline>`, or
            `<part>_<metric>_<baseline>` for each of several validation sets.
    """
    parts: dict[str, list[float]] = {}
    for name, value in baselines.items():
        match = re.search(rf"(?:^|_){re.escape(metric)}_.+$", name)
        if match:
            parts.setdefault(match[0].removeprefix("_"), []).append(value)
    return {name: statistics.fmean(values) for name, values in parts.items()}


def baseline_warning(metric: tuple[str, bool], value: float, baselines: Mapping[str, float]) -> str:
    """The first baseline that a value does not beat, in words; "" if it beats all of them.

    Args:
        metric: name of the metric, and whether higher is better.
        value: its value.
        baselines: see `baselines_of`.
    """
    name, higher_is_better = metric
    for key, base in baselines_of(name, baselines).items():
        if (value <= base) if higher_is_better else (value >= base):
            return f"{name} {value:.4f} is not better than {key} {base:.4f}"
    return ""


def unknown_metric(name: str, known: Iterable[str]) -> OptionError:
    """The error for a `data.best_metric` that is none of the metrics."""
    problem = f"there is no metric {name!r}, only {', '.join(known)}"
    return OptionError("data.best_metric", name, "set {data.best_metric} to one of them", problem)

"""Results as a table of Markdown and as a plot; figures beyond their limits."""

import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.harness import Figures, Work

HEAD = ("work", "contender", "time of a step", "of processor", "times as long", "figures")


def spread(values: Sequence[float], form: str = ".2f") -> str:
    """As `1.05 (0.98–1.10)`: the median, the least and the greatest."""
    median = format(statistics.median(values), form)
    return f"{median} ({min(values):{form}}–{max(values):{form}})" if len(values) > 1 else median


def mean_and_deviation(values: Sequence[float]) -> str:
    """As `0.853 ± 0.006`: the mean, and the deviation of a sample of several values."""
    mean = f"{statistics.fmean(values):,.4g}"
    return f"{mean} ± {statistics.stdev(values):.2g}" if len(set(values)) > 1 else mean


def ratios(reference: Sequence[Figures], other: Sequence[Figures]) -> list[float]:
    """How many times as long the other contender took, round by round."""
    pairs = zip(reference, other, strict=False)
    return [long["seconds"] / short["seconds"] for short, long in pairs]


def table(works: Mapping[str, Work], results: Mapping[str, Any], findings: Sequence[str]) -> str:
    """The machine, all works and contenders, and what is wrong."""
    lines = [HEAD, ("---", "---", "---:", "---:", "---:", "---")]
    where: dict[str, str] = {}
    for name, result in results.items():
        where |= result["machine"] | result["versions"]
        reference, *_ = result["rounds"].values()
        for one, turns in result["rounds"].items():
            if one in result["left_out"] or not turns:
                reason = result["left_out"].get(one, "the reference failed")
                lines.append((name, one, "–", "–", "–", f"left out: {reason}"))
                continue
            times = [turn["seconds"] for turn in turns]
            used = [turn["processor_seconds"] for turn in turns]
            is_long = statistics.median(times) >= 10
            factor, form, unit = (1, ".1f", "s") if is_long else (1e3, ".4g", "ms")
            shown = [spread([factor * one for one in all_], form) for all_ in (times, used)]
            ratio = "1" if turns is reference else spread(ratios(reference, turns))
            figures = _figures(works[name], turns)
            lines.append((name, one, *(f"{one} {unit}" for one in shown), ratio, figures))
    head = ", ".join(f"{key} {value}" for key, value in where.items() if value)
    rows = [f"| {' | '.join(line)} |" for line in lines]
    return "\n".join([head, "", *rows, "", *(f"- {finding}" for finding in findings)])


def _figures(work: Work, turns: Sequence[Figures]) -> str:
    cells = []
    for name in [name for name in turns[-1] if not name.endswith("seconds")]:
        values = [turn[name] for turn in turns]
        if name == work.rate:
            rates = [turn[name] / turn["seconds"] for turn in turns]
            cells.append(f"{statistics.median(rates):,.4g} {name}/s")
        else:
            cells.append(f"{name} {mean_and_deviation(values)}")
    return ", ".join(cells)


def outside(name: str, work: Work, result: Any) -> list[str]:
    """That the reference was not measured, and figures beyond their limits; NaN is, too."""
    reference, turns = next(iter(result["rounds"].items()))
    if reference in result["left_out"]:
        return [f"{name} was not measured: {result['left_out'][reference]}"]
    return [
        f"{name}: {key} is {value:.3g}; the limit is {limit:g}"
        for figures in turns
        for key, value in figures.items()
        for end, limit in work.limits.items()
        if key.endswith(end) and not value <= limit
    ]


def draw(results: Mapping[str, Any], path: Path) -> None:
    """Bars from 1 to how many times as long as the reference, with the spread over the rounds.

    Nothing is drawn of a single contender.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    bars: dict[str, list[float]] = {}
    for name, result in results.items():
        (_, reference), *others = result["rounds"].items()
        bars |= {f"{name}: {one}": ratios(reference, turns) for one, turns in others if turns}
    if not bars:
        return
    figure = Figure(figsize=(8, 1 + 0.3 * len(bars)), layout="constrained")
    FigureCanvasAgg(figure)
    axes: Any = figure.add_subplot()
    medians = [statistics.median(values) for values in bars.values()]
    pairs = list(zip(medians, bars.values(), strict=True))
    ends = [[median - min(all_) for median, all_ in pairs], [max(all_) - m for m, all_ in pairs]]
    colors = ["#4c72b0" if median >= 1 else "#dd8452" for median in medians]
    axes.barh(list(bars), [median - 1 for median in medians], left=1, xerr=ends, color=colors)
    axes.axvline(1.0, color="black", linewidth=1)
    axes.set_xscale("log", base=2)  # half as long is as far from 1 as twice as long
    axes.xaxis.set_major_formatter("{x:g}")
    axes.invert_yaxis()
    axes.set_xlabel("times as long as the reference")
    figure.savefig(path, dpi=150)

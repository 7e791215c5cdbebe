"""The recall of a search over the number of documents, as a picture."""

from pathlib import Path

from bert_jax.files import save_figure
from bert_jax.metrics.ranking import Judgements, Run, ranking_metrics

_CUTOFFS = (1, 2, 3, 5, 10, 20, 30, 50, 100, 200, 300, 500, 1000)


def draw_recall(
    path: Path, title: str, judgements: Judgements, run: Run, *, relevant_from: float | None
) -> None:
    """Draws the recall among the first k documents over k, to the longest list, as a PNG file.

    Args:
        path: the file.
        title: the title of the picture.
        judgements: see `ranking_metrics`.
        run: see `ranking_metrics`.
        relevant_from: the lowest grade of a relevant document; None: each above 0 is one.
    """
    from matplotlib.figure import Figure

    depth = max([1, *map(len, run.values())])
    cutoffs = sorted({*(k for k in _CUTOFFS if k < depth), depth})
    names = [f"recall@{k}" for k in cutoffs]
    recall = ranking_metrics(judgements, run, names, relevant_from=relevant_from)
    figure = Figure(figsize=(5, 3.5), layout="constrained")
    axes = figure.subplots()
    axes.plot(cutoffs, [recall[name] for name in names], marker="o", markersize=3)
    axes.set(xscale="log", xlabel="k", ylabel="recall@k", ylim=(0, 1), title=title)
    axes.grid(alpha=0.3)
    save_figure(path, figure, names=[title])

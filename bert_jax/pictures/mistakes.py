"""A confusion matrix, and the worst mistakes, of the records of `predictions/<set>.jsonl`."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from bert_jax.metrics.mistakes import judge, worst
from bert_jax.pictures.page import name, table, text

# The most frequent classes have a row and a column.
MOST_CLASSES = 20
MOST_MISTAKES = 20
_LONGEST = 1000


def mistakes(records: Iterable[Mapping[str, Any]]) -> str:
    """The confusion matrix and the worst mistakes of a set, as HTML; "" without labels.

    Args:
        records: predictions with "id" and "expected".

    Raises:
        KeyError, TypeError, ValueError: a record is damaged.
    """
    judged = [(of, record["id"]) for record in records if (of := judge(record)) is not None]
    if not judged:
        return ""
    counts = Counter(pair for of, _ in judged for pair in of.classes)
    wrong = worst(judged)
    shown = wrong[:MOST_MISTAKES]
    caption = f"The worst {len(shown):,} of {len(wrong):,} wrong predictions of {len(judged):,}"
    rows = [[name(each), *map(_shown, (of.expected, of.predicted, of.text))] for of, each in shown]
    head = ["id", "expected", "predicted", "text"]
    return (confusion(counts) if counts else "") + table(head, rows, text(caption))


def _shown(content: str) -> str:
    return name(content[:_LONGEST] + "…" * (len(content) > _LONGEST))


def confusion(counts: Mapping[tuple[str, str], int]) -> str:
    """Counts by gold and predicted class as a table, coloured by the fractions of its rows."""
    support: Counter[str] = Counter()
    for (gold, predicted), count in counts.items():
        support[gold] += count
        support[predicted] += 0
    classes = sorted(each for each, _ in support.most_common(MOST_CLASSES))
    few = f", the {len(classes)} most frequent classes of {len(support):,}"
    rows = [[name(gold), *_cells(gold, classes, counts, support[gold])] for gold in classes]
    caption = f"Confusion matrix{few if len(support) > len(classes) else ''}"
    return table(["gold \\ predicted", *map(name, classes)], rows, caption)


def _cells(
    gold: str, classes: Sequence[str], counts: Mapping[tuple[str, str], int], support: int
) -> list[str]:
    row = [counts.get((gold, predicted), 0) for predicted in classes]
    return [
        f'<span class="cell" style="--share: {count / max(support, 1):.3f}">{count:,}</span>'
        for count in row
    ]

"""Predictions compared with labels: which are wrong, and how certain they are.

It reads the records of `predictions/<set>.jsonl`, see `tasks.base.labelled_evaluator`.
"""

import dataclasses
from collections.abc import Callable, Iterable, Mapping
from typing import Any

# The fields of a record that an example was read from.
_TEXTS = ("text", "text_pair", "prompt", "question", "choices", "passage", "image")

Record = Mapping[str, Any]


@dataclasses.dataclass(frozen=True)
class Judgement:
    """A prediction compared with its label.

    Attributes:
        classes: gold and predicted class, of each word where words have tags; () without classes.
        expected, predicted: what is shown of them.
        is_wrong: whether they differ.
        score: how certain the prediction is, of tags the most certain wrong one; of a number, how
            far it is from the label.
        text: the text of the example, or the name of an image.
    """

    classes: tuple[tuple[str, str], ...]
    expected: str
    predicted: str
    is_wrong: bool
    score: float
    text: str


def judge(record: Record) -> Judgement | None:
    """The judgement of a prediction; None without a label, or of other kinds.

    Args:
        record: the prediction with "expected".

    Raises:
        KeyError, TypeError, ValueError: the record is damaged.
    """
    kind = next((kind for kind in _KINDS if kind in record), None)
    return None if kind is None or "expected" not in record else _KINDS[kind](record)


def worst(judged: Iterable[tuple[Judgement, Any]]) -> list[tuple[Judgement, Any]]:
    """The wrong ones of some judgements with anything, the most certain or farthest first."""
    return sorted((each for each in judged if each[0].is_wrong), key=lambda each: -each[0].score)


def _judge_label(record: Record) -> Judgement:
    """One class, or the classes of a multi-label text."""
    gold, predicted = _joined(record["expected"]), _joined(record["label"])
    # The label of a text without one has a score, too; that of a pair only probabilities.
    score = record["score"] if "score" in record else record["probabilities"][predicted]
    return _judgement(record, ((gold, predicted),), gold, predicted, float(score))


def _judge_tags(record: Record) -> Judgement:
    rows = [*zip(*(record[key] for key in ("words", "expected", "tags", "scores")), strict=True)]
    wrong = [row for row in rows if row[1] != row[2]]
    expected = ", ".join(f"{word}: {gold}" for word, gold, _, _ in wrong)
    predicted = ", ".join(f"{word}: {tag}" for word, _, tag, _ in wrong)
    score = max((float(score) for *_, score in wrong), default=0.0)
    classes = tuple((gold, tag) for _, gold, tag, _ in rows)
    return _judgement(record, classes, expected, predicted, score)


def _judge_value(record: Record) -> Judgement:
    gold, value = float(record["expected"]), float(record["value"])
    return _judgement(record, (), f"{gold:g}", f"{value:g}", abs(gold - value))


def _judge_answer(record: Record) -> Judgement:
    gold, answer = [*map(str, record["expected"])] or [""], record["answer"]
    score = float(record.get("score", 0))  # a reader whose passages are all empty has none
    judgement = _judgement(record, (), " · ".join(gold), answer, score)
    return dataclasses.replace(judgement, is_wrong=answer not in gold)


def _judge_choice(record: Record) -> Judgement:
    gold, chosen = int(record["expected"]), int(record["index"])
    expected, predicted = (f"{number}: {record['choices'][number]}" for number in (gold, chosen))
    classes = ((str(gold), str(chosen)),)
    return _judgement(record, classes, expected, predicted, float(record["score"]))


# The field that only records of this kind have.
_KINDS: Mapping[str, Callable[[Record], Judgement]] = {
    "label": _judge_label,
    "tags": _judge_tags,
    "value": _judge_value,
    "answer": _judge_answer,
    "index": _judge_choice,
}


def _judgement(
    record: Record,
    classes: tuple[tuple[str, str], ...],
    expected: str,
    predicted: str,
    score: float,
) -> Judgement:
    # The passage of a reader is its number.
    parts = [value for key in _TEXTS if isinstance(value := record.get(key), str | list)]
    parts = parts or [record.get("words", ())]
    text = " / ".join(part if isinstance(part, str) else " ".join(part) for part in parts)
    return Judgement(classes, expected, predicted, expected != predicted, score, text)


def _joined(label: Any) -> str:
    return label if isinstance(label, str) else ", ".join(map(str, label))

"""Counts of the examples, classes and tokens of a training, and warnings about them."""

import dataclasses
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from bert_jax.data.readers.rows import TableCounts, is_number
from bert_jax.errors import counted, listed
from bert_jax.tokenization import Tokenizer

# A warning is given from these shares on.
_MAJORITY = 0.9
_CUT = 0.1
_UNKNOWN = 0.05
_DUPLICATES = 0.05
# Metrics of fewer validation examples or documents mean little.
_FEWEST = {"documents": 5}
_FEWEST_EXAMPLES = 30
# Many classes, with few examples each, are rather numbers or texts.
_MANY_CLASSES, _FEW_PER_CLASS = 50, 10
_SHOWN_CLASSES = 12
_SHOWN_GROUPS = 3
_SHOWN_COLUMNS = 20
# How tables write a missing value, where it may also be the name of a class.
_MISSING = frozenset({"null", "none", "n/a", "na", "nil", "missing", "-", "?"})


@dataclasses.dataclass(frozen=True)
class TokenCounts:
    """The tokens of the training rows, or of the documents of a corpus.

    Attributes:
        median, most_rows, longest: tokens of a row: the median, the length that 95 % of the rows do
            not exceed, and the maximum; special tokens included.
        unknown: share of [UNK] among the tokens that are not special.
        texts: number of encoded texts; 0 if texts are never cut.
        cut: number of these texts that were longer than `limit`.
        limit: maximum number of tokens.
    """

    median: int
    most_rows: int
    longest: int
    unknown: float
    texts: int = 0
    cut: int = 0
    limit: int = 0

    @classmethod
    def from_lengths(cls, lengths: np.ndarray, unknown: float, **cut: int) -> "TokenCounts":
        """The quantiles of lengths, int64 [n] with n at least 1, with the other fields."""
        quantiles = np.quantile(lengths, (0.5, 0.95, 1.0), method="inverted_cdf")
        median, most_rows, longest = quantiles.astype(int).tolist()
        return cls(median, most_rows, longest, unknown, **cut)

    @property
    def cut_share(self) -> float:
        """The share of texts that were cut."""
        return self.cut / self.texts if self.texts else 0.0


@dataclasses.dataclass(frozen=True)
class DataSummary:
    """Counts of the data of a training; stored as `data_summary.json` in a run.

    Attributes:
        unit: the counted unit: "rows", "sentences", "questions" or "documents".
        train: number of these in training.
        validation: number of these in each validation set, by its name.
        test: number of these in each test set, by its name.
        tokens: tokens of the training rows or documents.
        classes: how often each class occurs in training, the most frequent first; empty where
            labels are no classes.
        of_words: whether words have classes; otherwise each `unit` has.
        validation_classes: classes of the validation examples.
        balanced: whether the classes have the same weight in the loss of the training.
        positive_class: the class that the metric `f1` is about; "": F1 is about all classes.
        values: lowest, mean and highest label, where labels are numbers.
        duplicates: number of examples of each validation and test set that are training examples,
            too.
        epoch_share: share of the training tokens that an epoch shows; None: it shows all.
        reading: sentences about training examples that were left out or changed, or that teach
            nothing.
        files: those with rows that are not single lines, columns that are not read, or rows that
            are left out.
    """

    unit: str
    train: int
    validation: dict[str, int]
    test: dict[str, int]
    tokens: TokenCounts
    classes: Mapping[str, int] = dataclasses.field(default_factory=dict)
    of_words: bool = False
    validation_classes: tuple[str, ...] = ()
    balanced: bool = False
    positive_class: str = ""
    values: tuple[float, float, float] | None = None
    duplicates: Mapping[str, int] = dataclasses.field(default_factory=dict)
    epoch_share: float | None = None
    reading: tuple[str, ...] = ()
    files: tuple[TableCounts, ...] = ()

    def as_dict(self) -> dict[str, Any]:
        """The contents of `data_summary.json`, with the warnings."""
        return {**dataclasses.asdict(self), "warnings": self.warnings()}

    def lines(self) -> list[str]:
        """A few lines of text for the start of a training."""
        others = [f"{name} {count:,}" for name, count in (self.validation | self.test).items()]
        lines = [f"data: {', '.join([f'train {counted(self.train, self.unit)}', *others])}"]
        lines += (line for file in self.files for line in file.shape())
        lines += self._about_columns()
        if self.classes:
            total = sum(self.classes.values())
            shown = [f"{name!r} {n:,} ({n / total:.1%})" for name, n in self.classes.items()]
            positive = f"; f1 is the F1 of {self.positive_class!r}" if self.positive_class else ""
            lines.append(f"classes: {len(shown)}: {listed(shown, _SHOWN_CLASSES)}{positive}")
        if self.balanced:
            lines.append(
                "class weights: balanced in the training loss; the metrics of an evaluation, also "
                "its loss, are not weighted"
            )
        if self.values:
            low, mean, high = self.values
            lines.append(f"labels: {low:g} to {high:g}, mean {mean:g}")
        tokens = self.tokens
        token_unit = "documents" if self.unit == "documents" else "rows"
        cut = f"; {tokens.cut:,} of {tokens.texts:,} texts cut to {tokens.limit}"
        lines.append(
            f"tokens: {token_unit} of {tokens.median:,} (median), {tokens.most_rows:,} (95 %), "
            f"{tokens.longest:,} (maximum); {tokens.unknown:.1%} unknown"
            + (cut if tokens.texts else "")
        )
        if self.epoch_share is not None:
            lines.append(f"each epoch shows {self.epoch_share:.0%} of the tokens, drawn anew")
        return lines

    def warnings(self) -> list[str]:
        """What looks wrong, each in one line with a remedy."""
        return [
            *(warning for file in self.files for warning in file.warnings()),
            *self.reading,
            *self._about_classes(),
            *self._about_tokens(),
            *self._about_validation(),
        ]

    def _about_columns(self) -> Iterable[str]:
        """The columns that are read, and those that are not; the same of several files once."""
        names: defaultdict[str, list[str]] = defaultdict(list)
        for file in self.files:
            if unread := file.unread:
                read = (column for column, is_read in file.columns.items() if is_read)
                parts = (
                    listed([*map(repr, columns)], _SHOWN_COLUMNS) for columns in (read, unread)
                )
                names["; not read: ".join(parts)].append(file.name)
        return (f"{listed(each)}: columns read: {columns}" for columns, each in names.items())

    def _about_classes(self) -> Iterable[str]:
        classes, count = self.classes, len(self.classes)
        if self.values and self.values[0] == self.values[2]:
            yield f"all labels are {self.values[0]:g}: there is nothing to learn"
        if not classes:
            return
        total = sum(classes.values())
        is_many = count > _MANY_CLASSES and total / count < _FEW_PER_CLASS
        is_many = is_many or count > max(total / 2, 2) or _are_scores(classes)
        if is_many and not self.of_words:
            remedy = (
                "data.problem_type=regression learns numbers"
                if all(map(is_number, classes))
                else "choose the column with data.label_column"
            )
            found = f"{counted(count, 'classes')} for {counted(total, self.unit)}"
            yield f"{found}, as {listed(list(classes))}: {remedy}"
        similar: defaultdict[str | float, list[str]] = defaultdict(list)
        for name in classes:
            similar[_spelling(name)].append(name)
        groups = [" and ".join(map(_written, names)) for names in similar.values() if names[1:]]
        for written in groups[:_SHOWN_GROUPS]:
            yield f"the classes {written} differ in case, spaces or encoding only: write them alike"
        if more := len(groups[_SHOWN_GROUPS:]):
            yield f"{more:,} more classes are written in several ways"
        if missing := [name for name in classes if name.strip().casefold() in _MISSING]:
            yield f"does the class {listed(list(map(repr, missing)))} stand for a missing label?"
        for name in () if self.of_words else classes:
            mark = next((mark for mark in ",;|" if mark in name), "")
            if mark and {part.strip() for part in name.split(mark)} <= classes.keys():
                yield (
                    f"the class {name!r} is made of others: data.label_separator={mark!r} reads "
                    "several"
                )
                break
        most, times = max(classes.items(), key=lambda item: item[1])
        if not self.of_words and count > 1 and times / total >= _MAJORITY:
            yield (
                f"{times / total:.1%} of the training {self.unit} have the class {most!r}: a model "
                "that always gives it has this accuracy; compare by f1, and see data.class_weights"
            )

    def _about_tokens(self) -> Iterable[str]:
        tokens = self.tokens
        if tokens.cut_share >= _CUT:
            yield (
                f"{tokens.cut_share:.1%} of the texts are longer than {tokens.limit} tokens, and "
                "the rest of them is not read: raise data.length"
            )
        if tokens.unknown >= _UNKNOWN:
            yield (
                f"{tokens.unknown:.1%} of the tokens are unknown to the vocabulary: is it of "
                "another language than the texts, or too small for their characters?"
            )

    def _about_validation(self) -> Iterable[str]:
        fewest = _FEWEST.get(self.unit, _FEWEST_EXAMPLES)
        for name, count in self.validation.items():
            if count < fewest:
                yield f"{name} has {counted(count, self.unit)} only: its metrics say little"
        if missing := [name for name in self.validation_classes if name not in self.classes]:
            yield f"no training example has the classes of validation {listed(missing)}"
        for name, count in self.duplicates.items():
            total = (self.validation | self.test)[name]
            if count and count >= _DUPLICATES * total:
                yield (
                    f"{count:,} of {total:,} {name} {self.unit} are training {self.unit}, too: "
                    "their metrics are too good"
                )


def unknown_share(id_counts: np.ndarray, tokenizer: Tokenizer) -> float:
    """The share of [UNK] among tokens that are not of the row's structure.

    Args:
        id_counts: int64 [at most V], how often each id occurs.
        tokenizer: tokenizer of the ids.
    """
    special = tokenizer.special_ids
    counts = np.append(id_counts, np.zeros(tokenizer.vocab_size, np.int64))
    around = [i for i in (special.cls, special.sep, special.pad) if i is not None]
    words = counts.sum() - counts[around].sum()
    return float(counts[special.unk] / max(words, 1)) if special.unk is not None else 0.0


def count_classes(labels: Iterable[Any]) -> dict[str, int]:
    """How often each class occurs among labels, the most frequent first; numbers are no classes."""
    counts: Counter[str] = Counter()
    for label in labels:
        if isinstance(label, tuple):
            counts.update(label)
        elif isinstance(label, str | int):
            counts[str(label)] += 1
    return dict(counts.most_common())


def _spelling(name: str) -> str | float:
    """The same for names that are probably meant to be the same."""
    if is_number(name):
        return float(name)
    visible = (each for each in unicodedata.normalize("NFKC", name) if each.isprintable())
    return "".join("".join(visible).split()).casefold()


def _written(name: str) -> str:
    """A name in which characters that look like others, or like nothing, are escaped."""
    return repr(name) if unicodedata.is_normalized("NFKC", name) else ascii(name)


def _are_scores(classes: Iterable[str]) -> bool:
    """Whether all classes are numbers, and one is not whole."""
    return all(map(is_number, classes)) and any(float(name) % 1 for name in classes)

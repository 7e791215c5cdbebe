"""The nine tasks of GLUE: their files, columns and classes, as the benchmark distributes them.

Source: Wang et al., 2019, "GLUE: A Multi-Task Benchmark and Analysis Platform for Natural Language
Understanding", and the headers of the files of gluebenchmark.com. A quotation mark is a character
like any other in them. The diagnostic set (AX) has the columns of MNLI's test sets.
"""

import dataclasses

from bert_jax.data.readers.columns import TextColumns
from bert_jax.data.readers.tables import TableOptions
from bert_jax.errors import OptionError

PREFIX = "glue:"


@dataclasses.dataclass(frozen=True)
class GlueSet:
    """A validation or test file.

    Attributes:
        file: name of the file in the task's folder.
        name: name of the set if there are several; else "".
        submission: name of the file of its predictions in a submission; "" for validation sets.
    """

    file: str
    name: str = ""
    submission: str = ""


@dataclasses.dataclass(frozen=True)
class GlueLayout:
    """A task's files.

    Attributes:
        folder: folder of the files in the benchmark's own archive.
        text: column of the text.
        pair: column of the second text; "": single texts.
        label: column of the label; test sets have none.
        classes: labels as spelled in the files, in the order of their ids (those of Hugging Face's
            data sets); () for a regression.
        metric: metric that chooses the best checkpoint: the benchmark's own; of its two for MRPC
            and QQP, F1; of its two for STS-B, Pearson's correlation.
        validation: one validation set, or the matched and the mismatched.
        test: one test set, or the matched and the mismatched.
        train: name of the training file.
        headless: columns of files without a header line; (): all files have one.
        has_broken_rows: whether rows of the original file may have a wrong number of columns.
    """

    folder: str
    text: str
    pair: str
    label: str
    classes: tuple[str, ...]
    metric: str
    validation: tuple[GlueSet, ...]
    test: tuple[GlueSet, ...]
    train: str = "train.tsv"
    headless: tuple[str, ...] = ()
    has_broken_rows: bool = False

    @property
    def regression(self) -> bool:
        """Whether the label is a number."""
        return not self.classes

    @property
    def columns(self) -> TextColumns:
        """Columns of text, pair and label; the ids of test sets have a usual name."""
        return TextColumns(self.text, self.pair, self.label)

    @property
    def table(self) -> TableOptions:
        """How the files are read."""
        return TableOptions(
            "tsv", columns=self.headless, quotes="none", skip_broken=self.has_broken_rows
        )


def _layout(
    folder: str,
    texts: tuple[str, str],
    label: str,
    classes: tuple[str, ...],
    metric: str = "accuracy",
    *,
    headless: tuple[str, ...] = (),
    has_broken_rows: bool = False,
) -> GlueLayout:
    """The layout of a task with one validation set and one test set."""
    return GlueLayout(
        folder,
        *texts,
        label,
        classes,
        metric,
        (GlueSet("dev.tsv"),),
        (GlueSet("test.tsv", submission=f"{folder}.tsv"),),
        headless=headless,
        has_broken_rows=has_broken_rows,
    )


_NUMBERS = ("0", "1")
_ENTAILMENT = ("entailment", "not_entailment")
_SENTENCES = ("sentence1", "sentence2")

GLUE: dict[str, GlueLayout] = {
    "cola": _layout(
        "CoLA",
        ("sentence", ""),
        "label",
        _NUMBERS,
        "matthews_correlation",
        headless=("source", "label", "mark", "sentence"),
    ),
    "sst2": _layout("SST-2", ("sentence", ""), "label", _NUMBERS),
    "mrpc": _layout("MRPC", ("#1 String", "#2 String"), "Quality", _NUMBERS, "f1"),
    "stsb": _layout("STS-B", _SENTENCES, "score", (), "pearson"),
    "qqp": _layout(
        "QQP",
        ("question1", "question2"),
        "is_duplicate",
        _NUMBERS,
        "f1",
        has_broken_rows=True,
    ),
    "mnli": GlueLayout(
        "MNLI",
        *_SENTENCES,
        "gold_label",
        ("entailment", "neutral", "contradiction"),
        "accuracy",
        (GlueSet("dev_matched.tsv", "matched"), GlueSet("dev_mismatched.tsv", "mismatched")),
        (
            GlueSet("test_matched.tsv", "matched", "MNLI-m.tsv"),
            GlueSet("test_mismatched.tsv", "mismatched", "MNLI-mm.tsv"),
        ),
    ),
    "qnli": _layout("QNLI", ("question", "sentence"), "label", _ENTAILMENT),
    "rte": _layout("RTE", _SENTENCES, "label", _ENTAILMENT),
    "wnli": _layout("WNLI", _SENTENCES, "label", _NUMBERS),
}


def glue_layout(format: str) -> GlueLayout | None:
    """The layout of a format such as "glue:mrpc"; None: another format.

    Raises:
        OptionError: GLUE has no such task.
    """
    if not format.startswith(PREFIX):
        return None
    name = format.removeprefix(PREFIX)
    if name not in GLUE:
        raise OptionError("data.format", format, f"the tasks of GLUE are {', '.join(GLUE)}")
    return GLUE[name]

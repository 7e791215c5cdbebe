"""The nine tasks of GLUE: their files, columns and classes, as the benchmark distributes them.

Source: Wang et al., 2019, "GLUE: A Multi-Task Benchmark and Analysis Platform for Natural Language
Understanding", and the headers of the files of gluebenchmark.com. A quotation mark is a character
like any other in them. The diagnostic set (AX) has the columns of MNLI's test sets.
"""

import dataclasses
from collections.abc import Mapping

from bert_jax.errors import OptionError

PREFIX = "glue:"
TRAIN = "train.tsv"


@dataclasses.dataclass(frozen=True)
class GlueLayout:
    """A task's files; the training file is `TRAIN`.

    Attributes:
        text: column of the text.
        pair: column of the second text; "": single texts.
        label: column of the label; test sets have none.
        classes: labels as spelled in the files, in the order of their ids in Hugging Face's
            data sets; () for a regression.
        test: one test file, or the matched and the mismatched, each with the name of the file of
            its predictions in a submission.
        metric: metric that chooses the best checkpoint: the benchmark's own; of its two for MRPC
            and QQP, F1; of its two for STS-B, Pearson's correlation.
        validation: one validation file, or the matched and the mismatched.
        headless: columns of files without a header line; (): all files have one.
        has_broken_rows: whether rows of the original file may have a wrong number of columns.
    """

    text: str
    pair: str
    label: str
    classes: tuple[str, ...]
    test: Mapping[str, str]
    metric: str = "accuracy"
    validation: tuple[str, ...] = ("dev.tsv",)
    headless: tuple[str, ...] = ()
    has_broken_rows: bool = False

    @property
    def regression(self) -> bool:
        """Whether the label is a number."""
        return not self.classes

    @property
    def files(self) -> dict[str, tuple[str, ...]]:
        """Names of the files, by split."""
        return {"train": (TRAIN,), "validation": self.validation, "test": tuple(self.test)}


_NUMBERS = ("0", "1")
_ENTAILMENT = ("entailment", "not_entailment")
_SENTENCES = ("sentence1", "sentence2")

GLUE: dict[str, GlueLayout] = {
    "cola": GlueLayout(
        *("sentence", "", "label", _NUMBERS, {"test.tsv": "CoLA.tsv"}, "matthews_correlation"),
        headless=("source", "label", "mark", "sentence"),
    ),
    "sst2": GlueLayout("sentence", "", "label", _NUMBERS, {"test.tsv": "SST-2.tsv"}),
    "mrpc": GlueLayout(
        "#1 String", "#2 String", "Quality", _NUMBERS, {"test.tsv": "MRPC.tsv"}, "f1"
    ),
    "stsb": GlueLayout(*_SENTENCES, "score", (), {"test.tsv": "STS-B.tsv"}, "pearson"),
    "qqp": GlueLayout(
        *("question1", "question2", "is_duplicate", _NUMBERS, {"test.tsv": "QQP.tsv"}, "f1"),
        has_broken_rows=True,
    ),
    "mnli": GlueLayout(
        *_SENTENCES,
        "gold_label",
        ("entailment", "neutral", "contradiction"),
        {"test_matched.tsv": "MNLI-m.tsv", "test_mismatched.tsv": "MNLI-mm.tsv"},
        validation=("dev_matched.tsv", "dev_mismatched.tsv"),
    ),
    "qnli": GlueLayout("question", "sentence", "label", _ENTAILMENT, {"test.tsv": "QNLI.tsv"}),
    "rte": GlueLayout(*_SENTENCES, "label", _ENTAILMENT, {"test.tsv": "RTE.tsv"}),
    "wnli": GlueLayout(*_SENTENCES, "label", _NUMBERS, {"test.tsv": "WNLI.tsv"}),
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

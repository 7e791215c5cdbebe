"""GLUE's tasks as texts with answers in words: how T5 reads and writes them.

    sst2 sentence: a smile on your face            → positive
    mnli hypothesis: A man eats. premise: He eats. → entailment
    stsb sentence1: A man. sentence2: A boy.       → 2.6

Source: Raffel et al., 2020 (https://arxiv.org/abs/1910.10683), appendix D and its code. The paper
has WNLI in another form, with the noun of a pronoun as the answer.
"""

from collections.abc import Iterator
from pathlib import Path

from bert_jax.data.examples import Example, Text, texts_of
from bert_jax.data.readers.columns import TextOptions
from bert_jax.data.readers.glue import GLUE, PREFIX
from bert_jax.data.readers.rows import Report, TableCounts
from bert_jax.data.readers.texts import read_texts

# The names of the texts, where they are not those of the columns.
_NAMES = {"mrpc": ("sentence1", "sentence2"), "mnli": ("premise", "hypothesis")}
# The words for the classes 0 and 1, where the files have numbers.
_WORDS = {
    "cola": ("unacceptable", "acceptable"),
    "sst2": ("negative", "positive"),
    "mrpc": ("not_equivalent", "equivalent"),
    "qqp": ("not_duplicate", "duplicate"),
    "wnli": ("not_entailment", "entailment"),
}


def read_glue_texts(
    source: str | Path,
    format: str,
    *,
    needs_labels: bool = False,
    report: Report = TableCounts.say,
) -> Iterator[Example[str]]:
    """The rows of a file as texts; a label is a tuple of one word.

    Args:
        source: the file.
        format: "glue:" and the name of the task.
        needs_labels: whether missing labels are an error.
        report: see `Report`.

    Raises:
        UserError: see `read_texts`.
    """
    name = format.removeprefix(PREFIX)
    options = TextOptions(format)
    for each in read_texts(source, options, needs_labels=needs_labels, report=report):
        label = None if each.label is None else (as_answer(name, each.label),)
        yield Example(as_source(name, each.input), label, each.id, each.location)


def as_source(task: str, text: Text) -> str:
    """The text that the model reads: the names are in alphabetical order."""
    names = _NAMES.get(task) or filter(None, (GLUE[task].text, GLUE[task].pair))
    named = zip(names, texts_of(text), strict=True)
    return " ".join([task, *(f"{name}: {part}" for name, part in sorted(named))])


def as_answer(task: str, label: str | float) -> str:
    """The text that the model writes; a number is rounded to a multiple of 0.2."""
    if isinstance(label, float):
        return f"{round(5 * label) / 5:.1f}"
    return dict(zip("01", _WORDS.get(task, ()), strict=False)).get(label, label)

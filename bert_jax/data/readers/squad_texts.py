"""SQuAD's questions as texts, and its answers as texts to write: how T5 reads and writes them.

    question: Who wrote Faust? context: Goethe wrote Faust in Weimar. → Goethe

Source: Raffel et al., 2020 (https://arxiv.org/abs/1910.10683), appendix D.
"""

from collections.abc import Iterator
from pathlib import Path

from bert_jax.data.examples import Example, Question
from bert_jax.data.readers.rows import Report, TableCounts
from bert_jax.data.readers.squad import SQUAD, QuestionOptions, read_questions


def read_squad_texts(
    source: str | Path, report: Report = TableCounts.say
) -> Iterator[Example[str]]:
    """The questions of a file as texts; a label is a tuple of all accepted answers.

    Of a question without an answer (SQuAD 2.0) it is empty.

    Args:
        source: the file, SQuAD's JSON.
        report: see `Report`.

    Raises:
        UserError: see `read_questions`.
    """
    for each in read_questions(source, QuestionOptions(SQUAD), report):
        label = None if each.label is None else tuple(answer.text for answer in each.label)
        yield Example(as_source(each.input), label, each.id, each.location)


def as_source(question: Question) -> str:
    """The text that the model reads."""
    return f"question: {question.question} context: {question.passage}"

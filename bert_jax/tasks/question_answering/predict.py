"""Answers to questions about passages: JSON lines, or the files of SQuAD's official scripts."""

import contextlib
import dataclasses
import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from bert_jax.data.examples import Question
from bert_jax.data.readers.rows import Row, Rows
from bert_jax.data.readers.sources import open_records
from bert_jax.data.readers.squad import (
    SQUAD,
    QuestionOptions,
    distinct,
    is_squad,
    question_of,
    read_questions,
)
from bert_jax.data.readers.tables import Record, TableOptions, format_of
from bert_jax.data.records import Output, open_output
from bert_jax.models.config import Head
from bert_jax.tasks.base.predict_task import (
    JSONL,
    PredictionTask,
    PredictOptions,
    Write,
    json_lines,
)
from bert_jax.tasks.base.predictor import Model
from bert_jax.tasks.question_answering.answering import (
    AnswerOptions,
    SpanPredictor,
    as_record,
    best_answers,
    stored_threshold,
)
from bert_jax.tasks.question_answering.files import n_best
from bert_jax.tasks.question_answering.spans import Spans

WriteValue = Callable[[str, Any], None]

_GOLD = ("answers", "answer")


@dataclasses.dataclass(frozen=True, slots=True)
class Found:
    """What the windows of a question say, and how it is to be taken.

    Attributes:
        spans: the best of them.
        null_threshold: see `Spans.answer`.
        top_k: how many answers a record has.
    """

    spans: Spans
    null_threshold: float | None
    top_k: int


@contextlib.contextmanager
def _open_questions(source: str | Path, options: PredictOptions) -> Iterator[Rows[Question]]:
    """SQuAD's JSON, or rows of a table or of JSON lines, which standard input has, too.

    For SQuAD's form of output no two questions may have the same id.
    """
    check = distinct if options.output_format == SQUAD else iter
    form = options.input_format or ""
    reading = QuestionOptions(
        form,
        question_column=options.question_column or "question",
        passage_column=options.passage_column or "",
        id_column=options.id_column or "id",
    )
    if is_squad(source, form):
        questions = read_questions(source, reading)
        yield Rows(check(Row(one, {"id": one.id}, one.place, one.id) for one in questions))
        return
    form = form or format_of(source) or "jsonl"
    with open_records(source, options.reading(TableOptions, format=form)) as table:
        rows = (
            _row(record, number, reading, options) for number, record in enumerate(table.records)
        )
        yield Rows(check(rows), table.fraction)


def _row(
    record: Record, number: int, reading: QuestionOptions, options: PredictOptions
) -> Row[Question]:
    golden = (options.label_column,) if options.label_column else _GOLD
    # What the right answer is, and how it is spelled, is nothing to predict from.
    fields = {key: value for key, value in record.fields.items() if key not in golden}
    question = question_of(fields, reading, number, record.place)
    named = fields.get(reading.id_column) is not None
    taken = {reading.question_column, reading.passage_in(fields)}
    other = {key: value for key, value in record.fields.items() if key not in taken}
    return Row(
        question,
        other if named else {**other, "id": question.id},
        record.place,
        question.id,
        next((key for key in golden if key in other), ""),
    )


class _QuestionPredictor(SpanPredictor):
    """Spans together with how an answer is taken from them."""

    def __init__(self, model: Model, options: PredictOptions) -> None:
        threshold = options.null_threshold
        self._threshold = stored_threshold(model.description) if threshold is None else threshold
        self._top_k = options.top_k or 1
        super().__init__(
            model,
            AnswerOptions(
                options.batch_size or AnswerOptions.batch_size,
                options.max_length,
                window_step=options.window_step,
                answer_length=options.answer_length,
                n_best=max(self._top_k, AnswerOptions.n_best),
            ),
        )

    def transform(self, decoded: Iterator[Spans]) -> Iterator[Found]:
        return (Found(spans, self._threshold, self._top_k) for spans in decoded)


def _as_record(question: Question, found: Found) -> Mapping[str, Any]:
    return as_record(best_answers(found.spans, found.null_threshold, found.top_k))


@contextlib.contextmanager
def _squad(output: Output, options: PredictOptions) -> Iterator[Write[Question, Found]]:
    """`{id: text}`, as the official scripts read it.

    Beside a file NAME.json stand nbest_NAME.json with the best answers to each question, and where
    a passage may have none, null_odds_NAME.json: what the 2.0 script takes as `--na-prob-file`.
    """
    with contextlib.ExitStack() as files:
        answer = files.enter_context(_json_object(output))
        best = files.enter_context(_beside(output, "nbest"))
        odds: WriteValue | None = None

        def write(row: Row[Question], found: Found) -> None:
            nonlocal odds
            with_null = found.null_threshold is not None
            answer(row.id, found.spans.answer(found.null_threshold).text)
            best(row.id, n_best(found.spans, with_null=with_null))
            if with_null:
                odds = odds or files.enter_context(_beside(output, "null_odds"))
                odds(row.id, found.spans.null_odds)

        yield write


@contextlib.contextmanager
def _beside(output: Output, name: str) -> Iterator[WriteValue]:
    """Another file of answers, `<name>_<file>`; where there is no file, nothing."""
    if output.target is None:
        yield lambda key, value: None
        return
    target = output.target.with_name(f"{name}_{output.target.name}")
    with open_output(target) as other, _json_object(other) as write:
        yield write


@contextlib.contextmanager
def _json_object(output: Output) -> Iterator[WriteValue]:
    """An object of JSON that is written key by key."""
    separator = "{\n "

    def write(key: str, value: Any) -> None:
        nonlocal separator
        text = json.dumps(value, ensure_ascii=False, indent=1).replace("\n", "\n ")
        output.write(f"{separator}{json.dumps(key, ensure_ascii=False)}: {text}")
        separator = ",\n "

    yield write
    output.write("{}\n" if separator.startswith("{") else "\n}\n")


PREDICT = PredictionTask(
    _open_questions,
    _QuestionPredictor,
    {JSONL: json_lines(_as_record), SQUAD: _squad},
    endings={".json": SQUAD},
    heads=(Head.QUESTION_ANSWERING,),
)

"""Questions about passages: SQuAD's JSON, 1.1 and 2.0, and rows of any table or JSON lines."""

import contextlib
import dataclasses
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol, TypeVar

from bert_jax.data.examples import Entries, Entry, GoldAnswer, Question
from bert_jax.data.readers.columns import record_id
from bert_jax.data.readers.lines import open_lines, uncompressed_name
from bert_jax.data.readers.rows import Report, TableShape
from bert_jax.data.readers.sources import open_records
from bert_jax.data.readers.tables import FileOptions, Record, check_characters, string_field
from bert_jax.errors import OptionError, UserError

UNKNOWN = -1
"""The start of an answer if the file has only its text."""

SQUAD = "squad"
ANSWERS = ("answers", "answer")


@dataclasses.dataclass(frozen=True)
class QuestionOptions(FileOptions):
    """How questions are read; keys of the same names in section `data`.

    Attributes:
        format: "squad" or a format of `TableOptions`; "": selected by the file extension, .json is
            SQuAD's.
        question_column: column or key of the question.
        passage_column: column or key of the passage; "": "passage" or "context".
        answers_column: column or key of the accepted answers; "": "answers" or "answer".
        id_column: column or key of the question's id; rows without one are numbered from 0.
    """

    question_column: str = "question"
    passage_column: str = ""
    answers_column: str = ""
    id_column: str = "id"

    def passage_in(self, fields: Mapping[str, Any]) -> str:
        """The name of the field of a row that holds the passage."""
        return self.passage_column or ("passage" if "passage" in fields else "context")


@contextlib.contextmanager
def open_questions(
    source: str | Path,
    options: QuestionOptions = QuestionOptions(),
    *,
    gold: Sequence[str] = (),
    report: Report = TableShape.say,
) -> Iterator[Entries[Question]]:
    """Opens questions; they are read in constant memory, unless the file is one JSON object.

    The answers of a row are a text, a list of texts, `[{"text": …, "answer_start": …}, …]` (or
    "start") or `{"text": […], "answer_start": […]}`; missing starts become `UNKNOWN`. If the key is
    missing or null, the answers are unknown; an empty list, an empty text or a true `is_impossible`
    means that the question has no answer.

    Args:
        source: a file, also compressed; "-" for stdin; or "tfds:NAME[/CONFIG][:VERSION][:SPLIT]".
        options: options of the reader.
        gold: names of the answer columns, if answers are to be predicted: these columns are kept
            among the other columns and not read. A file of unknown format is read as JSON lines.
        report: see `Report`.

    Raises:
        UserError: the file cannot be read; or, during iteration, something is damaged, missing or
            of the wrong kind; the message names the place.
    """
    if is_squad(source, options.format):
        yield Entries(
            Entry(
                question,
                {"id": question.id},
                question.place,
                question.id,
                columns={
                    "id": question.id,
                    "question": question.question,
                    "context": question.passage,
                },
            )
            for question in _squad(source, options)
        )
        return
    table_options = options.table("jsonl" if gold else "")
    with open_records(source, table_options, options.data_dir, report) as table:
        entries = (
            _entry(record, number, options, gold) for number, record in enumerate(table.records)
        )
        yield Entries(entries, table.fraction)


def read_questions(
    source: str | Path,
    options: QuestionOptions = QuestionOptions(),
    report: Report = TableShape.say,
) -> Iterator[Question]:
    """The questions of a source with their answers, see `open_questions`."""
    with open_questions(source, options, report=report) as entries:
        for entry in entries:
            yield entry.item


def is_squad(source: str | Path, form: str) -> bool:
    """Whether a source is one JSON object, by its format or, if that is "", by its name."""
    return form == SQUAD or (not form and uncompressed_name(source).endswith(".json"))


class _Named(Protocol):
    """A question, or the entry of a question."""

    @property
    def id(self) -> str: ...
    @property
    def place(self) -> str: ...


Named = TypeVar("Named", bound=_Named)


def distinct(questions: Iterable[Named]) -> Iterator[Named]:
    """The questions, or entries of questions, after a check of their ids.

    Raises:
        UserError: two have the same id.
    """
    places: dict[str, str] = {}
    for question in questions:
        first = places.setdefault(question.id, question.place)
        if first != question.place:
            raise UserError(
                f"{question.place}: the id {question.id!r} was already used at {first}; "
                "give each question its own"
            )
        yield question


def _squad(source: str | Path, options: QuestionOptions) -> Iterator[Question]:
    """Reads articles of paragraphs of questions, or rows below "data", another common form."""
    with open_lines(source) as lines:
        name = lines.name
        content = lines.whole()
    try:
        whole = json.loads(content)
    except json.JSONDecodeError as error:
        hint = "; if it has an object a line, set data.format=jsonl" * (error.msg == "Extra data")
        problem = f"{name}:{error.lineno}: not valid JSON: {error.msg}, column {error.colno}"
        raise OptionError(
            "data.format", options.format, "fix it or download it again" + hint, problem
        ) from error
    except (ValueError, RecursionError) as error:
        raise UserError(f"{name}: not valid JSON: {error}; download it again") from error
    number = 0
    for article_path, article in _items(name, whole, "data"):
        if "\\u" in content:
            check_characters(article, f"{name}: {article_path}")
        if "paragraphs" not in article:
            yield _question_of(article, options, number, f"{name}: {article_path}")
            number += 1
            continue
        for path, paragraph in _items(name, article, f"{article_path}.paragraphs"):
            passage = _text(paragraph, "context", f"{name}: {path}")
            for question_path, fields in _items(name, paragraph, f"{path}.qas"):
                place = f"{name}: {question_path}"
                question = _text(fields, "question", place)
                id_column = options.id_column
                yield _question(question, passage, fields, "answers", id_column, number, place)
                number += 1


def _items(name: str, parent: Any, path: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """The objects of a list, each with its path, such as `data[0].paragraphs[3]`.

    Args:
        name: name of the file.
        parent: object that contains the list.
        path: path of the list.
    """
    items = parent.get(path.rpartition(".")[2]) if isinstance(parent, dict) else None
    if not isinstance(items, list):
        raise OptionError(
            "data.format",
            None,
            "give JSON in the form of SQuAD, or set data.format",
            f"{name}: there is no list {path}",
        )
    for index, item in enumerate(items):
        if not isinstance(item, dict):
            kind = type(item).__name__
            raise UserError(f"{name}: {path}[{index}] is no object but {kind}; fix the file")
        yield f"{path}[{index}]", item


def _entry(
    record: Record, number: int, options: QuestionOptions, gold: Sequence[str]
) -> Entry[Question]:
    fields = {key: value for key, value in record.fields.items() if key not in gold}
    question = _question_of(fields, options, number, record.place)
    used = (options.question_column, options.passage_in(fields))
    other = {key: value for key, value in record.fields.items() if key not in used}
    if fields.get(options.id_column) is None:
        other["id"] = question.id
    label = next((key for key in gold if key in other), "")
    return Entry(question, other, record.place, question.id, label, record.fields)


def _question_of(
    fields: Mapping[str, Any], options: QuestionOptions, number: int, place: str
) -> Question:
    passage = options.passage_in(fields)
    answers = options.answers_column or next((key for key in ANSWERS if key in fields), ANSWERS[-1])
    return _question(
        _text(fields, options.question_column, place),
        _text(fields, passage, place),
        fields,
        answers,
        options.id_column,
        number,
        place,
    )


def _question(
    question: str,
    passage: str,
    fields: Mapping[str, Any],
    answers: str,
    id_key: str,
    number: int,
    place: str,
) -> Question:
    id = record_id(fields, id_key, number, place)
    return Question(question, passage, _answers(fields, answers, place), id, place)


def _answers(fields: Mapping[str, Any], key: str, place: str) -> tuple[GoldAnswer, ...] | None:
    if str(fields.get("is_impossible", "")).lower() in ("true", "1"):
        return ()  # 2.0 has plausible answers under another key, other files under this one
    value = fields.get(key)
    if value is None:
        return None
    if isinstance(value, str):
        value = {"text": value, "answer_start": fields.get("answer_start")}
    if isinstance(value, dict):
        value = _by_answer(value, place)
    if not isinstance(value, list):
        raise _wrong_answers(place, key)
    answers = []
    for answer in value:
        if isinstance(answer, str):
            answer = {"text": answer}
        if not isinstance(answer, dict):
            raise _wrong_answers(place, key)
        text = _text(answer, "text", place)
        if text.strip():
            answers.append(GoldAnswer(text, _start(answer, place)))
    return tuple(answers)


def _by_answer(columns: Mapping[str, Any], place: str) -> list[dict[str, Any]]:
    """Converts `{"text": […], "answer_start": […]}`, Hugging Face's form, to a list of answers."""
    texts, starts = columns.get("text"), columns.get("answer_start")
    if isinstance(texts, str):
        texts, starts = [texts], [starts]
    if not isinstance(texts, list):
        raise UserError(f"{place}: its answers have no 'text'; fix the file")
    starts = [None] * len(texts) if starts is None else starts
    if not isinstance(starts, list) or len(starts) != len(texts):
        raise UserError(f"{place}: its answers need one 'answer_start' for each text; add them")
    return [
        {"text": text, "answer_start": start} for text, start in zip(texts, starts, strict=True)
    ]


def _start(answer: Mapping[str, Any], place: str) -> int:
    start = answer.get("answer_start", answer.get("start"))
    if start in (None, ""):
        return UNKNOWN
    try:
        return int(start)
    except (TypeError, ValueError, OverflowError):
        raise UserError(
            f"{place}: the start of an answer is {start!r:.40}, no number; correct or leave it out"
        ) from None


def _wrong_answers(place: str, key: str) -> UserError:
    return UserError(
        f'{place}: {key!r} must be a text, a list of texts, or of {{"text": …, "answer_start": …}}'
    )


def _text(fields: Mapping[str, Any], key: str, place: str) -> str:
    if key not in fields:
        names = ", ".join(map(repr, fields)) or "nothing"
        raise OptionError(
            "data.question_column",
            None,
            "rename it, or set data.question_column or data.passage_column",
            f"{place}: there is no {key!r}, only {names}",
        )
    return string_field(fields, key, place)

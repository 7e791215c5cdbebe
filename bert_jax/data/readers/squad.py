"""Questions about passages: SQuAD's JSON, 1.1 and 2.0, and rows of any table or JSON lines."""

import contextlib
import dataclasses
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from bert_jax.data.examples import Example, Examples, GoldAnswer, Question
from bert_jax.data.readers.json_objects import check_characters
from bert_jax.data.readers.lines import open_lines, uncompressed_name
from bert_jax.data.readers.rows import Report, TableCounts
from bert_jax.data.readers.tables import (
    FORMATS,
    FileOptions,
    Record,
    open_records,
    string_field,
)
from bert_jax.errors import OptionError, UserError

UNKNOWN = -1
"""The start of an answer if the file has only its text."""

SQUAD = "squad"
ANSWERS = ("answers", "answer")


@dataclasses.dataclass(frozen=True)
class QuestionOptions(FileOptions):
    """How questions are read; keys of the same names in section `data`.

    Attributes:
        format: "squad" or another format of `FileOptions`; "": selected by the file extension,
            .json is SQuAD's.
        question_column: column or key of the question.
        passage_column: column or key of the passage; "": "passage" or "context".
        answers_column: column or key of the accepted answers; "": "answers" or "answer".
        id_column: column or key of the question's id; rows without one are numbered from 0.
    """

    FORMATS = (SQUAD, *FORMATS)

    question_column: str = "question"
    passage_column: str = ""
    answers_column: str = ""
    id_column: str = "id"


@dataclasses.dataclass(frozen=True)
class QuestionParser:
    """Makes examples of records.

    The answers of a row are a text, a list of texts, `[{"text": …, "answer_start": …}, …]` (or
    "start") or `{"text": […], "answer_start": […]}`; missing starts become `UNKNOWN`. If the key is
    missing or null, the answers are unknown, or there is none where `is_impossible` is true; an
    empty list or an empty text means that the question has no answer. Answers beside a true
    `is_impossible` count, as in the official evaluate-v2.0.py.

    Attributes:
        options: options of the reader.
        answers: names of the answer columns, if answers are to be predicted: these columns are kept
            among the other columns and not read.
    """

    options: QuestionOptions = QuestionOptions()
    answers: Sequence[str] = ()

    def __call__(self, record: Record, number: int) -> Example[Question]:
        """The example of a record; `number` counts from 0.

        Raises:
            UserError: something is missing or of the wrong kind.
        """
        options, location = self.options, record.location
        fields = {key: value for key, value in record.fields.items() if key not in self.answers}
        passage = options.passage_column or ("passage" if "passage" in fields else "context")
        answers = options.answers_column or next(
            (key for key in ANSWERS if key in fields), ANSWERS[-1]
        )
        question = Question(
            _text(fields, options.question_column, location), _text(fields, passage, location)
        )
        used = (options.question_column, passage)
        other = {key: value for key, value in record.fields.items() if key not in used}
        id = Record(fields, location).id(options.id_column, number)
        if fields.get(options.id_column) is None:
            other["id"] = id
        return Example(
            question,
            gold_answers(fields, answers, location),
            id,
            location,
            other,
            next((key for key in self.answers if key in other), ""),
            record.fields,
            read=(*used, answers, options.id_column, "answer_start", "is_impossible"),
        )


@contextlib.contextmanager
def open_questions(
    source: str | Path,
    options: QuestionOptions = QuestionOptions(),
    answers: Sequence[str] = (),
    report: Report = TableCounts.say,
) -> Iterator[Examples[Question]]:
    """Opens questions; they are read in constant memory, unless the file is one JSON object.

    Args:
        source: a file, also compressed; "-" for stdin; or "tfds:NAME[/CONFIG][:VERSION][:SPLIT]".
        options: options of the reader.
        answers: see `QuestionParser`; with names of answers, a file of unknown format is read as
            JSON lines.
        report: see `Report`.

    Raises:
        UserError: the file cannot be read; or, during iteration, something is damaged, missing or
            of the wrong kind; the message names the location.
    """
    if is_squad(source, options):
        yield Examples(_squad(source, options))
        return
    default = "jsonl" if answers else ""
    with open_records(source, options, report, default=default) as table:
        yield table.examples(QuestionParser(options, answers))


def is_squad(source: str | Path, options: FileOptions) -> bool:
    """Whether a source is one JSON object, by its format or the ending .json."""
    is_json_file = not options.format and uncompressed_name(source).endswith(".json")
    return options.format == SQUAD or is_json_file


def read_questions(
    source: str | Path,
    options: QuestionOptions = QuestionOptions(),
    report: Report = TableCounts.say,
) -> Iterator[Example[Question]]:
    """The questions of a source with their answers, see `open_questions`."""
    with open_questions(source, options, report=report) as examples:
        for example in examples:
            yield example.labelled(example.label)


def distinct_ids() -> Callable[[Example[Question]], Example[Question]]:
    """The function that returns each question of a file, after a check of its id.

    Raises:
        UserError: by the function, where an earlier question has the same id.
    """
    locations: dict[str, str] = {}

    def check(example: Example[Question]) -> Example[Question]:
        first = locations.setdefault(example.id, example.location)
        if first != example.location:
            raise UserError(
                f"{example.location}: the id {example.id!r} was already used at {first}; "
                "give each question its own"
            )
        return example

    return check


def _squad(source: str | Path, options: QuestionOptions) -> Iterator[Example[Question]]:
    """Reads articles of paragraphs of questions, or rows below "data", another common form.

    A prediction keeps only the id.
    """
    in_articles = QuestionOptions(
        passage_column="context", answers_column="answers", id_column=options.id_column
    )
    for number, (record, is_in_article) in enumerate(question_records(source, options)):
        example = QuestionParser(in_articles if is_in_article else options)(record, number)
        question = example.input
        columns = {"id": example.id, "question": question.question, "context": question.passage}
        yield dataclasses.replace(example, fields={"id": example.id}, record=columns)


def read_json(
    source: str | Path, options: FileOptions
) -> tuple[str, Iterator[tuple[str, dict[str, Any]]]]:
    """The name of a file that is one JSON value, and its objects, each with its path.

    They are a list, or the list `data` of an object.

    Raises:
        UserError: the file cannot be read, or is not JSON; or, during iteration, an item of the
            list is not an object.
    """
    with open_lines(source) as lines:
        name = lines.name
        content = lines.whole()
    try:
        whole = json.loads(content)
    except json.JSONDecodeError as error:
        hint = "; if it has an object a line, set {data.format=jsonl}" * (error.msg == "Extra data")
        problem = f"{name}:{error.lineno}: not valid JSON: {error.msg}, column {error.colno}"
        raise OptionError(
            "data.format", options.format, "fix it or download it again" + hint, problem
        ) from error
    except (ValueError, RecursionError) as error:
        raise UserError(f"{name}: not valid JSON: {error}; download it again") from error

    parent, list_path = ({"": whole}, "") if isinstance(whole, list) else (whole, "data")

    def objects() -> Iterator[tuple[str, dict[str, Any]]]:
        for path, fields in items(name, parent, list_path):
            if "\\u" in content:
                check_characters(fields, f"{name}: {path}")
            yield path, fields

    return name, objects()


def question_records(source: str | Path, options: FileOptions) -> Iterator[tuple[Record, bool]]:
    """The questions of a file that is one JSON value, and whether they are in articles.

    A question in an article has the text of its paragraph as "context", and the article's "title".
    """
    name, articles = read_json(source, options)
    for article_path, article in articles:
        if "paragraphs" not in article:
            yield Record(article, f"{name}: {article_path}"), False
            continue
        title = article.get("title") or ""
        for path, paragraph in items(name, article, f"{article_path}.paragraphs"):
            context = {"context": _text(paragraph, "context", f"{name}: {path}"), "title": title}
            for question_path, fields in items(name, paragraph, f"{path}.qas"):
                yield Record({**fields, **context}, f"{name}: {question_path}"), True


def items(name: str, parent: Any, path: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """The objects of a list, each with its path, such as `data[0].paragraphs[3]`.

    Args:
        name: name of the file.
        parent: object that contains the list.
        path: path of the list.

    Raises:
        UserError: it is not a list of objects.
    """
    items = parent.get(path.rpartition(".")[2]) if isinstance(parent, dict) else None
    if not isinstance(items, list):
        raise OptionError(
            "data.format",
            None,
            "give JSON in the form of SQuAD, or an object on each line with {data.format=jsonl}",
            f"{name}: there is no list {path}",
        )
    for index, item in enumerate(items):
        if not isinstance(item, dict):
            kind = type(item).__name__
            raise UserError(f"{name}: {path}[{index}] is not an object but {kind}; fix the file")
        yield f"{path}[{index}]", item


def gold_answers(
    fields: Mapping[str, Any], key: str, location: str
) -> tuple[GoldAnswer, ...] | None:
    """The answers of a record in its field `key`, see `QuestionParser`; None: they are unknown.

    Raises:
        UserError: they have none of the known forms.
    """
    value = fields.get(key)
    if value is None:
        is_impossible = str(fields.get("is_impossible", "")).lower() in ("true", "1")
        return () if is_impossible else None
    if isinstance(value, str):
        value = [{"text": value, "answer_start": fields.get("answer_start")}]
    elif isinstance(value, Mapping):
        value = _by_answer(value, location)
    answers = []
    for answer in value if isinstance(value, list) else (None,):
        if isinstance(answer, str):
            answer = {"text": answer}
        if not isinstance(answer, Mapping):
            raise UserError(
                f"{location}: {key!r} must be a text, a list of texts, or of "
                '{"text": …, "answer_start": …}'
            )
        text = _text(answer, "text", location)
        if text.strip():
            answers.append(GoldAnswer(text, _start(answer, location)))
    return tuple(answers)


def _by_answer(columns: Mapping[str, Any], location: str) -> list[Any]:
    """Converts `{"text": […], "answer_start": […]}`, Hugging Face's form, to a list of answers."""
    texts, starts = columns.get("text"), columns.get("answer_start")
    if isinstance(texts, str):
        return [columns]
    if not isinstance(texts, list):
        raise UserError(f"{location}: its answers have no 'text'; fix the file")
    if starts is None:
        return texts
    if not isinstance(starts, list) or len(starts) != len(texts):
        raise UserError(f"{location}: its answers need one 'answer_start' for each text; add them")
    return [
        {"text": text, "answer_start": start} for text, start in zip(texts, starts, strict=True)
    ]


def _start(answer: Mapping[str, Any], location: str) -> int:
    start = answer.get("answer_start", answer.get("start"))
    if start in (None, ""):
        return UNKNOWN
    try:
        return int(start)
    except (TypeError, ValueError, OverflowError):
        raise UserError(
            f"{location}: the start of an answer is {start!r:.40}, no number; correct or leave it "
            "out"
        ) from None


def _text(fields: Mapping[str, Any], key: str, location: str) -> str:
    if key not in fields:
        names = ", ".join(map(repr, fields)) or "nothing"
        raise OptionError(
            "data.question_column",
            None,
            "rename it, or set {data.question_column} or {data.passage_column}",
            f"{location}: there is no {key!r}, only {names}",
        )
    return string_field(fields, key, location)

"""Multiple choice: SWAG's and Cosmos QA's tables, ARC's JSON lines and their relatives.

    swag    sent1, sent2, ending0, ending1, …, label: a choice is sent2 and an ending, as in the
            original; or startphrase alone, which the endings continue
    cosmos  context, question, answer0, answer1, …, label
    arc     question.stem, question.choices or choices: [{"label", "text"}, …] or {"label": […],
            "text": […]}, answerKey: one of the labels; ARC, OpenBookQA, CommonsenseQA
    jsonl   prompt (context, passage), question, choices (endings, options): [text, …], label
            (answer): a number from 0, a letter from A, or the text of the choice

Labels of swag and cosmos are numbers from 0. If a test set has none, the label is None.
"""

import contextlib
import dataclasses
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from bert_jax.data.examples import ChoiceExample, Entries, Entry
from bert_jax.data.readers.columns import USUAL_IDS, record_id, usual_column
from bert_jax.data.readers.rows import Report, TableShape
from bert_jax.data.readers.sources import open_records
from bert_jax.data.readers.tables import FileOptions, Record, Table, TableOptions, string_field
from bert_jax.errors import UserError, require_one_of

PROMPTS = ("prompt", "context", "passage", "ctx", "question_stem")
CHOICES = ("choices", "endings", "options")
ANSWERS = ("label", "answer", "answerKey")

# The columns of the texts, in all layouts.
_TEXTS = re.compile(
    "|".join([*PROMPTS, *CHOICES, "question", "sent1", "sent2", "startphrase"])
    + r"|(ending|answer)\d+"
)


@dataclasses.dataclass(frozen=True)
class ChoiceOptions(FileOptions):
    """How a file of choices is read; keys of the same names in section `data`.

    Attributes:
        format: "swag", "cosmos", "arc" or "jsonl", see the top of this file; "": chosen by the
            columns or keys of the first record.
    """

    def __post_init__(self) -> None:
        if self.format:
            require_one_of("data.format", self.format, LAYOUTS)


@dataclasses.dataclass(frozen=True)
class _Parts:
    """The fields of a record; the answer is not resolved yet."""

    prompt: object
    question: object
    choices: Sequence[object]
    answer: object
    names: Sequence[object] | None = None  # of the choices in answers; None: see "jsonl"


@contextlib.contextmanager
def open_choices(
    source: str | Path,
    options: ChoiceOptions = ChoiceOptions(),
    *,
    file_format: str = "",
    gold: Sequence[str] = (),
    report: Report = TableShape.say,
) -> Iterator[Entries[ChoiceExample]]:
    """Opens examples of any layout, in a table or in JSON lines.

    Args:
        source: a file, also compressed; "-" for stdin; or "tfds:NAME[/CONFIG][:VERSION][:SPLIT]".
        options: options of the reader.
        file_format: file format, see `TableOptions.format`; "": selected by the file extension.
        gold: names of the answer columns, if answers are to be predicted: these columns are kept
            among the other columns and not read. Texts may then be empty, and a file of unknown
            format is read as JSON lines.
        report: see `Report`.

    Raises:
        UserError: the file cannot be read; or, during iteration, its layout is unknown, or a row is
            malformed, has fewer than two choices, an empty text, or an answer that is none of its
            choices; the message names file and line.
    """
    default = FILES[options.format] or ("jsonl" if gold else "")
    table_options = TableOptions(
        file_format, header=options.header, quotes=options.quotes, default=default
    )
    with open_records(source, table_options, options.data_dir, report) as table:
        yield Entries(_entries(table, options.format, gold), table.fraction)


def read_choices(
    source: str | Path,
    options: ChoiceOptions = ChoiceOptions(),
    *,
    needs_labels: bool = False,
    report: Report = TableShape.say,
) -> Iterator[ChoiceExample]:
    """The examples of a source, in its order; either all have a label or none, see `open_choices`.

    Args:
        source: a source, see `open_choices`.
        options: options of the reader.
        needs_labels: whether missing labels are an error.
        report: see `Report`.
    """
    has_labels: bool | None = True if needs_labels else None
    with open_choices(source, options, report=report) as entries:
        for entry in entries:
            is_labelled = entry.item.label is not None
            if has_labels is None:
                has_labels = is_labelled
            if has_labels != is_labelled:
                what = "no answer" if has_labels else "an answer, but the rows before have none"
                raise UserError(f"{entry.place}: the row has {what}; give every row one, or none")
            yield entry.item


def _entries(table: Table, layout: str, gold: Sequence[str]) -> Iterator[Entry[ChoiceExample]]:
    for number, record in enumerate(table.records):
        fields = {key: value for key, value in record.fields.items() if key not in gold}
        content = Record(fields, record.place)
        layout = layout or layout_of(content)
        example = choice_of(content, layout, number, allow_empty=bool(gold))
        other = {key: value for key, value in record.fields.items() if not _TEXTS.fullmatch(key)}
        label = next((key for key in gold if key in other), "")
        yield Entry(example, other, record.place, example.id, label, record.fields)


def layout_of(record: Record) -> str:
    """The layout of a file, by its first record: a key of `LAYOUTS`.

    Raises:
        UserError: the record fits no layout.
    """
    fields = record.fields
    if "ending0" in fields:
        return "swag"
    if "answer0" in fields:
        return "cosmos"
    question = fields.get("question")
    if isinstance(question, Mapping):
        return "arc"
    choices = _first(fields, CHOICES)
    if isinstance(choices, Mapping):
        return "arc"
    if isinstance(choices, list):
        return "arc" if choices and isinstance(choices[0], Mapping) else "jsonl"
    raise UserError(
        f"{record.place}: no choices as in {', '.join(LAYOUTS)}; there is only "
        f"{', '.join(map(repr, fields)) or 'nothing'}; rename the columns"
    )


def _swag(record: Record) -> _Parts:
    fields = record.fields
    endings = _numbered(record, "ending")
    if "sent1" not in fields:
        start = _needed(record, ("startphrase",))
        return _Parts(start, "", endings, fields.get("label"), range(len(endings)))
    start = _needed(record, ("sent2",))
    choices = [f"{start} {ending}" if ending else ending for ending in endings]
    return _Parts(fields["sent1"], "", choices, fields.get("label"), range(len(choices)))


def _cosmos(record: Record) -> _Parts:
    answers = _numbered(record, "answer")
    prompt, question = _needed(record, ("context",)), _needed(record, ("question",))
    return _Parts(prompt, question, answers, record.fields.get("label"), range(len(answers)))


def _arc(record: Record) -> _Parts:
    fields = record.fields
    question = fields.get("question", fields.get("question_stem"))
    inner = question if isinstance(question, Mapping) else fields
    stem = question.get("stem") if isinstance(question, Mapping) else question
    choices = inner.get("choices")
    try:
        if isinstance(choices, Mapping):
            names, texts = list(choices["label"]), list(choices["text"])
        else:
            names = [choice["label"] for choice in choices or ()]
            texts = [choice["text"] for choice in choices or ()]
    except (KeyError, TypeError) as error:
        raise UserError(
            f'{record.place}: choices are not of the form {{"label", "text"}}; fix the line'
        ) from error
    if len(names) != len(texts) or len(set(map(str, names))) != len(names):
        raise UserError(
            f"{record.place}: {len(texts)} choices with the labels {names}; give each its own"
        )
    return _Parts(stem, "", texts, _first(fields, ("answerKey", "label", "answer")), names)


def _plain(record: Record) -> _Parts:
    choices = _needed(record, CHOICES)
    if not isinstance(choices, list):
        raise UserError(f"{record.place}: the choices are no list; write [text, …]")
    prompt = _first(record.fields, PROMPTS)
    question = record.fields.get("question", "")
    if prompt is None:
        prompt, question = _needed(record, ("question", *PROMPTS)), ""
    return _Parts(prompt, question or "", choices, _first(record.fields, ANSWERS))


LAYOUTS: dict[str, Callable[[Record], _Parts]] = {
    "swag": _swag,
    "cosmos": _cosmos,
    "arc": _arc,
    "jsonl": _plain,
}

# File format of each layout, used where the file extension does not tell.
FILES = {"": "", "swag": "csv", "cosmos": "csv", "arc": "jsonl", "jsonl": "jsonl"}


def _first(fields: Mapping[str, Any], names: Sequence[str]) -> Any:
    """The first of several fields that is present."""
    return next((fields[name] for name in names if name in fields), None)


def _needed(record: Record, names: Sequence[str]) -> Any:
    if not any(name in record.fields for name in names):
        there = ", ".join(map(repr, record.fields)) or "nothing"
        raise UserError(f"{record.place}: there is no {names[0]!r}, only {there}; fix the row")
    return _first(record.fields, names)


def _numbered(record: Record, name: str) -> list[str]:
    """The fields name0, name1, …; trailing ones may be empty, if a row has fewer choices."""
    texts: list[str] = []
    while f"{name}{len(texts)}" in record.fields:
        texts.append(record.fields[f"{name}{len(texts)}"])
    while texts and texts[-1] in ("", None):
        texts.pop()
    return texts


def choice_of(
    record: Record, layout: str, number: int, *, allow_empty: bool = False
) -> ChoiceExample:
    """The example of a record.

    Args:
        record: the record.
        layout: layout of the file, a key of `LAYOUTS`.
        number: number of the record, from 0.
        allow_empty: whether texts may be empty.

    Raises:
        UserError: the record is malformed, see `read_choices`.
    """
    parts, place = LAYOUTS[layout](record), record.place
    texts = {"prompt": parts.prompt, "question": parts.question}
    texts |= {f"choice {index}": text for index, text in enumerate(parts.choices)}
    for what in texts:
        text = string_field(texts, what, place)
        if what != "question" and not (allow_empty or text.strip()):
            raise UserError(f"{place}: the {what} is empty; fix the row, or remove it")
    if len(parts.choices) < 2:
        raise UserError(
            f"{place}: {len(parts.choices)} choices, but there must be two or more; fix the row"
        )
    return ChoiceExample(
        prompt=str(parts.prompt),
        choices=tuple(map(str, parts.choices)),
        label=None if parts.answer in (None, "", -1, "-1") else _answer(parts, place),
        id=record_id(record.fields, usual_column(USUAL_IDS, record.keys), number, place),
        place=place,
        question=str(parts.question),
    )


def _answer(parts: _Parts, place: str) -> int:
    """The number of the choice that an answer refers to.

    Raises:
        UserError: it refers to no choice, or to two.
    """
    count, answer = len(parts.choices), parts.answer
    text = str(answer).strip()
    matches: set[int] = set()
    if parts.names is not None:
        matches = {index for index, name in enumerate(parts.names) if str(name) == text}
    else:
        if text.isdecimal() and int(text) < count and not isinstance(answer, bool):
            matches.add(int(text))
        if isinstance(answer, str):
            matches |= {index for index, choice in enumerate(parts.choices) if choice == answer}
            letter = ord(text) - ord("A") if len(text) == 1 else -1
            matches |= {letter} & set(range(count))
    if len(matches) == 1:
        return matches.pop()
    known = ", ".join(map(str, parts.names or range(count)))
    what = "could mean two" if matches else "is none"
    raise UserError(f"{place}: the answer {answer!r:.40} {what} of the {count} choices ({known})")

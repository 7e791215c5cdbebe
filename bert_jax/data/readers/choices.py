"""Multiple choice: SWAG's and Cosmos QA's tables, ARC's JSON lines and their relatives.

    swag    sent1, sent2, ending0, ending1, …, label: a choice is sent2 and an ending, as in the
            original; or startphrase alone, which the endings continue
    cosmos  context, question, answer0, answer1, …, label
    arc     question.stem, question.choices or choices: [{"label", "text"}, …] or {"label": […],
            "text": […]}, answerKey: one of the labels; ARC, OpenBookQA, CommonsenseQA
    jsonl   prompt (context, passage), question, choices (endings, options): [text, …], label
            (answer): a number from 0, a letter from A, or the text of the choice

Labels of swag and cosmos are numbers from 0. Where a test set has none, an example has None.
"""

import contextlib
import dataclasses
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from bert_jax.data.examples import ChoiceExample, Entries, Entry
from bert_jax.data.readers.columns import USUAL_IDS, record_id, usual_column
from bert_jax.data.readers.sources import is_dataset, open_records
from bert_jax.data.readers.tables import Record, Table, TableOptions, format_of
from bert_jax.errors import OptionError, UserError

PROMPTS = ("prompt", "context", "passage", "ctx", "question_stem")
CHOICES = ("choices", "endings", "options")
ANSWERS = ("label", "answer", "answerKey")

# The columns of the texts, in any layout.
_TEXTS = re.compile(
    "|".join([*PROMPTS, *CHOICES, "question", "sent1", "sent2", "startphrase"])
    + r"|(ending|answer)\d+"
)


@dataclasses.dataclass(frozen=True)
class ChoiceOptions:
    """How a file of choices is read; the keys of the same names in section `data`.

    Attributes:
        format: "swag", "cosmos", "arc" or "jsonl", see the head of this file; "": by the columns or
            keys of the first record.
        header, quotes: of a table, see `TableOptions`.
        data_dir: of "tfds:" sources, where data sets are prepared; None: TensorFlow Datasets'
            default.
    """

    format: str = ""
    header: bool = True
    quotes: str = "auto"
    data_dir: str | None = None

    def __post_init__(self) -> None:
        if self.format and self.format not in LAYOUTS:
            raise OptionError("format", self.format, f"known are {', '.join(LAYOUTS)}")


@dataclasses.dataclass(frozen=True)
class _Parts:
    """What a record says, its answer not yet looked up."""

    prompt: object
    question: object
    choices: Sequence[object]
    answer: object
    names: Sequence[object] | None = None  # of the choices, as answers use them; None: see "jsonl"


@contextlib.contextmanager
def open_choices(
    source: str | Path,
    options: ChoiceOptions = ChoiceOptions(),
    *,
    file_format: str = "",
    gold: Sequence[str] = (),
) -> Iterator[Entries[ChoiceExample]]:
    """Opens examples of any layout, in a table or in JSON lines.

    Args:
        source: a file, also compressed; "-" for stdin; or "tfds:NAME[/CONFIG][:VERSION][:SPLIT]".
        options: how it is read.
        file_format: see `TableOptions.format`; "": by the ending of the file's name.
        gold: to predict answers, the columns of the right ones: they are kept among the other
            columns, and not read. Texts may be empty, and a file whose format is unknown is one of
            JSON lines.

    Raises:
        UserError: the file cannot be read; or, while it is read, its layout is unknown, or a row is
            malformed, has fewer than two choices, an empty text, or an answer that is none of its
            choices; names file and line.
    """
    if not (file_format or is_dataset(source)):
        file_format = format_of(source) or FILES[options.format] or ("jsonl" if gold else "")
    table_options = TableOptions(file_format, header=options.header, quotes=options.quotes)
    with open_records(source, table_options, options.data_dir) as table:
        yield Entries(_entries(table, options.format, gold), table.fraction)


def read_choices(
    source: str | Path, options: ChoiceOptions = ChoiceOptions(), *, needs_labels: bool = False
) -> Iterator[ChoiceExample]:
    """The examples of a source, in its order, see `open_choices`; all have a label, or none has.

    Args:
        source: as of `open_choices`.
        options: how it is read.
        needs_labels: whether it is an error that there are no labels.
    """
    has_labels: bool | None = True if needs_labels else None
    with open_choices(source, options) as entries:
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
        yield Entry(example, other, record.place, example.id, label)


def layout_of(record: Record) -> str:
    """The layout of a file by its first record: a key of `LAYOUTS`.

    Raises:
        UserError: it is none of them.
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
        f"{record.place}: these are no choices as in {', '.join(LAYOUTS)}; there is only "
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

# What a file is whose ending does not say so.
FILES = {"": "", "swag": "csv", "cosmos": "csv", "arc": "jsonl", "jsonl": "jsonl"}


def _first(fields: Mapping[str, Any], names: Sequence[str]) -> Any:
    """The first of some fields that is there."""
    return next((fields[name] for name in names if name in fields), None)


def _needed(record: Record, names: Sequence[str]) -> Any:
    if not any(name in record.fields for name in names):
        there = ", ".join(map(repr, record.fields)) or "nothing"
        raise UserError(f"{record.place}: there is no {names[0]!r}, only {there}; fix the row")
    return _first(record.fields, names)


def _numbered(record: Record, name: str) -> list[str]:
    """Fields name0, name1, …; the last may be empty, where a row has fewer choices."""
    texts: list[str] = []
    while f"{name}{len(texts)}" in record.fields:
        texts.append(record.fields[f"{name}{len(texts)}"])
    while texts and texts[-1] in ("", None):
        texts.pop()
    return texts


def choice_of(
    record: Record, layout: str, number: int, *, allow_empty: bool = False
) -> ChoiceExample:
    """What a record says.

    Args:
        record: the record.
        layout: of its file, a key of `LAYOUTS`.
        number: of the record, from 0.
        allow_empty: whether texts may be empty.

    Raises:
        UserError: it is malformed, see `read_choices`.
    """
    parts, place = LAYOUTS[layout](record), record.place
    texts = {"prompt": parts.prompt, "question": parts.question}
    texts |= {f"choice {index}": text for index, text in enumerate(parts.choices)}
    for what, text in texts.items():
        if not isinstance(text, str):
            kind = type(text).__name__
            raise UserError(f"{place}: the {what} is not a string but {kind}; put it in quotes")
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
        id=record_id(record, usual_column(USUAL_IDS, list(record.fields)), number),
        place=place,
        question=str(parts.question),
    )


def _answer(parts: _Parts, place: str) -> int:
    """The number of the choice that an answer means.

    Raises:
        UserError: it means none of them, or two.
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

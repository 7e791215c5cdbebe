"""Multiple choice: SWAG's and Cosmos QA's tables, ARC's JSON lines and their relatives.

    swag    sent1, sent2, ending0, ending1, …, label: a choice is sent2 and an ending, as in the
            original; or only startphrase, which the endings continue
    cosmos  context, question, answer0, answer1, …, label
    arc     question.stem, question.choices or choices: [{"label", "text"}, …] or {"label": […],
            "text": […]}, answerKey: one of the labels; ARC, OpenBookQA, CommonsenseQA
    jsonl   prompt (context, passage), question, choices (endings, options): [text, …], label
            (answer): a number from 0, a letter from A, or the text of the choice
    piqa    goal, sol1, sol2, label from 0
    siqa    context, question, answerA, answerB, answerC, label from 1 (Social IQA)
    wino    sentence with a blank "_", option1, option2, answer from 1 (WinoGrande): the prompt is
            what is before the blank (else the sentence), a choice an option with what follows it

Labels of swag and cosmos are numbers from 0. If a test set has none, the label is None.
"""

import contextlib
import dataclasses
import itertools
import re
import string
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from bert_jax.data.examples import Choices, Example, Examples
from bert_jax.data.readers.columns import USUAL_IDS, usual_column
from bert_jax.data.readers.rows import Report, TableCounts
from bert_jax.data.readers.tables import FORMATS, FileOptions, Record, open_records, string_field
from bert_jax.errors import UserError

PROMPTS = ("prompt", "context", "passage", "ctx", "question_stem")
CHOICES = ("choices", "endings", "options")
ANSWERS = ("label", "answer", "answerKey")

# The columns of the texts, in all layouts.
_TEXTS = re.compile(
    "|".join([*PROMPTS, *CHOICES, "question", "sent1", "sent2", "startphrase", "goal", "sentence"])
    + r"|(ending|answer|sol|option)\d+|answer[A-Z]"
)


# The formats that name a layout, with the file format where the file extension does not tell.
_LAYOUTS = {"swag": "csv", "cosmos": "csv", "arc": "jsonl", "jsonl": "jsonl"}


@dataclasses.dataclass(frozen=True)
class ChoiceOptions(FileOptions):
    """How a file of choices is read; keys of the same names in section `data`.

    The columns of each record tell its layout, see the top of this file.

    Attributes:
        format: a format of `FileOptions`, or "swag", "cosmos" or "arc" for CSV and JSON lines in a
            file without such an extension.
    """

    FORMATS = tuple(dict.fromkeys((*_LAYOUTS, *FORMATS)))


class _Parts(NamedTuple):
    """The fields of a record.

    Attributes:
        prompt: see `Choices`; so are `question` and `choices`.
        answer: as in the file.
        names: names of the choices in answers; None: see "jsonl" at the top of this file.
    """

    prompt: object
    question: object
    choices: Sequence[object]
    answer: object
    names: Sequence[object] | None = None


@dataclasses.dataclass(frozen=True)
class ChoiceParser:
    """Makes examples of records.

    Attributes:
        answers: names of the answer columns, if answers are to be predicted: these columns are kept
            among the other columns and not read. Texts may then be empty.
    """

    answers: Sequence[str] = ()

    def __call__(self, record: Record, number: int) -> Example[Choices]:
        """The example of a record; `number` counts from 0.

        Raises:
            UserError: its layout is unknown, or it is malformed, has fewer than two choices, an
                empty text, or an answer that is none of its choices.
        """
        fields = {key: value for key, value in record.fields.items() if key not in self.answers}
        location = record.location
        parts = _parts(dataclasses.replace(record, fields=fields))
        texts = {"prompt": parts.prompt, "question": parts.question}
        texts |= {f"choice {index}": text for index, text in enumerate(parts.choices)}
        for name in texts:
            text = string_field(texts, name, location)
            if name != "question" and not (self.answers or text.strip()):
                raise UserError(f"{location}: the {name} is empty; fix the row, or remove it")
        if len(parts.choices) < 2:
            raise UserError(
                f"{location}: {len(parts.choices)} choices, but there must be two or more; fix the "
                "row"
            )
        id = usual_column(USUAL_IDS, tuple(fields))
        other = {key: value for key, value in record.fields.items() if not _TEXTS.fullmatch(key)}
        return Example(
            Choices(str(parts.prompt), tuple(map(str, parts.choices)), str(parts.question)),
            None if parts.answer in (None, "", -1, "-1") else _answer(parts, location),
            record.id(id, number),
            location,
            other,
            next((key for key in self.answers if key in other), ""),
            record.fields,
            read=(*(key for key in fields if key not in other), *ANSWERS, *filter(None, [id])),
        )


@contextlib.contextmanager
def open_choices(
    source: str | Path,
    options: ChoiceOptions,
    answers: Sequence[str] = (),
    report: Report = TableCounts.say,
) -> Iterator[Examples[Choices]]:
    """Opens choices in a table or in JSON lines.

    Args:
        source: a file, also compressed; "-" for stdin; or "tfds:NAME[/CONFIG][:VERSION][:SPLIT]".
        options: options of the reader.
        answers: see `ChoiceParser`; with names of answers, a file of unknown format is read as
            JSON lines.
        report: see `Report`.

    Raises:
        UserError: the file cannot be read; or, during iteration, a record is malformed.
    """
    default = _LAYOUTS.get(options.format, "jsonl" if answers else "")
    if options.format in _LAYOUTS:
        options = dataclasses.replace(options, format="")
    with open_records(source, options, report, default=default) as table:
        yield table.examples(ChoiceParser(answers))


def read_choices(
    source: str | Path,
    options: ChoiceOptions = ChoiceOptions(),
    *,
    needs_labels: bool = False,
    report: Report = TableCounts.say,
) -> Iterator[Example[Choices]]:
    """The examples of a source, in its order; either all have a label or none, see `open_choices`.

    Args:
        source: a source, see `open_choices`.
        options: options of the reader.
        needs_labels: whether missing labels are an error.
        report: see `Report`.

    Raises:
        UserError: see `open_choices`; or only some examples have a label.
    """
    has_labels: bool | None = True if needs_labels else None
    with open_choices(source, options, report=report) as examples:
        for example in examples:
            is_labelled = example.label is not None
            if has_labels not in (None, is_labelled):
                what = "no answer" if has_labels else "an answer, but the rows before have none"
                raise UserError(
                    f"{example.location}: the row has {what}; give every row one, or none"
                )
            has_labels = is_labelled
            yield example.labelled(example.label)


def _parts(record: Record) -> _Parts:
    fields = record.fields
    choices = _first(fields, CHOICES)
    if "ending0" in fields:
        return _swag(record)
    if "answer0" in fields:
        return _cosmos(record)
    if "sol1" in fields:
        texts = _numbered(record, "sol", itertools.count(1))
        return _Parts(_needed(record, "goal"), "", texts, fields.get("label"), range(len(texts)))
    if "answerA" in fields:
        answers = _numbered(record, "answer", string.ascii_uppercase)
        prompt, question = _needed(record, "context"), _needed(record, "question")
        return _Parts(prompt, question, answers, fields.get("label"), range(1, len(answers) + 1))
    if "option1" in fields:
        return _winogrande(record)
    if isinstance(fields.get("question"), Mapping) or isinstance(choices, Mapping):
        return _arc(record)
    if isinstance(choices, list):
        return _arc(record) if choices and isinstance(choices[0], Mapping) else _plain(record)
    raise UserError(
        f"{record.location}: no choices as in {', '.join(_LAYOUTS)}, piqa, siqa, wino; there is "
        f"only {', '.join(map(repr, fields)) or 'nothing'}; rename the columns: startphrase, "
        "ending0, ending1, … and label, or prompt, choices (a list of texts) and label"
    )


def _swag(record: Record) -> _Parts:
    fields, endings = record.fields, _numbered(record, "ending", itertools.count())
    if "sent1" in fields:
        prompt, start = fields["sent1"], _needed(record, "sent2")
        endings = [f"{start} {ending}" if ending else ending for ending in endings]
    else:
        prompt = _needed(record, "startphrase")
    return _Parts(prompt, "", endings, fields.get("label"), range(len(endings)))


def _cosmos(record: Record) -> _Parts:
    answers = _numbered(record, "answer", itertools.count())
    prompt, question = _needed(record, "context"), _needed(record, "question")
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
            f'{record.location}: choices are not of the form {{"label", "text"}}; fix the line'
        ) from error
    if len(names) != len(texts) or len(set(map(str, names))) != len(names):
        raise UserError(
            f"{record.location}: {len(texts)} choices with the labels {names}; give each its own"
        )
    return _Parts(stem, "", texts, _first(fields, ("answerKey", "label", "answer")), names)


def _winogrande(record: Record) -> _Parts:
    options = _numbered(record, "option", itertools.count(1))
    prompt, blank, rest = str(_needed(record, "sentence")).partition("_")
    if not blank:
        raise UserError(
            f"{record.location}: 'sentence' has no blank '_', which an option fills; fix the row"
        )
    prompt = prompt.strip() or str(record.fields["sentence"])
    choices = [f"{option}{rest}" if option else option for option in options]
    return _Parts(prompt, "", choices, record.fields.get("answer"), range(1, len(choices) + 1))


def _plain(record: Record) -> _Parts:
    fields = record.fields
    prompt, question = _first(fields, PROMPTS), fields.get("question")
    if prompt is None:
        prompt, question = _needed(record, "question"), ""
    return _Parts(prompt, question or "", _first(fields, CHOICES), _first(fields, ANSWERS))


def _first(fields: Mapping[str, Any], names: Sequence[str]) -> Any:
    """The first of several fields that is present."""
    return next((fields[name] for name in names if name in fields), None)


def _needed(record: Record, name: str) -> Any:
    if name not in record.fields:
        there = ", ".join(map(repr, record.fields)) or "nothing"
        raise UserError(f"{record.location}: there is no {name!r}, only {there}; fix the row")
    return record.fields[name]


def _numbered(record: Record, name: str, numbers: Iterable[object]) -> list[str]:
    """The fields name0, name1, …; trailing ones may be empty, if a row has fewer choices."""
    keys = (f"{name}{number}" for number in numbers)
    present = itertools.takewhile(lambda key: key in record.fields, keys)
    texts = [record.fields[key] for key in present]
    while texts and texts[-1] in ("", None):
        texts.pop()
    return texts


def _answer(parts: _Parts, location: str) -> int:
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
        if text.isdecimal() and int(text) < count:
            matches.add(int(text))
        if isinstance(answer, str):
            matches |= {index for index, choice in enumerate(parts.choices) if choice == answer}
            letter = ord(text) - ord("A") if len(text) == 1 else -1
            matches |= {letter} & set(range(count))
    if len(matches) == 1:
        return matches.pop()
    known = ", ".join(map(str, parts.names or range(count)))
    what = "could mean two" if matches else "is none"
    raise UserError(
        f"{location}: the answer {answer!r:.40} {what} of the {count} choices ({known})"
    )

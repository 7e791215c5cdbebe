"""JSON objects of a file: one a line, or the elements of an array.

    {"text": "…"}                            JSON lines
    {"text": "…"}

    [{"text": "…"},                          an array, over any number of lines
     {"text": "…"}]

    {"version": 1, "data": [{"text": "…"}]}  an array in an object

An array of texts is a row: of two, a pair; of others, keys are numbers from 0. A text with an
object, as spaCy's examples are, `["Anna", {"entities": [[0, 4, "PER"]]}]`, is an object with one
more key.
"""

import itertools
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from bert_jax.errors import UserError

# What matters for the depth of JSON; a string has no line end.
_TOKEN = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*"|[\[\]{},]')
_ARRAY = re.compile(r"\[\s*[\[{]")
# Keys of an object whose array has the records of a file.
_ARRAYS = ("data", "annotations", "examples", "records", "rows")
_ARRAY_KEY = re.compile(rf'"(?:{"|".join(_ARRAYS)})"\s*:\s*\[')

Numbered = Iterable[tuple[int, str]]


def values(name: str, lines: Numbered) -> Iterator[tuple[int, str]]:
    """The text of each JSON value that is a record, with the number of the line it begins in.

    Args:
        name: name of the file in errors.
        lines: its numbered lines, read no further than a value needs.

    Raises:
        UserError: during iteration, an array does not end, or something follows it.
    """
    lines = (line for line in lines if line[1].strip())
    begun = list(itertools.islice(lines, 1))
    if begun and begun[0][1].strip() == "[":
        begun += itertools.islice(lines, 1)
    text = "".join(line for _, line in begun).strip()
    if _ARRAY.match(text):
        yield from _elements(name, itertools.chain(begun, lines))
        return
    is_open, has_array = _is_open_object(text), _has_array(text)
    begun += itertools.islice(lines, 1 if is_open or has_array else 0)
    is_alone = not begun[1:]
    # Before a line with an object of its own, it is a line that is cut off.
    is_broken = is_alone or (_object(begun[-1][1]) is not None and not _ARRAY_KEY.search(text))
    if (is_open and not is_broken) or (has_array and is_alone):
        yield from _in_object(name, itertools.chain(begun, lines))
    else:
        yield from itertools.chain(begun, lines)


def _is_open_object(text: str) -> bool:
    """Whether an object begins in a line and does not end in it."""
    marks = [token[0] for token in _TOKEN.finditer(text)] if text.startswith("{") else []
    return sum((mark in "[{") - (mark in "]}") for mark in marks) > 0


def _object(text: str) -> dict[str, Any] | None:
    """The object that a line is; None: it is none."""
    try:
        fields = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return fields if isinstance(fields, dict) else None


def _has_array(text: str) -> bool:
    """Whether a line is an object with an array of records, and without a text of its own."""
    fields = _object(text) or {}
    if "text" in fields:
        return False
    records = next((fields[key] for key in _ARRAYS if key in fields), None)
    return isinstance(records, list) and bool(records) and isinstance(records[0], dict | list)


def _in_object(name: str, lines: Numbered) -> Iterator[tuple[int, str]]:
    """The elements of the array under the first of `_ARRAYS` in an object."""
    lines = iter(lines)
    number = 1
    for number, line in lines:
        if found := _ARRAY_KEY.search(line):
            begun = number, line[found.end() - 1 :]
            yield from _elements(name, itertools.chain([begun], lines), is_inside=True)
            return
    raise UserError(
        f"{name}:{number}: the file is one JSON object, without an array of records under "
        f"{', '.join(map(repr, _ARRAYS))}; write an object a line, or an array of objects"
    )


def _elements(name: str, lines: Numbered, *, is_inside: bool = False) -> Iterator[tuple[int, str]]:
    """The elements of an array that begins in the first line; more may follow if `is_inside`."""
    lines = iter(lines)
    depth = number = begun = 0  # `begun`: the line in which the element begins
    parts: list[str] = []  # of the element so far
    has_begun = False
    for number, line in lines:
        position = 0
        for token in _TOKEN.finditer(line):
            mark = token[0]
            depth += (mark in "[{") - (mark in "]}")
            if depth == 1 and mark == "[" and not has_begun:
                has_begun, position = True, token.end()
            elif depth == 0 or (depth == 1 and mark == ","):
                element = "".join((*parts, line[position : token.start()]))
                if element.strip():
                    yield begun or number, element
                parts, begun, position = [], 0, token.end()
            if depth == 0:
                rest = "" if is_inside else line[position:] + "".join(line for _, line in lines)
                if rest.strip():
                    raise UserError(f"{name}:{number}: text follows the array; remove it")
                return
        if parts or line[position:].strip():
            begun = begun or number
            parts.append(line[position:])
    raise UserError(f"{name}:{number}: the array does not end; copy or download the file again")


def parse_object(line: str, location: str) -> dict[str, Any]:
    """Parses a JSON value that is an object, or an array that is a row.

    Raises:
        UserError: it is neither, or not JSON; the message names its location, "file:line".
    """
    try:
        fields = json.loads(line)
    except (ValueError, RecursionError) as error:
        reason = str(error)
        if isinstance(error, json.JSONDecodeError):
            reason = f"{error.msg}, column {error.pos + 1}"
        raise UserError(f"{location}: not valid JSON: {reason}; fix or remove the line") from error
    match fields:
        case dict():
            return fields
        case [str() as text, dict() as others]:
            return {"text": text, **others}
        case [str() as first, str() as second]:
            return {"sentence1": first, "sentence2": second}
        case [str(), _, *_]:
            return {str(number): value for number, value in enumerate(fields)}
    raise UserError(f"{location}: not a JSON object but {type(fields).__name__}; fix the line")


def value_of(fields: Mapping[str, Any], name: str) -> Any:
    """The value of a column or key; "a.b" is also the key b of the object a. None: no value."""
    value: Any = fields
    for key in (name,) if name in fields else name.split("."):
        value = value.get(key) if isinstance(value, Mapping) else None
    return value


def check_characters(fields: Mapping[str, Any], location: str) -> None:
    r"""Checks the strings of an object; JSON can spell half of a surrogate pair ("\ud83d").

    Raises:
        UserError: a string has one, which no encoding can write.
    """
    try:
        json.dumps(fields, ensure_ascii=False).encode()
    except UnicodeEncodeError as error:
        raise UserError(
            f"{location}: half of a surrogate pair is not a character; remove it"
        ) from error

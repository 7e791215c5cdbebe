"""Formats in which each line is a record: texts, and texts with labels."""

import re
from collections.abc import Callable, Iterator
from typing import Any

from bert_jax.data.readers.lines import Lines
from bert_jax.data.readers.rows import NumberedFields, without_end
from bert_jax.errors import UserError

LABEL_TEXT = "label_text"

# A label of fastText, anywhere in a line, with the comma that its examples have behind it.
_FASTTEXT = re.compile(r"(?<!\S)(__label__\S+)(?:\s+,(?!\S))?\s*")


def _texts(lines: Lines) -> NumberedFields:
    return ((number, [without_end(line)]) for number, line in lines)


def _labels_and_texts(lines: Lines) -> Iterator[tuple[int, list[Any]]]:
    """A label and a text of each line; of fastText one label, or a list of several."""
    is_fasttext: bool | None = None
    for number, line in lines:
        if not line.strip():
            continue
        labels = _FASTTEXT.findall(line)
        if is_fasttext not in (None, bool(labels)):
            has = "a __label__NAME, those before have none" if labels else "no __label__NAME"
            raise UserError(f"{lines.name}:{number}: the line has {has}; give every line one")
        is_fasttext = bool(labels)
        if labels:
            yield number, [labels if labels[1:] else labels[0], _FASTTEXT.sub("", line).strip()]
            continue
        label, blank, text = without_end(line).partition(" ")
        if not blank:
            raise UserError(
                f"{lines.name}:{number}: {line.strip()!r:.40} is one word, but a line is a label, "
                "a blank and a text; fix the line"
            )
        yield number, [label, text]


_Read = Callable[[Lines], Iterator[tuple[int, list[Any]]]]

LINE_FORMATS: dict[str, tuple[tuple[str, ...], _Read]] = {
    "text": (("text",), _texts),
    LABEL_TEXT: (("label", "text"), _labels_and_texts),
}
"""Format → its columns, and how numbered lines are read into them."""

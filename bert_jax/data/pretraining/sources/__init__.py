"""Sources of text: "KIND:LOCATION" strings → streams of blocks of documents.

A new kind is a subclass of `Source`, made from a spec and the location, and one entry in `KINDS`.
"""

import abc
import dataclasses
import difflib
import importlib
import itertools
import math
from collections.abc import Iterable, Iterator, Mapping
from typing import cast

from bert_jax.errors import OptionError, UserError

BLOCK_CHARACTERS = 256 * 1024
"""The maximum number of characters of a block, unless a single line is longer."""

FORMATS = ("auto", "bert", "lines", "wikiextractor")
PARAGRAPHS = ("lines", "blank")
ERRORS = ("strict", "replace")


@dataclasses.dataclass(frozen=True, slots=True)
class SourceSpec:
    """One source of text and its options; each kind ignores the fields of other kinds.

    Attributes:
        source: "KIND:LOCATION", such as "text:books/*.txt.gz".
        weight: weight of this source in a mixture, relative to the other sources.
        format: format of `text:` files; "bert" (blank lines between documents), "lines" (one
            document per line), "wikiextractor" (`<doc …>` to `</doc>`), or "auto": "wikiextractor"
            if a file starts with `<doc`, else "bert".
        field: field of a `jsonl:` or `tfds:` record that contains the text.
        paragraphs: paragraphs in `jsonl:` and `tfds:` texts; "lines" (one per line) or "blank"
            (blank lines separate them and the lines between are joined: hard-wrapped text, verse).
        errors: handling of undecodable bytes; "strict": an error with their position, "replace":
            U+FFFD.
        data_dir: directory of prepared data sets, for `tfds:`; None for the default of TensorFlow
            Datasets.
    """

    source: str
    weight: float = 1.0
    format: str = "auto"
    field: str = "text"
    paragraphs: str = "lines"
    errors: str = "strict"
    data_dir: str | None = None

    def __post_init__(self) -> None:
        for name, known in (("format", FORMATS), ("paragraphs", PARAGRAPHS), ("errors", ERRORS)):
            if (value := getattr(self, name)) not in known:
                raise OptionError(
                    f"data.{name}",
                    value,
                    f"{{data.{name}}} must be {' or '.join(known)}",
                    problem=f"source {self.source!r}: {name} {value!r} is unknown",
                )
        is_number = isinstance(self.weight, int | float) and not isinstance(self.weight, bool)
        if not is_number or not (math.isfinite(self.weight) and self.weight > 0):
            raise OptionError(
                "data.source",
                self.source,
                "correct it in {data.source}",
                problem=f"source {self.source!r}: weight {self.weight!r} is not a number above 0",
            )
        if not isinstance(self.field, str) or not self.field:
            problem = f"source {self.source!r}: {self.field!r} names no field"
            raise OptionError("data.field", self.field, "set {data.field}", problem)

    def error(self, reason: str) -> OptionError:
        """The error for a source that cannot be read."""
        problem = f"source {self.source!r}: {reason}"
        return OptionError("data.source", self.source, "give another {data.source}", problem)

    def check_field(self, fields: Iterable[str], location: str) -> None:
        """Raises OptionError unless a record at `location` has the field with the text."""
        names = list(fields)
        if self.field not in names:
            raise OptionError(
                "data.field",
                self.field,
                "set {data.field} to one of them",
                problem=f"{location} no field {self.field!r}; its fields are "
                f"{', '.join(map(repr, names)) or 'none'}",
            )


@dataclasses.dataclass(frozen=True, slots=True)
class Block:
    r"""A stretch of one document: lines separated by "\n", none of them blank.

    Each line is a paragraph (or a sentence, if the source has one per line). The blocks of a
    document follow one another.

    Attributes:
        starts_document: whether a new document begins here.
        text: never empty; at most `BLOCK_CHARACTERS` characters, unless it is a single line.
    """

    starts_document: bool
    text: str


def blocks_of(lines: Iterable[str | None], limit: int = BLOCK_CHARACTERS) -> Iterator[Block]:
    """Groups the lines of documents into blocks.

    Args:
        lines: lines, with or without line end; None between two documents.
        limit: maximum number of characters of a block of several lines.
    """
    pending: list[str] = []
    characters, starts_document = 0, True
    for raw_line in itertools.chain(lines, [None]):
        line = "" if raw_line is None else raw_line.strip()
        if pending and (raw_line is None or (line and characters + len(line) + 1 > limit)):
            yield Block(starts_document, "\n".join(pending))
            pending, characters, starts_document = [], 0, False
        if raw_line is None:
            starts_document = True
        elif line:
            pending.append(line)
            characters += len(line) + 1


def document_blocks(text: str, paragraphs: str) -> Iterator[Block]:
    """The blocks of a document that is one string (see `SourceSpec.paragraphs`)."""
    lines = text.replace("\r\n", "\n").split("\n")
    return blocks_of(_join_wrapped(lines) if paragraphs == "blank" else lines)


def _join_wrapped(lines: list[str]) -> Iterator[str]:
    paragraph: list[str] = []
    for line in lines:
        if line := line.strip():
            paragraph.append(line)
        elif paragraph:
            yield " ".join(paragraph)
            paragraph = []
    yield " ".join(paragraph)


class Source(abc.ABC):
    """A source that has located its files, but not read them yet.

    Attributes:
        spec: specification of the source.
        size: bytes on disk that `blocks` reads, for a progress bar; 0 if unknown.
        position: number of bytes that have been read.
    """

    def __init__(self, spec: SourceSpec, size: int):
        self.spec = spec
        self.size = size
        self.position = 0

    @property
    def piece_sizes(self) -> list[int]:
        """The sizes in bytes of separately readable pieces; no document spans two pieces."""
        return [self.size]

    def pieces(self, start: int, stop: int) -> "Source":
        """A source of the pieces start … stop - 1, at least one."""
        assert (start, stop) == (0, 1)
        return self

    @abc.abstractmethod
    def identity(self) -> dict[str, object]:
        """JSON values that change if the text may have changed: names, sizes, times."""

    @abc.abstractmethod
    def blocks(self) -> Iterator[Block]:
        """All documents, in the same order and in the same blocks at every call.

        Raises:
            UserError: the text cannot be read; the message names file and line.
        """


# The class of each kind, as "MODULE.CLASS" in this folder; imported at its first use.
KINDS = {
    "text": "files.TextSource",
    "jsonl": "files.JsonLinesSource",
    "tfds": "tfds.TensorFlowDataset",
    "python-docs": "python_docs.PythonDocs",
}


def open_source(spec: SourceSpec) -> Source:
    """Opens the source of a spec, without reading it.

    Raises:
        OptionError: the kind is unknown, or the location does not exist.
    """
    kind, colon, location = spec.source.partition(":")
    if not colon or kind not in KINDS:
        known = ", ".join(f"{name}:" for name in KINDS)
        raise OptionError(
            "data.source",
            spec.source,
            "set {data.source}, for example to text:FILES",
            problem=f"source {spec.source!r} does not begin with a known kind ({known})",
        )
    module, _, name = KINDS[kind].partition(".")
    kind_of_source = getattr(importlib.import_module(f"{__name__}.{module}"), name)
    return cast(Source, kind_of_source(spec, location))


def source_specs(
    source: str | Iterable[str | Mapping[str, object]], defaults: Mapping[str, object] | None = None
) -> tuple[SourceSpec, ...]:
    """The specs of a config's `data.source`.

    Args:
        source: one "KIND:LOCATION", or a mixture: a list whose entries are such strings or mappings
            with the key "source" and any other field of `SourceSpec`.
        defaults: fields of `SourceSpec` for entries that do not set them.

    Raises:
        OptionError: there is no source, a key is unknown or a value is out of range.
    """
    if not isinstance(source, str | list | tuple | None):
        raise OptionError("data.source", source, "it must be text:FILES, or a list of such sources")
    entries = [source] if isinstance(source, str) else list(source or ())
    if not entries or entries == [""]:
        raise no_source()
    return tuple(_spec(entry, dict(defaults or {})) for entry in entries)


def no_source() -> OptionError:
    """The error for a corpus without a source."""
    rule = "set {data.source}, for example to text:FILES"
    return OptionError("data.source", None, rule, problem="there is no source of text")


def _spec(entry: str | Mapping[str, object], defaults: dict[str, object]) -> SourceSpec:
    rule = "correct {data.source}"
    if not isinstance(entry, str) and not hasattr(entry, "items"):  # a ConfigDict is not a Mapping
        problem = f"source {entry!r} is neither text:FILES nor a mapping"
        raise OptionError("data.source", entry, rule, problem)
    fields = {"source": entry} if isinstance(entry, str) else dict(entry.items())
    known = [field.name for field in dataclasses.fields(SourceSpec)]
    for key in fields:
        if key not in known:
            nearest = difflib.get_close_matches(str(key), known, n=1, cutoff=0.0)[0]
            problem = f"source {entry!r}: unknown key {key!r}, the nearest known is {nearest!r}"
            raise OptionError("data.source", entry, rule, problem)
    if not isinstance(fields.get("source"), str):
        problem = f"the entry {fields} names no source ('source': 'text:FILES')"
        raise OptionError("data.source", entry, rule, problem)
    values = defaults | fields
    return SourceSpec(**values)  # type: ignore[arg-type]  # __post_init__ checks the values

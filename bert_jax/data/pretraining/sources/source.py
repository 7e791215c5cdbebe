"""What every source of text is: a stream of bounded blocks of documents."""

import abc
import dataclasses
import math
from collections.abc import Iterator

from bert_jax.errors import UserError

BLOCK_CHARACTERS = 256 * 1024
"""A block has at most so many characters, unless a single line is longer."""

FORMATS = ("auto", "bert", "lines", "wikiextractor")
PARAGRAPHS = ("lines", "blank")
ERRORS = ("strict", "replace")


@dataclasses.dataclass(frozen=True, slots=True)
class SourceSpec:
    """Where text comes from and how it is read; what a kind does not know of, it ignores.

    Attributes:
        source: "KIND:PLACE", such as "text:books/*.txt.gz".
        weight: share of this source in a mixture, relative to the others.
        format: of `text:` files; "bert" (blank lines between documents), "lines" (one document
            per line), "wikiextractor" (`<doc …>` to `</doc>`), or "auto", which looks for `<doc`
            at the start of each file and otherwise takes "bert".
        field: which field of a `jsonl:` or `tfds:` record holds the text.
        paragraphs: in `jsonl:` and `tfds:` texts; "lines" (each line is one) or "blank" (blank
            lines separate them and the lines between are joined: hard-wrapped text, verse).
        errors: undecodable bytes; "strict" stops with their place, "replace" puts U+FFFD there.
        data_dir: of `tfds:`, where data sets are prepared; None for the default of
            TensorFlow Datasets.
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
            if getattr(self, name) not in known:
                raise UserError(
                    f"data.{name}: {getattr(self, name)!r} of source {self.source!r} is unknown; "
                    f"known are {', '.join(known)}"
                )
        is_number = isinstance(self.weight, int | float) and not isinstance(self.weight, bool)
        if not is_number or not (math.isfinite(self.weight) and self.weight > 0):
            raise UserError(
                f"data.source: weight {self.weight!r} of {self.source!r} is not a number above 0"
            )
        if not isinstance(self.field, str) or not self.field:
            raise UserError(f"data.field: {self.field!r} of {self.source!r} names no field")


@dataclasses.dataclass(frozen=True, slots=True)
class Block:
    r"""A stretch of one document: lines separated by "\n", none of them blank.

    Each line is a paragraph (or a sentence, where the source has one per line). The blocks of a
    document follow one another.

    Attributes:
        starts_document: whether a new document begins here.
        text: never empty; at most `BLOCK_CHARACTERS` characters, unless it is a single line.
    """

    starts_document: bool
    text: str


class BlockBuilder:
    """Gathers the lines of documents into blocks."""

    def __init__(self, limit: int = BLOCK_CHARACTERS):
        self._limit = limit
        self._lines: list[str] = []
        self._characters = 0
        self._starts_document = True

    def add(self, line: str) -> Block | None:
        """Takes one line without its line end; returns the block that it did not fit into."""
        line = line.strip()
        if not line:
            return None
        block = None
        if self._lines and self._characters + len(line) + 1 > self._limit:
            block = self._take()
        self._lines.append(line)
        self._characters += len(line) + 1
        return block

    def end_document(self) -> Block | None:
        """Ends the document; returns its last block, or None where it had no text left."""
        block = self._take() if self._lines else None
        self._starts_document = True
        return block

    def _take(self) -> Block:
        block = Block(self._starts_document, "\n".join(self._lines))
        self._lines, self._characters, self._starts_document = [], 0, False
        return block


def document_blocks(text: str, paragraphs: str) -> Iterator[Block]:
    """The blocks of a document that is at hand as one string (`SourceSpec.paragraphs`)."""
    builder = BlockBuilder()
    lines = text.replace("\r\n", "\n").split("\n")
    for line in _join_wrapped(lines) if paragraphs == "blank" else lines:
        if block := builder.add(line):
            yield block
    if block := builder.end_document():
        yield block


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
    """An open source: it has been found, but not yet read.

    Attributes:
        spec: what it was opened from.
        size: bytes on disk that `blocks` will read, for a progress bar; 0 if unknown.
        position: how many of them have been read.
    """

    def __init__(self, spec: SourceSpec, size: int):
        self.spec = spec
        self.size = size
        self.position = 0

    @property
    def piece_sizes(self) -> list[int]:
        """Bytes of the pieces that can be read apart; no document goes on into the next one."""
        return [self.size]

    def pieces(self, start: int, stop: int) -> "Source":
        """A source of these pieces alone, one at least."""
        assert (start, stop) == (0, 1)
        return self

    @abc.abstractmethod
    def identity(self) -> dict[str, object]:
        """What changes when the text may have changed (names, sizes, times); ready for JSON."""

    @abc.abstractmethod
    def blocks(self) -> Iterator[Block]:
        """All documents from the start, in the same order and blocks every time.

        Raises:
            UserError: the text cannot be read; with file and line where there are any.
        """

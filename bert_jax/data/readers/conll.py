"""Tagged sentences in columns, a word a line (CoNLL-2000 to 2003, WNUT, GermEval, WikiANN).

    EU       NNP  I-NP  I-ORG
    rejects  VBZ  I-VP  O

A blank line ends a sentence; lines that begin with `-DOCSTART-` stand between documents and are no
words. Tags are read as they are; `metrics.entities` says what they mean, in whichever scheme.
"""

import dataclasses
import re
from collections.abc import Iterable, Iterator, Sequence

from bert_jax.data.examples import TaggedSentence
from bert_jax.data.readers.lines import Lines
from bert_jax.errors import OptionError, UserError

DOCUMENT_START = "-DOCSTART-"
OUTSIDE = "O"

SEPARATORS = ("", "tab")

# Not all white space: words may have a no-break space in them ("10\u00a0000").
_BLANKS = re.compile(r"[ \t]+")
_ENDS = "\r\n"
# Nothing but these is a blank line; the last one is a byte order mark at the end of a file.
_NOTHING = " \t\r\n\ufeff"


@dataclasses.dataclass(frozen=True)
class ColumnOptions:
    """The columns of words and tags.

    Attributes:
        word_column: number of the column of the words, from 0, or from the end: -1 is the last.
        tag_column: that of the tags. A file that has no such column, or whose words stand there,
            has no tags.
        separator: between columns: "" for blanks and tabs in any number, "tab" for single tabs, so
            that words may have blanks in them.
        comments: lines that begin so are no words; "": there are none. ("#" is a word in many
            files.)
    """

    word_column: int = 0
    tag_column: int = -1
    separator: str = ""
    comments: str = ""

    def __post_init__(self) -> None:
        if self.separator not in SEPARATORS:
            raise OptionError("separator", self.separator, "give 'tab', or '' for blanks and tabs")


@dataclasses.dataclass(frozen=True, slots=True)
class ColumnBlock:
    """A sentence with its lines, and the lines before it.

    Attributes:
        lines: as they are in the file, with their ends.
        rows: which of the lines are its words.
        separator: `ColumnOptions.separator`.
        sentence: what they say; behind the last sentence of a file may be a block without words.
    """

    lines: tuple[str, ...]
    rows: tuple[int, ...]
    separator: str
    sentence: TaggedSentence

    def tagged(self, tags: Sequence[str]) -> str:
        """The lines with a tag for each word as a further column, all else as it was.

        Lines of `-DOCSTART-` get one, too, so that all have as many columns: conlleval wants that.

        Args:
            tags: one for each word.
        """
        added = dict(zip(self.rows, tags, strict=True))
        return "".join(
            _with_tag(line, added.get(row, OUTSIDE), self.separator)
            if row in added or line.startswith(DOCUMENT_START)
            else line
            for row, line in enumerate(self.lines)
        )


def read_blocks(lines: Lines, options: ColumnOptions = ColumnOptions()) -> Iterator[ColumnBlock]:
    """The sentences of a file, one after the other; all its lines are in some block.

    A sentence's `id` is its number in the file, from 0.

    Raises:
        UserError: a line has another number of columns than the lines before, or there is no
            column of words; names file and line.
    """
    table = _Table(lines.name, options)
    number = 0
    waiting: list[str] = []
    rows: list[int] = []
    words: list[_Row] = []

    def block() -> ColumnBlock:
        tags = tuple(word.tag for word in words if word.tag is not None)
        place = words[0].place if words else lines.name
        sentence = TaggedSentence(
            tuple(word.text for word in words),
            tags if words and len(tags) == len(words) else None,
            str(number),
            place,
        )
        return ColumnBlock(tuple(waiting), tuple(rows), options.separator, sentence)

    for line_number, line in lines:
        is_blank = not line.strip(_NOTHING)
        is_start = line.startswith(DOCUMENT_START)
        if words and (is_start or is_blank):
            yield block()
            number += 1
            waiting, rows, words = [], [], []
        is_comment = bool(options.comments) and line.startswith(options.comments)
        if not (is_blank or is_start or is_comment):
            rows.append(len(waiting))
            words.append(table.row(line, line_number))
        waiting.append(line)
    if waiting:
        yield block()


def read_sentences(
    lines: Lines, options: ColumnOptions = ColumnOptions(), *, needs_tags: bool = False
) -> Iterator[TaggedSentence]:
    """The sentences of a file, without the lines between them.

    Raises:
        UserError: see `read_blocks`; or tags are needed, and there are none.
    """
    for block in read_blocks(lines, options):
        sentence = block.sentence
        if needs_tags and sentence.words and sentence.tags is None:
            raise OptionError(
                "tag_column",
                options.tag_column,
                "set {tag_column} to where they are",
                f"{sentence.place}: there is no column {options.tag_column} of tags beside the "
                "words",
            )
        if sentence.words:
            yield sentence


def as_columns(words: Iterable[str], *tags: Iterable[str]) -> str:
    """A sentence as a file has it: words and tags between tabs, and a blank line.

    White space inside a word, which would be read as the end of its column, becomes "_".
    """
    rows = zip((re.sub(r"\s", "_", word) or "_" for word in words), *tags, strict=True)
    return "".join("\t".join(row) + "\n" for row in rows) + "\n"


@dataclasses.dataclass(frozen=True, slots=True)
class _Row:
    text: str
    tag: str | None
    place: str


class _Table:
    """Reads the rows of one file; the first one says how many columns there are."""

    def __init__(self, name: str, options: ColumnOptions) -> None:
        self._name = name
        self._options = options
        self._width: tuple[int, int] | None = None  # columns, and the line that has them

    def row(self, line: str, number: int) -> _Row:
        place = f"{self._name}:{number}"
        columns = _columns(line, self._options.separator)
        if self._width is None:
            self._width = len(columns), number
        width, first = self._width
        if len(columns) != width:
            raise OptionError(
                "separator",
                self._options.separator,
                "fix the line ({comments} and {separator} say what is no row, and what is between "
                "columns)",
                f"{place}: {len(columns)} columns, but line {first} has {width}",
            )
        word = _index(self._options.word_column, width)
        if word is None:
            raise OptionError(
                "word_column",
                self._options.word_column,
                "set {word_column} to where the words are, from 0",
                f"{place}: there is no column {self._options.word_column}, only {width}",
            )
        tag = _index(self._options.tag_column, width)
        if tag is not None and not columns[tag]:
            raise UserError(f"{place}: the tag is empty; give the word one, O for none")
        return _Row(columns[word], None if tag in (None, word) else columns[tag], place)


def _columns(line: str, separator: str) -> list[str]:
    if separator == "tab":
        return [column.strip() for column in line.rstrip(_ENDS).split("\t")]
    return _BLANKS.split(line.strip(f" \t{_ENDS}"))


def _index(column: int, width: int) -> int | None:
    """A column counted from the start; None where there is none."""
    index = column + width if column < 0 else column
    return index if 0 <= index < width else None


def _with_tag(line: str, tag: str, separator: str) -> str:
    end = line[len(line.rstrip(_ENDS)) :]
    if separator == "tab":  # blanks belong to the columns, and the last may be empty
        return f"{line.rstrip(_ENDS)}\t{tag}{end}"
    content = line.rstrip(f" \t{_ENDS}")
    blanks = list(_BLANKS.finditer(content))
    between = blanks[-1].group() if blanks else "\t"
    return f"{content}{between}{tag}{end}"

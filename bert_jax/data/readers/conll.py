"""Tagged sentences in columns, one word per line (CoNLL-2000 to 2003, WNUT, GermEval, WikiANN).

    EU       NNP  I-NP  I-ORG
    rejects  VBZ  I-VP  O

A blank line ends a sentence; lines that begin with `-DOCSTART-` separate documents and are not
words. Tags are read unchanged; `metrics.tag_names` interprets them, however they are written.

CoNLL-U (universaldependencies.org/format.html) is known by the ID and the ten columns of its first
row: words are FORM, tags UPOS; comments, ranges (1-2) and empty nodes (1.1) are no words.
"""

import dataclasses
import io
import itertools
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from bert_jax.data.examples import ColumnLines, Example, Sentence
from bert_jax.data.readers.columns import USUAL_TAGS, USUAL_WORDS, usual_column
from bert_jax.data.readers.lines import Lines
from bert_jax.errors import INT32_MAX, OptionError, UserError, require_at_least
from bert_jax.metrics.entities import OUTSIDE

CONLL = "conll"
CONLL_ENDINGS = (".conll", ".conllu", ".bio", ".iob", ".iob2", ".bioes")
DOCUMENT_START = "-DOCSTART-"

SEPARATORS = ("", "tab")

# Not all white space: words may contain a no-break space ("10\u00a0000").
_BLANKS = re.compile(r"[ \t]+")
# How the first row of CoNLL-U begins, and rows that are no words; the numbers of its columns.
_FIRST_ID, _NO_WORD = re.compile(r"(1(-\d+)?|0\.1)\t"), re.compile(r"\d+[-.]\d+\t")
_FORM, _UPOS, _CONLLU_COLUMNS = 1, 3, 10
_ENDS = "\r\n"
# Only these characters make a blank line; the last one is a byte order mark at the end of a file.
_NOTHING = " \t\r\n\ufeff"


@dataclasses.dataclass(frozen=True)
class ColumnOptions:
    """The columns of words and tags.

    Attributes:
        word_column: number of the column of the words, from 0, or negative from the end: -1 is the
            last.
        tag_column: number of the column of the tags. A file without this column, or with its words
            in it, has no tags.
        separator: separator of columns: "" for any number of spaces and tabs, "tab" for single
            tabs, so that words may contain spaces.
        comments: prefix of comment lines; "": there are none. ("#" is a word in many files.)
    """

    word_column: int = 0
    tag_column: int = -1
    separator: str = ""
    comments: str = ""

    def __post_init__(self) -> None:
        if self.separator not in SEPARATORS:
            raise OptionError(
                "data.separator", self.separator, "give 'tab', or '' for blanks and tabs"
            )
        for name in ("word_column", "tag_column"):
            require_at_least(f"data.{name}", getattr(self, name), -INT32_MAX)


class _Line(NamedTuple):
    """A line of a file, with its word and tag if it has one."""

    number: int
    text: str
    row: tuple[str, str | None] | None


def read_sentences(
    lines: Lines, options: ColumnOptions = ColumnOptions(), *, with_last_lines: bool = True
) -> Iterator[Example[Sentence]]:
    """The sentences of a file in order, each with its lines; its `id` is its number, from 0.

    Args:
        lines: the file.
        options: the columns of words and tags.
        with_last_lines: whether the lines after the last sentence are lines of it. Each sentence is
            then read one sentence ahead.

    Raises:
        UserError: a line has another number of columns than the lines before, or there is no
            column of words; the message names file and line.
    """
    numbered, options, is_conllu = _detected(lines, options)
    blocks = _blocks(lines.name, numbered, options, is_conllu=is_conllu)
    blocks = _with_last_lines(blocks) if with_last_lines else filter(_has_words, blocks)
    for number, block in enumerate(blocks):
        indices = tuple(index for index, line in enumerate(block) if line.row)
        words, tags = zip(*(line.row for line in block if line.row), strict=True)
        text = "".join(line.text for line in block)
        yield Example(
            Sentence(words, ColumnLines(text, indices, options.separator)),
            None if None in tags else tags,
            str(number),
            f"{lines.name}:{block[indices[0]].number}",
        )


def _detected(
    lines: Iterable[tuple[int, str]], options: ColumnOptions
) -> tuple[Iterator[tuple[int, str]], ColumnOptions, bool]:
    """The lines, their options, and whether they are CoNLL-U."""
    numbered = iter(lines)
    beginning: list[tuple[int, str]] = []
    row = ""
    for number, text in numbered:
        beginning.append((number, text))
        if text.strip(_NOTHING) and not text.startswith("#"):
            row = text
            break
    columns = row.count("\t") + 1
    is_conllu = columns >= _CONLLU_COLUMNS and bool(_FIRST_ID.match(row))
    if is_conllu:
        # A file with predictions has one more column, of its tags.
        last = _UPOS if columns == _CONLLU_COLUMNS else -1
        options = dataclasses.replace(
            options,
            word_column=options.word_column or _FORM,
            tag_column=last if options.tag_column == -1 else options.tag_column,
            separator="tab",
            comments="#",
        )
    return itertools.chain(beginning, numbered), options, is_conllu


def _blocks(
    name: str, numbered: Iterable[tuple[int, str]], options: ColumnOptions, *, is_conllu: bool
) -> Iterator[list[_Line]]:
    """The lines up to the end of each sentence; the last ones may have no words."""
    table = _Table(name, options)
    block: list[_Line] = []
    has_words = False
    for number, text in numbered:
        is_blank, is_start = not text.strip(_NOTHING), text.startswith(DOCUMENT_START)
        if has_words and is_start:
            yield block
            block, has_words = [], False
        is_comment = bool(options.comments) and text.startswith(options.comments)
        is_no_word = is_conllu and bool(_NO_WORD.match(text))
        is_row = not (is_blank or is_start or is_comment or is_no_word)
        block.append(_Line(number, text, table.row(text, number) if is_row else None))
        if has_words and is_blank:
            yield block
            block, has_words = [], False
        has_words |= is_row
    if block:
        yield block


def _with_last_lines(blocks: Iterable[list[_Line]]) -> Iterator[list[_Line]]:
    previous: list[_Line] = []
    for block in blocks:
        if _has_words(block):
            if previous:
                yield previous
            previous = block
        elif previous:
            previous = previous + block
    if previous:
        yield previous


def _has_words(block: list[_Line]) -> bool:
    return any(line.row for line in block)


def add_tag_column(examples: Sequence[Example[Sentence]], tags: Iterable[Sequence[str]]) -> str:
    """The sentences with their predicted tags as one more column, see `with_tag_column`.

    Sentences of several files do not keep their lines, which may differ in their columns.
    """
    files = {example.location.rpartition(":")[0] for example in examples}
    return "".join(
        with_tag_column(example.input, example.label, predicted, keep_lines=len(files) == 1)
        for example, predicted in zip(examples, tags, strict=True)
    )


def with_tag_column(
    sentence: Sentence,
    gold: Sequence[str] | None,
    tags: Sequence[str],
    *,
    keep_lines: bool = True,
) -> str:
    """A sentence in columns, with a tag for each word as one more column.

    A sentence of a file in columns keeps its lines. Its lines of `-DOCSTART-`, and those of CoNLL-U
    that are no words, also get a tag, since every line must have the same number of columns.

    Args:
        sentence: the sentence.
        gold: tags of the words; None: unknown.
        tags: one tag for each word.
        keep_lines: whether lines of a file are kept.
    """
    lines = sentence.lines
    if lines is None or not keep_lines:
        return as_columns(sentence.words, *([gold] if gold else []), tags)
    added = dict(zip(lines.rows, tags, strict=True))
    numbered = enumerate(io.StringIO(lines.text, newline="\n"))
    in_columns = ((line, added.get(row) or _tag_of_no_word(line)) for row, line in numbered)
    return "".join(
        _with_tag(line, tag, lines.separator) if tag else line for line, tag in in_columns
    )


def _tag_of_no_word(line: str) -> str:
    """The tag of a line in columns that is no word; "" of one without columns."""
    if line.startswith(DOCUMENT_START):
        return OUTSIDE
    return "_" if _NO_WORD.match(line) else ""


def with_added_column(sentence: Sentence, tags: Sequence[str]) -> Sentence:
    """The sentence; if it has lines of a file in columns, these with a tag as one more column."""
    if sentence.lines is None:
        return sentence
    lines = dataclasses.replace(sentence.lines, text=with_tag_column(sentence, None, tags))
    return dataclasses.replace(sentence, lines=lines)


def as_columns(words: Iterable[str], *tags: Iterable[str]) -> str:
    """A sentence in CoNLL format: words and tags separated by tabs, and a blank line.

    White space in a word or a tag, which would end its column, becomes "_".
    """
    rows = zip(words, *tags, strict=True)
    lines = ("\t".join(re.sub(r"\s", "_", part) or "_" for part in row) for row in rows)
    return "".join(f"{line}\n" for line in lines) + "\n"


class _Table:
    """Parses the rows of one file; the first row sets the number of columns."""

    def __init__(self, name: str, options: ColumnOptions) -> None:
        self._name = name
        self._options = options
        self._width: tuple[int, int] | None = None  # columns, and the line that has them

    def row(self, line: str, number: int) -> tuple[str, str | None]:
        """The word and its tag."""
        location = f"{self._name}:{number}"
        columns = _columns(line, self._options.separator)
        if self._width is None:
            self._width = len(columns), number
            if usual_column(USUAL_WORDS, columns) and usual_column(USUAL_TAGS, columns):
                raise OptionError(
                    "data.format",
                    None,
                    "remove it, or set {data.format=tsv} if a column says where sentences end",
                    f"{location}: the line is a header, which columns of words do not have",
                )
        width, first = self._width
        if len(columns) != width:
            raise OptionError(
                "data.separator",
                self._options.separator,
                "fix the line ({data.comments} marks comments, {data.separator} columns)",
                f"{location}: {len(columns)} columns, but line {first} has {width}",
            )
        word = _index(self._options.word_column, width)
        if word is None:
            raise OptionError(
                "data.word_column",
                self._options.word_column,
                "set {data.word_column} to where the words are, from 0",
                f"{location}: there is no column {self._options.word_column}, only {width}",
            )
        tag = _index(self._options.tag_column, width)
        if tag is not None and not columns[tag]:
            raise UserError(f"{location}: the tag is empty; give the word one, O for none")
        return columns[word], None if tag in (None, word) else columns[tag]


def _columns(line: str, separator: str) -> list[str]:
    if separator == "tab":
        return [column.strip() for column in line.rstrip(_ENDS).split("\t")]
    return _BLANKS.split(line.strip(f" \t{_ENDS}"))


def _index(column: int, width: int) -> int | None:
    """The number of a column from the start; None if it does not exist."""
    index = column + width if column < 0 else column
    return index if 0 <= index < width else None


def _with_tag(line: str, tag: str, separator: str) -> str:
    end = line[len(line.rstrip(_ENDS)) :]
    if separator == "tab":  # spaces belong to the columns, and the last may be empty
        return f"{line.rstrip(_ENDS)}\t{tag}{end}"
    content = line.rstrip(f" \t{_ENDS}")
    blanks = list(_BLANKS.finditer(content))
    between = blanks[-1].group() if blanks else "\t"
    return f"{content}{between}{tag}{end}"

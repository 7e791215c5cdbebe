"""Parallel text: sources with their targets, as of translation and summarisation.

TSV, CSV     a column of sources and one of targets: named, or with usual names, or with the
             names of the languages
JSON lines   the same keys, also in an object "translation" ({"translation": {"en": …, "de":
             …}}); a list of targets has several accepted ones (references)
plain text   two files with a line for each source and its target. The name of the second is
             that of the first with the other language: train.en.gz and train.de.gz
tfds:NAME    features, as columns
GLUE         its tasks with answers in words, see `glue_texts`
SQuAD        its questions with their passages, and answers, see `squad_texts`
"""

import contextlib
import dataclasses
import itertools
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from bert_jax.data.examples import Example
from bert_jax.data.readers.collection import EMPTY
from bert_jax.data.readers.columns import USUAL_IDS, named_column, no_usual_name, usual_column
from bert_jax.data.readers.glue import GLUE, PREFIX
from bert_jax.data.readers.glue_texts import read_glue_texts
from bert_jax.data.readers.rows import Report, TableCounts
from bert_jax.data.readers.squad import SQUAD, gold_answers
from bert_jax.data.readers.squad_texts import read_squad_texts
from bert_jax.data.readers.tables import (
    FileOptions,
    Record,
    Table,
    format_of,
    is_dataset,
    open_records,
    string_field,
)
from bert_jax.errors import OptionError, UserError, require_one_of
from bert_jax.process import say

# Usual names of sources and targets, searched in this order, without regard to case.
_USUAL = (
    *(("source", "target"), ("source", "references"), ("src", "tgt"), ("src", "trg")),
    *(("input", "output"), ("input", "target"), ("inputs", "targets")),
    ("input_text", "target_text"),
    *(("article", "highlights"), ("document", "summary"), ("dialogue", "summary")),
    *(("text", "summary"), ("question", "answers"), ("question", "answer")),
)
_TRANSLATION = "translation"


@dataclasses.dataclass(frozen=True)
class ParallelOptions(FileOptions):
    """How parallel text is read; keys of the same names in section `data`.

    A column is named, or numbered from 0; "": the column of the language, or one with a usual name.

    Attributes:
        format: a format of `FileOptions`; "text": two files, see the top of this file, which are
            also read if the file extension names no format; or "glue:NAME", one of GLUE's tasks,
            or "squad", SQuAD's JSON, where the other options but `empty` are ignored.
        source_column: column or key of the source.
        target_column: column or key of the target, or of a list of accepted ones.
        id_column: column or key of the id; without a usual name, the number of the row is the id.
        source_language: name of the sources' column, and a part of the name of their file.
        target_language: the same of the targets.
        empty: whether an empty source or target is an error ("error"), or the pair is left out
            ("skip", with a count on stderr).
    """

    FORMATS = ("jsonl", "tsv", "csv", "text", SQUAD, *(f"{PREFIX}{name}" for name in GLUE))

    source_column: str = ""
    target_column: str = ""
    id_column: str = ""
    source_language: str = ""
    target_language: str = ""
    empty: str = "error"

    def __post_init__(self) -> None:
        super().__post_init__()
        require_one_of("data.empty", self.empty, EMPTY)
        for side in ("source", "target"):
            column, language = f"{side}_column", getattr(self, f"{side}_language")
            if language and getattr(self, column):
                rule = f"leave out one of it and {{data.{column}}}"
                raise OptionError(f"data.{side}_language", language, rule)
        if bool(self.source_language) != bool(self.target_language):
            rule = "set {data.source_language} and {data.target_language}, or neither"
            problem = "a language is given for one side only"
            raise OptionError("data.target_language", self.target_language, rule, problem)
        if self.source_language and self.source_language == self.target_language:
            rule = "it is also {data.source_language}; give the other language"
            raise OptionError("data.target_language", self.target_language, rule)


Targets = tuple[str, ...] | None
"""The accepted targets of a source, one or more; None: unknown, so it can only be predicted."""


def read_parallel(
    source: str | Path,
    options: ParallelOptions = ParallelOptions(),
    *,
    needs_targets: bool = False,
    report: Report = TableCounts.say,
) -> Iterator[Example[str]]:
    """The sources of a file, in its order; a label is `Targets`: either all have some or none.

    Args:
        source: a file, also compressed; of two files, the one of the sources; "-" for stdin; or
            "tfds:NAME[/CONFIG][:VERSION][:SPLIT]".
        options: options of the reader.
        needs_targets: whether missing targets are an error.
        report: see `Report`.

    Raises:
        UserError: the source cannot be read, or a column is missing; or, during iteration, a record
            is malformed or has an empty text, or one of two files ends before the other; the
            message names file and line.
    """
    if options.format.startswith(PREFIX):
        yield from read_glue_texts(
            source, options.format, needs_labels=needs_targets, report=report
        )
        return
    has_targets: bool | None = True if needs_targets else None
    empty: list[str] = []
    with _examples(source, options, report) as examples:
        for example in examples:
            is_labelled = example.label is not None
            if has_targets not in (None, is_labelled):
                problem = "has no target" if has_targets else "has a target, those before have none"
                raise OptionError(
                    "data.target_column",
                    None,
                    "give every source one; {data.target_column} names their column, and "
                    "{data.source_language} and {data.target_language} those of languages, or two "
                    "files",
                    f"{example.location}: the source {problem}",
                )
            has_targets = is_labelled
            if example.input.strip() and example.label != ():
                yield example
            elif options.empty == "skip":
                empty.append(example.location)
            else:
                raise OptionError(
                    "data.empty",
                    options.empty,
                    "fix the row, or set {data.empty=skip} to leave such pairs out",
                    f"{example.location}: the source or the target is empty",
                )
    if empty:
        say(f"pairs with an empty text left out: {len(empty):,}; the first: {empty[0]}")


class _Columns(NamedTuple):
    """The columns of a record; None: there is none."""

    source: str
    target: str | None
    id: str | None


class _PairParser:
    """Makes examples of records."""

    def __init__(self, options: ParallelOptions) -> None:
        self._options = options
        # Most records have the same names.
        self._cached: tuple[tuple[str, ...], _Columns] | None = None

    def columns(self, names: tuple[str, ...], location: str) -> _Columns:
        """The columns of a table or an object with these names.

        Raises:
            OptionError: a named column is missing, or none has the usual name of a source.
        """
        if self._cached is None or names != self._cached[0]:
            self._cached = names, _find_columns(self._options, names, location)
        return self._cached[1]

    def __call__(self, record: Record, number: int) -> Example[str]:
        """The example of a record; `number` counts from 0.

        Raises:
            UserError: it has no source, or a source or target that is no text.
        """
        sides = record.fields.get(_TRANSLATION)
        if isinstance(sides, Mapping):
            record = Record({**record.fields, **sides}, record.location)
        fields, location = record.fields, record.location
        columns = self.columns(record.keys, location)
        targets = gold_answers(fields, columns.target, location) if columns.target else None
        return Example(
            string_field(fields, columns.source, location),
            None if targets is None else tuple(target.text for target in targets),
            record.id(columns.id, number),
            location,
            read=(*filter(None, columns), _TRANSLATION),
        )


def _find_columns(options: ParallelOptions, names: tuple[str, ...], location: str) -> _Columns:
    def named(option: str) -> str | None:
        return named_column(f"data.{option}", getattr(options, option), names, location)

    id = named("id_column") or usual_column(USUAL_IDS, names)
    first_language, other = options.source_language, options.target_language
    if first_language and first_language in names:
        return _Columns(first_language, other if other in names else None, id)
    source, target = named("source_column"), named("target_column")
    for usual_source, usual_target in _USUAL:
        first = source or usual_column((usual_source,), names)
        second = target or usual_column((usual_target,), names)
        if first and second and first != second:
            return _Columns(first, second, id)
    usual_sources = [usual for usual, _ in _USUAL]
    source = source or usual_column(usual_sources, names)
    if source is None:
        rule = (
            "set {data.source_column} and {data.target_column}, or {data.source_language} and "
            "{data.target_language}"
        )
        if "paragraphs" in names:  # an article of SQuAD
            rule = "set {data.format=squad}"
        raise no_usual_name("data.source_column", "a source", usual_sources, names, location, rule)
    return _Columns(source, None, id)


@contextlib.contextmanager
def _examples(
    source: str | Path, options: ParallelOptions, report: Report
) -> Iterator[Iterable[Example[str]]]:
    """All sources, also of pairs with an empty text."""
    if options.format == SQUAD:
        yield read_squad_texts(source, report)
        return
    parse = _PairParser(options)
    with contextlib.ExitStack() as opened:
        if is_dataset(source) or (options.format or format_of(source) or "text") != "text":
            table = opened.enter_context(open_records(source, options, report))
        else:
            files, lines = (source, _partner(source, options)), FileOptions("text")
            sources, targets = (opened.enter_context(open_records(each, lines)) for each in files)
            columns = options.source_language or "source", options.target_language or "target"
            table = Table(_joined(sources, targets, columns), columns, sources.location)
        if table.columns and _TRANSLATION not in table.columns:
            parse.columns(table.columns, table.location)
        yield table.examples(parse)


def _joined(sources: Table, targets: Table, columns: tuple[str, str]) -> Iterator[Record]:
    """A record for each line of two files."""
    for first, second in itertools.zip_longest(sources.records, targets.records):
        if first is None or second is None:
            name = (sources if first is None else targets).location.rpartition(":")[0]
            raise UserError(
                f"{(first or second).location}: {name} has no such line; give both files one for "
                "each pair"
            )
        texts = (record.fields["text"] for record in (first, second))
        yield Record(dict(zip(columns, texts, strict=True)), first.location, columns)


def _partner(source: str | Path, options: ParallelOptions) -> str:
    """The file of the targets: the name of the sources' file with the other language."""
    language = re.escape(options.source_language)
    words = [*re.finditer(rf"(?<![^\W_]){language}(?![^\W_])", str(source))] if language else []
    if not words:
        raise OptionError(
            "data.source_language",
            options.source_language,
            "set {data.source_language=en} and {data.target_language=de} for train.en and train.de "
            "(any words), or {data.format}",
            f"{source}: the lines of a plain text have their targets in another file, but the name "
            "has no language in the place of which it has the other",
        )
    start, stop = words[-1].span()
    return f"{str(source)[:start]}{options.target_language}{str(source)[stop:]}"

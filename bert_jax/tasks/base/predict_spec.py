"""A task of `bert-jax predict`: how it reads, what it predicts, how predictions are written."""

import contextlib
import dataclasses
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Generic, TypeVar

from bert_jax.data.examples import Entries, Entry
from bert_jax.data.outputs import Layout, Outputs, open_outputs
from bert_jax.data.readers import texts
from bert_jax.data.readers.tables import value_of
from bert_jax.data.records import to_json
from bert_jax.data.resumable_outputs import ResumableOutputs, resumable_outputs
from bert_jax.errors import (
    LARGEST_WHOLE,
    OptionError,
    UserError,
    require_at_least,
    require_between,
)
from bert_jax.options import keys_of
from bert_jax.tasks.base.predictor import BatchOptions, Model, Predictor

Item = TypeVar("Item")
Prediction = TypeVar("Prediction")
ReaderOptions = TypeVar("ReaderOptions")

JSONL = "jsonl"
EXPECTED = "expected"
"""The key of an entry's label where the prediction has a key of the label's name."""

LINES = Layout()
"""A file of lines and nothing else."""

# The options that only some tasks have, see `PredictSpec.options`.
_OF_SOME_TASKS = (
    *("pooling", "normalize", "prompt", "layers", "combine", "raw_scores"),
    *("top_k", "null_threshold", "window_step", "answer_length"),
)

Write = Callable[[Entry[Item], Prediction], None]


@dataclasses.dataclass(frozen=True)
class PredictOptions:
    """Every option of `bert-jax predict` except model, input and output; each task reads its own.

    None stands for the default of the task or of its reader.

    Attributes:
        input_format: one of "jsonl", "tsv", "csv", "text", "glue:NAME", "conll", "squad", depending
            on the task; None: selected by the file extension.
        output_format: a key of the task's `formats`; None: selected by the extension of the output,
            else "jsonl".
        text_column: name or key of the text column, or a number from 0; None: a usual name, see
            `data.readers.columns`.
        pair_column: column of the second text of a pair.
        label_column: column of the label, which the output keeps.
        id_column: column of the id.
        question_column: column of the question ("question_answering").
        passage_column: column of the passage ("question_answering").
        keep_columns: columns of the input that the output has, also "a.b" of an object in an
            object; None: in JSON lines those that are not part of the text, in a table the id.
        word_column: column of the words in CoNLL files, from 0 ("tagging").
        separator: separator of the columns of CoNLL files: None for white space, or "tab".
        comments: prefix of comment lines of CoNLL files; None: there are none.
        header: whether the first line of a table names its columns.
        quotes: meaning of quotation marks in a table, see `TableOptions`.
        pooling: pooling of "embed" and "similarity", see `LoadedModel.embed`.
        normalize: whether the vectors of "embed" are scaled to length 1; None: as the model says.
        prompt: prompt of "embed" and "similarity", see `LoadedModel.embed`.
        layers: layers of "hidden_states" and "attentions", see `LoadedModel`; None: the last layer
            for "hidden_states", all for "attentions".
        combine: how "hidden_states" combines layers.
        raw_scores: whether "classification" gives the model's outputs as they are.
        top_k: number of predictions; None: 5 for "fill_mask", 1 for "question_answering" (20 in its
            n-best file).
        null_threshold: no-answer threshold of "question_answering", see `LoadedModel.answer`.
        window_step: window step of "question_answering", see `AnswerOptions`.
        answer_length: maximum answer length of "question_answering", see `AnswerOptions`.
        batch_size: maximum number of rows per batch; None: 32, for "attentions" 8.
        max_length: maximum number of tokens per row; None: what the model's files say, at most its
            number of positions, and for "question_answering" 384.
        progress: whether a progress bar is shown on stderr.
    """

    input_format: str | None = None
    output_format: str | None = None
    text_column: str | None = None
    pair_column: str | None = None
    label_column: str | None = None
    id_column: str | None = None
    question_column: str | None = None
    passage_column: str | None = None
    keep_columns: tuple[str, ...] | None = None
    word_column: int = 0
    separator: str | None = None
    comments: str | None = None
    header: bool = True
    quotes: str = "auto"
    pooling: str | None = None
    normalize: bool | None = None
    prompt: str | None = None
    layers: tuple[int, ...] | None = None
    combine: str | None = None
    raw_scores: bool = False
    top_k: int | None = None
    null_threshold: float | None = None
    window_step: int = 128
    answer_length: int = 30
    batch_size: int | None = None
    max_length: int | None = None
    progress: bool = True

    def __post_init__(self) -> None:
        for name in ("top_k", "batch_size", "max_length", "window_step", "answer_length"):
            require_at_least(name, getattr(self, name), 1)
        require_at_least("data.word_column", self.word_column, -LARGEST_WHOLE)
        require_between("null_threshold", self.null_threshold, -math.inf, math.inf)

    def reading(self, cls: type[ReaderOptions], **fields: Any) -> ReaderOptions:
        """The typed options of a reader, such as `TextOptions`, from the options of the same names.

        `input_format` is its field `format`. An option that is None leaves the reader's default.

        Args:
            cls: a dataclass.
            **fields: values that replace those of the options.
        """
        options = {**vars(self), "format": self.input_format, **fields}
        known = keys_of(cls)
        return cls(**{name: options[name] for name in known if options.get(name) is not None})

    def batches(self, batch_size: int = 32) -> BatchOptions:
        """The batch options; `batch_size` is the task's default."""
        return BatchOptions(self.batch_size or batch_size, self.max_length)


@dataclasses.dataclass(frozen=True)
class OutputFile(Generic[Item, Prediction]):
    """A file of an output format.

    Attributes:
        row: the text of a prediction; None: the file has nothing for it. It depends on nothing
            else, so that a stopped program can continue anywhere.
        layout: name of the file, and the text around its rows.
    """

    row: Callable[[Entry[Item], Prediction], str | None]
    layout: Layout = LINES


Format = Callable[[PredictOptions], Sequence[OutputFile[Item, Prediction]]]
"""The files of a format: first the output itself, then those beside it."""


@dataclasses.dataclass(frozen=True)
class PredictSpec(Generic[Item, Prediction]):
    """The task's part of `bert-jax predict`; `evaluate` writes predictions in its formats, too.

    Attributes:
        open: opens an input and iterates over its entries.
        predictor: makes the predictor of a model from the options.
        to_record: example and prediction → the fields of the prediction in JSON.
        formats: further output formats by name; each task has "jsonl", lines of such fields.
        endings: file extensions of these formats, such as {".tsv": "glue"}.
        heads: heads that the model may have, the first one for a new model; (): any.
        options: names of those of its options that not every task has.
    """

    open: Callable[[str | Path, PredictOptions], AbstractContextManager[Entries[Item]]]
    predictor: Callable[[Model, PredictOptions], Predictor[Item, Prediction]]
    to_record: Callable[[Item, Prediction], Mapping[str, Any]]
    formats: Mapping[str, Format[Item, Prediction]] = dataclasses.field(default_factory=dict)
    endings: Mapping[str, str] = dataclasses.field(default_factory=dict)
    heads: tuple[str, ...] = ()
    options: tuple[str, ...] = ()

    def check_options(self, task: str, options: PredictOptions) -> None:
        """Raises OptionError for an option that `task`, the task of this name, does not have."""
        for name in set(_OF_SOME_TASKS).difference(self.options):
            if (value := getattr(options, name)) != getattr(PredictOptions, name):
                raise OptionError(name, value, f"task {task!r} has no such option; leave it out")

    def output_format(self, target: str | Path, options: PredictOptions) -> str:
        """The format of an output: the requested one, else the one for its file extension.

        Raises:
            OptionError: the task has no such format.
        """
        name = options.output_format
        if name is None:
            return self.endings.get(Path(target).suffix.lower(), JSONL)
        if name not in (JSONL, *self.formats):
            known = ", ".join((JSONL, *self.formats))
            raise OptionError("output_format", name, f"this task has {known}")
        return name

    def _files(
        self, target: str | Path, options: PredictOptions
    ) -> Sequence[OutputFile[Item, Prediction]]:
        name = self.output_format(target, options)
        if name != JSONL:
            return self.formats[name](options)

        def row(entry: Entry[Item], prediction: Prediction) -> str:
            """The other columns of an entry, then the prediction."""
            record = self.to_record(entry.item, prediction)
            return to_json(_join(entry, record, options.keep_columns)) + "\n"

        return (OutputFile(row),)

    @contextlib.contextmanager
    def writer(
        self, target: str | Path, options: PredictOptions = PredictOptions()
    ) -> Iterator[Write[Item, Prediction]]:
        """Opens an output; at the end it is complete or does not exist, see `open_outputs`."""
        files = self._files(target, options)
        with open_outputs(target, [file.layout for file in files]) as outputs:
            yield _write_to(outputs, files)

    @contextlib.contextmanager
    def resumable_writer(
        self,
        target: Path,
        options: PredictOptions,
        request: Callable[[], Mapping[str, Any]] | None,
    ) -> Iterator[tuple[Write[Item, Prediction], ResumableOutputs]]:
        """Opens an output that a later call can continue, see `resumable_outputs`."""
        files = self._files(target, options)
        layouts = [file.layout for file in files]
        with resumable_outputs(target, layouts, request) as outputs:
            yield _write_to(outputs, files), outputs

    def write(
        self, target: Path, entries: Iterable[Entry[Item]], predictions: Iterable[Prediction]
    ) -> None:
        """Writes a file of predictions; the file extension selects the format."""
        with self.writer(target) as write:
            for entry, prediction in zip(entries, predictions, strict=True):
                write(entry, prediction)


def kept_columns(entry: Entry[Any], names: Sequence[str]) -> dict[str, Any]:
    """The chosen columns of an entry; a key that an object lacks has the value None."""
    return {name: value_of(entry.columns, name) for name in names}


def check_kept_columns(entry: Entry[Any], options: PredictOptions) -> None:
    """Checks the chosen columns with the first entry.

    Raises:
        OptionError: it has not all of them.
    """
    for name in options.keep_columns or ():
        if name not in entry.columns and value_of(entry.columns, name) is None:
            raise OptionError(
                "keep_columns",
                options.keep_columns,
                "choose among these",
                f"{entry.place}: there is no column {name!r}, only "
                f"{', '.join(map(repr, entry.columns)) or 'nothing'}",
            )


def keeps_no_columns(options: PredictOptions, name: str) -> None:
    """For a format that has a fixed form.

    Raises:
        OptionError: columns are chosen.
    """
    if options.keep_columns is not None:
        raise OptionError(
            "keep_columns",
            options.keep_columns,
            "leave --keep-columns out, or set --output-format jsonl",
            f"the output format {name} has no other columns",
        )


def _write_to(
    outputs: Outputs, files: Sequence[OutputFile[Item, Prediction]]
) -> Write[Item, Prediction]:
    written = [file for file in files if outputs.takes(file.layout.prefix)]

    def write(entry: Entry[Item], prediction: Prediction) -> None:
        for file in written:
            row = file.row(entry, prediction)
            if row is not None:
                outputs.write(file.layout.prefix, row)

    return write


def open_texts(
    source: str | Path, options: PredictOptions
) -> AbstractContextManager[Entries[texts.Text]]:
    """Opens texts and pairs of texts, for tasks that read nothing else."""
    return texts.open_texts(source, options.reading(texts.TextOptions, empty="keep"))


def _join(
    entry: Entry[Any], prediction: Mapping[str, Any], keep: Sequence[str] | None
) -> dict[str, Any]:
    """The record of an entry: the fields of both, none overwritten."""
    kept = entry.other
    if keep is not None:
        found = kept_columns(entry, keep)
        kept = {name: value for name, value in found.items() if value is not None}
    is_renamed = entry.gold in prediction
    if is_renamed and entry.gold in kept and EXPECTED in kept:
        raise UserError(
            f"{entry.place}: both {entry.gold!r} and {EXPECTED!r} conflict with output fields; "
            "rename one of them"
        )
    other = {
        EXPECTED if is_renamed and key == entry.gold else key: value for key, value in kept.items()
    }
    for key in prediction:
        if key in other:
            raise UserError(f"{entry.place}: {key!r} conflicts with an output field; rename it")
    return {**other, **prediction}

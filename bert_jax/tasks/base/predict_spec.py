"""A task of `bert-jax predict`: its reader, its predictor and its output formats."""

import contextlib
import dataclasses
import functools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, ClassVar, Generic, Self, TypeVar

from bert_jax.checkpoints.config_file import ModelDescription
from bert_jax.data.converted_outputs import ARRAY, LINES, to_parquet
from bert_jax.data.examples import Example, Examples, Text
from bert_jax.data.outputs import Layout, Outputs, open_outputs, to_json
from bert_jax.data.readers.columns import TextOptions
from bert_jax.data.readers.json_objects import value_of
from bert_jax.data.readers.tables import FileOptions, Record
from bert_jax.data.readers.texts import TextParser, open_texts
from bert_jax.errors import OptionError, UserError, require_one_of
from bert_jax.options import keys_of, typed_values
from bert_jax.tasks.base.predictor import BatchOptions, Model, Predictor

Input = TypeVar("Input")
Prediction = TypeVar("Prediction")

BAD_ROWS = ERROR, SKIP, MARK = "error", "skip", "mark"
JSONL, JSON, PARQUET = "jsonl", "json", "parquet"
_ENDINGS = dict.fromkeys(("", ".jsonl", ".ndjson"), JSONL) | {".json": JSON, ".parquet": PARQUET}
EXPECTED = "expected"
"""The key of an example's label where the prediction has a key of the label's name."""

Write = Callable[[Example[Input], Prediction], None]


@dataclasses.dataclass(frozen=True)
class PredictOptions(FileOptions, BatchOptions):
    """The options of `bert-jax predict` that every task has; each task adds its own.

    Attributes:
        REQUEST: options that need no program of their own: examples with others share batches.
        format: format of the input; "": selected by the file extension.
        label_column: column of the label, which the output keeps; "": a usual name.
        output_format: a key of the task's `formats`; "": selected by the extension of the output,
            else "jsonl".
        keep_columns: columns of the input that the output has, also "a.b" of an object in an
            object; None: in JSON lines all, in a table the id.
        max_length: maximum number of tokens per row; None: the limit in the model's files, at
            most its number of positions, and for "question_answering" 384.
        progress: whether a progress bar is shown on stderr.
        bad_rows: what becomes of a row that cannot be read or predicted: "error" ends the
            prediction, "skip" leaves it out, "mark" writes why under "error", in JSON lines only.
    """

    REQUEST: ClassVar[tuple[str, ...]] = ()

    label_column: str = ""
    output_format: str = ""
    keep_columns: tuple[str, ...] | None = None
    progress: bool = True
    bad_rows: str = ERROR

    def __post_init__(self) -> None:
        super().__post_init__()
        require_one_of("bad_rows", self.bad_rows, BAD_ROWS)
        BatchOptions.__post_init__(self)

    def shared(self) -> Self:
        """The options of the same programs that all requests with others of `REQUEST` share."""
        defaults = keys_of(type(self))
        return dataclasses.replace(self, **{name: defaults[name] for name in self.REQUEST})

    def answer_columns(self, usual: tuple[str, ...]) -> tuple[str, ...]:
        """Names of the columns of labels, which are kept and not read."""
        return (self.label_column,) if self.label_column else usual


@dataclasses.dataclass(frozen=True)
class TextPredictOptions(PredictOptions, TextOptions):
    """The options of the tasks that read texts and pairs of texts."""


@dataclasses.dataclass(frozen=True)
class InputReader(Generic[Input]):
    """How the inputs of a task are read; the options of the prediction are also its options.

    Attributes:
        parser: options → the function from a record, of a file or a request, and its number, from
            0, to an example.
        open: opens a file and iterates over its examples, which the same function makes.
    """

    parser: Callable[[Any], Callable[[Record, int], Example[Input]]]
    open: Callable[[str | Path, Any], AbstractContextManager[Examples[Input]]]


TEXTS: InputReader[Text] = InputReader(TextParser, open_texts)
"""Texts and pairs of texts."""


@dataclasses.dataclass(frozen=True)
class OutputFile(Generic[Input, Prediction]):
    """A file of an output format.

    Attributes:
        row: the text of a prediction; None: the file has nothing for it. It depends on nothing
            else, so that a stopped program can continue anywhere.
        layout: name of the file, and the text around its rows.
    """

    row: Callable[[Example[Input], Prediction], str | None]
    layout: Layout = LINES


Format = Callable[[PredictOptions], Sequence[OutputFile[Input, Prediction]]]
"""The files of a format: first the output itself, then the files beside it."""


@dataclasses.dataclass(frozen=True)
class PredictSpec(Generic[Input, Prediction]):
    """The task's part of `bert-jax predict`; `evaluate` also writes its formats.

    Attributes:
        reader: how the inputs are read.
        options: dataclass of the options of the prediction.
        predictor: makes the predictor of a model from the options.
        to_record: input and prediction → the fields of the prediction in JSON.
        formats: further output formats by name; each task has "jsonl", lines of such fields,
            "json", an array of them, and "parquet", a table of them.
        endings: file extensions of these formats, such as {".tsv": "glue"}.
        heads: heads that the model may have, the first one for a new model; (): any.
        is_default: whether a model with one of the heads predicts this task if none is named;
            otherwise only one with a head that no other task has.
        variants: the options of the programs that a model computes without an option chosen by a
            user, which a server compiles beforehand; for each kind of text, for example.
    """

    reader: InputReader[Input]
    options: type[PredictOptions]
    predictor: Callable[[Model, Any], Predictor[Input, Prediction]]
    to_record: Callable[[Input, Prediction], Mapping[str, Any]]
    formats: Mapping[str, Format[Input, Prediction]] = dataclasses.field(default_factory=dict)
    endings: Mapping[str, str] = dataclasses.field(default_factory=dict)
    heads: tuple[str, ...] = ()
    is_default: bool = True
    variants: Callable[[ModelDescription], Sequence[Mapping[str, Any]]] = lambda described: ({},)

    def read_options(
        self, task: str, target: str | Path, values: Mapping[str, Any]
    ) -> PredictOptions:
        """The options of the task of this name, with the format of the output.

        Raises:
            OptionError: the task has no such option or output format, or a value is out of range or
                of another type; see `typed_values`.
            UserError: no format has the ending of the output.
        """
        known = keys_of(self.options)
        for name, value in values.items():
            if name not in known:
                rule = f"task {task!r} has no such option; it has {', '.join(sorted(known))}"
                raise OptionError(name, value, rule)
        options = self.options(**typed_values(self.options, values))
        formats = (JSONL, JSON, PARQUET, *self.formats)
        endings, ending = _ENDINGS | dict(self.endings), Path(target).suffix.lower()
        name = options.output_format or endings.get(ending, "")
        if not name:
            raise UserError(
                f"{target}: no format of task {task!r} has the ending {ending}; give "
                f"{', '.join(filter(None, endings))}, or a format: {', '.join(formats)}"
            )
        if name not in formats:
            raise OptionError("output_format", name, f"this task has {', '.join(formats)}")
        if options.bad_rows == MARK and name not in (JSONL, JSON):
            rule = f"that is for JSON lines, not for {target}; give skip, or an output of .jsonl"
            raise OptionError("bad_rows", options.bad_rows, rule)
        return dataclasses.replace(options, output_format=name)

    def record(
        self,
        example: Example[Input],
        prediction: Prediction | UserError,
        keep: Sequence[str] | None = None,
    ) -> dict[str, Any]:
        """The columns of an example that the output has, then the prediction; values of JSON.

        Args:
            example: the example.
            prediction: its prediction, or why it has none, which is the field "error".
            keep: see `PredictOptions.keep_columns`.

        Raises:
            OptionError: a column has the name of a field of the prediction, and is no label.
        """
        if isinstance(prediction, UserError):
            record: Mapping[str, Any] = {"error": str(prediction)}
        else:
            record = self.to_record(example.input, prediction)
        # A column of the input that the prediction has, too, as the words of a tagger, is not kept.
        shown = example.fields.keys() | example.record.keys() - record.keys()
        read = {key: value for key, value in example.record.items() if key in shown}
        kept, label = {**read, **example.fields}, example.label_field
        if keep is not None:
            chosen = kept_columns(example, keep)
            kept = {name: value for name, value in chosen.items() if value is not None}
        is_renamed = label in record
        if is_renamed and label in kept and EXPECTED in kept:
            raise UserError(
                f"{example.location}: both {label!r} and {EXPECTED!r} conflict with output fields; "
                "rename one of them"
            )
        other = {EXPECTED if is_renamed and key == label else key: kept[key] for key in kept}
        for key in record:
            if key in other:
                raise OptionError(
                    "label_column",
                    None,
                    "if it is the label, give it as {label_column}; else rename it, or choose the "
                    "columns without it by {keep_columns}",
                    f"{example.location}: {key!r} conflicts with an output field",
                )
        return {**other, **record}

    @contextlib.contextmanager
    def writer(
        self,
        options: PredictOptions,
        open_files: Callable[[Sequence[Layout]], AbstractContextManager[Outputs]],
    ) -> Iterator[tuple[Write[Input, Prediction], Outputs]]:
        """Opens an output; yields the function that writes a prediction, and the files."""

        def line(example: Example[Input], prediction: Prediction) -> str:
            return to_json(self.record(example, prediction, options.keep_columns)) + "\n"

        formats: dict[str, Format[Input, Prediction]] = {
            **self.formats,
            JSONL: lambda _: (OutputFile(line),),
            JSON: lambda _: (OutputFile(line, ARRAY),),
            PARQUET: lambda _: (OutputFile(line, Layout(convert=to_parquet)),),
        }
        files = formats[options.output_format](options)
        with open_files([file.layout for file in files]) as outputs:
            written = [file for file in files if outputs.takes(file.layout.prefix)]

            def write(example: Example[Input], prediction: Prediction) -> None:
                for file in written:
                    row = file.row(example, prediction)
                    if row is not None:
                        outputs.write(file.layout.prefix, row)

            yield write, outputs

    def write(
        self, target: Path, examples: Iterable[Example[Input]], predictions: Iterable[Prediction]
    ) -> None:
        """Writes a file of predictions; the file extension selects the format."""
        options = self.read_options("", target, {})
        with self.writer(options, functools.partial(open_outputs, target)) as (write, _):
            for example, prediction in zip(examples, predictions, strict=True):
                write(example, prediction)


def kept_columns(example: Example[Any], names: Sequence[str]) -> dict[str, Any]:
    """The chosen columns of an example; a key that an object lacks has the value None."""
    return {name: value_of(example.record, name) for name in names}


def check_kept_columns(example: Example[Any], options: PredictOptions) -> None:
    """Checks the chosen columns with the first example.

    Raises:
        OptionError: it has not all of them.
    """
    for name in options.keep_columns or ():
        if name not in example.record and value_of(example.record, name) is None:
            raise OptionError(
                "keep_columns",
                options.keep_columns,
                "choose among these",
                f"{example.location}: there is no column {name!r}, only "
                f"{', '.join(map(repr, example.record)) or 'nothing'}",
            )


def without_columns(*files: OutputFile[Any, Any]) -> Format[Any, Any]:
    """A format of a fixed form; it raises OptionError if columns are chosen."""

    def fixed(options: PredictOptions) -> Sequence[OutputFile[Any, Any]]:
        if options.keep_columns is not None:
            raise OptionError(
                "keep_columns",
                options.keep_columns,
                "leave {keep_columns} out, or set {output_format=jsonl}",
                f"the output format {options.output_format} has no other columns",
            )
        return files

    return fixed

"""A task of `bert-jax predict`: how it reads, what it predicts, how predictions are written."""

import contextlib
import dataclasses
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Generic, TypeVar

from bert_jax.data.examples import Entries, Entry
from bert_jax.data.readers import texts
from bert_jax.data.records import Output, open_output, to_json
from bert_jax.errors import OptionError, UserError
from bert_jax.models.config import Head
from bert_jax.options import keys_of
from bert_jax.tasks.base.predictor import BatchOptions, Model, Predictor

Item = TypeVar("Item")
Prediction = TypeVar("Prediction")
ReaderOptions = TypeVar("ReaderOptions")

JSONL = "jsonl"
EXPECTED = "expected"
"""The key of an entry's label where the prediction has a key of the label's name."""

Write = Callable[[Entry[Item], Prediction], None]

# Options that count rows, tokens or predictions.
_COUNTS = ("top_k", "batch_size", "window_step", "answer_length")


@dataclasses.dataclass(frozen=True)
class PredictOptions:
    """Every option of `bert-jax predict` but model, input and output; each task reads its own.

    None stands for the default of the task or of its reader.

    Attributes:
        input_format: "jsonl", "tsv", "csv", "text", "glue:NAME", "conll" or "squad", whichever the
            task reads; None: by the ending of the file's name.
        output_format: a key of the task's `formats`; None: by the ending of the output's name,
            else "jsonl".
        text_column: the column or key of the text, or a number from 0; None: a usual name, see
            `data.readers.columns`.
        pair_column: that of its pair.
        label_column: that of the label, which the output keeps.
        id_column: that of the id.
        question_column: of "question_answering", that of the question.
        passage_column: that of the passage.
        word_column: of "tagging", the column of the words in CoNLL files, from 0.
        separator: between columns of CoNLL files: None for white space, or "tab".
        comments: the prefix of comment lines of CoNLL files; None: there are none.
        header: whether the first line of a table names its columns.
        quotes: the meaning of quotation marks in a table, see `TableOptions`.
        pooling: of "embed" and "similarity", see `LoadedModel.embed`; None: the mean, for
            "similarity" that of the model.
        normalize: of "embed".
        layers: of "hidden_states" and "attentions", see `LoadedModel`; None: the last, and all.
        combine: of "hidden_states".
        top_k: the number of predictions; None: of "fill_mask" 5, of "question_answering" 1, and 20
            in the n-best file.
        null_threshold: of "question_answering", see `LoadedModel.answer`.
        window_step: of "question_answering", see `AnswerOptions`.
        answer_length: likewise.
        batch_size: the most rows of a batch; None: 32, of "attentions" 8.
        max_length: the most tokens of a row; None for as many as the model takes, of
            "question_answering" 384 at most.
        progress: whether a bar is shown on stderr.
    """

    input_format: str | None = None
    output_format: str | None = None
    text_column: str | None = None
    pair_column: str | None = None
    label_column: str | None = None
    id_column: str | None = None
    question_column: str | None = None
    passage_column: str | None = None
    word_column: int = 0
    separator: str | None = None
    comments: str | None = None
    header: bool = True
    quotes: str = "auto"
    pooling: str | None = None
    normalize: bool = False
    layers: tuple[int, ...] | None = None
    combine: str | None = None
    top_k: int | None = None
    null_threshold: float | None = None
    window_step: int = 128
    answer_length: int = 30
    batch_size: int | None = None
    max_length: int | None = None
    progress: bool = True

    def __post_init__(self) -> None:
        for name in _COUNTS:
            value = getattr(self, name)
            if value is not None and value < 1:
                raise OptionError(name, value, "it must be at least 1")

    def reading(self, cls: type[ReaderOptions], **fields: Any) -> ReaderOptions:
        """The typed options of a reader, such as `TextOptions`, from the options of the same names.

        `input_format` is its field `format`. An option that is None leaves the reader's default.

        Args:
            cls: a dataclass.
            **fields: set in place of what the options say.
        """
        options = {**vars(self), "format": self.input_format, **fields}
        known = keys_of(cls)
        return cls(**{name: options[name] for name in known if options.get(name) is not None})

    def batches(self, batch_size: int = 32) -> BatchOptions:
        """Sizes of batches; `batch_size` is the task's default."""
        return BatchOptions(self.batch_size or batch_size, self.max_length)


Format = Callable[[Output, PredictOptions], AbstractContextManager[Write[Item, Prediction]]]
"""Begins a file of one format and returns the function that writes one prediction after another."""


@dataclasses.dataclass(frozen=True)
class PredictionTask(Generic[Item, Prediction]):
    """What `bert-jax predict` does for a task; `evaluate` writes predictions in its formats, too.

    Attributes:
        open: opens an input; its entries come one by one.
        predictor: the predictor of a model, with the options that concern the task.
        formats: output formats by their names; "jsonl" is one of them.
        endings: those of files in another format, as {".tsv": "glue"}.
        heads: one of which the model must have, the first for a new one; (): any.
    """

    open: Callable[[str | Path, PredictOptions], AbstractContextManager[Entries[Item]]]
    predictor: Callable[[Model, PredictOptions], Predictor[Item, Prediction]]
    formats: Mapping[str, Format[Item, Prediction]]
    endings: Mapping[str, str] = dataclasses.field(default_factory=dict)
    heads: tuple[Head, ...] = ()

    def output_format(self, target: str | Path, options: PredictOptions) -> str:
        """The format of an output: the requested one, else by the ending of its name.

        Raises:
            OptionError: the task has no such format.
        """
        name = options.output_format
        if name is None:
            return self.endings.get(Path(target).suffix.lower(), JSONL)
        if name not in self.formats:
            known = ", ".join(self.formats)
            raise OptionError("output_format", name, f"this task has {known}")
        return name

    @contextlib.contextmanager
    def writer(
        self, target: str | Path, options: PredictOptions = PredictOptions()
    ) -> Iterator[Write[Item, Prediction]]:
        """Opens an output; it is complete at the end, or does not exist. See `open_output`."""
        write_format = self.formats[self.output_format(target, options)]
        with open_output(target) as output, write_format(output, options) as write:
            yield write

    def write(
        self, target: Path, entries: Iterable[Entry[Item]], predictions: Iterable[Prediction]
    ) -> None:
        """Writes a file of predictions, in the format that the ending of its name stands for."""
        with self.writer(target) as write:
            for entry, prediction in zip(entries, predictions, strict=True):
                write(entry, prediction)


def json_lines(
    as_record: Callable[[Item, Prediction], Mapping[str, Any]],
) -> Format[Item, Prediction]:
    """The format of an object a line: the other columns of an entry, then the prediction.

    Args:
        as_record: the fields of a prediction.
    """

    @contextlib.contextmanager
    def opened(output: Output, options: PredictOptions) -> Iterator[Write[Item, Prediction]]:
        def write(entry: Entry[Item], prediction: Prediction) -> None:
            output.write(to_json(_join(entry, as_record(entry.item, prediction))) + "\n")

        yield write

    return opened


def open_texts(
    source: str | Path, options: PredictOptions
) -> AbstractContextManager[Entries[texts.Text]]:
    """Opens texts and pairs of texts, for tasks that read nothing else."""
    return texts.open_texts(source, options.reading(texts.TextOptions, empty="keep"))


def _join(entry: Entry[Any], prediction: Mapping[str, Any]) -> dict[str, Any]:
    """The record of an entry; nothing of either side is overwritten."""
    is_renamed = entry.gold in prediction
    if is_renamed and entry.gold in entry.other and EXPECTED in entry.other:
        raise UserError(
            f"{entry.place}: both {entry.gold!r} and {EXPECTED!r} conflict with output fields; "
            "rename one of them"
        )
    other = {
        EXPECTED if is_renamed and key == entry.gold else key: value
        for key, value in entry.other.items()
    }
    for key in prediction:
        if key in other:
            raise UserError(f"{entry.place}: {key!r} conflicts with an output field; rename it")
    return {**other, **prediction}

"""The base of all tasks with labelled examples: their model, rows and batches."""

import abc
import dataclasses
import functools
import itertools
import operator
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, ClassVar, Generic, TypeVar

import flax.linen as nn
import jax
import numpy as np

from bert_jax.checkpoints.config_file import ModelDescription
from bert_jax.data.examples import Example, digest_of
from bert_jax.data.labelled_batches import LabelledBatches
from bert_jax.data.padding import Sequences
from bert_jax.data.pipeline import Batch, Batches
from bert_jax.data.row_packing import RowPacker
from bert_jax.models.execution import Execution
from bert_jax.tasks.base.labelled_options import LabelledOptions, config_keys
from bert_jax.tasks.base.predictor import EncodedExample, EncodingCounts, ExampleError
from bert_jax.tasks.base.splits import Splits
from bert_jax.tasks.base.summary import DataSummary, TokenCounts, count_classes, unknown_share
from bert_jax.tasks.base.task import Evaluator, Task, with_rows
from bert_jax.tokenization import Encoding, Tokenizer

Input = TypeVar("Input")
Encoded = TypeVar("Encoded")

# Examples that are tokenised in one call: enough to keep all threads of a tokenizer busy.
_CHUNK = 2000


@dataclasses.dataclass(frozen=True)
class TrainingRows:
    """All training examples as rows of tokens.

    Attributes:
        sequences: all rows.
        lengths: int64 [n], number of tokens of the longest row of each example.
        make: see `LabelledBatches`.
        counts: how many texts were cut.
    """

    sequences: Sequences
    lengths: np.ndarray
    make: Callable[[np.ndarray, int], Batch]
    counts: EncodingCounts = dataclasses.field(default=EncodingCounts(texts=0))


def encode_in_chunks(
    encode: Callable[[Sequence[Any]], Iterable[Encoded | ExampleError]],
    examples: Iterable[Example[Any]],
    input_of: Callable[[Example[Any]], Any] = operator.attrgetter("input"),
) -> Iterator[Encoded]:
    """The results of `encode` for each example of a large data set, in order.

    An encoding takes some hundred bytes per token, `data.padding.Sequences` five, so not all
    encodings are in memory at once.

    Args:
        encode: several inputs → one result for each.
        examples: the examples, read once, one chunk at a time.
        input_of: what is encoded of an example.

    Raises:
        UserError: an example cannot be encoded; the message names its location.
    """
    remaining = iter(examples)
    while chunk := list(itertools.islice(remaining, _CHUNK)):
        for example, encoded in zip(chunk, encode([*map(input_of, chunk)]), strict=True):
            if isinstance(encoded, ExampleError):
                raise encoded.at(example.location)
            yield encoded


def sequences_of(
    encoded: Iterable[EncodedExample], tokenizer: Tokenizer
) -> tuple[Sequences, np.ndarray, EncodingCounts]:
    """The rows of n examples, each read once.

    Returns:
        All rows; their numbers for each example, int64 [n, K], -1 where it has fewer rows than the
        one with the most; and the sum of all counts.
    """
    row_counts: list[int] = []
    counts = EncodingCounts(texts=0)

    def rows() -> Iterator[Encoding]:
        nonlocal counts
        for example in encoded:
            row_counts.append(len(example.rows))
            counts = EncodingCounts.total([counts, example.counts])
            yield from example.rows

    sequences = Sequences.from_encodings(rows(), tokenizer)
    ends = np.cumsum(row_counts)[:, None]
    numbers = ends - np.array(row_counts)[:, None] + np.arange(max(row_counts))  # nK
    return sequences, np.where(numbers < ends, numbers, -1), counts


@dataclasses.dataclass(eq=False, repr=False, kw_only=True)
class LabelledTask(Task, Generic[Input]):
    """Training on labelled examples; batches have at most the config's length.

    A task defines `make_rows` and `loss` to train, and `make_evaluator`.

    Attributes:
        unit: name of an example in the summary of the data.
        default_length: default of `options.length`; fewer if the model takes fewer tokens.
        splits: training, validation and test examples.
        tokenizer: tokenizer of the model that is trained.
        description: contents of the exported model directory.
        execution: how the model is computed.
        options: options of all labelled tasks.
        balanced: whether the classes have the same weight in the loss; else every example, or
            every word, has.
        positive_class: the class that the metric `f1` is about; "": F1 is about all classes.

    Raises:
        OptionError: the model has fewer positions than `options.length`.
    """

    unit: ClassVar[str] = "rows"
    default_length: ClassVar[int] = 128

    splits: Splits[Input]
    tokenizer: Tokenizer
    description: ModelDescription
    execution: Execution
    options: LabelledOptions
    balanced: bool = False
    positive_class: str = dataclasses.field(default="", init=False)

    def __post_init__(self) -> None:
        length = self.row_length()
        self.description = dataclasses.replace(self.description, trained_length=length or None)
        self.options = dataclasses.replace(self.options, length=length)
        self.module = self.make_module(self.execution)

    def row_length(self) -> int:
        """The maximum number of tokens per row; 0: all rows have the same, which the model gives.

        Raises:
            OptionError: see `BatchOptions.limit`.
        """
        with config_keys():
            config, stored = self.description.config, self.stored_length()
            return self.options.batches.limit(config, stored, self.default_length)

    def make_module(self, execution: Execution) -> nn.Module:
        """The module that is trained."""
        return self.description.make_module(execution)

    def stored_length(self) -> int | None:
        """The maximum number of tokens per row according to the model's files; None: no limit."""
        return self.tokenizer.model_max_length

    @abc.abstractmethod
    def make_rows(self) -> TrainingRows:
        """Tokenises the training examples."""

    @abc.abstractmethod
    def make_evaluator(self) -> Evaluator:
        """The evaluation of the task's model, such as a `LabelledEvaluator`."""

    @functools.cached_property
    def evaluator(self) -> Evaluator:
        """The evaluation, made at the first access."""
        return self.make_evaluator()

    @functools.cached_property
    def rows(self) -> TrainingRows:
        """The training rows, tokenised at the first access."""
        return self.make_rows()

    @functools.cached_property
    def batches(self) -> LabelledBatches:
        """The training batches."""
        return LabelledBatches(
            self.rows.lengths,
            self.rows.make,
            batch_size=self.options.batch_size,
            seed=self.options.seed,
            most=self.options.length or int(self.rows.lengths.max()),
            epochs=self.options.epochs,
            steps=self.options.steps,
        )

    @functools.cached_property
    def data_summary(self) -> DataSummary:
        """Counts of the examples, their labels and their tokens."""
        splits, first = self.splits, self.splits.validation[0]
        numbers = [each.label for each in splits.train if isinstance(each.label, float)]
        return DataSummary(
            unit=self.unit,
            train=len(splits.train),
            validation={each.name: len(each.examples) for each in splits.validation},
            test={each.name: len(each.examples) for each in splits.test},
            tokens=self.token_counts(),
            classes=self.class_counts(splits.train),
            of_words=self.unit == "sentences",
            validation_classes=tuple(self.class_counts(first.examples)),
            balanced=self.balanced,
            positive_class=self.positive_class,
            values=(min(numbers), sum(numbers) / len(numbers), max(numbers)) if numbers else None,
            duplicates=self.duplicates(),
            files=splits.files,
            reading=(*self.reading_report(), *(each.note for each in splits.test if each.note)),
        )

    def token_counts(self) -> TokenCounts:
        """The tokens of the training rows."""
        sequences, counts, limit = self.rows.sequences, self.rows.counts, self.options.length
        unknown = unknown_share(sequences.id_counts(), self.tokenizer)
        cut = {"texts": counts.texts, "cut": counts.cut, "limit": limit}
        return TokenCounts.from_lengths(sequences.lengths, unknown, **cut)

    def duplicates(self) -> dict[str, int]:
        """How many examples of each validation and test set are training examples, too."""
        known = {example.input for example in self.splits.train}
        return {
            each.name: sum(example.input in known for example in each.examples)
            for each in (*self.splits.validation, *self.splits.test)
        }

    def reading_report(self) -> tuple[str, ...]:
        """Sentences about training examples that were left out or changed; see `DataSummary`."""
        return ()

    def class_counts(self, examples: Iterable[Example[Input]]) -> dict[str, int]:
        """How often each class occurs, the most frequent first; empty if labels are no classes."""
        return count_classes(example.label for example in examples)

    def one_row_each(self, encoded: Iterable[EncodedExample], **arrays: np.ndarray) -> TrainingRows:
        """Examples that have one row each, for `make_rows`.

        Args:
            encoded: each of the n training examples, in their order.
            **arrays: [n, …], further keys of the batch, such as labels; weights are 1 by default.
        """
        sequences, _, counts = sequences_of(encoded, self.tokenizer)
        return self.single_rows(sequences, counts, **arrays)

    def single_rows(
        self, sequences: Sequences, counts: EncodingCounts, **arrays: np.ndarray
    ) -> TrainingRows:
        """Rows of examples that have one row each, from their tokens."""
        arrays.setdefault("weights", np.ones(len(sequences.lengths), np.float32))

        def make(chosen: np.ndarray, length: int) -> Batch:
            batch = {key: array[chosen] for key, array in arrays.items()}
            batch["weights"] = np.where(chosen < 0, np.float32(0), batch["weights"])
            return {**sequences.pad(chosen, length, self.tokenizer), **batch}

        return TrainingRows(sequences, sequences.lengths, make, counts)

    def several_rows_each(
        self, encoded: Iterable[EncodedExample], labels: np.ndarray
    ) -> TrainingRows:
        """Examples with several rows each, for `make_rows`; a batch has int32 [B, K, T].

        K is the number of rows of the example with the most; the others also have rows of padding.

        Args:
            encoded: each of the n training examples, in their order.
            labels: [n, …].
        """
        sequences, numbers, counts = sequences_of(encoded, self.tokenizer)  # nK
        lengths = np.where(numbers < 0, 0, sequences.lengths[numbers]).max(axis=1)

        def make(chosen: np.ndarray, length: int) -> Batch:
            rows = np.where(chosen[:, None] < 0, -1, numbers[chosen])  # BK
            return {
                **sequences.pad(rows, length, self.tokenizer),
                "labels": labels[chosen],
                "weights": (chosen >= 0).astype(np.float32),
            }

        return TrainingRows(sequences, lengths, make, counts)

    def loss_weights(self, batch: dict[str, jax.Array]) -> dict[str, jax.Array]:
        """The sum of a batch's `weights`, which are 0 in rows that are padding."""
        return {"": batch["weights"].sum()}

    @functools.cached_property
    def row_packer(self) -> RowPacker:
        """How short rows of a training batch are packed, decided by the first batches."""
        return RowPacker(self.batches.samples())

    @property
    def examples_per_epoch(self) -> int:
        """Number of training examples; of long texts that are read in windows, each is one."""
        return len(self.rows.lengths)

    def fingerprints(self) -> dict[str, str]:
        sets = (*self.splits.validation, *self.splits.test)
        by_name = {"train": self.splits.train, **{each.name: each.examples for each in sets}}
        return {name: digest_of(examples) for name, examples in by_name.items()}

    def train_batches(self, start: int, stop: int, *, host: int, hosts: int) -> Batches:
        # Padding tokenised rows takes microseconds: nothing is made ahead.
        return (self.batches.batch(number, host=host, hosts=hosts) for number in range(start, stop))

    def pack_rows(self, rows: Batch, parts: int) -> Batch:
        return self.row_packer.pack(rows, parts)

    def batch_shapes(self) -> dict[str, jax.ShapeDtypeStruct]:
        empty_row = self.rows.make(np.full(1, -1), self.options.length)
        return with_rows(empty_row, self.options.batch_size)

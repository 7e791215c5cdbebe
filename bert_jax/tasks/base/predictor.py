"""How a model predicts: example → rows of tokens → outputs of the model → prediction.

A task subclasses `Predictor`; `inference.streams.predict_examples` runs it over examples of any
number, in their order and in constant memory. The same predictor serves `evaluate`, `predict` and
the methods of a loaded model.
"""

import abc
import dataclasses
import functools
import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Generic, Protocol, TypeVar

import flax.linen as nn
import jax
import numpy as np
from jax.sharding import Mesh

from bert_jax.checkpoints.config_file import ModelDescription
from bert_jax.errors import NotFiniteError, OptionError, UserError
from bert_jax.models.config import EncoderConfig, Head
from bert_jax.tokenization import Encoding, Tokenizer

Example = TypeVar("Example")
Item = TypeVar("Item")
Prediction = TypeVar("Prediction")
Rows = TypeVar("Rows")

# Examples that are tokenised in one call: enough to keep all threads of a tokenizer busy.
_CHUNK = 2000

Advance = Callable[[int], None]
"""Called after each batch with the number of its examples, as by a progress bar."""


class Model(Protocol):
    """The attributes of a `LoadedModel` that predictors use."""

    @property
    def config(self) -> EncoderConfig: ...

    @property
    def module(self) -> nn.Module: ...

    @property
    def params(self) -> Any: ...

    @property
    def tokenizer(self) -> Tokenizer: ...

    @property
    def description(self) -> ModelDescription: ...

    @property
    def mesh(self) -> Mesh: ...


class ExampleError(UserError):
    """One example of many cannot be predicted.

    Attributes:
        index: its number in the input, counted from 0.
    """

    def __init__(self, message: str, index: int) -> None:
        super().__init__(message)
        self.index = index


@dataclasses.dataclass(frozen=True)
class BatchOptions:
    """How rows are grouped into batches.

    Attributes:
        batch_size: the most rows of a batch.
        max_length: the most tokens of a row, special tokens included; None for as many as the
            model has positions.
        window: how many batches are sorted by length together.
    """

    batch_size: int = 32
    max_length: int | None = None
    window: int = 64

    def __post_init__(self) -> None:
        if not isinstance(self.batch_size, int) or self.batch_size < 1:
            raise OptionError("batch_size", self.batch_size, "it must be at least 1")

    def limit(self, config: EncoderConfig) -> int:
        """The most tokens of a row.

        Raises:
            OptionError: the model has fewer positions, or `max_length` leaves no space for text.
        """
        most = config.max_length
        if self.max_length is None:
            return most
        if not 3 <= self.max_length <= most:
            raise OptionError(
                "max_length",
                self.max_length,
                f"this model takes 3 to {most} tokens, special tokens included",
            )
        return self.max_length


@dataclasses.dataclass(frozen=True)
class Request(Generic[Example]):
    """An example with the rows of tokens that it becomes.

    Attributes:
        number: its number in the input, from 0.
        example: the example.
        encodings: one row or more: windows of a passage, choices of a question.
    """

    number: int
    example: Example
    encodings: list[Encoding]


@dataclasses.dataclass(frozen=True)
class PredictionBatch(Generic[Example]):
    """Rows that are computed together.

    Attributes:
        rows: for each row, its request, and its number among the rows of this request.
        arrays: `input_ids`, `token_type_ids`, `attention_mask`, int32 [B, T], as the models take
            them; rows of padding alone may follow the last request.
    """

    rows: list[tuple[Request[Example], int]]
    arrays: dict[str, np.ndarray]

    @property
    def encodings(self) -> list[Encoding]:
        """The tokens of each row, unpadded."""
        return [request.encodings[row] for request, row in self.rows]


class Predictor(abc.ABC, Generic[Example, Prediction]):
    """What a task does with examples for one model.

    Attributes:
        options: sizes of the batches.
    """

    options: BatchOptions

    def prepare(self, example: Example, index: int) -> Any:
        """Checks example number `index`; returns it in the form that the other methods read.

        Raises:
            ExampleError: it cannot be encoded.
        """
        return example

    @abc.abstractmethod
    def encode(self, examples: Sequence[Any]) -> list[list[Encoding]]:
        """The rows of tokens of each example: one row or more, none longer than the limit."""

    def inputs(self, batch: PredictionBatch[Example]) -> dict[str, np.ndarray]:
        """The arrays that `compute` takes."""
        return batch.arrays

    @abc.abstractmethod
    def compute(self, batch: dict[str, jax.Array]) -> Any:
        """Calls a jitted function of a batch; every array of its result begins with axis B."""

    @abc.abstractmethod
    def decode(self, example: Any, encodings: list[Encoding], outputs: list[Any]) -> Any:
        """The prediction of an example, or what `transform` makes it of.

        Args:
            example: the example.
            encodings: its rows.
            outputs: for each row what `compute` returned (NumPy, without the axis B). What is kept
                of it must be copied, else the whole batch stays in memory.
        """

    def transform(self, decoded: Iterator[Any]) -> Iterator[Any]:
        """Predictions from what `decode` returned, in the same order; the same by default."""
        return decoded

    @abc.abstractmethod
    def characters(self, example: Any) -> int:
        """The approximate length of an example; limits how many are in memory together."""

    def report(self) -> None:
        """Prints to stderr, after the last prediction, what was cut or empty."""


def encode_in_chunks(
    encode: Callable[[Sequence[Example]], Iterable[Rows]],
    examples: Iterable[Example],
    check: Callable[[Example, int], None] | None = None,
) -> Iterator[Rows]:
    """What `encode` returns for each example of a large data set, in order.

    A token takes some hundred bytes in an encoding and five in `data.padding.Sequences`,
    so not all encodings are in memory at once.

    Args:
        encode: from several examples to as many results.
        examples: read once, a chunk at a time.
        check: called with each example and its number before it is encoded.
    """

    def checked() -> Iterator[Example]:
        for index, example in enumerate(examples):
            if check is not None:
                check(example, index)
            yield example

    remaining = checked()
    while chunk := list(itertools.islice(remaining, _CHUNK)):
        yield from encode(chunk)


def check_finite(array: np.ndarray, what: str) -> np.ndarray:
    """The same array.

    Args:
        array: scores or vectors.
        what: named in the error, as "the scores of a text".

    Raises:
        NotFiniteError: a value is NaN or infinite.
    """
    if not np.isfinite(array).all():
        raise NotFiniteError(f"{what} are not finite; the parameters of the model are damaged")
    return array


def not_one_string(items: Iterable[Item], what: str = "texts") -> Iterable[Item]:
    """The same items; one string is refused, since it is an iterable of characters.

    Raises:
        UserError: `items` is a string; `what` names them in the message.
    """
    if isinstance(items, str):
        raise UserError(f"the {what} are one string, {items!r:.40}; give a list of strings")
    return items


def check_head(model: Model, heads: tuple[Head, ...], ability: str, task: str) -> None:
    """Refuses a model that has another head.

    Args:
        model: any.
        heads: those that fit.
        ability: ends "this model does not …", as "tag words".
        task: of `bert_jax.load`, which makes a model with such a head.

    Raises:
        UserError: the model's head is none of them.
    """
    if model.description.head not in heads:
        raise UserError(
            f"this {model.description.class_name} does not {ability}; give the directory of a "
            f'model that does, and load it with load(path, task="{task}")'
        )


@functools.partial(jax.jit, static_argnames="module")
def apply_model(params: Any, batch: dict[str, jax.Array], *, module: nn.Module) -> Any:
    """What a model returns for a batch without dropout; of most heads logits, float32 [B, …]."""
    return module.apply(
        {"params": params}, batch["input_ids"], batch["token_type_ids"], batch["attention_mask"]
    )


def softmax(scores: np.ndarray) -> np.ndarray:
    """Probabilities along the last axis, in double precision."""
    exponentials = np.exp(scores.astype(np.float64) - scores.max(axis=-1, keepdims=True))
    return exponentials / exponentials.sum(axis=-1, keepdims=True)

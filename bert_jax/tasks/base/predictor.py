"""How a model predicts: example → rows of tokens → outputs of the model → prediction.

A task subclasses `Predictor`; `inference.engine` runs it. The same predictor serves `evaluate`,
`predict` and the methods of a loaded model.
"""

import abc
import dataclasses
import functools
import operator
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Generic, TypeVar

import flax.linen as nn
import jax
import numpy as np
from jax.sharding import Mesh

from bert_jax.checkpoints.config_file import ModelDescription
from bert_jax.data.padding import pad
from bert_jax.data.pipeline import Batch
from bert_jax.errors import NotFiniteError, OptionError, UserError, require_at_least
from bert_jax.models.config import EncoderConfig
from bert_jax.models.encoder import cast_layer_kernels
from bert_jax.models.encoder_with_head import apply_model, model_inputs
from bert_jax.models.execution import Execution
from bert_jax.tokenization import Encoding, Tokenizer

Example = TypeVar("Example")
Item = TypeVar("Item")
Prediction = TypeVar("Prediction")


@dataclasses.dataclass(frozen=True, repr=False)
class Model:
    """A model in memory.

    Attributes:
        module: the Linen module; `module.apply({"params": params}, input_ids, …)`.
        params: parameters of the module, float32, on the mesh; and, in the scope `TEXT_VECTORS`,
            the parameters of the modules that its files apply after a pooling.
        tokenizer: tokenizer of the model.
        description: contents of its `config.json`.
        mesh: devices of the computation.
        sides: the models of queries or of documents, by side, where they are other ones than this
            model, which makes the vectors of all other texts.
        changes: names of the methods that have made changed models of this one.
    """

    module: nn.Module
    params: Any
    tokenizer: Tokenizer
    description: ModelDescription
    mesh: Mesh
    sides: Mapping[str, "Model"] = dataclasses.field(default_factory=dict, kw_only=True)
    changes: list[str] = dataclasses.field(default_factory=list, init=False, compare=False)
    _converted: list[Any] = dataclasses.field(default_factory=list, init=False, compare=False)

    @property
    def config(self) -> EncoderConfig:
        """The architecture."""
        return self.description.config

    @property
    def content(self) -> tuple[ModelDescription, Any, Tokenizer]:
        """Description, parameters and tokenizer: what a model directory has."""
        return self.description, self.params, self.tokenizer

    def side_model(self, side: str) -> "Model":
        """The model of texts of a side, "query" or "document": most often this one."""
        return self.sides.get(side, self)

    @property
    def compute_params(self) -> Any:
        """The parameters with the kernels of the layers in the dtype of the activations.

        They are converted once: for each batch it would take longer than to compute a short text.
        """
        execution: Execution = self.module.execution
        if execution.dtype == "float32":
            return self.params
        sources = jax.tree.leaves(self.params)
        # Parameters may be replaced in their tree; an array itself never changes.
        if not self._converted or any(map(operator.is_not, sources, self._converted[0])):
            self._converted[:] = sources, cast_layer_kernels(self.params, dtype=execution.dtype)
        return self._converted[1]


class ExampleError(UserError):
    """One example cannot be predicted.

    Attributes:
        message: the problem and its remedy.
        index: number of the example in the input, from 0; None: the example is not in a list.
    """

    def __init__(self, message: str, index: int | None = None) -> None:
        super().__init__(message, index)  # all arguments: so that it can be pickled
        self.message, self.index = message, index

    def __str__(self) -> str:
        return self.message if self.index is None else f"example {self.index}: {self.message}"

    def at(self, location: str) -> UserError:
        """The error with "file:line" of the example instead of its number."""
        return UserError(f"{location}: {self.message}")


@dataclasses.dataclass(frozen=True)
class BatchOptions:
    """How rows are grouped into batches.

    Attributes:
        batch_size: maximum number of rows per batch. Where short rows are packed, the maximum
            number of packed rows; if they are longer than 128 tokens, of as many tokens as
            `batch_size` rows of 128.
        max_length: maximum number of tokens per row, special tokens included; None: the limit
            in the model's files, at most its number of positions.
    """

    batch_size: int = 32
    max_length: int | None = None

    def __post_init__(self) -> None:
        require_at_least("batch_size", self.batch_size, 1)
        require_at_least("max_length", self.max_length, 1)

    def limit(self, config: EncoderConfig, *defaults: int | None) -> int:
        """The maximum number of tokens per row.

        Args:
            config: architecture of the model.
            *defaults: of the model's files, of the task: the lowest counts; None: no limit.

        Raises:
            OptionError: the model has fewer positions, or `max_length` leaves no space for text.
        """
        most = config.max_length
        if self.max_length is None:
            return min(each for each in (most, *defaults) if each is not None)
        if not 3 <= self.max_length <= most:
            raise OptionError(
                "max_length",
                self.max_length,
                f"this model takes 3 to {most} tokens, special tokens included",
            )
        return self.max_length


@dataclasses.dataclass(frozen=True)
class EncodingCounts:
    """Counts for a report of how examples were encoded.

    Attributes:
        texts: number of texts, or of questions.
        cut: number of texts that were longer than the limit.
        empty: number of texts of white space alone; or of questions, or about such a passage.
        longer: number of rows that are longer than the rows of the training.
    """

    texts: int = 1
    cut: int = 0
    empty: int = 0
    longer: int = 0

    @classmethod
    def total(cls, counts: Iterable["EncodingCounts"]) -> "EncodingCounts":
        """The sums of all counts."""
        rows = ((each.texts, each.cut, each.empty, each.longer) for each in counts)  # no copies
        return cls(*map(sum, zip((0, 0, 0, 0), *rows, strict=True)))


@dataclasses.dataclass(frozen=True)
class EncodedExample:
    """An example as the model reads it.

    Attributes:
        rows: one row of tokens or more: windows of a passage, choices of a question.
        counts: of its texts, for a report.
        request: the options of its request; None: those of the predictor.
    """

    rows: Sequence[Any]
    counts: EncodingCounts = dataclasses.field(default=EncodingCounts())
    request: BatchOptions | None = None


Encode = Callable[[Sequence[Any]], Sequence[EncodedExample | ExampleError]]
"""Examples → their rows, or why they have none."""


@dataclasses.dataclass(frozen=True)
class RequestEncoder:
    """How the examples of a request are read.

    Attributes:
        encode: makes their rows.
        text_limit: the number of tokens above which a text counts as cut.
    """

    encode: Encode
    text_limit: int


class Predictor(abc.ABC, Generic[Example, Prediction]):
    """The prediction of a task for one model: encode, compute, decode.

    It has no state after construction, so that several threads can use it: what a request may
    choose without another program comes with its encoded examples, see `encoder`.

    Attributes:
        model: the model to predict with.
        options: sizes of the batches.
        packs_rows: whether `compute` takes packed rows, which have only the last hidden states.
        chunk_batches: number of batches of a chunk, whose rows are sorted by length together.
        batch_work: see `data.prediction_batches.least_work_batches`.
        default_length: default of `options.max_length`, see `BatchOptions.limit`.
        most_tokens: maximum in rows of an example that overlap; None: no limit. A server sets it.
        unit, empty: the unit of `EncodingCounts.texts`; what `EncodingCounts.empty` counts.
    """

    packs_rows = True
    # Outputs of a chunk wait on the host until it is their turn. It is 1 where they are large: the
    # attention weights of BERT-base for 512 tokens are 151 MB a text.
    chunk_batches = 64
    batch_work = 256
    default_length: int | None = None
    most_tokens: int | None = None
    unit, empty = "texts", "empty"

    def __init__(self, model: Model, options: BatchOptions) -> None:
        self.model = model
        self.options = options

    @property
    def stored_length(self) -> int | None:
        """The maximum number of tokens per row according to the model's files; None: no limit."""
        return self.model.tokenizer.model_max_length

    @property
    def limit(self) -> int:
        """The maximum number of tokens per row, see `BatchOptions.limit`."""
        return self.options.limit(self.model.config, self.stored_length, self.default_length)

    @property
    def trained_length(self) -> int | None:
        """The maximum number of tokens per row in the training, unless the caller gives another."""
        return self.model.description.trained_length if self.options.max_length is None else None

    @property
    def text_limit(self) -> int:
        """The number of tokens above which a text counts as cut."""
        return self.limit

    @abc.abstractmethod
    def encode(self, examples: Sequence[Any]) -> Sequence[EncodedExample | ExampleError]:
        """The rows of each example, none longer than the limit, or why it cannot be encoded."""

    def encoder(self, request: Any) -> RequestEncoder:
        """Encodes the examples of a request, with its own options for `encode` and `decode`.

        Args:
            request: the task's `PredictOptions`.

        Raises:
            OptionError: a value is not possible for the model.
        """

        def encode(examples: Sequence[Any]) -> list[EncodedExample | ExampleError]:
            return [
                one if isinstance(one, ExampleError) else dataclasses.replace(one, request=request)
                for one in self.encode(examples)
            ]

        return RequestEncoder(encode, self.text_limit)

    def pad(self, rows: Mapping[int, Any], count: int, length: int) -> Batch:
        """The arrays of a batch of some rows and padding; B is the count, T the length."""
        return pad(rows, count, length, self.model.tokenizer)

    def inputs(self, arrays: Batch, rows: Mapping[int, Encoding]) -> Batch:
        """The arrays that `compute` takes.

        Args:
            arrays: of `pad`, by default `input_ids`, `token_type_ids`, `attention_mask`, int32
                [B, T]; for packed rows also the arrays of `PackedRows.from_batch`.
            rows: the tokens of each row of the batch that is not padding.
        """
        return arrays

    def warm_up_inputs(self, arrays: Batch) -> Iterator[Batch]:
        """The inputs of each program for arrays of padding, which `Engine.compile` compiles."""
        yield self.inputs(arrays, {})

    def compute(self, batch: dict[str, jax.Array]) -> Any:
        """Calls a jitted function on a batch; axis 0 of every array of the result is B.

        By default the function is the model with its head.
        """
        return model_outputs(self.model.compute_params, batch, module=self.model.module)

    @abc.abstractmethod
    def decode(self, example: Any, encoded: EncodedExample, outputs: list[Any]) -> Any:
        """The prediction of an example, or its part in `predictions`.

        Args:
            example: the example.
            encoded: the example as `encode` returned it, perhaps with the options of its request.
            outputs: the result of `compute` for each row (NumPy, without axis B). Values that are
                kept must be copied, otherwise the whole batch stays in memory.
        """

    def predictions(self, decoded: list[Any]) -> Iterable[Prediction]:
        """The predictions of some examples from the results of `decode`, which they are already.

        For predictors that compute something of several examples at once.
        """
        return decoded

    def output_values(self, length: int) -> int:
        """The number of values of a row of so many tokens in a prediction, if that is large."""
        return 0

    def characters(self, example: Any) -> int:
        """The approximate length of any object; limits how many are in memory together."""
        if isinstance(example, str):
            return len(example)
        return sum(map(len, example)) if is_sequence_of_texts(example) else 0

    def report(self, counts: EncodingCounts) -> Iterator[str]:
        """Lines that count the texts that were cut or empty, and rows longer than in training."""
        if counts.cut:
            yield (
                f"{counts.cut} of {counts.texts} {self.unit} were longer than {self.text_limit} "
                "tokens: cut"
            )
        if counts.empty:
            yield f"{counts.empty} of {counts.texts} {self.unit} were {self.empty}"
        if counts.longer:
            yield (
                f"rows with more than the {self.trained_length} tokens of the training: "
                f"{counts.longer}; the maximum length {self.trained_length} predicts as the "
                "training"
            )


def is_sequence_of_texts(example: Any) -> bool:
    """Whether an object is a list or a tuple of strings."""
    return isinstance(example, list | tuple) and all(isinstance(text, str) for text in example)


def check_finite(array: np.ndarray, name: str) -> np.ndarray:
    """Returns the array, after checking it; errors call it `name`, as "the scores of a text".

    Raises:
        NotFiniteError: a value is NaN or infinite.
    """
    if not np.isfinite(array).all():
        raise NotFiniteError(f"{name} are not finite; the parameters of the model are damaged")
    return array


def not_one_string(items: Iterable[Item], name: str = "texts") -> Iterable[Item]:
    """Returns the items; one string is refused, an iterable of characters, and a dict, of keys.

    Raises:
        UserError: `items` is a string, a dict or nothing of several; `name` is for the message.
    """
    if isinstance(items, str | Mapping) or not isinstance(items, Iterable):
        kind = {str: "string", dict: "dict"}.get(type(items), type(items).__name__)
        raise UserError(f"the {name} are one {kind}, {items!r:.40}; give a list of strings")
    return items


def check_head(model: Model, heads: tuple[str, ...], ability: str, instead: str = "") -> None:
    """Refuses a model that has another head.

    Args:
        model: a model with any head.
        heads: the accepted heads.
        ability: completes "this model does not …", such as "tag words".
        instead: what another model can do instead; "": nothing.

    Raises:
        UserError: the model has another head, or the head of its files cannot be used.
    """
    if model.description.head_error:
        raise UserError(model.description.head_error)
    if model.description.head not in heads:
        raise UserError(
            f"this {model.description.class_name} does not {ability}; give the directory of a "
            f"model that does, with the head {' or '.join(heads)}{instead and f'; {instead}'}"
        )


@functools.partial(jax.jit, static_argnames="module")
def model_outputs(params: Any, batch: dict[str, jax.Array], *, module: nn.Module) -> Any:
    """The outputs of a model for a batch, without dropout; for most heads float32 [B, …]."""
    return apply_model(module, params, model_inputs(batch))


def softmax(scores: np.ndarray) -> np.ndarray:
    """Probabilities along the last axis, float64."""
    exponentials = np.exp(scores.astype(np.float64) - scores.max(axis=-1, keepdims=True))
    return exponentials / exponentials.sum(axis=-1, keepdims=True)

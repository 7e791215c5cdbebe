"""Predictions for lists of examples, and for streams of any length in constant memory."""

import contextlib
import dataclasses
import functools
import threading
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Generic, TypeVar, cast

import jax
import numpy as np

from bert_jax.data.padding import bucket_length
from bert_jax.data.prediction_batches import (
    BatchLayout,
    least_work_batches,
    packed_batches,
    padded_batches,
    row_counts,
)
from bert_jax.errors import NotFiniteError, UserError
from bert_jax.inference.output_cache import OutputCache
from bert_jax.process import say
from bert_jax.sharding.hosts import fetch, is_main_host, same_on_all_hosts
from bert_jax.sharding.mesh import batch_parts, explain_out_of_memory, programs_may_overlap
from bert_jax.sharding.rules import on_mesh
from bert_jax.tasks.base.predictor import EncodedExample, EncodingCounts, ExampleError, Predictor
from bert_jax.tasks.base.text_rows import map_valid

Example = TypeVar("Example")
Prediction = TypeVar("Prediction")
Step = TypeVar("Step")

# The maximum number of characters in a chunk: some 100 MB with their encodings.
CHUNK_CHARACTERS = 1_000_000

# Further batches are started before the results of a batch are fetched: the first number divided by
# the number of the model's parameters, at least 1 and at most the second. So a small model need not
# wait for the host: on two cores, one of 2 layers of width 128 takes 1.28 times as long with 1
# batch as with 16. With a large model, many would delay a stop.
_PARAMETERS_AHEAD = 70_000_000
_MOST_BATCHES_AHEAD = 16

# Held while a program runs where two programs may not overlap, see `programs_may_overlap`.
_ONE_PROGRAM = threading.Lock()

Advance = Callable[[int], None]
"""Called after each batch with the number of examples that it completes, as by a progress bar."""


@dataclasses.dataclass(frozen=True)
class PredictionBatch:
    """Rows that are computed together.

    Attributes:
        rows: for each row b that is not padding, the index of its example in the chunk, and its
            own among the rows of the example.
        arrays: the arguments of `Predictor.compute`.
    """

    rows: dict[int, tuple[int, int]]
    arrays: dict[str, np.ndarray]


@dataclasses.dataclass(frozen=True)
class Chunk(Generic[Example, Prediction]):
    """Examples that were read and sorted by length together, with their predictions.

    Attributes:
        examples: the examples.
        predictions: for each example its prediction, or why it has none.
        is_full: whether further examples do not belong to it.
        counts: the sums of the counts of all examples.
    """

    examples: Sequence[Example]
    predictions: list[Prediction | ExampleError]
    is_full: bool
    counts: EncodingCounts

    @property
    def pairs(self) -> Iterable[tuple[Example, Prediction]]:
        """Each example with its prediction, where no example has an error."""
        return zip(self.examples, cast(list[Prediction], self.predictions), strict=True)


class _Computation(Generic[Example, Prediction]):
    """A chunk from its examples to its predictions.

    Attributes:
        encoded: the examples as rows of tokens.
        error: the first problem of an example, with its number among all examples; None: none yet.
    """

    def __init__(
        self,
        predictor: Predictor[Example, Prediction],
        examples: Sequence[Example],
        encoded: Sequence[EncodedExample | ExampleError],
        *,
        start: int = 0,
        is_full: bool = True,
    ) -> None:
        """Takes the examples with their rows; `start` is the number of the first one."""
        self.encoded = encoded
        self._predictor, self._examples = predictor, examples
        self._start, self._is_full = start, is_full
        self._valid: dict[int, EncodedExample] = {}
        self.error: UserError | None = None
        for index, each in enumerate(encoded):
            if isinstance(each, EncodedExample):
                self._valid[index] = each
            elif self.error is None:
                self.error = ExampleError(each.message, start + index)
        self._outputs: defaultdict[int, dict[int, Any]] = defaultdict(dict)
        self._decoded: dict[int, Any] = {}

    def add(self, batch: PredictionBatch, outputs: Any) -> int:
        """Takes the outputs of a batch; returns how many examples are complete with it."""
        before = len(self._decoded)
        for b, (index, row) in batch.rows.items():
            rows, encoded = self._outputs[index], self._valid[index]
            rows[row] = jax.tree.map(lambda leaf, b=b: leaf[b], outputs)
            if len(rows) == len(encoded.rows):
                ordered = [rows[number] for number in range(len(rows))]
                self._decoded[index] = self._decode(index, encoded, ordered)
                del self._outputs[index]
        return len(self._decoded) - before

    def _decode(self, index: int, encoded: EncodedExample, outputs: list[Any]) -> Any:
        """The prediction of an example, or why it has none, which is that of no other example."""
        try:
            return self._predictor.decode(self._examples[index], encoded, outputs)
        except NotFiniteError as error:  # by its type, a training that diverges is recognised
            self.error = self.error or error
            return ExampleError(str(error))
        except UserError as error:
            self.error = self.error or ExampleError(str(error), self._start + index)
            return ExampleError(str(error))

    def result(self) -> Chunk[Example, Prediction] | None:
        """The predictions, if the outputs of all batches are there."""
        if len(self._decoded) < len(self._valid):
            return None
        decoded = [self._decoded.get(index, each) for index, each in enumerate(self.encoded)]
        predictions = map_valid(decoded, self._predictor.predictions)
        counts = EncodingCounts.total([each.counts for each in self._valid.values()])
        if most := self._predictor.trained_length:
            rows = (row for each in self._valid.values() for row in each.rows)
            counts = dataclasses.replace(counts, longer=sum(len(row) > most for row in rows))
        return Chunk(self._examples, predictions, self._is_full, counts)


class Engine(Generic[Example, Prediction]):
    """Runs a predictor. It has no state: several threads of one process can use it.

    With several hosts, each passes the same examples and gets all predictions.

    Attributes:
        predictor: the predictor of a task for one model; batches are padded by the model's
            tokenizer and computed on its mesh.
    """

    def __init__(self, predictor: Predictor[Example, Prediction]) -> None:
        self.predictor = predictor
        self._mesh = predictor.model.mesh
        # B is a multiple of the number of devices that share the rows.
        self._row_multiple = batch_parts(self._mesh)

    def predict(self, examples: Sequence[Example]) -> list[Prediction | ExampleError]:
        """The prediction of each example, in their order, or why it has none.

        Raises:
            OptionError: a device ran out of memory.
        """
        return [prediction for chunk in self.run(examples) for prediction in chunk.predictions]

    def predict_encoded(
        self, examples: Sequence[Example], encoded: Sequence[EncodedExample | ExampleError]
    ) -> list[Prediction | ExampleError]:
        """The predictions of examples that the predictor has encoded, in the shapes of `shapes`.

        No row is packed: to pack saves a tenth to a half of the tokens, in eight times the shapes
        (docs/serving.md). A server has compiled all programs of `shapes` and never waits for one.
        For errors see `predict`.
        """
        chunk = _Computation(self.predictor, examples, encoded)
        with self._explained_memory():
            begun = (
                (batch, self._compute(batch.arrays))
                for batch in self.batches(encoded, in_shapes=True)
            )
            for batch, outputs in _begun_ahead(begun, self._batches_ahead):
                chunk.add(batch, fetch(outputs))
        complete = chunk.result()
        assert complete is not None
        return complete.predictions

    def shapes(self) -> list[tuple[int, int]]:
        """[B, T] of all batches of `predict_encoded`; of `predict`, where no row is packed."""
        limit = self.predictor.limit
        counts = row_counts(self.predictor.options.batch_size, self._row_multiple)
        lengths = {bucket_length(length, limit) for length in range(1, limit + 1)}
        return [(count, length) for length in sorted(lengths) for count in counts]

    def compile(self, count: int, length: int) -> None:
        """Compiles the programs of one of `shapes`, see `Predictor.warm_up_inputs`."""
        arrays = self.predictor.pad({}, count, length)
        for inputs in self.predictor.warm_up_inputs(arrays):
            jax.block_until_ready(self._compute(inputs))

    def run(
        self,
        examples: Iterable[Example],
        *,
        strict: bool = False,
        cache: OutputCache | None = None,
        advance: Advance = lambda count: None,
        report: bool = False,
    ) -> Iterator[Chunk[Example, Prediction]]:
        """The predictions of examples of any number, chunk by chunk in their order.

        While the devices compute, examples are read and encoded one chunk ahead and no further, so
        memory does not grow with their number. The predictions of a chunk do not depend on the
        chunks before it, to the bit.

        Args:
            examples: the examples, read once; an ExampleError is one that has no rows.
            strict: whether an example that cannot be predicted ends the chunks; else its error is
                its prediction.
            cache: outputs of batches that are read instead of computed, and to which others are
                added; for a single host.
            advance: see `Advance`.
            report: whether lines on stderr say at the end how many examples were cut or empty.

        Raises:
            ExampleError: with `strict`; if it has no rows, before any example of its chunk is
                computed; the chunks before it are complete.
            NotFiniteError: with `strict`, an output is not finite.
            OptionError: a device ran out of memory.
        """
        counts = EncodingCounts(texts=0)
        with self._explained_memory():
            for step in _begun_ahead(self._begin(examples, strict, cache), self._batches_ahead):
                if step.batch is not None:
                    outputs = fetch(step.outputs)
                    if cache is not None and not step.is_cached:
                        cache.add(jax.tree.leaves(outputs))
                    advance(step.chunk.add(step.batch, outputs))
                if strict and step.chunk.error:
                    raise step.chunk.error
                if chunk := step.chunk.result():
                    counts = EncodingCounts.total([counts, chunk.counts])
                    yield chunk
        if report and is_main_host():
            say(*self.predictor.report(counts))

    def batches(
        self, encoded: Sequence[EncodedExample | ExampleError], *, in_shapes: bool = False
    ) -> Iterator[PredictionBatch]:
        """Batches of the rows of encoded examples, the longest first.

        T and B take few values (`data.padding`), so few programs are compiled. With `in_shapes`
        they are those of `shapes`; else many rows are packed.
        """
        predictor = self.predictor
        size, limit = predictor.options.batch_size, predictor.limit
        numbers, rows = [], []
        for index, each in enumerate(encoded):
            for number, row in enumerate(each.rows if isinstance(each, EncodedExample) else ()):
                numbers.append((index, number))
                rows.append(row)
        make: Callable[..., Iterator[BatchLayout]] = padded_batches
        if in_shapes:
            make = functools.partial(least_work_batches, batch_work=predictor.batch_work)
        elif predictor.packs_rows and len(rows) > size:
            make = packed_batches
        lengths, multiple = list(map(len, rows)), self._row_multiple
        for layout in make(lengths, batch_size=size, limit=limit, row_multiple=multiple):
            chosen = {b: rows[row] for b, row in layout.rows.items()}
            arrays = predictor.pad(chosen, layout.count, layout.length)
            yield PredictionBatch(
                {b: numbers[row] for b, row in layout.rows.items()},
                predictor.inputs(arrays | layout.indices, chosen),
            )

    def _chunks(self, examples: Iterable[Example]) -> Iterator[_Computation[Example, Prediction]]:
        """Cuts examples into chunks; the end of the examples cuts the last one short."""
        predictor = self.predictor
        most = predictor.options.batch_size * predictor.chunk_batches
        chosen: list[Example] = []
        start = length = 0
        for example in examples:
            chosen.append(example)
            length += 0 if isinstance(example, ExampleError) else predictor.characters(example)
            if len(chosen) == most or length >= CHUNK_CHARACTERS:
                yield _Computation(predictor, chosen, self._encode(chosen), start=start)
                start, chosen, length = start + len(chosen), [], 0
        if chosen:
            encoded = self._encode(chosen)
            yield _Computation(predictor, chosen, encoded, start=start, is_full=False)

    def _encode(self, examples: Sequence[Any]) -> list[EncodedExample | ExampleError]:
        return map_valid(examples, self.predictor.encode)

    def _begin(
        self, examples: Iterable[Example], strict: bool, cache: OutputCache | None
    ) -> Iterator["_Step[Example, Prediction]"]:
        """Starts the computation of each batch; a chunk without batches is a step, too."""
        structure = None  # of the outputs of a batch
        for chunk in self._chunks(examples):
            if strict and chunk.error:
                yield _Step(chunk)
                return
            step = None
            for batch in self.batches(chunk.encoded):
                leaves = None if cache is None else cache.read()
                if leaves is None:
                    step = _Step(chunk, batch, self._compute(batch.arrays))
                else:
                    if structure is None:
                        structure = jax.tree.structure(self._compute(batch.arrays))
                    outputs = jax.tree.unflatten(structure, leaves)
                    step = _Step(chunk, batch, outputs, is_cached=True)
                yield step
            if step is None:
                yield _Step(chunk)

    def _explained_memory(self) -> contextlib.AbstractContextManager[None]:
        work = f"batches of {self.predictor.options.batch_size} rows"
        return explain_out_of_memory(work, "batch_size", "lower {batch_size} or {max_length}")

    def _compute(self, arrays: dict[str, np.ndarray]) -> Any:
        overlap = programs_may_overlap(self._mesh)
        with contextlib.nullcontext() if overlap else _ONE_PROGRAM, on_mesh(self._mesh):
            outputs = self.predictor.compute(same_on_all_hosts(self._mesh, arrays))
            return outputs if overlap else jax.block_until_ready(outputs)

    @functools.cached_property
    def _batches_ahead(self) -> int:
        """The number of batches that are begun before the results of an earlier one are fetched."""
        if not programs_may_overlap(self._mesh):
            return 0
        parameters = sum(leaf.size for leaf in jax.tree.leaves(self.predictor.model.params))
        most = min(_MOST_BATCHES_AHEAD, self.predictor.chunk_batches)
        return max(1, min(_PARAMETERS_AHEAD // max(1, parameters), most))


def predict_examples(
    predictor: Predictor[Example, Prediction],
    examples: Iterable[Example],
    *,
    advance: Advance = lambda count: None,
    cache: OutputCache | None = None,
    report: bool = True,
) -> Iterator[Prediction]:
    """The prediction of each example in their order, see `Engine.run` with `strict`."""
    chunks = Engine(predictor).run(
        examples, strict=True, cache=cache, advance=advance, report=report
    )
    for chunk in chunks:
        yield from (prediction for _, prediction in chunk.pairs)


@dataclasses.dataclass(frozen=True)
class _Step(Generic[Example, Prediction]):
    """A batch, and its outputs as soon as they are computed.

    Attributes:
        chunk: the chunk of its rows.
        batch: the rows; None: the chunk has none.
        outputs: the result of `Predictor.compute`.
        is_cached: whether the outputs were read from a cache.
    """

    chunk: _Computation[Example, Prediction]
    batch: PredictionBatch | None = None
    outputs: Any = None
    is_cached: bool = False


def _begun_ahead(steps: Iterable[Step], count: int) -> Iterator[Step]:
    """The steps in their order, each after `count` further ones have been started."""
    begun: deque[Step] = deque()
    for step in steps:
        begun.append(step)
        if len(begun) > count:
            yield begun.popleft()
    yield from begun

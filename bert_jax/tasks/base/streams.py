"""Examples → batches of rows → predictions, in order and in constant memory."""

import dataclasses
import queue
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from types import TracebackType
from typing import Any, Self, TypeVar

import jax
from tqdm import tqdm

from bert_jax.data.padding import pad
from bert_jax.data.prediction_batches import packed_batches, padded_batches
from bert_jax.sharding.hosts import fetch, is_main_host, same_on_all_hosts
from bert_jax.sharding.mesh import explain_out_of_memory, programs_may_overlap
from bert_jax.sharding.rules import on_mesh
from bert_jax.tasks.base.output_cache import OutputCache
from bert_jax.tasks.base.predictor import Advance, PredictionBatch, Predictor, Request
from bert_jax.tokenization import Tokenizer

Item = TypeVar("Item")
Example = TypeVar("Example")
Prediction = TypeVar("Prediction")

# The maximum number of characters in a window: some 100 MB with their encodings.
WINDOW_CHARACTERS = 1_000_000

# Further batches are started before the results of a batch are fetched: the first number divided by
# that of the model's parameters, at least 1 and at most the second. So a small model need not wait
# for the host: on two cores, one of 2 layers of width 128 takes 1.28 times as long with 1 batch as
# with 16. With a large model, many would delay a stop.
_PARAMETERS_AHEAD = 70_000_000
_MOST_BATCHES_AHEAD = 16

# A micro-batch ends when the waits for this many items add up to more than this time.
_TIMED_ITEMS = 256
_MAX_WAIT_SECONDS = 0.1


def predict_examples(
    predictor: Predictor[Example, Prediction],
    examples: Iterable[Example],
    *,
    advance: Advance | None = None,
    after_window: Callable[[], None] = lambda: None,
    kept: OutputCache | None = None,
    report: bool = True,
) -> Iterator[Prediction]:
    """One prediction for each example, in the order of the examples.

    Examples are read one window ahead and no further, so memory does not grow with their number.
    The predictions of a window do not depend on the windows before it, to the bit.
    With several hosts, each passes the same examples and gets all predictions.

    Args:
        predictor: the predictor of a task for one model; batches are padded by the model's
            tokenizer and computed on its mesh.
        examples: the examples, read once.
        advance: called after each batch with the number of examples that are complete.
        after_window: called when all predictions of a full window have been taken.
        kept: outputs of batches that are read instead of computed, and to which others are added;
            for a single host.
        report: whether a line says at the end how many examples were cut or empty.

    Raises:
        ExampleError: an example cannot be encoded.
        NotFiniteError: an output is not finite.
        OptionError: a device ran out of memory.
    """
    prepared = (predictor.prepare(example, index) for index, example in enumerate(examples))
    ends: deque[int] = deque()  # of the full windows that have been begun
    count = 0

    def window() -> Iterator[Any]:
        nonlocal count
        for item in decoded:
            yield item
            count += 1
            if ends and count == ends[0]:
                return

    decoded = _in_order(_decoded(predictor, prepared, advance, ends.append, kept))
    work = f"batches of {predictor.options.batch_size} rows"
    with explain_out_of_memory(work, "batch_size", "lower the batch size or the maximum length"):
        yield from predictor.transform(window())
        while ends and count == ends[0]:
            after_window()
            ends.popleft()
            yield from predictor.transform(window())
    if report and is_main_host():
        predictor.report()


def _decoded(
    predictor: Predictor[Example, Any],
    examples: Iterator[Example],
    advance: Advance | None,
    window_ends: Callable[[int], None],
    kept: OutputCache | None,
) -> Iterator[tuple[int, Any]]:
    """Pairs of an example's index and its decoded prediction, in the order of completion."""
    collected: dict[int, dict[int, Any]] = {}
    computed = _computed(predictor, examples, window_ends, kept)
    for number, (batch, outputs) in enumerate(_prefetched(computed, _batches_ahead(predictor))):
        outputs = fetch(outputs)
        if kept is not None:
            kept.add(number, jax.tree.leaves(outputs))
        complete: list[Request[Example]] = []
        for index, (request, row) in batch.rows.items():
            rows = collected.setdefault(request.number, {})
            rows[row] = jax.tree.map(lambda leaf, index=index: leaf[index], outputs)
            if len(rows) == len(request.encodings):
                complete.append(request)
        for request in complete:
            rows = collected.pop(request.number)
            ordered = [rows[row] for row in range(len(rows))]
            yield (
                request.number,
                predictor.decode(request.example, request.encodings, ordered),
            )
        if advance is not None:
            advance(len(complete))


def _batches_ahead(predictor: Predictor[Any, Any]) -> int:
    """The number of batches that are begun before the results of an earlier one are fetched."""
    if not programs_may_overlap(predictor.model.mesh):
        return 0
    parameters = sum(leaf.size for leaf in jax.tree.leaves(predictor.model.params))
    most = min(_MOST_BATCHES_AHEAD, predictor.options.window)
    return max(1, min(_PARAMETERS_AHEAD // max(1, parameters), most))


def _computed(
    predictor: Predictor[Example, Any],
    examples: Iterator[Example],
    window_ends: Callable[[int], None],
    kept: OutputCache | None,
) -> Iterator[tuple[PredictionBatch[Example], Any]]:
    model, mesh = predictor.model, predictor.model.mesh
    batches = make_batches(
        predictor,
        examples,
        model.tokenizer,
        limit=predictor.limit,
        row_multiple=mesh.shape["data"] * mesh.shape["fsdp"],
        window_ends=window_ends,
    )
    structure = None  # of the outputs: that of the first batch, which is always computed
    for number, batch in enumerate(batches):
        leaves = None if kept is None or structure is None else kept.read(number)
        if leaves is None:
            with on_mesh(mesh):
                outputs = predictor.compute(same_on_all_hosts(mesh, predictor.inputs(batch)))
            structure = jax.tree.structure(outputs)
        else:
            outputs = jax.tree.unflatten(structure, leaves)
        yield batch, outputs


def _in_order(numbered: Iterable[tuple[int, Item]]) -> Iterator[Item]:
    """Items in the order of their numbers 0, 1, 2, …; buffers out-of-order items."""
    early: dict[int, Item] = {}
    following = 0
    for number, item in numbered:
        early[number] = item
        while following in early:
            yield early.pop(following)
            following += 1


def _prefetched(items: Iterable[Item], count: int) -> Iterator[Item]:
    """The items, each yielded only after the next `count` items are started."""
    begun: deque[Item] = deque()
    for item in items:
        begun.append(item)
        if len(begun) > count:
            yield begun.popleft()
    yield from begun


def make_batches(
    predictor: Predictor[Example, object],
    examples: Iterable[Example],
    tokenizer: Tokenizer,
    *,
    limit: int,
    row_multiple: int = 1,
    window_ends: Callable[[int], None] = lambda end: None,
) -> Iterator[PredictionBatch[Example]]:
    """Batches of rows, the longest of each window first; if there are many, packed.

    Reads no further than one window. T and B take few values (`data.padding`), so a function under
    jit is compiled for few shapes.

    Args:
        predictor: encodes examples; its options set the sizes of batches.
        examples: the examples, read once.
        tokenizer: tokenizer of the model.
        limit: maximum number of tokens of a row.
        row_multiple: B is a multiple of it: the number of devices that share the rows.
        window_ends: called before each full window with the number of examples up to its end.
    """
    options = predictor.options
    number = 0
    for window, is_full in _windows(predictor, examples):
        requests = [
            Request(number + index, example, encodings)
            for index, (example, encodings) in enumerate(
                zip(window, predictor.encode(window), strict=True)
            )
        ]
        number += len(window)
        if is_full:
            window_ends(number)
        rows = [(request, row) for request in requests for row in range(len(request.encodings))]
        lengths = [len(request.encodings[row]) for request, row in rows]
        is_packed = predictor.packs_rows and len(rows) > options.batch_size
        layouts = (packed_batches if is_packed else padded_batches)(
            lengths, batch_size=options.batch_size, limit=limit, row_multiple=row_multiple
        )
        for layout in layouts:
            batch = PredictionBatch({b: rows[row] for b, row in layout.rows.items()}, {})
            arrays = pad(batch.encodings, layout.count, layout.length, tokenizer)
            yield dataclasses.replace(batch, arrays=arrays | layout.indices)


def _windows(
    predictor: Predictor[Example, object], examples: Iterable[Example]
) -> Iterator[tuple[list[Example], bool]]:
    """The windows, and whether each is full: the end of the examples cuts the last one short."""
    most = predictor.options.batch_size * predictor.options.window
    window: list[Example] = []
    length = 0
    for example in examples:
        window.append(example)
        length += predictor.characters(example)
        if len(window) == most or length >= WINDOW_CHARACTERS:
            yield window, True
            window, length = [], 0
    if window:
        yield window, False


def micro_batches(items: Iterable[Item]) -> Iterator[Iterator[Item]]:
    """Splits a stream into iterators; only the first item of each may be long in coming.

    As long as items arrive quickly, they share an iterator. A thread reads a few items ahead. Each
    iterator must be used up before the next one; the last one may be empty.

    Args:
        items: source, read once; its error is raised in place of the next item.
    """
    # An item, or () at the end.
    arrived: queue.Queue[tuple[Item, ...] | BaseException] = queue.Queue(_TIMED_ITEMS)
    ended = False

    def read() -> None:
        try:
            for item in items:
                arrived.put((item,))
            arrived.put(())
        except BaseException as error:
            arrived.put(error)

    def micro_batch() -> Iterator[Item]:
        nonlocal ended
        following, count, left = arrived.get(), 0, _MAX_WAIT_SECONDS
        while not isinstance(following, BaseException) and following:
            yield from following
            count += 1
            left = _MAX_WAIT_SECONDS if count % _TIMED_ITEMS == 0 else left
            begun = time.monotonic()
            try:
                following = arrived.get(timeout=max(0.0, left))
            except queue.Empty:
                return
            left -= time.monotonic() - begun
        ended = True
        if isinstance(following, BaseException):
            raise following

    # A daemon thread: the end of the program does not wait for a source that may have no end.
    threading.Thread(target=read, daemon=True).start()
    while not ended:
        yield micro_batch()


class Progress:
    """A bar on stderr: texts done, their rate, and the time left if the total is known.

    If stderr is a file, prints a line from time to time.
    """

    def __init__(self, total: Callable[[], int | None], *, enabled: bool, initial: int = 0) -> None:
        """Shows nothing before the first predictions, so that an earlier error is the only output.

        Args:
            total: returns the number of texts, or None if unknown; called after each batch.
            enabled: whether anything is shown.
            initial: number of texts that an earlier call has done.
        """
        self._total = total
        self._initial = initial
        self._enabled = enabled
        self._begun = time.time()
        self._bar: tqdm | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._bar is not None:
            self._bar.leave = kind is None
            self._bar.close()

    def advance(self, texts: int) -> None:
        if self._bar is None:
            terminal = sys.stderr.isatty()
            self._bar = tqdm(
                total=self._total(),
                initial=self._initial,
                unit="text",
                disable=not self._enabled,
                dynamic_ncols=True,
                mininterval=0.2 if terminal else 30.0,
                maxinterval=10.0 if terminal else 60.0,
            )
            self._bar.start_t = self._begun
        self._bar.total = self._total()
        self._bar.update(texts)

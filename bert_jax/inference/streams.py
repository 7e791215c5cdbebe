"""Examples → batches of rows of like length → predictions, in order and in constant memory."""

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

from bert_jax.data.padding import bucket_length, bucket_rows, pad
from bert_jax.sharding.hosts import fetch, same_on_all_hosts
from bert_jax.sharding.mesh import explain_out_of_memory, programs_may_overlap
from bert_jax.sharding.rules import on_mesh
from bert_jax.tasks.base.predictor import Advance, Model, PredictionBatch, Predictor, Request
from bert_jax.tokenization import Tokenizer

Item = TypeVar("Item")
Example = TypeVar("Example")
Prediction = TypeVar("Prediction")

# The characters of a window: of however long texts, with their encodings some 100 MB.
WINDOW_CHARACTERS = 1_000_000

# A micro-batch ends when so many items take longer than so long to come.
_MANY = 256
_SECONDS = 0.1


def predict_examples(
    model: Model,
    predictor: Predictor[Example, Prediction],
    examples: Iterable[Example],
    *,
    advance: Advance | None = None,
) -> Iterator[Prediction]:
    """One prediction for each example, in the order of the examples.

    Examples are read one window ahead and no further, so memory does not grow with their number.
    With several hosts, each passes the same examples and gets all predictions.

    Args:
        model: its tokenizer defines the padding; batches are computed on its mesh.
        predictor: made for this model by a task.
        examples: read once.
        advance: called after each batch with the number of examples that are complete.

    Raises:
        ExampleError: an example cannot be encoded.
        NotFiniteError: an output is not finite.
        OptionError: a device ran out of memory.
    """
    prepared = (predictor.prepare(example, index) for index, example in enumerate(examples))
    decoded = _in_order(_decoded(model, predictor, prepared, advance))
    work = f"batches of {predictor.options.batch_size} rows"
    with explain_out_of_memory(work, "batch_size", "lower {batch_size} or {max_length}"):
        yield from predictor.transform(decoded)
    predictor.report()


def _decoded(
    model: Model,
    predictor: Predictor[Example, Any],
    examples: Iterator[Example],
    advance: Advance | None,
) -> Iterator[tuple[int, Any]]:
    """Numbers of examples with what the predictor decodes, as they are complete."""
    collected: dict[int, dict[int, Any]] = {}
    # While a device computes a batch, the next is tokenised.
    ahead = 1 if programs_may_overlap(model.mesh) else 0
    for batch, outputs in _begun_ahead(_computed(model, predictor, examples), ahead):
        outputs = fetch(outputs)
        complete: list[Request[Example]] = []
        for index, (request, row) in enumerate(batch.rows):
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


def _computed(
    model: Model, predictor: Predictor[Example, Any], examples: Iterator[Example]
) -> Iterator[tuple[PredictionBatch[Example], Any]]:
    mesh = model.mesh
    for batch in make_batches(
        predictor,
        examples,
        model.tokenizer,
        limit=predictor.options.limit(model.config),
        row_multiple=mesh.shape["data"] * mesh.shape["fsdp"],
    ):
        with on_mesh(mesh):
            outputs = predictor.compute(same_on_all_hosts(mesh, predictor.inputs(batch)))
        yield batch, outputs


def _in_order(numbered: Iterable[tuple[int, Item]]) -> Iterator[Item]:
    """Items by their numbers 0, 1, 2, …; holds those that came too early."""
    early: dict[int, Item] = {}
    following = 0
    for number, item in numbered:
        early[number] = item
        while following in early:
            yield early.pop(following)
            following += 1


def _begun_ahead(items: Iterable[Item], count: int) -> Iterator[Item]:
    """The same items, each yielded only after `count` more are begun."""
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
) -> Iterator[PredictionBatch[Example]]:
    """Batches of rows of like length, the longest of each window first.

    Reads no further than one window. T and B take few values (`data.padding`), so a function under
    jit is compiled for few shapes.

    Args:
        predictor: encodes examples; its options are the sizes.
        examples: read once.
        tokenizer: of the model.
        limit: the most tokens of a row.
        row_multiple: a divisor of B: the number of devices that share the rows.
    """
    options = predictor.options
    number = 0
    for window in _windows(predictor, examples):
        requests = [
            Request(number + index, example, encodings)
            for index, (example, encodings) in enumerate(
                zip(window, predictor.encode(window), strict=True)
            )
        ]
        number += len(window)
        rows = [(request, row) for request in requests for row in range(len(request.encodings))]
        # Sorting is stable: equal lengths stay in the order of the input.
        rows.sort(key=lambda item: -len(item[0].encodings[item[1]]))
        for start in range(0, len(rows), options.batch_size):
            chosen = rows[start : start + options.batch_size]
            encodings = [request.encodings[row] for request, row in chosen]
            count = bucket_rows(len(encodings), options.batch_size, row_multiple)
            length = bucket_length(len(encodings[0]), limit)
            yield PredictionBatch(chosen, pad(encodings, count, length, tokenizer))


def _windows(
    predictor: Predictor[Example, object], examples: Iterable[Example]
) -> Iterator[list[Example]]:
    most = predictor.options.batch_size * predictor.options.window
    window: list[Example] = []
    length = 0
    for example in examples:
        window.append(example)
        length += predictor.characters(example)
        if len(window) == most or length >= WINDOW_CHARACTERS:
            yield window
            window, length = [], 0
    if window:
        yield window


def micro_batches(items: Iterable[Item]) -> Iterator[Iterator[Item]]:
    """The items in iterators, each of which may wait long for its first item only.

    As long as items come fast, they are all in one. A thread reads them a little ahead. Each
    iterator must be used up before the next one; the last one may be empty.

    Args:
        items: read once; an error of the source is raised where the item would be.
    """
    # An item, or nothing at the end.
    arrived: queue.Queue[tuple[Item, ...] | BaseException] = queue.Queue(_MANY)
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
        following, count, left = arrived.get(), 0, _SECONDS
        while not isinstance(following, BaseException) and following:
            yield from following
            count += 1
            left = _SECONDS if count % _MANY == 0 else left
            begun = time.monotonic()
            try:
                following = arrived.get(timeout=max(0.0, left))
            except queue.Empty:
                return
            left -= time.monotonic() - begun
        ended = True
        if isinstance(following, BaseException):
            raise following

    # A daemon: the end of the program does not wait for a source that may have no end.
    threading.Thread(target=read, daemon=True).start()
    while not ended:
        yield micro_batch()


class Progress:
    """A bar on stderr: texts done, their rate, and the time left where the total is known.

    Where stderr is a file, a line now and then.
    """

    def __init__(self, total: Callable[[], int | None], *, enabled: bool) -> None:
        """Shows nothing before the first predictions, so that an earlier error stands alone.

        Args:
            total: returns the number of texts as far as it is known; called after each batch.
            enabled: otherwise nothing is shown.
        """
        self._total = total
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
                unit="text",
                disable=not self._enabled,
                dynamic_ncols=True,
                mininterval=0.2 if terminal else 30.0,
                maxinterval=10.0 if terminal else 60.0,
            )
            self._bar.start_t = self._begun
        self._bar.total = self._total()
        self._bar.update(texts)

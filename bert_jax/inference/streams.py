"""Items through a model, batch by batch, and the answers in the order of the items."""

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, TypeVar

import jax
import numpy as np

from bert_jax.inference.batching import Batch, BatchOptions, Request, make_batches
from bert_jax.inference.interface import Advance, Model
from bert_jax.sharding.hosts import fetch, same_on_all_hosts
from bert_jax.sharding.mesh import programs_may_overlap
from bert_jax.sharding.rules import on_mesh
from bert_jax.tokenization import Encoding

Item = TypeVar("Item")
Result = TypeVar("Result")


def answers(
    model: Model,
    items: Iterable[Item],
    encode: Callable[[Sequence[Item]], list[list[Encoding]]],
    compute: Callable[[dict[str, jax.Array]], Any],
    read: Callable[[Item, list[Encoding], list[Any]], Result],
    options: BatchOptions,
    *,
    characters: Callable[[Item], int],
    inputs: Callable[[Batch[Item]], dict[str, np.ndarray]] = lambda batch: batch.arrays,
    advance: Advance | None = None,
) -> Iterator[Result]:
    """One answer for each item, in the order of the items.

    The items are read a window ahead and no further, so memory does not grow with their number.
    With several hosts, each of them passes the same items and gets all answers.

    Args:
        model: its tokenizer knows the padding, on its mesh the batches are computed.
        items: read once.
        encode: the rows of tokens of each of several items: one row or more (windows of a passage,
            choices of a question), none longer than `options.limit(model.config)`.
        compute: a jitted function of a batch on the mesh; all arrays that it returns have the rows
            of the batch as their first axis.
        read: makes the answer from an item, its rows of tokens, and for each row what `compute`
            returned (NumPy, without the first axis). What it keeps of that it must copy, or the
            whole batch stays in memory.
        options: sizes of the batches.
        characters: how long an item is, roughly; limits the window.
        inputs: the arrays that `compute` takes.
        advance: told the number of answered items after each batch.
    """
    mesh = model.mesh
    parts = mesh.shape["data"] * mesh.shape["fsdp"]

    def computed() -> Iterator[tuple[Batch[Item], Any]]:
        for batch in make_batches(
            items,
            encode,
            model.tokenizer,
            options,
            characters=characters,
            limit=options.limit(model.config),
            row_multiple=parts,
        ):
            with on_mesh(mesh):
                outputs = compute(same_on_all_hosts(mesh, inputs(batch)))
            yield batch, outputs

    def answered() -> Iterator[tuple[int, Result]]:
        collected: dict[int, dict[int, Any]] = {}
        for batch, outputs in _begun_ahead(computed(), _batches_ahead(model)):
            outputs = fetch(outputs)
            complete: list[Request[Item]] = []
            for place, (asked, row) in enumerate(batch.rows):
                of_item = collected.setdefault(asked.number, {})
                of_item[row] = jax.tree.map(lambda leaf, place=place: leaf[place], outputs)
                if len(of_item) == len(asked.encodings):
                    complete.append(asked)
            for asked in complete:
                of_item = collected.pop(asked.number)
                rows = [of_item[row] for row in range(len(of_item))]
                yield asked.number, read(asked.item, asked.encodings, rows)
            if advance is not None:
                advance(len(complete))

    return in_order(answered())


def in_order(numbered: Iterable[tuple[int, Item]]) -> Iterator[Item]:
    """Items by their numbers 0, 1, 2, …; holds those that came too early."""
    early: dict[int, Item] = {}
    following = 0
    for number, item in numbered:
        early[number] = item
        while following in early:
            yield early.pop(following)
            following += 1


def _begun_ahead(items: Iterable[Item], count: int) -> Iterator[Item]:
    """The same items, each given only when `count` more are begun."""
    begun: deque[Item] = deque()
    for item in items:
        begun.append(item)
        if len(begun) > count:
            yield begun.popleft()
    yield from begun


def _batches_ahead(model: Model) -> int:
    """While a device computes a batch, the next is tokenised."""
    return 1 if programs_may_overlap(model.mesh) else 0

"""Texts through a model, batch by batch, and the answers in the order of the texts."""

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeVar

import jax
import numpy as np

from bert_jax.inference.batching import Batch, BatchOptions, make_batches
from bert_jax.inference.interface import Advance, Model, Text
from bert_jax.sharding.mesh import programs_may_overlap
from bert_jax.sharding.rules import batch_sharding, on_mesh
from bert_jax.tokenization import Encoding

Result = TypeVar("Result")
Item = TypeVar("Item")


def answers(
    model: Model,
    texts: Iterable[Text],
    compute: Callable[[dict[str, jax.Array]], Any],
    read: Callable[[Encoding, Any], Result],
    options: BatchOptions,
    *,
    inputs: Callable[[Batch], dict[str, np.ndarray]] = lambda batch: batch.arrays,
    advance: Advance | None = None,
) -> Iterator[Result]:
    """One answer for each text, in the order of the texts.

    The texts are read a window ahead and no further, so memory does not grow with their number.

    Args:
        model: its tokenizer makes the batches, on its mesh they are computed.
        texts: read once.
        compute: a jitted function of a batch on the mesh; all arrays that it returns have the rows
            of the batch as their first axis.
        read: makes the answer from the tokens of a text and its row of what `compute` returned.
            What it keeps of the row it must copy, or the whole batch stays in memory.
        options: sizes of the batches.
        inputs: the arrays that `compute` takes.
        advance: told the number of texts after each batch.
    """
    mesh = model.mesh
    parts = mesh.shape["data"] * mesh.shape["fsdp"]

    def computed() -> Iterator[tuple[Batch, Any]]:
        for batch in make_batches(texts, model.tokenizer, model.config, options, parts):
            with on_mesh(mesh):
                outputs = compute(jax.device_put(inputs(batch), batch_sharding(mesh)))
            yield batch, outputs

    def rows() -> Iterator[tuple[int, Result]]:
        for batch, outputs in _begun_ahead(computed(), _batches_ahead(model)):
            outputs = jax.device_get(outputs)
            for row, (index, encoding) in enumerate(
                zip(batch.indices, batch.encodings, strict=True)
            ):
                yield index, read(encoding, jax.tree.map(lambda leaf, row=row: leaf[row], outputs))
            if advance is not None:
                advance(len(batch.indices))

    return in_order(rows())


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

"""Examples through a model, batch by batch, and the predictions in the order of the examples."""

from collections import deque
from collections.abc import Iterable, Iterator
from typing import Any, TypeVar

import jax

from bert_jax.inference.batching import make_batches
from bert_jax.sharding.hosts import fetch, same_on_all_hosts
from bert_jax.sharding.mesh import programs_may_overlap
from bert_jax.sharding.rules import on_mesh
from bert_jax.tasks.base.predictor import Advance, Model, PredictionBatch, Predictor, Request

Item = TypeVar("Item")
Example = TypeVar("Example")
Prediction = TypeVar("Prediction")


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
    """
    prepared = (predictor.prepare(example, index) for index, example in enumerate(examples))
    decoded = _in_order(_decoded(model, predictor, prepared, advance))
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
    batches = _computed(model, predictor, examples)
    for batch, outputs in _begun_ahead(batches, _batches_ahead(model)):
        outputs = fetch(outputs)
        complete: list[Request[Example]] = []
        for place, (request, row) in enumerate(batch.rows):
            rows = collected.setdefault(request.number, {})
            rows[row] = jax.tree.map(lambda leaf, place=place: leaf[place], outputs)
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


def _batches_ahead(model: Model) -> int:
    """While a device computes a batch, the next is tokenised."""
    return 1 if programs_may_overlap(model.mesh) else 0

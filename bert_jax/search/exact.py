"""Exact search: the k nearest vectors of a collection, by JAX over a mesh.

The rows of the collection are divided over all devices. Each device compares a block of rows at a
time with the queries and keeps its own k best; at the end, the best of all devices are merged. All
blocks have one shape, so equal vectors have equal scores wherever they are, and the number of
devices changes no bit.
"""

import dataclasses
import functools
from collections.abc import Iterable, Iterator
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from bert_jax.errors import (
    INT32_MAX,
    NotFiniteError,
    UserError,
    require_at_least,
    require_between,
    require_one_of,
)
from bert_jax.models.heads.text_vectors import SIMILARITIES
from bert_jax.models.layers import jax_similarities
from bert_jax.search.hits import Ranked
from bert_jax.sharding.mesh import AXES, one_device_mesh

# Rows of a block on each device, and queries that are compared with it at once: 16 MiB of scores.
_ROWS, _QUERIES = 1 << 14, 256
_BY_ROWS, _WHOLE = PartitionSpec(AXES), PartitionSpec()


class _Block(NamedTuple):
    """Rows `start` to `end` of the collection, padded with zeros; float [M, X], on all devices."""

    vectors: jax.Array
    start: int
    end: int


class ExactSearcher:
    """A collection in the memory of the devices, for many searches.

    On a CPU, the vectors of an aligned array, such as a memory-mapped file, are not copied: they
    must not change.
    """

    def __init__(
        self,
        vectors: np.ndarray | Iterable[np.ndarray],
        *,
        similarity: str = "cosine",
        mesh: Mesh | None = None,
        recall_target: float | None = None,
    ) -> None:
        """Places the collection on the devices.

        Args:
            vectors: the collection, float32 or float16 [n, X], in memory or memory-mapped, or
                blocks of its rows.
            similarity: one of `SIMILARITIES`, as `TextVectors.similarity`; "euclidean" and
                "manhattan" are negative distances.
            mesh: the devices that search; None: the first one.
            recall_target: the expected recall of the nearest, below 1, for the faster
                `jax.lax.approx_max_k` of TPUs; None, and on every other device: exact.

        Raises:
            UserError: there are too many vectors.
            NotFiniteError: a vector has a value that is not finite; the message has its number.
            OptionError: another argument has a wrong value.
        """
        self._comparison = _Comparison(similarity, mesh or one_device_mesh(), recall_target)
        self._blocks = list(_placed(vectors, self._comparison.mesh))

    def __len__(self) -> int:
        return self._blocks[-1].end if self._blocks else 0

    def search(self, queries: np.ndarray, top_k: int = 10) -> Ranked:
        """The vectors that are most similar to each query.

        Args:
            queries: float32 [B, X].
            top_k: number of vectors to find, k; rows end with the number -1 and the score -inf if
                k is above n.

        Returns:
            Scores and numbers, see `Ranked`.

        Raises:
            UserError: the widths differ.
            NotFiniteError: a query or a similarity is not finite.
        """
        require_at_least("top_k", top_k, 1)
        queries = np.asarray(queries, np.float32)
        _check_finite(queries, "query")
        starts = range(0, len(queries), _QUERIES)
        blocks = [self._search(queries[start : start + _QUERIES], top_k) for start in starts]
        scores = np.concatenate([np.empty((0, top_k), np.float32), *(each[0] for each in blocks)])
        numbers = np.concatenate([np.empty((0, top_k), np.int64), *(each[1] for each in blocks)])
        if np.isnan(scores).any() or (scores == np.inf).any():
            raise NotFiniteError("a similarity exceeds float32: normalise the vectors")
        return scores, numbers

    def _search(self, queries: np.ndarray, k: int) -> Ranked:
        """The scores and numbers of at most `_QUERIES` queries, float32 and int64 [B, k]."""
        count, padded, mesh = len(queries), _padded(queries), self._comparison.mesh
        best = _empty_best(len(padded), k, mesh)
        for block in self._blocks:
            if block.vectors.shape[1] != queries.shape[1]:
                raise UserError(
                    f"the queries have {queries.shape[1]} values, the vectors of the collection "
                    f"{block.vectors.shape[1]}: use the model that made the collection"
                )
            best = _step(best, padded, *block, comparison=self._comparison)
        scores, numbers = jax.device_get(_merged(best, mesh=mesh))
        return scores[:count], numbers[:count]


@dataclasses.dataclass(frozen=True)
class _Comparison:
    """How vectors are compared, see `ExactSearcher`."""

    similarity: str
    mesh: Mesh
    recall_target: float | None

    def __post_init__(self) -> None:
        require_one_of("similarity", self.similarity, SIMILARITIES)
        limits = {"without_low": True, "without_high": True}
        require_between("recall_target", self.recall_target, 0, 1, **limits)


class _Best(NamedTuple):
    """The best rows of each device so far, in the order of `Ranked`; [devices, B, k].

    Scores are float32, numbers int32.
    """

    scores: jax.Array
    numbers: jax.Array


def _placed(vectors: np.ndarray | Iterable[np.ndarray], mesh: Mesh) -> Iterator[_Block]:
    """The collection as blocks on the devices, each with as many rows."""
    sharding = NamedSharding(mesh, _BY_ROWS)
    size, end = _ROWS * mesh.size, 0
    for rows in _in_blocks([vectors] if isinstance(vectors, np.ndarray) else vectors, size):
        start, end = end, end + len(rows)
        _check_finite(rows, "vector", start)
        if end > INT32_MAX:
            raise UserError(f"more than {INT32_MAX:,} vectors; search parts of the collection")
        if len(rows) < size:
            rows = np.pad(rows, ((0, size - len(rows)), (0, 0)))
        block = jax.make_array_from_callback(rows.shape, sharding, rows.__getitem__)
        yield _Block(block, start, end)


def _in_blocks(blocks: Iterable[np.ndarray], size: int) -> Iterator[np.ndarray]:
    """The same rows in blocks of this size, the last one shorter."""
    parts: list[np.ndarray] = []
    count = 0
    for block in blocks:
        block = np.asarray(block, None if block.dtype == np.float16 else np.float32)
        while len(block):
            parts.append(block[: size - count])
            count += len(parts[-1])
            block = block[len(parts[-1]) :]
            if count == size:
                yield parts[0] if len(parts) == 1 else np.concatenate(parts)
                parts, count = [], 0
    if parts:
        yield np.concatenate(parts)


def _check_finite(rows: np.ndarray, what: str, first: int = 0) -> None:
    """Raises NotFiniteError if a row of an array that begins at row `first` is not finite."""
    is_finite = np.isfinite(rows).all(axis=1)
    if not is_finite.all():
        raise NotFiniteError(
            f"{what} {first + is_finite.argmin()} has a value that is not finite: check the model "
            "that made it"
        )


def _padded(queries: np.ndarray) -> np.ndarray:
    """Queries up to a power of two, so that few shapes are compiled."""
    return np.pad(queries, ((0, (1 << (len(queries) - 1).bit_length()) - len(queries)), (0, 0)))


def _empty_best(batch: int, k: int, mesh: Mesh) -> _Best:
    """The best rows before the first block: none."""
    sharding = NamedSharding(mesh, _BY_ROWS)
    shape = (mesh.size, batch, k)
    return _Best(
        jnp.full(shape, -jnp.inf, device=sharding), jnp.full(shape, -1, np.int32, device=sharding)
    )


@functools.partial(jax.jit, static_argnames="comparison")
def _step(
    best: _Best,
    queries: jax.Array,
    vectors: jax.Array,
    start: int,
    end: int,
    *,
    comparison: _Comparison,
) -> _Best:
    """The best rows after one more `_Block`."""

    @functools.partial(
        jax.shard_map,
        mesh=comparison.mesh,
        in_specs=(_BY_ROWS, _WHOLE, _BY_ROWS, _WHOLE, _WHOLE),
        out_specs=_BY_ROWS,
    )
    def on_each_device(
        best: _Best, queries: jax.Array, vectors: jax.Array, start: jax.Array, end: jax.Array
    ) -> _Best:
        offset = jax.lax.axis_index(AXES) * _ROWS + start
        numbers = jnp.arange(_ROWS, dtype=jnp.int32) + offset
        scores = jax_similarities(queries, vectors.astype(jnp.float32), comparison.similarity)  # BM
        if comparison.similarity == "cosine":
            scores = jnp.clip(scores, -1, 1)
        scores = jnp.where(numbers < end, scores, -jnp.inf)
        k = min(best.scores.shape[-1], _ROWS)
        if comparison.recall_target is None:
            scores, columns = jax.lax.top_k(scores, k)
        else:
            scores, columns = jax.lax.approx_max_k(
                scores, k, recall_target=comparison.recall_target
            )
        # Earlier blocks have lower numbers, and of equal scores `top_k` takes the first.
        scores = jnp.concatenate([best.scores[0], scores], axis=1)
        numbers = jnp.concatenate([best.numbers[0], numbers[columns]], axis=1)
        scores, columns = jax.lax.top_k(scores, best.scores.shape[-1])
        return _Best(scores[None], jnp.take_along_axis(numbers, columns, axis=1)[None])

    return on_each_device(best, queries, vectors, start, end)


@functools.partial(jax.jit, static_argnames="mesh")
def _merged(best: _Best, *, mesh: Mesh) -> _Best:
    """The k best of all devices, [B, k], on every device."""
    k = best.scores.shape[-1]
    scores, numbers = (jnp.swapaxes(part, 0, 1).reshape(-1, mesh.size * k) for part in best)
    scores, numbers = jax.lax.sort((-scores, numbers), num_keys=2)
    merged = _Best(-scores[:, :k], numbers[:, :k])
    return jax.lax.with_sharding_constraint(merged, NamedSharding(mesh, _WHOLE))

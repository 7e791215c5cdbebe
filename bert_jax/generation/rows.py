"""Work on the rows of a batch that stays on the device of each row.

The compiler would gather all rows on every device, to sort them or to choose some by number.
"""

import math

import jax
import jax.numpy as jnp

from bert_jax.sharding.rules import partition_spec

BLOCKS = (64, 192)  # sizes; of a vocabulary, blocks are searched for the best scores first


def best_of_rows(scores: jax.Array, count: int) -> tuple[jax.Array, jax.Array]:
    """The highest scores on the last axis of [B, ..., n], in descending order; their indices.

    Of equal scores, the one with the lowest index comes first.
    """

    def best(scores: jax.Array) -> tuple[jax.Array, jax.Array]:
        # XLA for CPUs sorts everything if there are more than two axes.
        found, indices = _best_of_vectors(scores.reshape(-1, scores.shape[-1]), count)
        shape = (*scores.shape[:-1], count)
        return found.reshape(shape), indices.reshape(shape)

    mesh = jax.sharding.get_abstract_mesh()
    rows = partition_spec(("batch",))
    if mesh.empty or len(scores) % math.prod(mesh.shape[axis] for axis in rows[0]):
        return best(scores)
    return jax.shard_map(best, in_specs=rows, out_specs=rows, check_vma=False)(scores)


def _best_of_vectors(scores: jax.Array, count: int) -> tuple[jax.Array, jax.Array]:
    """The highest scores of [R, n], and their indices.

    They are in the blocks with the highest maxima. Those are found while the scores are read once;
    to search all scores would take three times as long on a CPU.
    """
    size = _block_size(scores.shape[1])
    blocks = -(-scores.shape[1] // size)
    if blocks < 4 * count:
        return jax.lax.top_k(scores, count)
    padding = blocks * size - scores.shape[1]
    scores = jnp.pad(scores, ((0, 0), (0, padding)), constant_values=-jnp.inf)
    scores = scores.reshape(-1, blocks, size)
    _, chosen = jax.lax.top_k(jnp.max(scores, axis=2), count)
    # In their order, as the lowest index wins.
    chosen = jnp.sort(chosen, axis=1)
    candidates = jax.vmap(lambda row, numbers: row[numbers])(scores, chosen)
    found, indices = jax.lax.top_k(candidates.reshape(len(scores), -1), count)
    block = jnp.take_along_axis(chosen, indices // size, axis=1)
    return found, block * size + indices % size


def _block_size(count: int) -> int:
    """The size of blocks of so many scores: 128, or near it without padding, which is a copy."""
    low, high = BLOCKS
    return min(
        (size for size in range(low, high + 1) if count % size == 0),
        key=lambda size: abs(size - 128),
        default=128,
    )


def rows_of_prompts(array: jax.Array, rows: jax.Array, prompts: int) -> jax.Array:
    """Rows of the cache of a decoder, for its function `reorder`.

    Args:
        array: [B * K, ...], K rows for each prompt, one after the other.
        rows: int32 [B * I], numbers of I rows of each prompt.
        prompts: B.
    """
    each = len(array) // prompts
    groups = array.reshape(prompts, each, *array.shape[1:])
    chosen = jax.vmap(lambda group, numbers: group[numbers])(
        groups, (rows % each).reshape(prompts, -1)
    )
    return chosen.reshape(-1, *array.shape[1:])

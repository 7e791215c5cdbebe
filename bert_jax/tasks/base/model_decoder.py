"""A model that generates as the decoder of a search: its prompts, its steps, its cache."""

import dataclasses
import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from bert_jax.generation.decoder import NO_TOKEN, DecoderFunctions, Generated
from bert_jax.generation.next_token import TokenRules
from bert_jax.generation.options import SearchOptions
from bert_jax.generation.rows import rows_of_prompts
from bert_jax.generation.search import search
from bert_jax.models.decoding import DecoderCache, EncoderMemory
from bert_jax.models.packed_rows import EncoderInputs


class _State(NamedTuple):
    """What a search keeps of R rows between two tokens.

    Attributes:
        layers: keys and values of all layers, see `_split`.
        padding: int32 [R], number of tokens of padding before each prompt.
    """

    layers: DecoderCache
    padding: jax.Array


@functools.partial(jax.jit, static_argnames=("module", "rules", "options"))
def generate_after_prompts(
    params: Any,
    batch: dict[str, jax.Array],
    *,
    module: Any,
    rules: TokenRules,
    options: SearchOptions,
) -> Generated:
    """What a causal language model generates after prompts.

    Args:
        params: parameters of the module.
        batch: `input_ids` and `attention_mask`, int32 [B, T], with padding after the prompts; for
            samples `keys`, uint32 [B, 2].
        module: the model.
        rules: which tokens may come next.
        options: how to search.
    """
    ids, mask = batch["input_ids"], batch["attention_mask"]
    rows, length = ids.shape
    # All prompts end in the same column, after which the search goes on.
    padding = length - mask.sum(axis=1)
    columns = (jnp.arange(length) - padding[:, None]) % length
    ids = jnp.take_along_axis(ids, columns, axis=1)
    is_token = jnp.arange(length) >= padding[:, None]
    inputs = EncoderInputs(
        ids,
        attention_mask=is_token,
        position_ids=jnp.maximum(jnp.arange(length) - padding[:, None], 0),
    )
    cache = DecoderCache.empty(module.config, module.execution, rows, length)
    logits, cache = module.apply({"params": params}, inputs, cache, method="decode")
    prompts = jnp.where(is_token, ids, NO_TOKEN)
    decoder = _decoder(module, params, rows, length, None)
    state = _State(_split(cache), padding)
    return search(decoder, logits, state, prompts, rules, options, batch.get("keys"))


@functools.partial(jax.jit, static_argnames=("module", "start", "rules", "options"))
def generate_from_texts(
    params: Any,
    batch: dict[str, jax.Array],
    *,
    module: Any,
    start: int,
    rules: TokenRules,
    options: SearchOptions,
) -> Generated:
    """What the decoder of an encoder-decoder generates for texts.

    Args:
        params: parameters of the module.
        batch: `input_ids` and `attention_mask` of the texts, int32 [B, T]; for samples `keys`,
            uint32 [B, 2].
        module: the model.
        start: id of the token before the first one.
        rules: which tokens may come next.
        options: how to search.
    """
    texts = EncoderInputs(batch["input_ids"], attention_mask=batch["attention_mask"])
    memory = module.apply({"params": params}, texts, method="memory")
    cache = module.apply({"params": params}, memory, method="start")
    rows = len(batch["input_ids"])
    prompts = jnp.full((rows, 1), start, jnp.int32)
    inputs = EncoderInputs(prompts, position_ids=jnp.zeros_like(prompts))
    logits, cache = module.apply({"params": params}, inputs, cache, memory, method="decode")
    if cache.memory is not None:  # keys and values of the texts
        memory = memory.replace(hidden=None)
    decoder = _decoder(module, params, rows, 1, memory)
    state = _State(_split(cache), jnp.zeros(rows, jnp.int32))
    return search(decoder, logits, state, prompts, rules, options, batch.get("keys"))


def _decoder(
    module: Any, params: Any, prompts: int, length: int, memory: EncoderMemory | None
) -> DecoderFunctions:
    """A model as the decoder of a search after B prompts of T tokens; `memory` is of an encoder."""
    module = module.clone(execution=dataclasses.replace(module.execution, scan_layers=False))
    arguments = () if memory is None else (memory,)
    split = jax.tree_util.tree_map_with_path(
        lambda path, leaf: _split(leaf) if any(key.key == "layers" for key in path) else leaf,
        params,
    )

    def step(state: _State, tokens: jax.Array) -> tuple[jax.Array, _State]:
        positions = state.layers.tokens.length[0] - state.padding
        inputs = EncoderInputs(tokens[:, None], position_ids=positions[:, None])
        logits, layers = module.apply(
            {"params": _joined(split)}, inputs, _joined(state.layers), *arguments, method="decode"
        )
        return logits, state._replace(layers=_split(layers))

    def reorder(state: _State, rows: jax.Array) -> _State:
        def chosen(array: jax.Array) -> jax.Array:
            return rows_of_prompts(array, rows, prompts)

        return _State(state.layers.reordered(chosen), chosen(state.padding))

    def grow(state: _State, count: int) -> _State:
        return state._replace(layers=state.layers.resized(length + count))

    return DecoderFunctions(step, reorder, grow)


def _split(tree: Any) -> Any:
    """A tree with a tuple of L arrays for each array of all layers, [L, ...].

    The compiler would copy each layer's part of an array for each token; an array of one layer is
    used where it is.
    """
    return jax.tree.map(tuple, tree)


def _joined(tree: Any) -> Any:
    """The arrays of all layers; nothing is copied if each layer takes its part alone."""

    def joined(leaf: Any) -> jax.Array:
        return jnp.stack(leaf) if isinstance(leaf, tuple) else leaf

    return jax.tree.map(joined, tree, is_leaf=lambda leaf: isinstance(leaf, tuple))

"""Greedy search and sampling: one token after the other, never taken back.

Temperature, top-k and top-p are those of transformers 5, in its order.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from bert_jax.generation.beam_rules import beam_rule
from bert_jax.generation.decoder import DecoderFunctions, Generated
from bert_jax.generation.next_token import TokenRules, apply_rules
from bert_jax.generation.options import SearchOptions
from bert_jax.generation.rows import best_of_rows
from bert_jax.generation.stages import advance_in_stages


class _Sequences(NamedTuple):
    """State of the search after a number of tokens.

    Attributes:
        length: int32 [], that number.
        tokens: int32 [B, R, M].
        lengths: int32 [B, R], number of tokens with the end token.
        log_probs: float32 [B, R], of these tokens.
        has_ended: bool [B, R].
    """

    length: jax.Array
    tokens: jax.Array
    lengths: jax.Array
    log_probs: jax.Array
    has_ended: jax.Array


def sample(
    decoder: DecoderFunctions,
    first_logits: jax.Array,
    cache: Any,
    prompt_ids: jax.Array,
    rules: TokenRules,
    options: SearchOptions,
    keys: jax.Array | None = None,
) -> Generated:
    """R samples of each prompt, or with temperature 0 the greedy sequence; see `search`."""
    rows, samples = len(first_logits), options.num_return_sequences
    if keys is not None:  # [B, R]
        fold_in = jax.vmap(jax.random.fold_in, (None, 0))
        keys = jax.vmap(fold_in, (0, None))(keys, jnp.arange(samples))

    def extend(state: _Sequences, logits: jax.Array) -> _Sequences:
        logits = logits.astype(jnp.float32).reshape(rows, samples, -1)
        scores = apply_rules(rules, logits, prompt_ids, state.tokens, state.length)
        chosen = _choose(scores, options, keys, state.length)
        return _extend(state, chosen, logits, rules)

    def advance(carry: tuple[_Sequences, Any]) -> tuple[_Sequences, Any]:
        state, cache = carry
        last = jax.lax.dynamic_index_in_dim(state.tokens, state.length - 1, 2, keepdims=False)
        logits, cache = decoder.step(cache, last.reshape(-1))
        return extend(state, logits), cache

    def goes_on(state: _Sequences) -> jax.Array:
        return ~jnp.all(state.has_ended)

    shape = (rows, samples)
    state = _Sequences(
        length=jnp.int32(0),
        tokens=jnp.full((*shape, options.max_new_tokens), rules.pad_token_id, jnp.int32),
        lengths=jnp.zeros(shape, jnp.int32),
        log_probs=jnp.zeros(shape),
        has_ended=jnp.zeros(shape, bool),
    )
    if samples > 1:
        cache = decoder.reorder(cache, jnp.repeat(jnp.arange(rows, dtype=jnp.int32), samples))
        first_logits = jnp.repeat(first_logits, samples, axis=0)
    state = extend(state, first_logits)
    state = advance_in_stages(decoder, advance, goes_on, state, cache, options.max_new_tokens)
    scores = beam_rule(options).score(state.log_probs, state.lengths)
    scores, order = best_of_rows(scores, samples)
    return Generated(
        jnp.take_along_axis(state.tokens, order[..., None], axis=1),
        jnp.take_along_axis(state.lengths, order, axis=1),
        scores,
    )


def _extend(
    state: _Sequences, chosen: jax.Array, logits: jax.Array, rules: TokenRules
) -> _Sequences:
    """The sequences with one more token, int32 [B, R]; those that have ended with the pad token.

    The logits, [B, R, V], are the model's.
    """
    gained = jnp.take_along_axis(logits, chosen[..., None], axis=2)[..., 0]
    gained -= jax.nn.logsumexp(logits, axis=2)
    new = jnp.where(state.has_ended, rules.pad_token_id, chosen)
    is_eos = jnp.isin(chosen, jnp.array(rules.eos_token_ids, jnp.int32))
    return _Sequences(
        length=state.length + 1,
        tokens=state.tokens.at[:, :, state.length].set(new),
        lengths=state.lengths + ~state.has_ended,
        log_probs=state.log_probs + jnp.where(state.has_ended, 0.0, gained),
        has_ended=state.has_ended | is_eos,
    )


def _choose(
    scores: jax.Array, options: SearchOptions, keys: jax.Array | None, step: jax.Array
) -> jax.Array:
    """The next tokens, int32 [B, R], for scores [B, R, V] and keys [B, R]."""
    if not options.temperature:
        # XLA for CPUs takes ten times as long for `argmax`.
        return best_of_rows(scores, 1)[1][..., 0]
    if keys is None:
        raise ValueError("sampling needs keys")
    scores = keep_top_p(keep_top_k(scores / options.temperature, options.top_k), options.top_p)

    def draw(key: jax.Array, row: jax.Array) -> jax.Array:
        return jax.random.categorical(jax.random.fold_in(key, step), row)

    return jax.vmap(jax.vmap(draw))(keys, scores).astype(jnp.int32)


def keep_top_k(scores: jax.Array, top_k: int) -> jax.Array:
    """Scores [B, ..., V] with −inf for all but the k best, and those equal to the last of them."""
    if not top_k:
        return scores
    best, _ = best_of_rows(scores, min(top_k, scores.shape[-1]))
    return jnp.where(scores < best[..., -1:], -jnp.inf, scores)


def keep_top_p(scores: jax.Array, top_p: float) -> jax.Array:
    """Scores [..., V] with −inf for all but the fewest best whose probabilities add up to p.

    Equal scores are kept together; the best is always kept.
    """
    if top_p == 1:
        return scores
    probabilities = jax.nn.softmax(scores)
    # Bits of a positive float are ordered like the floats. Bisection for the least probability that
    # is kept costs 31 sums, on a CPU a tenth of sorting.
    bits = jax.lax.bitcast_convert_type(probabilities, jnp.int32)

    def halve(_: int, bounds: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        low, high = bounds
        middle = low + (high - low) // 2
        kept = jnp.where(bits >= middle, probabilities, 0.0)
        is_enough = jnp.sum(kept, axis=-1, keepdims=True) >= top_p
        return jnp.where(is_enough, middle, low), jnp.where(is_enough, high, middle)

    most = jnp.max(bits, axis=-1, keepdims=True)
    least, _ = jax.lax.fori_loop(0, 31, halve, (jnp.zeros_like(most), most + 1))
    return jnp.where(bits < least, -jnp.inf, scores)

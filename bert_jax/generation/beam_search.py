"""Beam search: K live sequences of a prompt, and the K best that have ended."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from bert_jax.generation.beam_rules import BeamRule, beam_rule
from bert_jax.generation.decoder import DecoderFunctions, Generated
from bert_jax.generation.next_token import TokenRules, apply_rules
from bert_jax.generation.options import SearchOptions
from bert_jax.generation.rows import best_of_rows
from bert_jax.generation.stages import advance_in_stages


class _Beams(NamedTuple):
    """State of the search after a number of tokens.

    Attributes:
        length: int32 [], number of new tokens of the live sequences.
        live_scores: [B, K], their log-probabilities, the best first; −inf for a missing one.
        live_tokens: int32 [B, K, M].
        parents: int32 [B, K], which of the K sequences each has continued.
        ended: the K best that have ended.
        is_open: bool [B], whether a live sequence can still become one of them.
    """

    length: jax.Array
    live_scores: jax.Array
    live_tokens: jax.Array
    parents: jax.Array
    ended: Generated
    is_open: jax.Array


def beam_search(
    decoder: DecoderFunctions,
    first_logits: jax.Array,
    cache: Any,
    prompt_ids: jax.Array,
    rules: TokenRules,
    options: SearchOptions,
) -> Generated:
    """The best sequences that K beams find; see `search`."""
    rows, beams = len(first_logits), options.num_beams
    rule = beam_rule(options)
    first_rows = jnp.arange(rows, dtype=jnp.int32)[:, None] * beams

    def extend(state: _Beams, logits: jax.Array) -> _Beams:
        scores = jax.nn.log_softmax(logits.astype(jnp.float32).reshape(rows, beams, -1))
        scores = apply_rules(rules, scores, prompt_ids, state.live_tokens, state.length)
        return _extend(state, scores, rules, rule)

    def advance(carry: tuple[_Beams, Any]) -> tuple[_Beams, Any]:
        state, cache = carry
        cache = decoder.reorder(cache, (first_rows + state.parents).reshape(-1))
        last = jax.lax.dynamic_index_in_dim(state.live_tokens, state.length - 1, 2, keepdims=False)
        logits, cache = decoder.step(cache, last.reshape(-1))
        return extend(state, logits), cache

    cache = decoder.reorder(cache, jnp.repeat(jnp.arange(rows, dtype=jnp.int32), beams))
    state = extend(_start(rows, rules, options), jnp.repeat(first_logits, beams, axis=0))
    state = advance_in_stages(
        decoder, advance, lambda state: jnp.any(state.is_open), state, cache, options.max_new_tokens
    )
    found = _live_where_none_ended(state) if rule.returns_live else state.ended
    return Generated(*(array[:, : options.num_return_sequences] for array in found))


def _start(rows: int, rules: TokenRules, options: SearchOptions) -> _Beams:
    """No tokens: one live sequence of each prompt, and none that has ended."""
    shape = (rows, options.num_beams)
    missing = jnp.full(shape, -jnp.inf)
    tokens = jnp.full((*shape, options.max_new_tokens), rules.pad_token_id, jnp.int32)
    zeros = jnp.zeros(shape, jnp.int32)
    return _Beams(
        length=jnp.int32(0),
        live_scores=missing.at[:, 0].set(0.0),
        live_tokens=tokens,
        parents=zeros,
        ended=Generated(tokens, zeros, missing),
        is_open=jnp.ones(rows, bool),
    )


def _extend(state: _Beams, scores: jax.Array, rules: TokenRules, rule: BeamRule) -> _Beams:
    """The beams with one more token, by the log-probabilities of the next ones, [B, K, V]."""
    rows, beams, vocabulary = scores.shape
    # Each beam may end with each end token; K others go on.
    candidates = min(max(2, 1 + len(rules.eos_token_ids)), vocabulary) * beams
    sums = (state.live_scores[..., None] + scores).reshape(rows, -1)
    best, indices = best_of_rows(sums, candidates)  # [B, J]
    parents, last = indices // vocabulary, indices % vocabulary
    length = state.length + 1
    is_eos = jnp.isin(last, jnp.array(rules.eos_token_ids, jnp.int32))

    ends = rule.may_end(is_eos, length) & (best > -jnp.inf) & state.is_open[:, None]
    ending = jnp.where(ends, rule.score(best, length), -jnp.inf)
    ended_scores, chosen = best_of_rows(jnp.concatenate([state.ended.scores, ending], 1), beams)
    # Of each of the K best: it has ended before, or it is a candidate.
    is_old, candidate = chosen < beams, jnp.maximum(chosen - beams, 0)
    sources = jnp.where(is_old, chosen, beams + _entries(parents, candidate))
    tokens = _entries(jnp.concatenate([state.ended.token_ids, state.live_tokens], 1), sources)
    new = jnp.where(is_old, rules.pad_token_id, _entries(last, candidate))
    ended = Generated(
        token_ids=tokens.at[:, :, state.length].set(new),
        lengths=jnp.where(is_old, _entries(state.ended.lengths, chosen), length),
        scores=ended_scores,
    )

    live_scores, chosen = best_of_rows(jnp.where(is_eos, -jnp.inf, best), beams)
    parents = _entries(parents, chosen)
    tokens = _entries(state.live_tokens, parents)
    return _Beams(
        length=length,
        live_scores=live_scores,
        live_tokens=tokens.at[:, :, state.length].set(_entries(last, chosen)),
        parents=parents,
        ended=ended,
        is_open=state.is_open & rule.can_improve(live_scores, ended.scores, length),
    )


def _live_where_none_ended(state: _Beams) -> Generated:
    """The sequences that have ended; of a prompt without any, the live ones."""
    live = Generated(
        token_ids=state.live_tokens,
        lengths=jnp.where(state.live_scores > -jnp.inf, state.length, 0),
        scores=state.live_scores,
    )
    none_ended = state.ended.lengths[:, 0] == 0
    pairs = zip(live, state.ended, strict=True)
    return Generated(*(jax.vmap(jnp.where)(none_ended, *pair) for pair in pairs))


def _entries(array: jax.Array, indices: jax.Array) -> jax.Array:
    """Entries [B, K, ...] of an array [B, J, ...] at indices [B, K]."""
    return jax.vmap(lambda row, chosen: row[chosen])(array, indices)

"""Which tokens may come next, and how their scores change.

Numerics and order of transformers 5 (`generation/logits_process.py`, `_get_logits_processor`).
"""

import dataclasses
import functools
from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np

from bert_jax.errors import INT32_MAX, OptionError, require_at_least
from bert_jax.generation.decoder import NO_TOKEN
from bert_jax.generation.options import check_ranges


@dataclasses.dataclass(frozen=True)
class TokenRules:
    """Rules for the next token; what transformers has as well is called the same.

    Attributes:
        eos_token_ids: tokens that end a sequence; none: all have `max_new_tokens`.
        pad_token_id: what follows the end.
        vocab_size: number of tokens of the tokenizer; higher ids, which pad the model's table, are
            never chosen. None: all V.
        repetition_penalty: a score of a token that the prompt or the sequence contains is divided
            by it if it is positive, else multiplied.
        no_repeat_ngram_size: n of n-grams that occur once at most in the prompt and the sequence;
            0: no such rule.
        bad_token_ids: tokens that are not chosen unless they are forced.
        min_length: minimum number of tokens of prompt and sequence before the end.
        min_new_tokens: minimum number of tokens before the end; replaces `min_length`.
        forced_bos_token_id: the second token of all, after a prompt of one token.
        forced_eos_token_ids: what the last token, number `max_new_tokens`, is chosen from.
        suppress_tokens: tokens that are never chosen.
        begin_suppress_tokens: tokens that are not chosen first (after the forced one).
        renormalize_logits: whether scores become log-probabilities again at the end.
    """

    eos_token_ids: tuple[int, ...] = ()
    pad_token_id: int = 0
    vocab_size: int | None = None
    repetition_penalty: float = 1.0
    no_repeat_ngram_size: int = 0
    bad_token_ids: tuple[int, ...] = ()
    min_length: int = 0
    min_new_tokens: int | None = None
    forced_bos_token_id: int | None = None
    forced_eos_token_ids: tuple[int, ...] = ()
    suppress_tokens: tuple[int, ...] = ()
    begin_suppress_tokens: tuple[int, ...] = ()
    renormalize_logits: bool = False

    def __post_init__(self) -> None:
        self._check_tokens()
        check_ranges(vars(self))
        require_at_least("vocab_size", self.vocab_size, 1)
        if not isinstance(self.renormalize_logits, bool):
            rule = "it must be true or false"
            raise OptionError("renormalize_logits", self.renormalize_logits, rule)

    def check_vocabulary(self, size: int) -> None:
        """Checks that the model has the tokens.

        Args:
            size: V, the number of tokens of the model.

        Raises:
            OptionError: it lacks one, so that a rule would have no effect.
        """
        self._check_tokens(size - 1)
        if self.vocab_size is not None and self.vocab_size > size:
            raise OptionError("vocab_size", self.vocab_size, f"the model has {size} tokens")

    def _check_tokens(self, most: int = INT32_MAX) -> None:
        for name, value in vars(self).items():
            for number in value if isinstance(value, tuple) else ():
                require_at_least(name, number, 0, most)
        # The end of a sequence can be its padding, too, and is named before it.
        require_at_least("pad_token_id", self.pad_token_id, 0, most)
        require_at_least("forced_bos_token_id", self.forced_bos_token_id, 0, most)


def apply_rules(
    rules: TokenRules,
    scores: jax.Array,
    prompt_ids: jax.Array,
    tokens: jax.Array,
    step: jax.Array | int,
) -> jax.Array:
    """Scores of the next token under the rules; what may not be chosen has −inf.

    Args:
        rules: the rules.
        scores: float32 [B, K, V], logits or log-probabilities.
        prompt_ids: int32 [B, P], see `search`.
        tokens: int32 [B, K, M], the new tokens so far.
        step: their number.
    """
    row = functools.partial(_apply_to_row, rules, step)
    return jax.vmap(jax.vmap(row, (0, None, 0)))(scores, prompt_ids, tokens)


def _apply_to_row(
    rules: TokenRules,
    step: jax.Array | int,
    scores: jax.Array,
    prompt: jax.Array,
    tokens: jax.Array,
) -> jax.Array:
    """Scores [V] under the rules, after a prompt [P] and the first tokens of [M]."""
    new = jnp.where(jnp.arange(len(tokens)) < step, tokens, NO_TOKEN)
    history = jnp.concatenate([prompt, new])
    prompt_length = jnp.sum(prompt != NO_TOKEN)
    length = prompt_length + step
    if rules.repetition_penalty != 1:
        penalty = rules.repetition_penalty
        penalized = jnp.where(scores < 0, scores * penalty, scores / penalty)
        scores = jnp.where(_one_of(history, len(scores)), penalized, scores)
    if 0 < rules.no_repeat_ngram_size <= len(history):
        position = len(prompt) + step
        completes = _completing(history, position, rules.no_repeat_ngram_size, len(scores))
        scores = jnp.where(completes & (length >= rules.no_repeat_ngram_size), -jnp.inf, scores)
    if rules.vocab_size is not None:
        scores = jnp.where(np.arange(len(scores)) < rules.vocab_size, scores, -jnp.inf)
    # As in transformers, an end token is not a bad one.
    bad = set(rules.bad_token_ids).difference(rules.eos_token_ids)
    scores = _without(scores, sorted(bad))
    if rules.min_new_tokens is None:
        scores = _without(scores, rules.eos_token_ids, length < rules.min_length)
    else:
        scores = _without(scores, rules.eos_token_ids, step < rules.min_new_tokens)
    begin = jnp.int32(0)
    if rules.forced_bos_token_id is not None:
        scores = _only(scores, (rules.forced_bos_token_id,), length == 1)
        begin = jnp.where(prompt_length > 1, 0, 1)
    if rules.forced_eos_token_ids:
        scores = _only(scores, rules.forced_eos_token_ids, step == len(tokens) - 1)
    scores = _without(scores, rules.suppress_tokens)
    scores = _without(scores, rules.begin_suppress_tokens, step == begin)
    return jax.nn.log_softmax(scores) if rules.renormalize_logits else scores


def _one_of(ids: jax.Array, size: int) -> jax.Array:
    """Which of V tokens are among some ids or `NO_TOKEN`: bool [V]."""
    outside = jnp.where(ids == NO_TOKEN, size, ids)
    return jnp.zeros(size, bool).at[outside].set(True, mode="drop")


def _completing(
    history: jax.Array, position: jax.Array | int, size: int, vocabulary: int
) -> jax.Array:
    """Which of V tokens at a position would repeat `size` earlier tokens: bool [V]."""
    start = position + 1 - size
    prefix = jax.lax.dynamic_slice(history, (start,), (size - 1,))
    ngrams = history[np.arange(len(history) - size + 1)[:, None] + np.arange(size)]
    matches = jnp.all(ngrams[:, :-1] == prefix, axis=1)
    return _one_of(jnp.where(matches, ngrams[:, -1], NO_TOKEN), vocabulary)


def _without(
    scores: jax.Array, ids: Sequence[int], condition: jax.Array | bool = True
) -> jax.Array:
    """Scores [V] without some tokens, under a condition."""
    return jnp.where(_members(ids, scores) & condition, -jnp.inf, scores) if ids else scores


def _only(scores: jax.Array, ids: Sequence[int], condition: jax.Array | bool) -> jax.Array:
    """Scores [V] with 0 for some tokens and nothing else, under a condition."""
    return jnp.where(condition, jnp.where(_members(ids, scores), 0.0, -jnp.inf), scores)


def _members(ids: Sequence[int], scores: jax.Array) -> np.ndarray:
    """Which of V tokens are among fixed ids: bool [V]."""
    return np.isin(np.arange(len(scores)), ids)

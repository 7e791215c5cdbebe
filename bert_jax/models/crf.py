"""A linear-chain conditional random field over the words of a sentence (Lafferty et al., 2001).

A path of tags y through W words scores

    start[y_0] + Σ_t emissions[t, y_t] + Σ_t transitions[y_(t-1), y_t] + end[y_(W-1)]

and its probability is the exponential of the score, divided by the partition function, the sum over
all paths.
Everything is computed with logarithms, in float32, and can be compiled and differentiated.
"""

from collections.abc import Mapping
from typing import NamedTuple

import jax
import jax.numpy as jnp

# The score of a forbidden transition. Not -inf, since differences of -inf are undefined.
IMPOSSIBLE = -1e9

PARAMETERS = ("crf_transitions", "crf_start", "crf_end")
"""Their names in a model, in the order of `CRFParams`."""


class CRFParams(NamedTuple):
    """The transition scores.

    Attributes:
        transitions: float32 [C, C], score of a tag (axis 0) followed by a tag (axis 1).
        start: float32 [C] or [B, C], score of the first tag.
        end: float32 [C] or [B, C], score of the last tag.
    """

    transitions: jax.Array
    start: jax.Array
    end: jax.Array

    @classmethod
    def from_params(cls, params: Mapping[str, jax.Array]) -> "CRFParams":
        """The scores from the parameters of a model with `use_crf`."""
        return cls(*(params[name] for name in PARAMETERS))

    def between(self, before: jax.Array, after: jax.Array) -> "CRFParams":
        """The scores for parts of sentences, conditioned on the neighbouring tags.

        Args:
            before: int32 [B], tag of the word before each part; -1: the part begins its sentence.
            after: int32 [B], tag of the word after each part; -1: the part ends its sentence.

        Returns:
            Scores with `start` and `end` [B, C].
        """
        from_before = self.transitions[before.clip(0)]  # BC
        to_after = self.transitions[:, after.clip(0)].T  # BC
        return CRFParams(
            self.transitions,
            jnp.where(before[:, None] < 0, self.start, from_before),
            jnp.where(after[:, None] < 0, self.end, to_after),
        )


def log_likelihood(
    emissions: jax.Array, tags: jax.Array, mask: jax.Array, crf: CRFParams
) -> jax.Array:
    """The log probability of tags.

    Args:
        emissions: float32 [B, W, C].
        tags: int32 [B, W]; ignored outside the mask.
        mask: bool [B, W], True for the words of each row and False for the padding after them.
        crf: transition scores.

    Returns:
        float32 [B]; 0 for a row without words.
    """
    tags = jnp.where(mask, tags, 0)
    rows = emissions[:, 0].shape  # BC
    start, end = (jnp.broadcast_to(scores, rows) for scores in (crf.start, crf.end))
    emitted = jnp.take_along_axis(emissions, tags[..., None], axis=-1)[..., 0]  # BW
    steps = crf.transitions[tags[:, :-1], tags[:, 1:]]  # B(W-1)
    first = jnp.take_along_axis(start, tags[:, :1], axis=1)  # B1
    last = jnp.maximum(mask.sum(axis=1) - 1, 0)[:, None]  # B1
    at_end = jnp.take_along_axis(end, jnp.take_along_axis(tags, last, axis=1), axis=1)  # B1
    by_word = jnp.where(mask, emitted + jnp.concatenate([first, steps], axis=1), 0)
    scores = jnp.concatenate([by_word, at_end], axis=1)
    # Word by word, since the sums of long sentences are large and their difference is small.
    return jnp.where(mask[:, 0], (scores - log_partition_parts(emissions, mask, crf)).sum(1), 0)


def log_partition_parts(emissions: jax.Array, mask: jax.Array, crf: CRFParams) -> jax.Array:
    """The summands of the log partition function: of each word and of the end, float32 [B, W + 1].

    The forward algorithm, normalised at every word: its numbers stay small for sentences of any
    length.
    """

    # alpha [B, C]: the log probability of each tag of the latest word, given the words so far.
    def step(alpha: jax.Array, word: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        emission, is_word = word
        reached = alpha[:, :, None] + crf.transitions  # BCC
        onward, added = _normalise(jax.nn.logsumexp(reached, axis=1) + emission)
        return jnp.where(is_word[:, None], onward, alpha), jnp.where(is_word, added, 0)

    alpha, first = _normalise(crf.start + emissions[:, 0])
    alpha, added = jax.lax.scan(step, alpha, _words_after_first(emissions, mask))  # BC and (W-1)B
    last = jax.nn.logsumexp(alpha + crf.end, axis=-1)
    return jnp.concatenate([first[:, None], added.T, last[:, None]], axis=1)


def _normalise(scores: jax.Array) -> tuple[jax.Array, jax.Array]:
    """float32 [B, C] → log probabilities, and the logarithm of the sum, float32 [B]."""
    total = jax.nn.logsumexp(scores, axis=-1)
    return scores - total[:, None], total


def viterbi(emissions: jax.Array, mask: jax.Array, crf: CRFParams) -> jax.Array:
    """The most probable path of each row, int32 [B, W]; 0 outside the mask.

    Of equally probable paths, the one with the lower tag at the last word where they differ.
    """

    # best [B, C]: the score of the best path that ends in each tag, up to a constant of the row.
    def step(best: jax.Array, word: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        emission, is_word = word
        reached = best[:, :, None] + crf.transitions  # BCC
        onward = reached.max(axis=1) + emission
        onward -= onward.max(axis=-1, keepdims=True)  # otherwise long sentences overflow float32
        # Padding passes the scores on: the best predecessor of every tag is the tag itself.
        stay = jnp.broadcast_to(jnp.arange(best.shape[1]), best.shape)
        origin = jnp.where(is_word[:, None], reached.argmax(axis=1), stay)
        return jnp.where(is_word[:, None], onward, best), origin

    best, origins = jax.lax.scan(
        step, crf.start + emissions[:, 0], _words_after_first(emissions, mask)
    )  # BC and (W-1)BC
    last = (best + crf.end).argmax(axis=-1)  # B

    # From the last word to the first, each tag points to its best predecessor.
    def back(tag: jax.Array, origin: jax.Array) -> tuple[jax.Array, jax.Array]:
        before = jnp.take_along_axis(origin, tag[:, None], axis=1)[:, 0]
        return before, tag

    first, others = jax.lax.scan(back, last, origins, reverse=True)  # B and (W-1)B
    path = jnp.concatenate([first[:, None], others.T], axis=1)
    return jnp.where(mask, path, 0).astype(jnp.int32)


def marginals(emissions: jax.Array, mask: jax.Array, crf: CRFParams) -> jax.Array:
    """The marginal probability of each tag of each word, float32 [B, W, C]; 0 outside the mask.

    These are the derivatives of the log partition function, but the forward-backward algorithm
    needs B·W·C values, automatic differentiation B·W·C².
    """

    # alpha covers the words up to here, beta the words after here, both log [B, C] up to a constant
    # of the row; so the softmax of their sum is the probability of each tag.
    def forward(alpha: jax.Array, word: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        emission, is_word = word
        reached = jax.nn.logsumexp(alpha[:, :, None] + crf.transitions, axis=1)  # BC
        onward, _ = _normalise(reached + emission)
        alpha = jnp.where(is_word[:, None], onward, alpha)
        return alpha, alpha

    def backward(beta: jax.Array, word: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        emission, is_word = word
        left = jax.nn.logsumexp(crf.transitions + (emission + beta)[:, None, :], axis=2)  # BC
        before, _ = _normalise(left)
        return jnp.where(is_word[:, None], before, beta), beta

    words = _words_after_first(emissions, mask)
    first, _ = _normalise(crf.start + emissions[:, 0])
    _, alphas = jax.lax.scan(forward, first, words)  # (W-1)BC
    end = jnp.broadcast_to(crf.end, first.shape)
    beta_of_first, betas = jax.lax.scan(backward, end, words, reverse=True)  # BC and (W-1)BC
    by_word = jnp.concatenate([(first + beta_of_first)[None], alphas + betas])  # WBC
    return jnp.where(mask[..., None], jax.nn.softmax(by_word.swapaxes(0, 1), axis=-1), 0)


def _words_after_first(emissions: jax.Array, mask: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Emissions and mask of all words but the first, with the word axis first."""
    return emissions[:, 1:].swapaxes(0, 1), mask[:, 1:].T

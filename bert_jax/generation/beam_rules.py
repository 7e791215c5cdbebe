"""Length penalties of a beam search, and when it stops: as in transformers and in Flax's wmt."""

import abc
import dataclasses

import jax
import jax.numpy as jnp

from bert_jax.generation.options import NEVER, TRANSFORMERS, WMT, SearchOptions


@dataclasses.dataclass(frozen=True)
class BeamRule(abc.ABC):
    """What the two beam searches do not share.

    Attributes:
        options: options of the search.
        returns_live: whether the live sequences are the result where none has ended.
    """

    options: SearchOptions
    returns_live = False

    @abc.abstractmethod
    def score(self, log_probs: jax.Array, lengths: jax.Array | int) -> jax.Array:
        """The scores of sequences with these log-probabilities and numbers of new tokens."""

    @abc.abstractmethod
    def may_end(self, is_eos: jax.Array, length: jax.Array | int) -> jax.Array:
        """Which of J candidates, the best first, are ended sequences: bool [B, J].

        Args:
            is_eos: bool [B, J], whether the last token is an end token.
            length: number of new tokens.
        """

    @abc.abstractmethod
    def can_improve(self, live: jax.Array, ended: jax.Array, length: jax.Array | int) -> jax.Array:
        """Which searches go on: bool [B].

        Args:
            live: [B, K], log-probabilities of the live sequences, the best first.
            ended: [B, K], scores of the ended ones, the best first; −inf for a missing one.
            length: number of new tokens of the live ones.
        """


class TransformersRule(BeamRule):
    """The score is logp / l^α; a sequence of the largest length has ended with any token.

    Source: transformers 5, `generation/utils.py`, `_beam_search`.
    """

    def score(self, log_probs: jax.Array, lengths: jax.Array | int) -> jax.Array:
        return log_probs / jnp.float32(lengths) ** self.options.length_penalty

    def may_end(self, is_eos: jax.Array, length: jax.Array | int) -> jax.Array:
        # The other candidates are there so that K of them go on.
        is_best = jnp.arange(is_eos.shape[1]) < self.options.num_beams
        return (is_eos | (length == self.options.max_new_tokens)) & is_best

    def can_improve(self, live: jax.Array, ended: jax.Array, length: jax.Array | int) -> jax.Array:
        options = self.options
        # Where longer sequences have better scores, only "never" looks at the best possible one.
        is_exact = options.early_stopping == NEVER and options.length_penalty > 0
        best = self.score(live[:, 0], options.max_new_tokens if is_exact else length)
        worst = ended[:, -1]
        improves = best > worst
        return improves & (worst == -jnp.inf) if options.early_stopping is True else improves


class WmtRule(BeamRule):
    """The score is logp / ((5 + l) / 6)^α; only an end token ends a sequence.

    Source: Flax, `examples/wmt/decode.py`; Wu et al., 2016 (https://arxiv.org/abs/1609.08144).
    """

    returns_live = True

    def score(self, log_probs: jax.Array, lengths: jax.Array | int) -> jax.Array:
        return log_probs / ((5 + jnp.float32(lengths)) / 6) ** self.options.length_penalty

    def may_end(self, is_eos: jax.Array, length: jax.Array | int) -> jax.Array:
        return is_eos

    def can_improve(self, live: jax.Array, ended: jax.Array, length: jax.Array | int) -> jax.Array:
        # The largest length of the example counts the first token, which it does not generate.
        return self.score(live[:, 0], self.options.max_new_tokens + 1) >= ended[:, -1]


def beam_rule(options: SearchOptions) -> BeamRule:
    """The rule that the options name."""
    return {TRANSFORMERS: TransformersRule, WMT: WmtRule}[options.penalty](options)

"""The attention of a recurrent decoder to the outputs of the encoder, after all its layers.

For an output s_t of the decoder and the outputs h_1 … h_S of the encoder:

    score(s, h)    dot        s · h
                   general    s · W h
                   additive   v · tanh(W s + U h)
    a_t            Σ_i α_i h_i, α = softmax of the scores over i
    output         tanh(W a_t + U s_t)

This is the global attention of Luong et al. (2015, https://arxiv.org/abs/1508.04025, section 3.1),
without input feeding: no step waits for the attention of the one before. The additive score is that
of Bahdanau et al. (2015, https://arxiv.org/abs/1409.0473, section 3.1), who attend with the state
before the step, and give a_t to the recurrent layer instead of combining it with s_t.
"""

import dataclasses

import flax.linen as nn
import jax
import jax.numpy as jnp

from bert_jax.models.attention_inputs import MASK_VALUE, AttentionMask
from bert_jax.models.config import EncoderConfig
from bert_jax.models.decoding import EncoderMemory
from bert_jax.models.execution import Execution
from bert_jax.models.layers import Dense, dense

SCORES = ("dot", "general", "additive")


class DecoderAttention(nn.Module):
    """One head, whose keys and values are the outputs of the encoder as they are.

    Attributes:
        config: architecture of the model.
        execution: how it is computed.
        score: one of `SCORES`.
    """

    config: EncoderConfig
    execution: Execution
    score: str

    @nn.compact
    def __call__(
        self, hidden: jax.Array, mask: AttentionMask, memory: EncoderMemory
    ) -> tuple[jax.Array, jax.Array]:
        """[B, T, D] → the outputs [B, T, D], and the weights α, float32 [B, T, S].

        Args:
            hidden: s, outputs of the decoder; consecutive rows, such as beams, may share a row of
                the memory.
            mask: mask of the T tokens.
            memory: h, [B, S, D], with the mask of its S tokens: padding has the weight 0.
        """
        keys = memory.hidden
        assert keys is not None
        shape, rows = hidden.shape, len(keys)
        mask = memory.mask(mask)
        if rows < len(hidden):
            mask = dataclasses.replace(mask, query_ids=mask.query_ids[:: len(hidden) // rows])
        states = hidden.reshape(rows, -1, shape[-1])
        scores = self._scores(states, keys).astype(jnp.float32)
        weights = jax.nn.softmax(jnp.where(mask.visible, scores, MASK_VALUE))  # BTS
        attended = jnp.einsum("BTS,BSD->BTD", weights.astype(keys.dtype), keys)
        both = jnp.concatenate([attended, states], axis=-1)
        output = jnp.tanh(self._dense(shape[-1], "combination")(both))
        return output.reshape(shape), weights.reshape(*shape[:2], -1)

    def _scores(self, states: jax.Array, keys: jax.Array) -> jax.Array:
        """[B, T, D] and [B, S, D] → [B, T, S]."""
        if self.score == "additive":
            query, key = (self._dense(states.shape[-1], name) for name in ("query", "key"))
            sums = jnp.tanh(query(states)[:, :, None] + key(keys)[:, None])  # BTSD
            return self._dense(1, "score")(sums)[..., 0]
        if self.score == "general":
            keys = self._dense(states.shape[-1], "key")(keys)
        return jnp.einsum("BTD,BSD->BTS", states, keys)

    def _dense(self, features: int, name: str) -> Dense:
        return dense(self.config, self.execution, features, name, use_bias=False)


def attention_flops(score: str, width: int, length: float) -> tuple[float, float]:
    """FLOPs for each token of a source and for each token of its target, in a forward pass.

    Args:
        score: one of `SCORES`.
        width: D.
        length: S, the number of tokens of the source.
    """
    source_flops = 0.0 if score == "dot" else 2.0 * width**2
    query_flops = 2.0 * width**2 if score == "additive" else 0.0
    return source_flops, query_flops + 4 * width * length + 4 * width**2

"""Multi-head attention (Vaswani et al., 2017, section 3.2).

`models.kernels.definition` has the formula. `Attention` makes queries, keys and values, and selects
the kernel that computes it.
"""

import flax.linen as nn
import jax
from flax import struct

from bert_jax.models.attention_inputs import AttentionInputs, AttentionMask
from bert_jax.models.config import EncoderConfig
from bert_jax.models.dropout import dropout_key_of
from bert_jax.models.execution import Execution
from bert_jax.models.kernels.table import select_kernel
from bert_jax.models.key_value_cache import KeyValueCache
from bert_jax.models.layers import dense
from bert_jax.models.packed_rows import Tokens


@struct.dataclass
class Memory:
    """What cross-attention attends to: the output of an encoder.

    Attributes:
        hidden: [B, S, D].
        tokens: its S tokens.
    """

    hidden: jax.Array
    tokens: Tokens


@struct.dataclass
class AttentionOutput:
    """What attention returns.

    Attributes:
        hidden: [B, T, D].
        inputs: Q, K, V and the mask.
        cache: the cache with the T tokens; None without one.
    """

    hidden: jax.Array
    inputs: AttentionInputs
    cache: KeyValueCache | None


class Attention(nn.Module):
    """N heads that attend to all tokens, and the projection of their outputs back to D.

    Keys and values are made of the same input as the queries, or of a memory. In a bottleneck,
    queries and keys are made of a narrow input of width D, and so is the output; the values are
    made of another input.
    """

    config: EncoderConfig
    execution: Execution

    @nn.compact
    def __call__(
        self,
        hidden: jax.Array,
        tokens: Tokens,
        *,
        deterministic: bool,
        output_attentions: bool = False,
        value_input: jax.Array | None = None,
        memory: Memory | None = None,
        cache: KeyValueCache | None = None,
    ) -> AttentionOutput:
        """[B, T, D] → [B, T, D].

        Args:
            hidden: input of queries and keys.
            tokens: the T tokens, and which of them see each other.
            deterministic: False for training, with dropout.
            output_attentions: whether the weights are requested, see `layer_outputs`; some
                kernels do not compute the same ones.
            value_input: input of the values; None: the input of the keys.
            memory: input of keys and values in cross-attention.
            cache: keys and values of the tokens before these; attention is then causal. Not with a
                memory, which would be appended to it.
        """
        assert memory is None or cache is None
        config, execution = self.config, self.execution
        heads = (config.num_attention_heads, config.head_dim)
        mask, key_input = tokens.mask, hidden
        if memory is not None:
            key_input, keys = memory.hidden, memory.tokens.mask
            mask = AttentionMask(mask.query_ids, keys.key_ids, keys.key_positions)
        # Heads before tokens: a batch of matrix products is fast on every platform.
        query, key, value = (
            dense(config, execution, heads, name)(source).swapaxes(1, 2)  # BNTH
            for name, source in (
                ("query", hidden),
                ("key", key_input),
                ("value", key_input if value_input is None else value_input),
            )
        )
        if cache is not None:
            cache = cache.append(key, value, mask.key_ids)
            key, value, mask = cache.key, cache.value, cache.mask(tokens)

        rate = 0.0 if deterministic else config.attention_probs_dropout_prob
        inputs = AttentionInputs(
            query,
            key,
            value,
            mask.for_heads(),
            config.attention_scale,
            dropout=tokens.dropout(dropout_key_of(self), heads[0], rate) if rate else None,
        )
        kernel = select_kernel(
            execution.attention,
            execution.platform or jax.default_backend(),
            inputs,
            output_attentions=output_attentions,
        )
        attended = kernel.function(inputs).swapaxes(1, 2)  # BTNH
        output = dense(config, execution, hidden.shape[-1], "output", axes=2)(attended)
        return AttentionOutput(output, inputs, cache)

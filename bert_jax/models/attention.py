"""Multi-head attention (Vaswani et al., 2017, section 3.2).

`models.kernels.definition` has the formula. `Attention` projects its input to queries, keys and
values, and selects the kernel that computes the formula.
"""

import flax.linen as nn
import jax
from flax import struct

from bert_jax.models.attention_inputs import AttentionInputs
from bert_jax.models.config import EncoderConfig
from bert_jax.models.decoding import EncoderMemory, KeyValueCache
from bert_jax.models.dropout import dropout_key_of
from bert_jax.models.execution import Execution
from bert_jax.models.kernels import select_kernel
from bert_jax.models.layers import dense
from bert_jax.models.packed_rows import Tokens


@struct.dataclass
class AttentionOutput:
    """The result of attention.

    Attributes:
        hidden: [B, T, D].
        inputs: Q, K, V and the mask.
        cache: the cache with the T tokens; None without one.
    """

    hidden: jax.Array
    inputs: AttentionInputs
    cache: KeyValueCache | None


class Attention(nn.Module):
    """N heads, and the projection of their outputs back to D.

    Keys and values are projections of the input of the queries, or of a memory. In a bottleneck the
    input of queries and keys, and the output, are narrower than the input of the values.
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
        memory: EncoderMemory | None = None,
        cache: KeyValueCache | None = None,
    ) -> AttentionOutput:
        """[B, T, D] → [B, T, D].

        Args:
            hidden: input of queries and keys.
            tokens: the T tokens with their mask.
            deterministic: False for training, with dropout.
            output_attentions: whether the weights are requested, see `RequestedOutputs`; some
                kernels have other rounding.
            value_input: input of the values; None: the input of the keys.
            memory: input of keys and values in cross-attention; all its tokens are visible.
            cache: keys and values of earlier tokens; attention is then causal. Not with a memory,
                which would be appended to it.

        Raises:
            ValueError: there are a memory and a cache.
        """
        if memory is not None and cache is not None:
            raise ValueError("attention to a memory has no cache; leave it out")
        config, execution = self.config, self.execution
        heads = (config.num_attention_heads, config.head_dim)
        mask, key_input = tokens.mask, hidden
        if memory is not None:
            key_input, mask = memory.hidden, memory.mask(mask)
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
            key, value, mask = cache.key, cache.value, cache.mask(mask)

        rate = 0.0 if deterministic else config.attention_probs_dropout_prob
        inputs = AttentionInputs(
            query,
            key,
            value,
            mask.for_heads(),
            config.attention_scale,
            bias=tokens.bias if memory is None else None,
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

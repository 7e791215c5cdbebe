"""Multi-head attention (Vaswani et al., 2017, section 3.2).

`models.kernels.definition` has the formula. `Attention` projects its input to queries, keys and
values, and selects the kernel that computes the formula. The types of its arguments:

EncoderConfig    sizes and switches of the architecture, as in `config.json`
Execution        how it is computed: dtype, kernel; the result is the same up to rounding
Tokens           of the rows, the same for all layers: mask (`AttentionMask`), positions, dropout
AttentionInputs  what a kernel takes: Q, K, V, mask, scale, bias, dropout
EncoderMemory    output of an encoder, for the cross-attention of a decoder
KeyValueCache    keys and values of the tokens that a decoder has read; MemoryKeyValues: of a memory

BERT is self-attention: it has neither memory nor cache.
"""

import dataclasses
from collections.abc import Callable

import flax.linen as nn
import jax
import jax.numpy as jnp
from flax import struct

from bert_jax.models.attention_inputs import AttentionInputs
from bert_jax.models.config import EncoderConfig
from bert_jax.models.decoding import EncoderMemory, KeyValueCache, MemoryKeyValues
from bert_jax.models.disentangled_attention import PositionScores
from bert_jax.models.dropout import dropout_key_of
from bert_jax.models.execution import Execution
from bert_jax.models.global_tokens import GlobalHeads, attend_with_global_tokens
from bert_jax.models.kernels import select_kernel
from bert_jax.models.layers import dense
from bert_jax.models.local_attention import attend_in_blocks
from bert_jax.models.packed_rows import Tokens
from bert_jax.models.rotary_positions import rotated


@struct.dataclass
class AttentionOutput:
    """The result of attention.

    Attributes:
        hidden: [B, T, D].
        inputs: Q, K, V and the mask.
        cache: the cache with the T tokens; None without one, or with a memory.
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
        cache: KeyValueCache | MemoryKeyValues | None = None,
        number: jax.Array | None = None,
        global_heads: GlobalHeads | None = None,
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
            cache: keys and values of earlier tokens; attention is then causal. Or those of the
                memory, where they were computed before.
            number: number of the layer, from 0, int32 []; None: all keys are seen.
            global_heads: of global tokens, where the model has such heads.
        """
        config, execution = self.config, self.execution
        heads = (config.num_attention_heads, config.head_dim)
        mask, key_input = tokens.mask, hidden
        if memory is not None:
            mask = memory.mask(mask)
            key_input = hidden if memory.hidden is None else memory.hidden

        has_biases = config.has_biases and config.qkv_bias
        layers = {
            name: dense(config, execution, heads, name, use_bias=has_biases)
            for name in ("query", "key", "value")
        }

        def project(name: str, source: jax.Array) -> jax.Array:
            # Heads before tokens: a batch of matrix products is fast on every platform.
            projected = layers[name](source).swapaxes(1, 2)  # BNTH
            if name == "value" or memory is not None or tokens.rotations is None:
                return projected
            is_global = config.is_global(number) if config.has_rotations_by_layer else None
            return rotated(projected, tokens.rotations, is_global)

        if isinstance(cache, MemoryKeyValues):
            key, value = cache.key, cache.value
        else:
            key = project("key", key_input)
            value = project("value", key_input if value_input is None else value_input)
        if isinstance(cache, KeyValueCache):
            cache = cache.append(key, value, mask.key_ids)
            key, value, mask = cache.key, cache.value, cache.mask(mask)
        else:
            cache = None
        # Consecutive rows, such as beams, that share a row of a memory become one row.
        query = project("query", hidden.reshape(len(key), -1, hidden.shape[-1]))
        if len(key) < len(hidden):
            mask = dataclasses.replace(mask, query_ids=mask.query_ids[:: len(hidden) // len(key)])

        bias = tokens.bias if memory is None else None
        if tokens.relative is not None:
            bias = PositionScores(config, execution, name="positions")(
                query, key, tokens.relative, layers, deterministic
            )
        rate = 0.0 if deterministic else config.attention_probs_dropout_prob
        inputs = AttentionInputs(
            query,
            key,
            value,
            mask.for_heads(),
            config.attention_scale,
            bias=bias,
            dropout=tokens.dropout(dropout_key_of(self), heads[0], rate) if rate else None,
        )

        def attend(inputs: AttentionInputs) -> jax.Array:
            kernel = select_kernel(
                execution.attention,
                execution.platform or jax.default_backend(),
                inputs,
                output_attentions=output_attentions,
            )
            return kernel.function(inputs)

        def within(window: int | None) -> Callable[[AttentionInputs], jax.Array]:
            def attend_near(inputs: AttentionInputs) -> jax.Array:
                assert window is not None
                inputs = dataclasses.replace(inputs, mask=inputs.mask.within(window))
                if global_heads is None or tokens.global_tokens is None:
                    return attend_in_blocks(attend, inputs)
                return attend_with_global_tokens(attend, inputs, global_heads, tokens.global_tokens)

            return attend if window is None else attend_near

        windows = config.windows if number is not None else (None,)
        kinds = tuple(dict.fromkeys(windows))
        if len(kinds) == 1:
            attended = within(kinds[0])(inputs)
        else:
            kind = jnp.array([kinds.index(window) for window in windows])[number]
            attended = jax.lax.switch(kind, [within(window) for window in kinds], inputs)
        if global_heads is not None:  # the padding of Longformer sees nothing
            attended = jnp.where(inputs.mask.key_ids[..., None] > 0, attended, 0)
        attended = attended.swapaxes(1, 2).reshape(*hidden.shape[:2], *heads)
        output = dense(
            config, execution, hidden.shape[-1], "output", axes=2, use_bias=config.has_biases
        )(attended)
        return AttentionOutput(output, inputs, cache)

"""A layer of the encoder (Vaswani et al., 2017, section 3.1)."""

import flax.linen as nn
import jax

from bert_jax.models.activations import ACTIVATIONS
from bert_jax.models.attention import Attention
from bert_jax.models.config import EncoderConfig
from bert_jax.models.dropout import Dropout
from bert_jax.models.execution import Execution
from bert_jax.models.key_value_cache import KeyValueCache
from bert_jax.models.layer_outputs import EncoderOutputs, LayerValues
from bert_jax.models.layers import HIDDEN_AXES, dense, norm
from bert_jax.models.packed_rows import Tokens


class TransformerLayer(nn.Module):
    """Attention, then feed-forward; each: sub-layer → dropout → residual sum → LayerNorm."""

    config: EncoderConfig
    execution: Execution

    @nn.compact
    def __call__(
        self,
        hidden: jax.Array,
        cache: KeyValueCache | None,
        tokens: Tokens,
        deterministic: bool,
        outputs: EncoderOutputs,
    ) -> tuple[jax.Array, LayerValues]:
        """[B, T, D] → [B, T, D], and values that `nn.scan` stacks to [L, ...]."""
        config, execution = self.config, self.execution
        # The scope is named after the class, and so are the random keys derived from it.
        dropout = Dropout(config.hidden_dropout_prob)

        attention = Attention(config, execution, name="attention")(
            hidden,
            tokens,
            deterministic=deterministic,
            output_attentions=outputs.output_attentions,
            cache=cache,
        )
        attended = attention.hidden
        if config.attention_output_dropout:
            attended = dropout(attended, tokens.indices, deterministic=deterministic)
        hidden = norm(config, execution, "attention_norm")(hidden + attended)

        inner = dense(config, execution, config.intermediate_size, "intermediate")(hidden)  # BTF
        inner = ACTIVATIONS[config.hidden_act](inner)
        outer = dense(config, execution, config.hidden_size, "output")(inner)  # BTD
        if config.feed_forward_dropout:
            outer = dropout(outer, tokens.indices, deterministic=deterministic)
        hidden = norm(config, execution, "output_norm")(hidden + outer)
        hidden = nn.with_logical_constraint(hidden, HIDDEN_AXES)
        return hidden, LayerValues.needed(outputs, hidden, attention)

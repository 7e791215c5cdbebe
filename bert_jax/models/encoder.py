"""The stack of Transformer layers."""

import flax.linen as nn
import jax

from bert_jax.models.attention import SelfAttention
from bert_jax.models.config import BertConfig, Execution
from bert_jax.models.layers import activation, dense, layer_norm

HIDDEN_AXES = ("batch", "length", "hidden")


class EncoderLayer(nn.Module):
    """Attention, then feed-forward; each: sub-layer → dropout → residual sum → LayerNorm."""

    config: BertConfig
    execution: Execution

    @nn.compact
    def __call__(
        self, hidden: jax.Array, key_mask: jax.Array, deterministic: bool
    ) -> tuple[jax.Array, None]:
        """[B, T, D], bool [B, T] → [B, T, D], and the None that `nn.scan` asks for."""
        config, execution = self.config, self.execution
        dropout = nn.Dropout(config.hidden_dropout_prob, deterministic=deterministic)

        attended = SelfAttention(config, execution, name="attention")(
            hidden, key_mask, deterministic=deterministic
        )
        hidden = layer_norm(config, execution, "attention_norm")(hidden + dropout(attended))

        inner = dense(config, execution, config.intermediate_size, "intermediate")(hidden)  # BTF
        inner = activation(config.hidden_act)(inner)
        outer = dense(config, execution, config.hidden_size, "output")(inner)  # BTD
        hidden = layer_norm(config, execution, "output_norm")(hidden + dropout(outer))
        return nn.with_logical_constraint(hidden, HIDDEN_AXES), None


class Encoder(nn.Module):
    """L layers whose parameters are stacked along a first axis, [L, ...]."""

    config: BertConfig
    execution: Execution

    @nn.compact
    def __call__(self, hidden: jax.Array, key_mask: jax.Array, *, deterministic: bool) -> jax.Array:
        """[B, T, D], bool [B, T] → [B, T, D]."""
        layers = self.config.num_hidden_layers
        layer = EncoderLayer
        if self.execution.remat != "none":
            policies = {"full": None, "dots": jax.checkpoint_policies.dots_saveable}
            layer = nn.remat(
                layer,
                policy=policies[self.execution.remat],
                # Inside a compiled loop nothing can be merged across iterations anyway.
                prevent_cse=not self.execution.scan_layers,
                static_argnums=(3,),  # deterministic, counted with self
            )
        stack = nn.scan(
            layer,
            variable_axes={"params": 0},
            split_rngs={"params": True, "dropout": True},
            in_axes=(nn.broadcast, nn.broadcast),
            length=layers,
            unroll=1 if self.execution.scan_layers else layers,
        )
        hidden, _ = stack(self.config, self.execution, name="layers")(
            hidden, key_mask, deterministic
        )
        return hidden

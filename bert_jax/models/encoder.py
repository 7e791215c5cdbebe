"""The stack of Transformer layers."""

from collections.abc import Callable
from typing import NamedTuple

import flax.linen as nn
import jax

from bert_jax.models.activations import activation
from bert_jax.models.attention import ATTENTION_WEIGHTS, SelfAttention
from bert_jax.models.config import EncoderConfig, Execution
from bert_jax.models.dropout import Dropout
from bert_jax.models.kernels.matmul import PRODUCT
from bert_jax.models.layers import HIDDEN_AXES, dense, layer_norm
from bert_jax.models.segments import Tokens


def _with_names(policy: Callable[..., bool], *names: str) -> Callable[..., bool]:
    """A policy that saves what has one of the names, too."""
    named = jax.checkpoint_policies.save_only_these_names(*names)
    return jax.checkpoint_policies.save_from_both_policies(policy, named)


# JAX's own policies, without their "_saveable". Moving activations to the host's memory instead is
# no choice for BERT: a layer of width D computes 24 D² FLOPs for a token and would move 36 D bytes
# out and in, ten times as long over any accelerator's link to its host.
REMAT_POLICIES = {
    "dots": _with_names(jax.checkpoint_policies.dots_saveable, PRODUCT, ATTENTION_WEIGHTS),
    "dots_with_no_batch_dims": _with_names(
        jax.checkpoint_policies.dots_with_no_batch_dims_saveable, PRODUCT
    ),
    "full": jax.checkpoint_policies.nothing_saveable,
}


class Intermediates(NamedTuple):
    """What the layers computed on the way, for those who asked; None for those who did not.

    Attributes:
        hidden_states: output of each layer, [L, B, T, D].
        attentions: attention weights of each layer, float32 [L, B, N, T, T].
    """

    hidden_states: jax.Array | None
    attentions: jax.Array | None


class EncoderLayer(nn.Module):
    """Attention, then feed-forward; each: sub-layer → dropout → residual sum → LayerNorm."""

    config: EncoderConfig
    execution: Execution

    @nn.compact
    def __call__(
        self,
        hidden: jax.Array,
        tokens: Tokens,
        deterministic: bool,
        output_hidden_states: bool,
        output_attentions: bool,
    ) -> tuple[jax.Array, Intermediates]:
        """[B, T, D] → [B, T, D], and what `nn.scan` stacks to [L, ...]."""
        config, execution = self.config, self.execution
        dropout = Dropout(config.hidden_dropout_prob)

        attended, weights = SelfAttention(config, execution, name="attention")(
            hidden,
            tokens,
            deterministic=deterministic,
            output_attentions=output_attentions,
        )
        hidden = layer_norm(config, execution, "attention_norm")(
            hidden + dropout(attended, tokens.numbers, deterministic=deterministic)
        )

        inner = dense(config, execution, config.intermediate_size, "intermediate")(hidden)  # BTF
        inner = activation(config.hidden_act)(inner)
        outer = dense(config, execution, config.hidden_size, "output")(inner)  # BTD
        hidden = layer_norm(config, execution, "output_norm")(
            hidden + dropout(outer, tokens.numbers, deterministic=deterministic)
        )
        hidden = nn.with_logical_constraint(hidden, HIDDEN_AXES)
        return hidden, Intermediates(hidden if output_hidden_states else None, weights)


class Encoder(nn.Module):
    """L layers whose parameters are stacked along a first axis, [L, ...]."""

    config: EncoderConfig
    execution: Execution

    @nn.compact
    def __call__(
        self,
        hidden: jax.Array,
        tokens: Tokens,
        *,
        deterministic: bool,
        output_hidden_states: bool = False,
        output_attentions: bool = False,
    ) -> tuple[jax.Array, Intermediates]:
        """[B, T, D] → [B, T, D], and what was asked for of each layer."""
        layers = self.config.num_hidden_layers
        layer = EncoderLayer
        if self.execution.remat != "none":
            layer = nn.remat(
                layer,
                policy=REMAT_POLICIES[self.execution.remat],
                # Intermediates a compiled loop nothing can be merged across iterations anyway.
                prevent_cse=not self.execution.scan_layers,
                static_argnums=(3, 4, 5),  # the three switches, counted with self
            )
        stack = nn.scan(
            layer,
            variable_axes={"params": 0},
            split_rngs={"params": True, "dropout": True},
            in_axes=nn.broadcast,
            length=layers,
            unroll=1 if self.execution.scan_layers else layers,
        )
        return stack(self.config, self.execution, name="layers")(
            hidden, tokens, deterministic, output_hidden_states, output_attentions
        )

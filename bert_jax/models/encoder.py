"""The encoder: embeddings, L Transformer layers, pooler (paper, section 3)."""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp

from bert_jax.models.attention import SelfAttention
from bert_jax.models.config import EncoderConfig
from bert_jax.models.dropout import Dropout
from bert_jax.models.execution import Execution
from bert_jax.models.kernels.matmul import MATMUL_OUTPUT
from bert_jax.models.kernels.xla import ATTENTION_WEIGHTS
from bert_jax.models.layers import (
    HIDDEN_AXES,
    activation,
    dense,
    gather_positions,
    kernel_init,
    layer_norm,
    word_rows_init,
)
from bert_jax.models.packed_rows import PackedRows, SegmentIds, Tokens


class EncoderOutput(NamedTuple):
    """What the encoder computes; the names are Hugging Face's.

    Attributes:
        last_hidden_state: [B, T, D], in the dtype of the execution, as all but `attentions`.
        pooler_output: [B, D], tanh of a dense map of [CLS], or [B, K, D] for K texts of a row; None
            without pooler.
        hidden_states: [L + 1, B, T, D], the embeddings and the output of each layer; None unless
            requested.
        attentions: float32 [L, B, N, T, T], attention weights before dropout; None unless
            requested.
    """

    last_hidden_state: jax.Array
    pooler_output: jax.Array | None
    hidden_states: jax.Array | None
    attentions: jax.Array | None

    @property
    def pooled(self) -> jax.Array:
        """`pooler_output` of a model with a pooler."""
        assert self.pooler_output is not None
        return self.pooler_output


class Embeddings(nn.Module):
    """Sum of word, position and token-type embeddings, then LayerNorm, then dropout (figure 2).

    The token type is what the paper calls the segment: sentence A or B.
    """

    config: EncoderConfig
    execution: Execution

    def setup(self) -> None:
        config = self.config
        rows = self.execution.padded_vocab_size(config.vocab_size)
        self.word_embeddings = self._table(rows, word_rows_init(config))
        self.position_embeddings = self._table(config.max_position_embeddings, kernel_init(config))
        self.token_type_embeddings = self._table(config.type_vocab_size, kernel_init(config))
        self.norm = layer_norm(self.config, self.execution, name="layer_norm")
        self.dropout = Dropout(self.config.hidden_dropout_prob)

    def _table(self, rows: int, init: Callable[..., jax.Array]) -> nn.Embed:
        # Read, and summed, in float32 whatever the dtype of the activations: the gradient of a
        # row is a sum over all occurrences of its word, for which bfloat16 has too few digits.
        return nn.Embed(rows, self.config.hidden_size, embedding_init=init)

    def __call__(
        self,
        input_ids: jax.Array,
        token_type_ids: jax.Array,
        position_ids: jax.Array,
        *,
        deterministic: bool,
    ) -> jax.Array:
        """int32 [B, T] three times → [B, T, D]."""
        hidden = (
            jnp.take(self.words(), input_ids, axis=0)
            + jnp.take(_gathered(self.position_embeddings, None), position_ids, axis=0)
            + jnp.take(_gathered(self.token_type_embeddings, None), token_type_ids, axis=0)
        )
        return self.dropout(self.norm(hidden), deterministic=deterministic)

    def words(self) -> jax.Array:
        """The table of word embeddings, float32 [V, D]."""
        return _gathered(self.word_embeddings, "vocab")


def _gathered(table: nn.Embed, rows: str | None) -> jax.Array:
    """A table with all of D on each device.

    Left to itself the compiler looks words up in its part of D, for the tokens of all devices.
    """
    return nn.with_logical_constraint(table.embedding, (rows, None))


class Intermediates(NamedTuple):
    """Intermediate results of the layers; None unless requested.

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
        # Its scope is named after its class, and so are the keys that it draws.
        dropout = Dropout(config.hidden_dropout_prob)

        attended, weights = SelfAttention(config, execution, name="attention")(
            hidden,
            tokens,
            deterministic=deterministic,
            output_attentions=output_attentions,
        )
        hidden = layer_norm(config, execution, "attention_norm")(
            hidden + dropout(attended, tokens.indices, deterministic=deterministic)
        )

        inner = dense(config, execution, config.intermediate_size, "intermediate")(hidden)  # BTF
        inner = activation(config.hidden_act)(inner)
        outer = dense(config, execution, config.hidden_size, "output")(inner)  # BTD
        hidden = layer_norm(config, execution, "output_norm")(
            hidden + dropout(outer, tokens.indices, deterministic=deterministic)
        )
        hidden = nn.with_logical_constraint(hidden, HIDDEN_AXES)
        return hidden, Intermediates(hidden if output_hidden_states else None, weights)


def _and_names(policy: Callable[..., bool], *names: str) -> Callable[..., bool]:
    """A policy that saves what has one of the names, too."""
    named = jax.checkpoint_policies.save_only_these_names(*names)
    return jax.checkpoint_policies.save_from_both_policies(policy, named)


# JAX's own policies, without their "_saveable". Moving activations to the host's memory is no
# alternative: a layer of width D computes 24 D² FLOPs for a token and would move 36 D bytes out and
# in, which takes ten times as long over any accelerator's link to its host.
REMAT_POLICIES = {
    "dots": _and_names(jax.checkpoint_policies.dots_saveable, MATMUL_OUTPUT, ATTENTION_WEIGHTS),
    "dots_with_no_batch_dims": _and_names(
        jax.checkpoint_policies.dots_with_no_batch_dims_saveable, MATMUL_OUTPUT
    ),
    "full": jax.checkpoint_policies.nothing_saveable,
}


class LayerStack(nn.Module):
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
        """[B, T, D] → [B, T, D], and what is requested of each layer."""
        num_layers = self.config.num_hidden_layers
        layer = EncoderLayer
        if self.execution.remat != "none":
            layer = nn.remat(
                layer,
                policy=REMAT_POLICIES[self.execution.remat],
                # Inside a compiled loop nothing can be merged across iterations anyway.
                prevent_cse=not self.execution.scan_layers,
                static_argnums=(3, 4, 5),  # the three switches, counted with self
            )
        stack = nn.scan(
            layer,
            variable_axes={"params": 0},
            split_rngs={"params": True, "dropout": True},
            in_axes=nn.broadcast,
            length=num_layers,
            unroll=1 if self.execution.scan_layers else num_layers,
        )
        return stack(self.config, self.execution, name="layers")(
            hidden, tokens, deterministic, output_hidden_states, output_attentions
        )


class Pooler(nn.Module):
    """The vector of a whole text: tanh of a dense map of its [CLS]."""

    config: EncoderConfig
    execution: Execution

    @nn.compact
    def __call__(self, hidden: jax.Array, cls_positions: jax.Array | None = None) -> jax.Array:
        """[B, T, D] → [B, D]; with the positions of several [CLS], int32 [B, K], → [B, K, D]."""
        first = hidden[:, 0] if cls_positions is None else gather_positions(hidden, cls_positions)
        axes = ("batch", "hidden") if cls_positions is None else HIDDEN_AXES
        first = nn.with_logical_constraint(first, axes)
        pooled = dense(self.config, self.execution, self.config.hidden_size, "dense")(first)
        return nn.with_logical_constraint(jnp.tanh(pooled), axes)


class Encoder(nn.Module):
    """Embeddings, layers and pooler."""

    config: EncoderConfig
    execution: Execution = Execution()
    add_pooling_layer: bool = True

    def setup(self) -> None:
        self.embeddings = Embeddings(self.config, self.execution)
        self.encoder = LayerStack(self.config, self.execution)
        if self.add_pooling_layer:
            self.pooler = Pooler(self.config, self.execution)

    def __call__(
        self,
        input_ids: jax.Array,
        token_type_ids: jax.Array | None = None,
        attention_mask: jax.Array | None = None,
        position_ids: jax.Array | None = None,
        *,
        segment_ids: jax.Array | None = None,
        cls_positions: jax.Array | None = None,
        packed_rows: PackedRows | None = None,
        deterministic: bool = True,
        output_hidden_states: bool = False,
        output_attentions: bool = False,
    ) -> EncoderOutput:
        """Encodes tokens.

        A packed row holds several texts that do not see each other: their tokens have different
        `segment_ids`, and `position_ids` that begin at 0 in each text.

        Args:
            input_ids: int32 [B, T].
            token_type_ids: int32 [B, T], first or second sentence; None for all 0.
            attention_mask: int32 or bool [B, T], 0 for tokens that no token sees, such as padding;
                None for none. They themselves see the others.
            position_ids: int32 [B, T]; None for 0 … T-1.
            segment_ids: int32 [B, T], which text of its row a token belongs to, from 1, and 0 for
                padding; None where each row is one text.
            cls_positions: int32 [B, K], the positions of the [CLS] of K texts; None for 0 alone.
            packed_rows: has the layers compute rows without `segment_ids` in packed rows; then
                their hidden states and attention weights are not available.
            deterministic: False for training: dropout draws from the RNG stream "dropout".
            output_hidden_states: whether to return the hidden states of all layers.
            output_attentions: whether to return the attention weights of all layers.
        """
        if token_type_ids is None:
            token_type_ids = jnp.zeros_like(input_ids)
        query_ids = jnp.ones_like(input_ids[:, :1]) if segment_ids is None else segment_ids
        key_ids = jnp.broadcast_to(query_ids, input_ids.shape)
        if attention_mask is not None:
            key_ids = jnp.where(attention_mask.astype(bool), key_ids, 0)
        if position_ids is None:
            position_ids = jnp.broadcast_to(jnp.arange(input_ids.shape[1]), input_ids.shape)
        if self.config.position_offset:
            position_ids += self.config.position_offset
        embedded = self.embeddings(
            input_ids, token_type_ids, position_ids, deterministic=deterministic
        )
        embedded = nn.with_logical_constraint(embedded, HIDDEN_AXES)
        tokens = Tokens.in_batch_order(SegmentIds(query_ids, key_ids))
        if packed_rows is not None:
            assert segment_ids is None
            assert not output_hidden_states
            assert not output_attentions
            embedded, tokens = packed_rows.pack(embedded), packed_rows.tokens()
        hidden, intermediates = self.encoder(
            embedded,
            tokens,
            deterministic=deterministic,
            output_hidden_states=output_hidden_states,
            output_attentions=output_attentions,
        )
        if packed_rows is not None:
            hidden = packed_rows.unpack(hidden)
        hidden_states = intermediates.hidden_states
        if hidden_states is not None:
            hidden_states = jnp.concatenate([embedded[None], hidden_states])
        return EncoderOutput(
            last_hidden_state=hidden,
            pooler_output=self.pooler(hidden, cls_positions) if self.add_pooling_layer else None,
            hidden_states=hidden_states,
            attentions=intermediates.attentions,
        )

    def word_embeddings(self) -> jax.Array:
        """The table of word embeddings, float32 [V, D]."""
        return self.embeddings.words()


def init_params(module: nn.Module, key: jax.Array) -> Any:
    """New parameters of a model, float32."""
    return module.init(key, jnp.zeros((1, 1), jnp.int32))["params"]


def abstract_params(module: nn.Module) -> Any:
    """Shapes and dtypes of the parameters of a model, without computing them."""
    # Of the kept tree each caller has its own dicts, which it may change.
    return jax.tree.map(lambda leaf: leaf, _abstract_params(module))


@functools.lru_cache(maxsize=32)
def _abstract_params(module: nn.Module) -> Any:
    # Tracing takes a good part of a second; a plan of several meshes asks for each of them.
    return jax.eval_shape(lambda: init_params(module, jax.random.key(0)))

"""BERT itself: the encoder of token ids (paper, section 3)."""

from typing import Any, NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp

from bert_jax.models.config import EncoderConfig, Execution
from bert_jax.models.embeddings import Embeddings
from bert_jax.models.encoder import Encoder
from bert_jax.models.heads import Pooler
from bert_jax.models.layers import HIDDEN_AXES
from bert_jax.models.segments import SegmentIds, Tokens
from bert_jax.models.shared_rows import SharedRows


class BertOutput(NamedTuple):
    """What the encoder says; the names are Hugging Face's.

    Attributes:
        last_hidden_state: [B, T, D], in the dtype of the execution, as all but `attentions`.
        pooler_output: [B, D], tanh of a dense map of [CLS], or [B, K, D] for K texts of a row; None
            without pooler.
        hidden_states: [L + 1, B, T, D], the embeddings and the output of each layer; None unless
            asked for.
        attentions: float32 [L, B, N, T, T], attention weights before dropout; None unless asked
            for.
    """

    last_hidden_state: jax.Array
    pooler_output: jax.Array | None
    hidden_states: jax.Array | None
    attentions: jax.Array | None

    @property
    def pooled(self) -> jax.Array:
        """`pooler_output`, of a model that has a pooler."""
        assert self.pooler_output is not None
        return self.pooler_output


class Bert(nn.Module):
    """Embeddings, encoder and pooler (Hugging Face's BertModel)."""

    config: EncoderConfig
    execution: Execution = Execution()
    add_pooling_layer: bool = True

    def setup(self) -> None:
        """Declares the parts."""
        self.embeddings = Embeddings(self.config, self.execution)
        self.encoder = Encoder(self.config, self.execution)
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
        shared_rows: SharedRows | None = None,
        deterministic: bool = True,
        output_hidden_states: bool = False,
        output_attentions: bool = False,
    ) -> BertOutput:
        """Encodes tokens.

        Several texts can share a row, without seeing each other: their tokens have different
        `segment_ids`, and `position_ids` that begin anew with each.

        Args:
            input_ids: int32 [B, T].
            token_type_ids: int32 [B, T], first or second sentence; None for all 0.
            attention_mask: int32 or bool [B, T], 0 for tokens that nobody looks at, such as
                padding; None for none. They themselves look at the others.
            position_ids: int32 [B, T]; None for 0 … T-1.
            segment_ids: int32 [B, T], which text of its row a token belongs to, from 1, and 0 for
                padding; None where a row is one text.
            cls_positions: int32 [B, K], where the [CLS] of K texts stand; None for 0 alone.
            shared_rows: has rows without `segment_ids` computed together; hidden states and
                attention weights of the layers cannot be had then.
            deterministic: False for training: dropout draws from the RNG stream "dropout".
            output_hidden_states: whether the hidden states of all layers are wanted.
            output_attentions: whether the attention weights of all layers are wanted.
        """
        if token_type_ids is None:
            token_type_ids = jnp.zeros_like(input_ids)
        queries = jnp.ones_like(input_ids[:, :1]) if segment_ids is None else segment_ids
        keys = jnp.broadcast_to(queries, input_ids.shape)
        if attention_mask is not None:
            keys = jnp.where(attention_mask.astype(bool), keys, 0)
        if position_ids is None:
            position_ids = jnp.broadcast_to(jnp.arange(input_ids.shape[1]), input_ids.shape)
        embedded = self.embeddings(
            input_ids, token_type_ids, position_ids, deterministic=deterministic
        )
        embedded = nn.with_logical_constraint(embedded, HIDDEN_AXES)
        tokens = Tokens.of(SegmentIds(queries, keys))
        if shared_rows is not None:
            assert segment_ids is None
            assert not output_hidden_states
            assert not output_attentions
            embedded, tokens = shared_rows.gather(embedded), shared_rows.tokens()
        hidden, inside = self.encoder(
            embedded,
            tokens,
            deterministic=deterministic,
            output_hidden_states=output_hidden_states,
            output_attentions=output_attentions,
        )
        if shared_rows is not None:
            hidden = shared_rows.spread(hidden)
        hidden_states = inside.hidden_states
        if hidden_states is not None:
            hidden_states = jnp.concatenate([embedded[None], hidden_states])
        return BertOutput(
            last_hidden_state=hidden,
            pooler_output=self.pooler(hidden, cls_positions) if self.add_pooling_layer else None,
            hidden_states=hidden_states,
            attentions=inside.attentions,
        )

    def word_embeddings(self) -> jax.Array:
        """The table of word embeddings, float32 [V, D]."""
        return self.embeddings.words()


def init_params(module: nn.Module, key: jax.Array) -> Any:
    """New parameters of any of the models, float32."""
    return module.init(key, jnp.zeros((1, 1), jnp.int32))["params"]


def abstract_params(module: nn.Module) -> Any:
    """Shapes and dtypes of the parameters, without computing them."""
    return jax.eval_shape(lambda: init_params(module, jax.random.key(0)))

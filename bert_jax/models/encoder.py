"""The encoder: embeddings, L Transformer layers, pooler (paper, section 3).

A decoder is an encoder whose config is causal, with a cache or cross-attention, see `decoding`.
"""

import dataclasses
import functools
from typing import Any, NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp

from bert_jax.errors import UserError
from bert_jax.models.activations import ACTIVATIONS
from bert_jax.models.character_cnn import MOST_CHARACTERS, CharacterCNN, reads_characters
from bert_jax.models.config import EncoderConfig
from bert_jax.models.decoding import DecoderCache, EncoderMemory
from bert_jax.models.embeddings import Embeddings, checked_range
from bert_jax.models.execution import Execution
from bert_jax.models.image_options import ImageOptions
from bert_jax.models.layer_mix import LayerMix
from bert_jax.models.layer_stack import LayerStack
from bert_jax.models.layers import HIDDEN_AXES, dense, gather_positions
from bert_jax.models.packed_rows import EncoderInputs
from bert_jax.models.patch_embeddings import PatchEmbeddings, checked_images
from bert_jax.models.transformer_layer import RequestedOutputs


class EncoderOutput(NamedTuple):
    """The output of the encoder, under Hugging Face's names as far as they exist.

    Attributes:
        last_hidden_state: [B, T, D], in the dtype of the execution, like all but the last two.
        pooler_output: [B, D], tanh of a linear layer on [CLS] (see `EncoderConfig`), or [B, K, D]
            for K texts per row; None without a pooler.
        hidden_states: [L + 1, B, T, D], the embeddings and the output of each layer; None unless
            requested.
        attentions: float32 [L, B, N, T, S], attention weights before dropout, of all layers or the
            requested ones, S = T without a cache; None unless requested.
        value_relations: the same of values with values, softmax(V Vᵀ / sqrt(H)) over the tokens
            that each one sees (MiniLM, https://arxiv.org/abs/2002.10957, section 3.2).
        cross_attentions: float32 [L, B, N, T, S], weights of the cross-attention of all layers;
            None without it, or unless attention weights are requested.
        cache: of all layers, [L, ...], with the T tokens; None without one.
    """

    last_hidden_state: jax.Array
    pooler_output: jax.Array | None
    hidden_states: jax.Array | None
    attentions: jax.Array | None
    value_relations: jax.Array | None
    cross_attentions: jax.Array | None = None
    cache: DecoderCache | None = None

    @property
    def pooled(self) -> jax.Array:
        """`pooler_output` of a model with a pooler."""
        assert self.pooler_output is not None
        return self.pooler_output


class Pooler(nn.Module):
    """The vector of a text: its [CLS], also after a linear layer and tanh, or the mean of all."""

    config: EncoderConfig
    execution: Execution

    @nn.compact
    def __call__(
        self,
        hidden: jax.Array,
        mask: jax.Array | None = None,
        cls_positions: jax.Array | None = None,
    ) -> jax.Array:
        """[B, T, D] → [B, D]; with positions of several [CLS], int32 [B, K], → [B, K, D].

        `mask`, [B, T], is 0 for tokens that do not count in a mean; None: all do.
        """
        if not self.config.classifier_activation and self.config.classifier_pooling == "mean":
            weights = jnp.ones(hidden.shape[:2]) if mask is None else mask
            total = jnp.einsum("BTD,BT->BD", hidden.astype(jnp.float32), weights)
            mean = total / jnp.maximum(weights.sum(axis=1, keepdims=True), 1)
            return mean.astype(hidden.dtype)
        first = hidden[:, 0] if cls_positions is None else gather_positions(hidden, cls_positions)
        axes = ("batch", "hidden") if cls_positions is None else HIDDEN_AXES
        first = nn.with_logical_constraint(first, axes)
        if not self.config.classifier_activation:
            return first
        options = self.config.head_options(ImageOptions)  # by default BERT's: D, tanh
        width = options.pooler_output_size or self.config.hidden_size
        pooled = dense(self.config, self.execution, width, "dense")(first)
        return nn.with_logical_constraint(ACTIVATIONS[options.pooler_act](pooled), axes)


class Encoder(nn.Module):
    """Embeddings, layers and pooler.

    Attributes:
        config: architecture of the model.
        execution: how it is computed.
        add_pooling_layer: whether it has a pooler.
    """

    config: EncoderConfig
    execution: Execution = Execution()
    add_pooling_layer: bool = True

    def setup(self) -> None:
        embeddings: Any = Embeddings if self.config.images is None else PatchEmbeddings
        if reads_characters(self.config):
            embeddings = CharacterCNN
        self.embeddings = embeddings(self.config, self.execution)
        self.encoder = LayerStack(self.config, self.execution)
        if self.add_pooling_layer:
            self.pooler = Pooler(self.config, self.execution)

    def __call__(
        self,
        *arrays: Any,
        deterministic: bool = True,
        encoder_outputs: RequestedOutputs | None = None,
        **named: Any,
    ) -> EncoderOutput:
        """`encode` of a model without a head; the inputs are `EncoderInputs`, see `from_call`."""
        inputs = EncoderInputs.from_call(*arrays, **named)
        return self.encode(inputs, deterministic, encoder_outputs)

    def encode(
        self,
        inputs: EncoderInputs,
        deterministic: bool,
        requested: RequestedOutputs | None = None,
        layers: LayerStack | None = None,
        cache: DecoderCache | None = None,
        memory: EncoderMemory | None = None,
        word_embeddings: jax.Array | None = None,
        mix: LayerMix | None = None,
    ) -> EncoderOutput:
        """Encodes tokens, or images.

        Args:
            inputs: the tokens; of a model that reads images, the images.
            deterministic: False for training, with dropout from the RNG stream "dropout".
            requested: values to return beside the last layer; None: no others.
            layers: layers to compute on the embeddings; None for the layers of the encoder.
            cache: what all layers keep of earlier tokens, [L, ...]; attention is then causal.
            memory: output of an encoder, for layers with cross-attention.
            word_embeddings: their table, if it is another model's.
            mix: makes the `last_hidden_state` of all layers; None: it is that of the last one.

        Raises:
            ValueError: a row is longer than the position table; an id, if it is no tracer, is not
                in the vocabulary; layers without global tokens get some; there is a cache, but no
                `position_ids`; or packed rows, trigrams, value relations or a pooling layer: it
                would pool the first token of each call.
            UserError: attention is requested of recurrent layers, or with global tokens.
        """
        packed_rows, requested = inputs.packed_rows, requested or RequestedOutputs()
        if self.config.images is not None:
            return self._encode_images(inputs, deterministic, requested)
        refused = (
            packed_rows
            or self.config.trigram_input
            or requested.value_relations
            or self.add_pooling_layer
        )
        lacks_positions = inputs.position_ids is None and not self.config.is_recurrent
        if cache is not None and (lacks_positions or refused):
            raise ValueError(
                "a cache needs position_ids, and no packed rows, trigrams, value relations or "
                "pooling layer"
            )
        _check_tokens(inputs, self.config)
        tokens = inputs.tokens()
        if packed_rows is not None:
            assert inputs.segment_ids is None
            assert requested.only_last
            tokens = packed_rows.tokens(inputs.row_indices)
        if self.config.is_causal:
            tokens = tokens.causal()
        tokens = tokens._replace(memory=memory, global_tokens=inputs.global_tokens())
        has_weights = requested.attentions or requested.value_relations
        if self.config.is_recurrent and has_weights:
            raise UserError(
                f"{self.config.layer_kind} layers have no attention weights; request hidden "
                "states, or give a model with attention"
            )
        if tokens.global_tokens is not None and has_weights:
            raise UserError(
                "attention weights of a model with global tokens are not computed: leave the "
                "global tokens out, or compare other values"
            )
        embedded = self.embeddings(inputs, tokens.indices, deterministic, word_embeddings)
        embedded = nn.with_logical_constraint(embedded, HIDDEN_AXES)
        computed = requested if mix is None else requested._replace(hidden_states=True)
        hidden, intermediates, cache = (layers or self.encoder)(
            embedded, tokens, deterministic, computed, cache
        )
        if mix is not None:
            states = intermediates[0]
            assert states is not None
            hidden = mix(states, tokens)
            intermediates = (states if requested.hidden_states else None, *intermediates[1:])
        if packed_rows is not None:
            hidden = packed_rows.unpack(hidden)
        pooled = None
        if self.add_pooling_layer:
            pooled = self.pooler(hidden, inputs.attention_mask, inputs.next_sentence_positions)
        return EncoderOutput(hidden, pooled, *intermediates, cache)

    def _encode_images(
        self, inputs: EncoderInputs, deterministic: bool, requested: RequestedOutputs
    ) -> EncoderOutput:
        """Encodes images, whose tokens all see each other; see `encode`."""
        pixel_values = checked_images(inputs, self.config)
        options = self.config.head_options(ImageOptions)
        shape = (len(pixel_values), options.num_tokens(pixel_values.shape[1:3]))
        ids = jnp.ones(shape, jnp.int32)
        tokens = dataclasses.replace(inputs, input_ids=ids).tokens()
        embedded = self.embeddings(pixel_values, tokens.indices, deterministic=deterministic)
        embedded = nn.with_logical_constraint(embedded, HIDDEN_AXES)
        hidden, intermediates, _ = self.encoder(embedded, tokens, deterministic, requested)
        pooled = self.pooler(hidden) if self.add_pooling_layer else None
        return EncoderOutput(hidden, pooled, *intermediates)

    def word_embeddings(self) -> jax.Array:
        """The table of word embeddings, float32 [V, E]."""
        return self.embeddings.words()


def _check_tokens(inputs: EncoderInputs, config: EncoderConfig) -> None:
    """Refuses global tokens where layers have none, and tokens for which a table has no row.

    A look-up would give NaN, or another row.
    """
    if inputs.global_attention_mask is not None and config.attention_window is None:
        raise ValueError(
            "global_attention_mask is for layers with global tokens, which the model does not "
            "have; leave it out, or make it a model that has them (bert-jax convert --to FAMILY)"
        )
    if inputs.characters is not None and not reads_characters(config):
        raise ValueError("this model reads the ids of tokens; leave the characters out")
    ids, length = inputs.input_ids, inputs.input_ids.shape[-1]
    has_table = config.position_kind in ("learned", "sinusoidal")
    is_counted = has_table and inputs.position_ids is None
    # With positions after padding, a row may have more padding than the table has rows.
    if is_counted and not config.positions_after_padding:
        _check_length(length, config)
    values = checked_range("input_ids", ids, config.vocab_size)
    if values is not None and is_counted and config.positions_after_padding:
        _check_length(int((values != config.pad_token_id).sum(-1).max()), config)


def _check_length(length: int, config: EncoderConfig) -> None:
    if length > config.max_length:
        raise ValueError(
            f"input_ids have {length} tokens a row, but the model has {config.max_length} "
            "positions; cut the rows (max_length of the tokenizer)"
        )


def init_params(module: Any, key: jax.Array) -> Any:
    """Initialised parameters of a model, float32."""
    images = module.config.images
    if images is None:
        inputs = EncoderInputs(jnp.zeros((1, 1), jnp.int32))
        if reads_characters(module.config):
            none = jnp.zeros((1, 1, MOST_CHARACTERS), jnp.int32)
            inputs = dataclasses.replace(inputs, characters=none)
        return module.init(key, inputs)["params"]
    pixels = jnp.zeros((1, *images.pixels, images.num_channels))
    return module.init(key, pixel_values=pixels)["params"]


@functools.partial(jax.jit, static_argnames="dtype")
def cast_layer_kernels(params: Any, *, dtype: str) -> Any:
    """The parameters of a model with the kernels of the layers in another dtype.

    Inference in bfloat16 multiplies with these, and would convert float32 kernels in each call.
    """

    def cast(path: Any, leaf: jax.Array) -> jax.Array:
        names = [entry.key for entry in path]
        is_of_layer = names[-1] == "kernel" and "layers" in names
        return leaf.astype(dtype) if is_of_layer else leaf

    return jax.tree_util.tree_map_with_path(cast, params)


def abstract_params(module: nn.Module) -> Any:
    """Shapes and dtypes of the parameters of a model, without computing them."""
    # Each caller gets its own dicts of the cached tree, since it may change them.
    return jax.tree.map(lambda leaf: leaf, _abstract_params(module))


@functools.lru_cache(maxsize=128)
def _abstract_params(module: nn.Module) -> Any:
    # Tracing takes nearly a second, and a plan of several meshes needs the shapes for each mesh.
    return jax.eval_shape(lambda: init_params(module, jax.random.key(0)))

"""The encoder: embeddings, L Transformer layers, pooler (paper, section 3)."""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np

from bert_jax.models.attention_inputs import AttentionInputs
from bert_jax.models.bottleneck_layer import BottleneckLayer
from bert_jax.models.config import EncoderConfig
from bert_jax.models.decoding import KeyValueCache
from bert_jax.models.embeddings import Embeddings, trigrams
from bert_jax.models.execution import Execution
from bert_jax.models.kernels.matmul import MATMUL_OUTPUT
from bert_jax.models.kernels.xla import ATTENTION_WEIGHTS, attention_weights
from bert_jax.models.layers import HIDDEN_AXES, dense, gather_positions
from bert_jax.models.packed_rows import EncoderInputs, PackedRows, Tokens
from bert_jax.models.transformer_layer import LayerValues, RequestedOutputs, TransformerLayer


class EncoderOutput(NamedTuple):
    """The output of the encoder, under Hugging Face's names as far as they exist.

    Attributes:
        last_hidden_state: [B, T, D], in the dtype of the execution, like all but the last two.
        pooler_output: [B, D], tanh of a linear layer on [CLS] (see `EncoderConfig`), or [B, K, D]
            for K texts per row; None without a pooler.
        hidden_states: [L + 1, B, T, D], the embeddings and the output of each layer; None unless
            requested.
        attentions: float32 [L, B, N, T, T], attention weights before dropout, of all layers or the
            requested ones; None unless requested.
        value_relations: the same of values with values, softmax(V Vᵀ / sqrt(H)) over the tokens
            that each one sees (MiniLM, https://arxiv.org/abs/2002.10957, section 3.2).
        cache: of all layers, [L, ...], with the T tokens; None without one.
    """

    last_hidden_state: jax.Array
    pooler_output: jax.Array | None
    hidden_states: jax.Array | None
    attentions: jax.Array | None
    value_relations: jax.Array | None
    cache: KeyValueCache | None = None

    @property
    def pooled(self) -> jax.Array:
        """`pooler_output` of a model with a pooler."""
        assert self.pooler_output is not None
        return self.pooler_output


def _and_names(policy: Callable[..., bool], *names: str) -> Callable[..., bool]:
    """A policy that also saves values with one of the names."""
    named = jax.checkpoint_policies.save_only_these_names(*names)
    return jax.checkpoint_policies.save_from_both_policies(policy, named)


# JAX's own policies, without their "_saveable". Moving activations to the host's memory is not an
# alternative: a layer of width D computes 24 D² FLOPs per token and would move 36 D bytes out and
# in, which takes ten times as long over any accelerator's link to its host.
REMAT_POLICIES = {
    "dots": _and_names(jax.checkpoint_policies.dots_saveable, MATMUL_OUTPUT, ATTENTION_WEIGHTS),
    "dots_with_no_batch_dims": _and_names(
        jax.checkpoint_policies.dots_with_no_batch_dims_saveable, MATMUL_OUTPUT
    ),
    "full": jax.checkpoint_policies.nothing_saveable,
}


# The number of tokens that a CPU computes through all layers at a time: activations of more do not
# stay in the cache (32 MiB of two cores). In float32, all-MiniLM-L6-v2 then takes 0.97 to 0.92
# times as long for 32 rows of 64 to 512 tokens. Training gains nothing.
_TOKENS_IN_CACHE = {"float32": 1024, "bfloat16": 2048}


Intermediates = tuple[jax.Array | None, jax.Array | None, jax.Array | None]


LAYERS: dict[str, type[nn.Module]] = {
    "transformer": TransformerLayer,
    "bottleneck": BottleneckLayer,
}


class LayerStack(nn.Module):
    """L layers whose parameters are stacked along a first axis, [L, ...].

    With G groups of layers (`num_hidden_groups`) it is [G, ...], and each group computes L / G
    layers with its parameters. If the embeddings are narrower than D, a linear layer comes first.
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
        requested: RequestedOutputs,
        cache: KeyValueCache | None = None,
    ) -> tuple[jax.Array, Intermediates, KeyValueCache | None]:
        """[B, T, E] → [B, T, D], and the requested values of the layers, [L + 1, ...] or [L, ...].

        The first of the hidden states is the input of the first layer. The cache of all layers,
        [L, ...], is returned with the T tokens.
        """
        if self.config.has_embedding_projection:
            width = self.config.hidden_size
            hidden = dense(self.config, self.execution, width, "embedding_projection")(hidden)
            hidden = nn.with_logical_constraint(hidden, HIDDEN_AXES)
        embedded = hidden
        layers = self._stack()(self.config, self.execution, name="layers")
        is_grouped = self.config.num_hidden_groups is not None
        if is_grouped:
            cache = jax.tree.map(self._in_groups, cache)
        rows = len(hidden)
        is_plain = cache is None and tokens.bias is None
        if deterministic and is_plain and requested.only_last:
            rows = rows_in_cache(self.execution, *hidden.shape[:2])
        if rows == len(hidden):
            hidden, values = layers(hidden, cache, tokens, deterministic, requested)
        else:
            hidden, values = _in_parts(layers, rows, hidden, tokens)
        if is_grouped:
            values = jax.tree.map(_all_layers, values)
        if values.cache is not None:
            cache_of_layer = jax.tree.map(lambda leaf: leaf[0], values.cache)
            tokens = tokens._replace(mask=cache_of_layer.mask(tokens.mask))
        scale = self.config.attention_scale
        intermediates = _intermediates(requested, embedded, values, tokens, scale)
        return hidden, intermediates, values.cache

    def _in_groups(self, layers: jax.Array) -> jax.Array:
        """[L, ...] → [G, L / G, ...]."""
        return layers.reshape(self.config.num_stacked_layers, -1, *layers.shape[1:])

    def _stack(self) -> Any:
        """The class of the stack of layers."""
        config, execution = self.config, self.execution
        layer: Any = LAYERS[config.layer_kind]
        if execution.remat != "none":
            layer = nn.remat(
                layer,
                policy=REMAT_POLICIES[execution.remat],
                # Inside a compiled loop nothing can be merged across iterations in any case.
                prevent_cse=not execution.scan_layers,
                static_argnums=(4, 5),  # the flags; self is argument 0
            )
        groups = config.num_stacked_layers
        if config.num_hidden_groups is not None:
            in_group = config.num_hidden_layers // groups
            layer = nn.scan(
                layer,
                variable_broadcast="params",
                split_rngs={"params": False, "dropout": True},
                in_axes=(0, nn.broadcast, nn.broadcast, nn.broadcast),
                length=in_group,
                unroll=1 if execution.scan_layers else in_group,
            )
        return nn.scan(
            layer,
            variable_axes={"params": 0},
            split_rngs={"params": True, "dropout": True},
            in_axes=(0, nn.broadcast, nn.broadcast, nn.broadcast),
            length=groups,
            unroll=1 if execution.scan_layers else groups,
        )


def rows_in_cache(execution: Execution, rows: int, length: int) -> int:
    """The number of rows [B, T] that are computed through all layers at a time, a divisor of B."""
    platform = execution.platform or jax.default_backend()
    # A loop over rows that are split over several devices would gather them on each device.
    if platform != "cpu" or jax.sharding.get_abstract_mesh().size > 1:
        return rows
    divisors = [count for count in range(1, rows + 1) if rows % count == 0]
    ideal = _TOKENS_IN_CACHE[execution.dtype] / length
    return min(divisors, key=lambda count: max(count / ideal, ideal / count))


def _in_parts(
    layers: nn.Module, rows: int, hidden: jax.Array, tokens: Tokens
) -> tuple[jax.Array, LayerValues]:
    """The result of the layers for [B, T, D] without dropout, computed for some rows at a time."""

    def compute(layers: Any, carry: None, part: tuple[jax.Array, Tokens]) -> Any:
        hidden, tokens = part
        hidden, values = layers(hidden.astype(dtype), None, tokens, True, RequestedOutputs())
        return carry, (hidden.astype(jnp.float32), values)

    # In float32: a CPU's loop would convert a whole bfloat16 array to read a slice of it.
    dtype = hidden.dtype
    inputs = (hidden.astype(jnp.float32), tokens)
    parts = jax.tree.map(lambda array: array.reshape(-1, rows, *array.shape[1:]), inputs)
    loop = nn.scan(compute, variable_broadcast="params", split_rngs={"params": False})
    _, (output, values) = loop(layers, None, parts)
    return output.astype(dtype).reshape(hidden.shape), values


def _intermediates(
    requested: RequestedOutputs,
    embedded: jax.Array,
    values: LayerValues,
    tokens: Tokens,
    scale: float,
) -> Intermediates:
    """The requested hidden states, attention weights and value relations of the layers.

    Weights are computed here and not in the layers, which are a loop: so they are computed for the
    requested layers only.

    Args:
        requested: which values.
        embedded: input of the first layer.
        values: values of all layers, [L, ...].
        tokens: the T tokens.
        scale: factor of the scores.
    """
    states = values.hidden
    if states is not None:
        states = jnp.concatenate([embedded[None], states])
    layers: Any = slice(None)
    if requested.attention_layers is not None:
        layers = np.array(requested.attention_layers) - 1

    def weights(
        query: jax.Array | None, key: jax.Array | None, bias: jax.Array | None = None
    ) -> jax.Array | None:
        if query is None or key is None:
            return None
        query, key, mask = query[layers], key[layers], tokens.mask.for_heads()
        return attention_weights(AttentionInputs(query, key, key, mask, scale, bias))

    attentions = weights(values.query, values.key, tokens.bias)
    return states, attentions, weights(values.value, values.value)


def _all_layers(groups: jax.Array) -> jax.Array:
    """[G, L / G, ...] → [L, ...]."""
    return groups.reshape(-1, *groups.shape[2:])


class Pooler(nn.Module):
    """The vector of a whole text: tanh of a linear layer on its [CLS], or its [CLS] itself."""

    config: EncoderConfig
    execution: Execution

    @nn.compact
    def __call__(self, hidden: jax.Array, cls_positions: jax.Array | None = None) -> jax.Array:
        """[B, T, D] → [B, D]; with positions of several [CLS], int32 [B, K], → [B, K, D]."""
        first = hidden[:, 0] if cls_positions is None else gather_positions(hidden, cls_positions)
        axes = ("batch", "hidden") if cls_positions is None else HIDDEN_AXES
        first = nn.with_logical_constraint(first, axes)
        if not self.config.classifier_activation:
            return first
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
        packed_rows: PackedRows | None = None,
        row_indices: jax.Array | None = None,
        deterministic: bool = True,
        encoder_outputs: RequestedOutputs | None = None,
    ) -> EncoderOutput:
        """`encode` of a model without a head; for the arrays see `EncoderInputs`."""
        inputs = EncoderInputs(
            input_ids,
            token_type_ids,
            attention_mask,
            position_ids,
            segment_ids,
            packed_rows=packed_rows,
            row_indices=row_indices,
        )
        return self.encode(inputs, deterministic, encoder_outputs)

    def encode(
        self,
        inputs: EncoderInputs,
        deterministic: bool,
        requested: RequestedOutputs | None = None,
        layers: LayerStack | None = None,
        cache: KeyValueCache | None = None,
    ) -> EncoderOutput:
        """Encodes tokens.

        Args:
            inputs: the tokens.
            deterministic: False for training, with dropout from the RNG stream "dropout".
            requested: values to return beside the last layer; None: no others.
            layers: layers to compute on the embeddings; None for the layers of the encoder.
            cache: keys and values of earlier tokens in all layers, [L, ...]; the layers are then
                causal.

        Raises:
            ValueError: there is a cache, but no `position_ids`; or packed rows, trigrams or value
                relations.
        """
        input_ids, segment_ids = inputs.input_ids, inputs.segment_ids
        packed_rows = inputs.packed_rows
        requested = requested or RequestedOutputs()
        refused = packed_rows or self.config.trigram_input or requested.value_relations
        if cache is not None and (inputs.position_ids is None or refused):
            problem = "a cache needs position_ids, and no packed rows, trigrams or value relations"
            raise ValueError(problem)
        token_type_ids = inputs.token_type_ids
        if token_type_ids is None:
            token_type_ids = jnp.zeros_like(input_ids)
        query_ids = jnp.ones_like(input_ids[:, :1]) if segment_ids is None else segment_ids
        key_ids = jnp.broadcast_to(query_ids, input_ids.shape)
        if inputs.attention_mask is not None:
            key_ids = jnp.where(inputs.attention_mask.astype(bool), key_ids, 0)
        tokens = Tokens.in_batch_order(query_ids, key_ids, inputs.row_indices)
        words = trigrams(input_ids, segment_ids) if self.config.trigram_input else input_ids
        positions = self._position_rows(input_ids, inputs.position_ids)
        if packed_rows is not None:
            assert segment_ids is None
            assert requested.only_last
            pack, tokens = packed_rows.pack, packed_rows.tokens()
            words, token_type_ids, positions = pack(words), pack(token_type_ids), pack(positions)
        embedded = self.embeddings(
            words, token_type_ids, positions, tokens.indices, deterministic=deterministic
        )
        embedded = nn.with_logical_constraint(embedded, HIDDEN_AXES)
        hidden, intermediates, cache = (layers or self.encoder)(
            embedded, tokens, deterministic=deterministic, requested=requested, cache=cache
        )
        if packed_rows is not None:
            hidden = packed_rows.unpack(hidden)
        pooled = None
        if self.add_pooling_layer:
            pooled = self.pooler(hidden, inputs.next_sentence_positions)
        return EncoderOutput(hidden, pooled, *intermediates, cache)

    def _position_rows(self, input_ids: jax.Array, position_ids: jax.Array | None) -> jax.Array:
        """The row of the position table of each token, int32 [B, T]."""
        config = self.config
        if not config.positions_after_padding:
            if position_ids is None:
                position_ids = jnp.broadcast_to(jnp.arange(input_ids.shape[1]), input_ids.shape)
            return position_ids
        is_token = input_ids != config.pad_token_id
        if position_ids is None:
            position_ids = jnp.cumsum(is_token, axis=1, dtype=jnp.int32) - 1
        return jnp.where(is_token, position_ids + config.position_offset, config.pad_token_id)

    def word_embeddings(self) -> jax.Array:
        """The table of word embeddings, float32 [V, E]."""
        return self.embeddings.words()


def init_params(module: nn.Module, key: jax.Array) -> Any:
    """Initialised parameters of a model, float32."""
    return module.init(key, jnp.zeros((1, 1), jnp.int32))["params"]


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

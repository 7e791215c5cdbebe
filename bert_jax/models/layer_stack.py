"""L layers in a loop, and which of their values are returned."""

from collections.abc import Callable, Sequence
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np

from bert_jax.models.attention_inputs import MASK_VALUE, AttentionInputs, AttentionMask
from bert_jax.models.bottleneck_layer import BottleneckLayer
from bert_jax.models.config import EncoderConfig
from bert_jax.models.convolution import ConvolutionLayer
from bert_jax.models.decoding import DecoderCache
from bert_jax.models.disentangled_attention import RelativeEmbeddings
from bert_jax.models.dropout import Dropout
from bert_jax.models.execution import Execution
from bert_jax.models.kernels.matmul import MATMUL_OUTPUT
from bert_jax.models.kernels.xla import ATTENTION_WEIGHTS, attention_weights
from bert_jax.models.layers import HIDDEN_AXES, dense, norm
from bert_jax.models.packed_rows import Tokens
from bert_jax.models.projected_lstm import ProjectedLSTMLayer
from bert_jax.models.recurrent_layer import RecurrentLayer
from bert_jax.models.relative_positions import RelativePositions
from bert_jax.models.rotary_positions import rotations
from bert_jax.models.transformer_layer import LayerValues, RequestedOutputs, TransformerLayer


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


Intermediates = tuple[jax.Array | None, jax.Array | None, jax.Array | None, jax.Array | None]


LAYERS: dict[str, type[nn.Module]] = {
    "transformer": TransformerLayer,
    "bottleneck": BottleneckLayer,
    "lstm": RecurrentLayer,
    "gru": RecurrentLayer,
    "projected_lstm": ProjectedLSTMLayer,
}


class LayerStack(nn.Module):
    """L layers whose parameters are stacked along a first axis, [L, ...].

    With G groups of layers (`num_hidden_groups`) it is [G, ...], and each group computes L / G
    layers with its parameters. If the embeddings are narrower than D, a linear layer comes first.
    With `norm_first`, a normalisation comes last.
    """

    config: EncoderConfig
    execution: Execution

    @nn.compact
    def __call__(
        self,
        hidden: jax.Array,
        tokens: Tokens,
        deterministic: bool,
        requested: RequestedOutputs,
        cache: DecoderCache | None = None,
    ) -> tuple[jax.Array, Intermediates, DecoderCache | None]:
        """[B, T, E] → [B, T, D], and the requested values of the layers, [L + 1, ...] or [L, ...].

        The first of the hidden states is the input of the first layer; the last one is normalised
        where `norm_first` is, except of images, as in transformers. The cache of all layers,
        [L, ...], is returned with the T tokens.
        """
        if self.config.has_embedding_projection and not self.config.project_before_norm:
            width = self.config.hidden_size
            hidden = dense(self.config, self.execution, width, "embedding_projection")(hidden)
            hidden = nn.with_logical_constraint(hidden, HIDDEN_AXES)
        if self.config.masks_padding:
            tokens = tokens.masked()
            hidden = jnp.where(tokens.is_visible[..., None], hidden, 0)
        embedded = hidden
        tokens = self._with_positions(hidden, tokens, deterministic, cache)
        numbers = jnp.arange(self.config.num_hidden_layers)
        layers = self._stack()(self.config, self.execution, name="layers")
        is_grouped = self.config.num_hidden_groups is not None
        if is_grouped:
            groups = self.config.num_stacked_layers
            numbers, cache = jax.tree.map(
                lambda array: array.reshape(groups, -1, *array.shape[1:]), (numbers, cache)
            )
        rows = len(hidden)
        # Recurrent layers compute all rows of a batch together, token after token.
        is_recurrent = self.config.is_recurrent
        is_plain = cache is None and not (tokens.has_shared_arrays or is_recurrent)
        if deterministic and is_plain and requested.only_last:
            rows = rows_in_cache(self.execution, *hidden.shape[:2])
        if rows == len(hidden):
            hidden, values = layers(hidden, tokens, deterministic, requested, numbers, cache)
        else:
            hidden, values = _in_parts(layers, rows, hidden, numbers, tokens)
        if is_grouped:
            values = jax.tree.map(lambda array: array.reshape(-1, *array.shape[2:]), values)
        if values.cache is not None and not is_recurrent:
            cache_of_layer = jax.tree.map(lambda leaf: leaf[0], values.cache.tokens)
            tokens = tokens._replace(mask=cache_of_layer.mask(tokens.mask))
        if self.config.norm_first:
            hidden = norm(self.config, self.execution, "final_norm")(hidden)
            if values.hidden is not None and self.config.images is None:
                values = values._replace(hidden=values.hidden.at[-1].set(hidden))
        if self.config.final_dropout:
            drop = Dropout(self.config.hidden_dropout_prob, name="final_dropout")
            hidden = drop(hidden, tokens.indices, deterministic=deterministic)
        intermediates = _intermediates(self.config, requested, embedded, values, tokens)
        return hidden, intermediates, values.cache

    def _with_positions(
        self,
        hidden: jax.Array,
        tokens: Tokens,
        deterministic: bool,
        cache: DecoderCache | None,
    ) -> Tokens:
        """The tokens with what layers compute from positions, for their input [B, T, D]."""
        config, execution = self.config, self.execution
        if config.relative_bias:
            tokens = tokens._replace(bias=self._position_bias(hidden.shape[1], cache))
        elif config.position_kind == "rotary":
            tokens = tokens._replace(rotations=rotations(config, tokens.mask.key_positions))
        elif config.relative_attention:
            relative = RelativeEmbeddings(config, execution, name="relative_embeddings")()
            tokens = tokens._replace(relative=relative)
        if config.conv_kernel_size:
            convolve = ConvolutionLayer(config, execution, name="convolution")
            convolution = convolve(hidden, tokens.mask.key_ids, tokens.indices, deterministic)
            tokens = tokens._replace(convolution=convolution)
        return tokens

    def _position_bias(self, length: int, cache: DecoderCache | None) -> jax.Array:
        """T5's bias of the scores of T tokens, float32 [1, N, T, S]."""
        queries = keys = jnp.arange(length)
        if cache is not None:
            queries = queries + cache.tokens.length[0]
            keys = jnp.arange(cache.tokens.key_ids.shape[-1])
        return RelativePositions(self.config, name="relative_positions")(queries, keys)

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
                static_argnums=(3, 4),  # the flags; self is argument 0
            )
        groups = config.num_stacked_layers
        axes = (nn.broadcast, nn.broadcast, nn.broadcast, 0, 0)  # a layer has its number and cache
        if config.num_hidden_groups is not None:
            in_group = config.num_hidden_layers // groups
            layer = nn.scan(
                layer,
                variable_broadcast="params",
                split_rngs={"params": False, "dropout": True},
                in_axes=axes,
                length=in_group,
                unroll=1 if execution.scan_layers else in_group,
            )
        return nn.scan(
            layer,
            variable_axes={"params": 0},
            split_rngs={"params": True, "dropout": True},
            in_axes=axes,
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
    layers: nn.Module, rows: int, hidden: jax.Array, numbers: jax.Array, tokens: Tokens
) -> tuple[jax.Array, LayerValues]:
    """The result of the layers for [B, T, D] without dropout, computed for some rows at a time."""

    def compute(layers: Any, carry: None, part: tuple[jax.Array, Tokens]) -> Any:
        hidden, tokens = part
        hidden, values = layers(
            hidden.astype(dtype), tokens, True, RequestedOutputs(), numbers, None
        )
        return carry, (hidden.astype(jnp.float32), values)

    # In float32: a CPU's loop would convert a whole bfloat16 array to read a slice of it.
    dtype = hidden.dtype
    inputs = (hidden.astype(jnp.float32), tokens)
    parts = jax.tree.map(lambda array: array.reshape(-1, rows, *array.shape[1:]), inputs)
    loop = nn.scan(compute, variable_broadcast="params", split_rngs={"params": False})
    _, (output, values) = loop(layers, None, parts)
    return output.astype(dtype).reshape(hidden.shape), values


def _intermediates(
    config: EncoderConfig,
    requested: RequestedOutputs,
    embedded: jax.Array,
    values: LayerValues,
    tokens: Tokens,
) -> Intermediates:
    """The requested hidden states, attention weights and value relations of the layers.

    Weights are computed here and not in the layers, which are a loop: so they are computed for the
    requested layers only. `values` are those of all layers, [L, ...].
    """
    states = values.hidden
    if states is not None:
        states = jnp.concatenate([embedded[None], states])
    layers: Any = slice(None)
    if requested.attention_layers is not None:
        layers = np.array(requested.attention_layers) - 1
    windows = np.array(config.windows, dtype=object)[layers]
    window = None if all(each is None for each in windows) else _window_bias(windows, tokens.mask)

    def weights(
        query: jax.Array | None,
        key: jax.Array | None,
        scale: float,
        bias: jax.Array | None = None,
    ) -> jax.Array | None:
        if query is None or key is None:
            return None
        query, key, mask = query[layers], key[layers], tokens.mask.for_heads()
        return attention_weights(AttentionInputs(query, key, key, mask, scale, bias))

    scale = config.attention_scale
    bias = window if values.bias is None else values.bias[layers]
    attentions = weights(values.query, values.key, scale, bias)
    relations = weights(values.value, values.value, config.head_dim**-0.5, window)
    if tokens.memory is not None:
        tokens = tokens._replace(mask=tokens.memory.mask(tokens.mask))
    return states, attentions, relations, weights(values.cross_query, values.cross_key, scale)


def _window_bias(windows: Sequence[int | None], mask: AttentionMask) -> jax.Array:
    """The windows of some layers as a bias of scores, [L, B, 1, T, S]."""
    everything = mask.key_positions.shape[-1]
    are_far = [~mask.within(everything if w is None else w).visible for w in windows]  # BTS
    return jnp.where(jnp.stack(are_far), MASK_VALUE, 0)[:, :, None]

"""ELMo's layer: an LSTM forwards and one backwards, with projections, which never mix.

Peters et al., 2018 (https://arxiv.org/abs/1802.05365), section 3. Of a direction, with the input x,
the state h [P] and the cell c [F], and P = D / 2:

    i, g, f, o = W x + U h + b                                   TensorFlow's order of gates
    c' = clip(σ(f + 1) c + σ(i) tanh(g))                         at ± cell_clip
    h' = clip(V (σ(o) tanh(c')))                                 at ± projection_clip
    y  = h', or h' + x from the second layer on                  skip_connections

Source: allenai/bilm-tf, bilm/model.py (`tf.nn.rnn_cell.LSTMCell`); allennlp, modules/elmo_lstm.py.
"""

import dataclasses

import flax.linen as nn
import jax
import jax.numpy as jnp

from bert_jax.errors import OptionError, require_between
from bert_jax.models.config import EncoderConfig
from bert_jax.models.decoding import DecoderCache, RecurrentState
from bert_jax.models.execution import Execution
from bert_jax.models.head_options import HeadOptions
from bert_jax.models.kernels.matmul import affine
from bert_jax.models.layers import HIDDEN_AXES, kernel_init
from bert_jax.models.packed_rows import Tokens
from bert_jax.models.transformer_layer import LayerValues, RequestedOutputs

# Where each direction finds its half of the width.
DIRECTIONS = ("forward", "backward")


@dataclasses.dataclass(frozen=True)
class ProjectedLSTMOptions(HeadOptions):
    """The layers.

    Attributes:
        cell_clip: the largest absolute value in a cell; None: any.
        projection_clip: the largest absolute value in a state; None: any.
        skip_connections: whether each layer but the first adds its input to its output.
    """

    keys = ("cell_clip", "projection_clip", "skip_connections")
    cell_clip: float | None = None
    projection_clip: float | None = None
    skip_connections: bool = False

    def __post_init__(self) -> None:
        require_between("model.cell_clip", self.cell_clip, 0, without_low=True)
        require_between("model.projection_clip", self.projection_clip, 0, without_low=True)
        if not isinstance(self.skip_connections, bool):
            rule = "it must be True or False"
            raise OptionError("model.skip_connections", self.skip_connections, rule)


class ProjectedLSTMLayer(nn.Module):
    """Both directions of a layer: the first half of D reads forwards, the second backwards.

    A token that is padding leaves the state as it is, and its output is 0. The first token of the
    next text of a packed row finds the state 0.
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
        number: jax.Array,
        cache: DecoderCache | None,
    ) -> tuple[jax.Array, LayerValues]:
        """[B, T, D] → [B, T, D], and values that `nn.scan` stacks to [L, ...]."""
        known = RecurrentState.empty(self.config, len(hidden))
        if cache is not None:
            assert isinstance(cache.tokens, RecurrentState)
            known = cache.tokens
        outputs, states = [], []
        for number_of_half, direction in enumerate(DIRECTIONS):
            half, state = jax.tree.map(
                lambda array, n=number_of_half: jnp.split(array, 2, axis=-1)[n],
                (hidden, known.state),
            )
            is_backward = direction == "backward"
            read = ProjectedLSTM(self.config, self.execution, is_backward, name=direction)
            output, state = read(half, tokens.mask.key_ids, state)
            outputs.append(output)
            states.append(state)
        outer = jnp.concatenate(outputs, axis=-1).astype(hidden.dtype)
        if self.config.head_options(ProjectedLSTMOptions).skip_connections:
            outer += jnp.where(tokens.is_visible[..., None] & (number > 0), hidden, 0)
        outer = nn.with_logical_constraint(outer, HIDDEN_AXES)
        kept = None
        if cache is not None:
            last = jax.tree.map(lambda *halves: jnp.concatenate(halves, axis=-1), *states)
            kept = DecoderCache(RecurrentState(last, known.length + hidden.shape[1]))
        return outer, LayerValues(outer if requested.hidden_states else None, cache=kept)


class ProjectedLSTM(nn.Module):
    """One direction of a layer.

    Attributes:
        config: architecture of the model.
        execution: how it is computed.
        is_backward: whether it reads the last token first.
    """

    config: EncoderConfig
    execution: Execution
    is_backward: bool

    @nn.compact
    def __call__(
        self, inputs: jax.Array, text_ids: jax.Array, state: dict[str, jax.Array]
    ) -> tuple[jax.Array, dict[str, jax.Array]]:
        """Reads all tokens.

        Args:
            inputs: [B, T, P].
            text_ids: int32 [B, T], the text of its row that a token belongs to; 0: padding.
            state: before the first token that is read, "hidden" [B, P] and "cell" [B, F].

        Returns:
            The hidden state after each token, float32 [B, T, P], 0 for padding, and the state
            after the last one.
        """
        width = inputs.shape[-1]
        size, dtype = self.config.intermediate_size, self.execution.dtype
        options = self.config.head_options(ProjectedLSTMOptions)
        init = kernel_init(self.config)
        kernel = self.param("kernel", init, (2 * width, 4 * size))
        bias = self.param("bias", nn.initializers.zeros, (4 * size,))
        projection = self.param("projection_kernel", init, (size, width))
        input_kernel, state_kernel = jnp.split(kernel, 2)

        def step(carry: _Carry, token: tuple[jax.Array, jax.Array]) -> tuple[_Carry, jax.Array]:
            (gates, ids), (hidden, cell, text) = token, carry
            is_token = (ids > 0)[:, None]
            is_first = is_token & ((text > 0) & (ids != text))[:, None]
            hidden, cell = (jnp.where(is_first, 0, state) for state in (hidden, cell))
            gates += _product(hidden, state_kernel, dtype)
            i, g, f, o = jnp.split(gates, 4, axis=-1)
            new_cell = nn.sigmoid(f + 1) * cell + nn.sigmoid(i) * jnp.tanh(g)
            new_cell = _clipped(new_cell, options.cell_clip)
            projected = _product(nn.sigmoid(o) * jnp.tanh(new_cell), projection, dtype)
            hidden = jnp.where(is_token, _clipped(projected, options.projection_clip), hidden)
            cell = jnp.where(is_token, new_cell, cell)
            output = jnp.where(is_token, hidden, 0)
            return (hidden, cell, jnp.where(ids > 0, ids, text)), output

        start = state["hidden"], state["cell"], jnp.zeros_like(text_ids[:, 0])
        gates = _product(inputs, input_kernel, dtype) + bias  # of the inputs of all tokens at once
        by_token = gates.swapaxes(0, 1), text_ids.T
        last, outputs = jax.lax.scan(step, start, by_token, reverse=self.is_backward)
        return outputs.swapaxes(0, 1), {"hidden": last[0], "cell": last[1]}


_Carry = tuple[jax.Array, jax.Array, jax.Array]


def _product(vectors: jax.Array, kernel: jax.Array, dtype: str) -> jax.Array:
    """[..., I] and [I, O] → float32 [..., O], multiplied in a dtype."""
    zeros = jnp.zeros(kernel.shape[1])
    return affine(1, vectors.astype(dtype), kernel, zeros).astype(jnp.float32)


def _clipped(values: jax.Array, most: float | None) -> jax.Array:
    return values if most is None else jnp.clip(values, -most, most)


def flops_per_token(config: EncoderConfig) -> float:
    """FLOPs of the matrix products of a token in one layer, both directions, in a forward pass."""
    width, size = config.hidden_size // 2, config.intermediate_size
    return 2.0 * 2 * (2 * width * 4 * size + size * width)

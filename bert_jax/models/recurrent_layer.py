"""Recurrent layers: LSTM and GRU, which read the tokens of a row one after the other.

LSTM: Hochreiter and Schmidhuber, 1997, with the forget gate of Gers et al., 2000. GRU: Cho et al.,
2014 (https://arxiv.org/abs/1406.1078), with the reset gate after the product. For the input x, the
state h and, of an LSTM, the cell c:

    LSTM   i, f, g, o = W x + b + U h + d              GRU   r, z = σ(W x + b + U h + d)
           c' = σ(f) c + σ(i) tanh(g)                        n = tanh(W x + b + r (U h + d))
           h' = σ(o) tanh(c')                                h' = (1 - z) n + z h

These are the equations, biases and order of gates of PyTorch's `nn.LSTM` and `nn.GRU`, whose
tensors are the parameters. (`flax.linen`'s cells compute the same with one of the two biases of
most gates, so such files could not be saved as they were loaded; they multiply W x token by token,
which is here one product for all tokens; and `GRUCell` cannot drop values of h in U h alone.)
"""

from collections.abc import Callable
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp

from bert_jax.models.config import EncoderConfig
from bert_jax.models.decoding import DecoderCache, RecurrentState
from bert_jax.models.dropout import Dropout, ElementIndices, dropout_key_of, dropped
from bert_jax.models.execution import Execution
from bert_jax.models.layers import HIDDEN_AXES, dense
from bert_jax.models.packed_rows import Tokens
from bert_jax.models.transformer_layer import LayerValues, RequestedOutputs

State = dict[str, jax.Array]
"""The state of one direction, see `RecurrentState`, float32 [B, W]."""


def lstm(inputs: jax.Array, recurrent: jax.Array, state: State) -> State:
    """The state after one more token, from W x + b and U h + d, [B, 4 W]."""
    gates = inputs.astype(jnp.float32) + recurrent
    i, f, g, o = jnp.split(gates, 4, axis=-1)
    cell = nn.sigmoid(f) * state["cell"] + nn.sigmoid(i) * jnp.tanh(g)
    return {"hidden": nn.sigmoid(o) * jnp.tanh(cell), "cell": cell}


def gru(inputs: jax.Array, recurrent: jax.Array, state: State) -> State:
    """The state after one more token, from W x + b and U h + d, [B, 3 W]."""
    r_input, z_input, n_input = jnp.split(inputs.astype(jnp.float32), 3, axis=-1)
    r_state, z_state, n_state = jnp.split(recurrent, 3, axis=-1)
    z = nn.sigmoid(z_input + z_state)
    n = jnp.tanh(n_input + nn.sigmoid(r_input + r_state) * n_state)
    return {"hidden": (1 - z) * n + z * state["hidden"]}


CELLS: dict[str, tuple[Callable[[jax.Array, jax.Array, State], State], int]] = {
    "lstm": (lstm, 4),
    "gru": (gru, 3),
}
"""The cell of a layer's kind, and its number of gates."""


def flops_per_token(config: EncoderConfig) -> float:
    """FLOPs of the matrix products of one layer for one token, a forward pass."""
    directions, (_, gates) = 1 + config.bidirectional, CELLS[config.layer_kind]
    width = config.hidden_size // directions
    return 2.0 * directions * gates * width * (config.hidden_size + width)


class RecurrentLayer(nn.Module):
    """LSTM or GRU over a row, and dropout on its output (Zaremba et al., 2014, section 3).

    A token that is padding leaves the state as it is, wherever it stands, and its output is 0. The
    first token of the next text of a packed row finds the state 0. With `bidirectional` the output
    has two halves of width W = D / 2, of a state that reads forwards and of one that reads
    backwards; else W is D.

    `recurrent_dropout` drops values of h in U h, the same ones for all tokens of a row of the batch
    (Gal and Ghahramani, 2016, https://arxiv.org/abs/1512.05287).
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
        config = self.config
        known: RecurrentState = (
            RecurrentState.empty(config, len(hidden)) if cache is None else cache.tokens
        )
        directions = ("", "backward_")[: 1 + config.bidirectional]
        width = config.hidden_size // len(directions)
        states, outputs = [], []
        for index, direction in enumerate(directions):
            half = slice(index * width, (index + 1) * width)
            state = {name: array[:, half] for name, array in known.state.items()}
            state, output = self._read(hidden, tokens, state, direction, deterministic)
            states.append(state)
            outputs.append(output)
        outer = jnp.concatenate(outputs, axis=-1).astype(hidden.dtype)
        dropout = Dropout(config.hidden_dropout_prob)
        outer = dropout(outer, tokens.indices, deterministic=deterministic)
        outer = nn.with_logical_constraint(outer, HIDDEN_AXES)
        kept = None
        if cache is not None:
            last = jax.tree.map(lambda *halves: jnp.concatenate(halves, axis=-1), *states)
            kept = DecoderCache(RecurrentState(last, known.length + hidden.shape[1]))
        return outer, LayerValues(outer if requested.hidden_states else None, cache=kept)

    def _read(
        self, hidden: jax.Array, tokens: Tokens, state: State, direction: str, deterministic: bool
    ) -> tuple[State, jax.Array]:
        """The state after all tokens, and h after each one, float32 [B, T, W]."""
        config, execution = self.config, self.execution
        cell, gates = CELLS[config.layer_kind]
        width = state["hidden"].shape[-1]
        inputs = dense(config, execution, gates * width, f"{direction}input")(hidden)
        recurrent = dense(config, execution, gates * width, f"{direction}recurrent")
        rate = 0.0 if deterministic else config.recurrent_dropout
        key = dropout_key_of(self) if rate else None

        def step(recurrent: Any, carry: Any, token: Any) -> tuple[Any, jax.Array]:
            state, text = carry
            inputs, ids, rows = token
            is_token = (ids > 0)[:, None]
            is_first = is_token & ((text > 0) & (ids != text))[:, None]
            state = jax.tree.map(lambda array: jnp.where(is_first, 0, array), state)
            read = state["hidden"]
            if key is not None:
                read = dropped(rate, read, key, ElementIndices.from_rows(rows, width))
            after = cell(inputs, recurrent(read), state)
            state = jax.tree.map(lambda new, old: jnp.where(is_token, new, old), after, state)
            output = jnp.where(is_token, state["hidden"], 0)
            return (state, jnp.where(ids > 0, ids, text)), output

        ids = tokens.mask.key_ids  # BT
        # The index of the first token of each one's row in the batch.
        rows = tokens.indices - tokens.mask.key_positions
        read_all = nn.scan(
            step,
            variable_broadcast="params",
            split_rngs={"params": False},
            in_axes=1,
            out_axes=1,
            reverse=config.reverse_input or direction != "",
        )
        (state, _), outputs = read_all(
            recurrent, (state, jnp.zeros_like(ids[:, 0])), (inputs, ids, rows)
        )
        return state, outputs

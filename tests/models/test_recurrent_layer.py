"""Recurrent layers: Flax's cells compute the same; padding, packed rows, states and dropout."""

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bert_jax.errors import OptionError, UserError
from bert_jax.families.family import find_family
from bert_jax.models.decoding import DecoderCache
from bert_jax.models.encoder import Encoder
from bert_jax.models.execution import Execution
from bert_jax.models.head import find_head
from bert_jax.models.packed_rows import EncoderInputs, PackedRows
from bert_jax.models.transformer_layer import RequestedOutputs
from tests.random_params import random_params

KINDS = ("lstm", "gru")
IDS = np.int32([[5, 7, 9, 4, 2], [8, 6, 3, 0, 0], [1, 2, 0, 0, 0]])
MASK = np.int32([[1, 1, 1, 1, 1], [1, 1, 1, 0, 0], [1, 1, 0, 0, 0]])


def config_of(kind, **fields):
    sizes = {"vocab_size": 30, "hidden_size": 8, "num_hidden_layers": 2}
    sizes |= {"hidden_dropout_prob": 0.0, "scale_embedding": False}
    return find_family(kind).new_config("tiny", **sizes | fields)


def encoder_of(kind, **fields):
    """The config of an encoder, and the function of inputs → its output."""
    config = config_of(kind, **fields)
    module = Encoder(config, add_pooling_layer=False)
    params = random_params(module, scale=0.5, all_differ=True)

    @jax.jit
    def apply(inputs, cache=None, key=None):
        rngs = None if key is None else {"dropout": key}
        return module.apply(
            {"params": params}, inputs, key is None, cache=cache, method="encode", rngs=rngs
        )

    return config, params, apply


def flax_outputs(kind, layer, direction, inputs):
    """[B, T, D] → [B, T, W] by Flax's cell with the parameters of one of our layers."""
    own = {name: layer[f"{direction}{name}"] for name in ("input", "recurrent")}
    gates = ("i", "f", "g", "o") if kind == "lstm" else ("r", "z", "n")
    of_flax = {}
    for name, letter in (("input", "i"), ("recurrent", "h")):
        kernels = np.split(own[name]["kernel"], len(gates), axis=-1)
        biases = np.split(own[name]["bias"], len(gates), axis=-1)
        of_flax |= {
            letter + gate: {"kernel": kernel, "bias": bias}
            for gate, kernel, bias in zip(gates, kernels, biases, strict=True)
        }
    # Of the two biases of a gate Flax has one, except for n.
    for gate in gates:
        if gate != "n":
            kept, left = ("h", "i") if kind == "lstm" else ("i", "h")
            other = of_flax[left + gate].pop("bias")
            of_flax[kept + gate]["bias"] = of_flax[kept + gate]["bias"] + other
    width = of_flax[f"i{gates[0]}"]["kernel"].shape[-1]
    cell = nn.OptimizedLSTMCell(width) if kind == "lstm" else nn.GRUCell(width)
    rnn = nn.RNN(cell, reverse=direction != "", keep_order=True)
    return rnn.apply({"params": {"cell": of_flax}}, inputs)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("bidirectional", [False, True])
def test_layers_compute_what_cells_of_flax_compute(kind, bidirectional):
    _, params, apply = encoder_of(kind, bidirectional=bidirectional)
    ids = IDS[:1]
    hidden = params["embeddings"]["word_embeddings"]["embedding"][ids]
    for number in range(2):
        layer = jax.tree.map(lambda leaf, n=number: leaf[n], params["encoder"]["layers"])
        directions = ("", "backward_") if bidirectional else ("",)
        parts = [flax_outputs(kind, layer, direction, hidden) for direction in directions]
        hidden = jnp.concatenate(parts, axis=-1)
    np.testing.assert_allclose(apply(EncoderInputs(ids)).last_hidden_state, hidden, atol=1e-5)


@pytest.mark.parametrize("kind", KINDS)
def test_padding_anywhere_leaves_the_state_alone(kind):
    """Before, between and after the tokens; the state is that after each row's last token."""
    config, _, apply = encoder_of(kind, bidirectional=True)
    cache = DecoderCache.empty(config, Execution(), 1, 0)
    alone = apply(EncoderInputs(IDS[1:2, :3], position_ids=IDS[1:2, :3]), cache)
    cache = DecoderCache.empty(config, Execution(), 2, 0)
    ids, mask = np.int32([[0, 8, 0, 6, 3], [8, 6, 3, 0, 0]]), np.int32([[0, 1, 0, 1, 1], MASK[1]])
    padded = apply(EncoderInputs(ids, attention_mask=mask, position_ids=ids), cache)
    for row in (0, 1):
        hidden = padded.last_hidden_state[row]
        np.testing.assert_allclose(hidden[mask[row] == 1], alone.last_hidden_state[0], atol=1e-6)
        np.testing.assert_array_equal(hidden[mask[row] == 0], 0)
        for name, expected in alone.cache.tokens.state.items():
            state = padded.cache.tokens.state[name]
            np.testing.assert_allclose(state[:, row], expected[:, 0], atol=1e-6)
    # The forward half of the last layer's state is its last output, the backward half its first.
    state, hidden = alone.cache.tokens.state["hidden"][-1, 0], alone.last_hidden_state[0]
    np.testing.assert_array_equal(state, jnp.concatenate([hidden[-1, :4], hidden[0, 4:]]))


@pytest.mark.parametrize("kind", KINDS)
def test_texts_of_a_packed_row_are_texts_in_separate_rows(kind):
    """As pre-training packs, and as labelled tasks do, with the same dropout masks."""
    rates = {"hidden_dropout_prob": 0.2, "recurrent_dropout": 0.5}
    _, _, apply = encoder_of(kind, bidirectional=True, **rates)
    separate = apply(EncoderInputs(IDS, attention_mask=MASK)).last_hidden_state
    packed = EncoderInputs(
        np.int32([[5, 7, 9, 4, 2, 8, 6, 3, 1, 2, 0]]),
        segment_ids=np.int32([[1, 1, 1, 1, 1, 2, 2, 2, 3, 3, 0]]),
    )
    hidden = apply(packed).last_hidden_state
    np.testing.assert_allclose(hidden[:, :10], separate[MASK == 1][None], atol=1e-6)

    layout = PackedRows(
        np.int32([[[0, 1, 2, 3, 4, -1, -1], [5, 6, 7, 10, 11, -1, -1]]]),
        np.int32([[[0, 1, 2, 3, 4], [7, 8, 9, -1, -1], [10, 11, -1, -1, -1]]]),
    )
    key = jax.random.key(3)
    separate = apply(EncoderInputs(IDS, attention_mask=MASK), key=key).last_hidden_state
    inputs = EncoderInputs(IDS, attention_mask=MASK, packed_rows=layout)
    hidden = apply(inputs, key=key).last_hidden_state
    np.testing.assert_allclose(hidden[MASK == 1], separate[MASK == 1], atol=1e-6)


def test_dropout_of_states_is_one_mask_for_a_row_in_any_micro_batch():
    """With weights that keep the state, a dropped value of it is dropped after each token."""
    _, _, apply = encoder_of("lstm", recurrent_dropout=0.5)
    key = jax.random.key(1)
    whole = apply(EncoderInputs(IDS, attention_mask=MASK), key=key).last_hidden_state
    part = EncoderInputs(IDS[1:], attention_mask=MASK[1:], row_indices=np.int32([1, 2]))
    np.testing.assert_allclose(apply(part, key=key).last_hidden_state, whole[1:], atol=1e-6)
    other = apply(EncoderInputs(IDS[1:], attention_mask=MASK[1:]), key=key).last_hidden_state
    assert np.abs(other - whole[1:]).max() > 0.01
    # The first token follows the state 0, of which nothing can be dropped.
    dropless = apply(EncoderInputs(IDS, attention_mask=MASK)).last_hidden_state
    np.testing.assert_allclose(whole[:, 0], dropless[:, 0], atol=1e-6)
    assert np.abs(whole[:, 1] - dropless[:, 1]).max() > 0.01


@pytest.mark.parametrize("kind", KINDS)
def test_a_prompt_with_padding_before_it_and_a_state_is_the_whole_pass(kind):
    config = config_of(kind, embedding_size=6)
    module = find_head("causal_lm").make(config)
    params = random_params(module, scale=0.5)
    assert params["lm_head"]["projection"]["kernel"].shape == (8, 6)
    whole = module.apply({"params": params}, np.int32([[8, 6, 3, 7]]))[0]

    def step(ids, mask, cache):
        inputs = EncoderInputs(np.int32(ids), attention_mask=mask, position_ids=np.int32(ids))
        return module.apply({"params": params}, inputs, cache, method="decode")

    cache = DecoderCache.empty(config, Execution(), 2, 4)
    prompts, mask = [[0, 8, 6], [5, 7, 9]], np.int32([[0, 1, 1], [1, 1, 1]])
    logits, cache = step(prompts, mask, cache)
    np.testing.assert_allclose(logits[0], whole[1], atol=1e-5)
    # A search goes on with other rows, and makes room for more tokens.
    cache = cache.reordered(lambda leaf: leaf[:, np.array([1, 0])]).resized(9)
    assert cache.tokens.length.tolist() == [3, 3]
    logits, cache = step([[2], [3]], None, cache)
    np.testing.assert_allclose(logits[1], whole[2], atol=1e-5)
    logits, _ = step([[2], [7]], None, cache)
    np.testing.assert_allclose(logits[1], whole[3], atol=1e-5)


def test_what_recurrent_layers_lack_is_refused():
    config = config_of("gru")
    with pytest.raises(UserError, match="gru layers have no attention weights; request hidden"):
        Encoder(config).init(
            jax.random.key(0), IDS, encoder_outputs=RequestedOutputs(attentions=True)
        )
    both = config_of("gru", bidirectional=True)
    with pytest.raises(OptionError, match="language model may not read the next token"):
        find_head("causal_lm").make(both).init(jax.random.key(0), IDS)
    with pytest.raises(OptionError, match=r"must be even, half for each direction"):
        config_of("lstm", bidirectional=True, hidden_size=9)
    with pytest.raises(OptionError, match="lstm models have no num_attention_heads"):
        config_of("lstm", num_attention_heads=2)

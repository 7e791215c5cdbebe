"""An encoder-decoder of recurrent layers: step by step, reversed, and as PyTorch computes it."""

import dataclasses

import jax
import numpy as np
import pytest

from bert_jax.errors import UserError
from bert_jax.models import surgery
from bert_jax.models.decoder_attention import SCORES
from bert_jax.models.encoder import RequestedOutputs
from bert_jax.models.head import find_head, with_fields
from bert_jax.models.heads.text_to_text import NO_ATTENTION
from bert_jax.models.packed_rows import EncoderInputs
from tests.random_params import random_params, small_config

TEXTS = np.int32([[5, 7, 9, 4], [8, 6, 0, 0]])
MASK = np.int32([[1, 1, 1, 1], [1, 1, 0, 0]])
OUTPUTS = np.int32([[3, 11, 12], [3, 21, 22]])


def model_of(kind="lstm", attention="general", **fields):
    config = small_config(
        layer_kind=kind, position_kind="relative", type_vocab_size=0, embedding_norm=False, **fields
    )
    config = with_fields(config, {"decoder_attention": attention})
    module = find_head("text_to_text").make(config)
    return module, random_params(module, scale=0.5, all_differ=True)


def logits_of(module, params, texts=TEXTS, outputs=OUTPUTS, mask=MASK):
    return module.apply({"params": params}, texts, attention_mask=mask, decoder_input_ids=outputs)


@pytest.mark.parametrize(("kind", "attention"), [("lstm", "general"), ("gru", NO_ATTENTION)])
def test_tokens_one_by_one_are_the_whole_pass(kind, attention):
    """Then two beams that share the memory of a text."""
    module, params = model_of(kind, attention)

    def apply(*arguments, method):
        return module.apply({"params": params}, *arguments, method=method)

    expected = logits_of(module, params)
    memory = apply(EncoderInputs(TEXTS, attention_mask=MASK), method="memory")
    cache = apply(memory, method="start")
    for position in (0, 1):
        inputs = EncoderInputs(OUTPUTS[:, position : position + 1])
        logits, cache = apply(inputs, cache, memory, method="decode")
        np.testing.assert_allclose(logits, expected[:, position], atol=1e-5)
    last = np.int32([[12], [13], [22], [23]])
    beams = cache.reordered(lambda leaf: leaf[:, np.array([0, 0, 1, 1])])
    logits, _ = apply(EncoderInputs(last), beams, memory, method="decode")
    np.testing.assert_allclose(logits[::2], expected[:, 2], atol=1e-5)
    other = np.concatenate([OUTPUTS[:, :2], last[1::2]], axis=1)
    np.testing.assert_allclose(
        logits[1::2], logits_of(module, params, outputs=other)[:, 2], atol=1e-5
    )


def test_a_reversed_source_is_read_from_its_last_token():
    """As the reversed tokens of each text, padding aside; outputs stay with their tokens."""
    module, params = model_of(attention="dot")
    config = dataclasses.replace(module.config, reverse_input=True)
    backwards = np.int32([[4, 9, 7, 5], [6, 8, 0, 0]])
    expected = logits_of(module, params, backwards)
    reversed_module = module.clone(config=config)
    np.testing.assert_allclose(logits_of(reversed_module, params), expected, atol=1e-6)
    assert abs(logits_of(module, params) - expected).max() > 1e-2
    requested = RequestedOutputs(attentions=True)

    def weights(module, texts):
        inputs = {"attention_mask": MASK, "decoder_input_ids": OUTPUTS}
        apply = module.apply({"params": params}, texts, **inputs, encoder_outputs=requested)
        return apply[2].cross_attentions

    aligned = weights(module, backwards)
    assert aligned.shape == (1, 2, 1, 3, 4)
    found = weights(reversed_module, TEXTS)
    np.testing.assert_allclose(found[:, 0, :, :, ::-1], aligned[:, 0], atol=1e-6)
    np.testing.assert_allclose(found[:, 1, :, :, 1::-1], aligned[:, 1, :, :, :2], atol=1e-6)


def test_encoder_and_decoder_keep_the_same_layers():
    module, params = model_of("gru", "dot")
    fewer, config = surgery.keep_layers(params, module.config, [1])
    expected = jax.tree.map(np.asarray, params)
    for scope in ("bert", "decoder"):
        layers = expected[scope]["encoder"]["layers"]
        expected[scope]["encoder"]["layers"] = jax.tree.map(lambda leaf: leaf[1:], layers)
    jax.tree.map(np.testing.assert_array_equal, fewer, expected)
    assert logits_of(module.clone(config=config), fewer).shape == (2, 3, 50)


def test_what_a_recurrent_decoder_cannot_do_is_refused():
    module, params = model_of(attention=NO_ATTENTION)
    with pytest.raises(UserError, match="the rows have several: set data.packing=False"):
        module.apply({"params": params}, TEXTS, segment_ids=MASK, decoder_input_ids=OUTPUTS)
    requested = RequestedOutputs(attentions=True)
    with pytest.raises(UserError, match="model.decoder_attention is 'none'; give a model that was"):
        module.apply(
            {"params": params}, TEXTS, decoder_input_ids=OUTPUTS, encoder_outputs=requested
        )


@pytest.mark.parametrize("kind", ["lstm", "gru"])
@pytest.mark.parametrize("attention", [NO_ATTENTION, *SCORES])
@pytest.mark.slow
def test_logits_and_gradients_are_those_of_pytorch(kind, attention):
    """Each text alone, without padding: logits to 1e-5, gradients of all parameters to 1e-4."""
    torch = pytest.importorskip("torch")
    module, params = model_of(kind, attention)
    params = jax.tree.map(lambda leaf: leaf * 0.5, params)
    factors = np.random.default_rng(0).normal(size=(*OUTPUTS.shape, 50)).astype(np.float32)

    def loss(params):
        logits = logits_of(module, params)
        return (logits * factors).sum(), logits

    (_, logits), gradients = jax.jit(jax.value_and_grad(loss, has_aux=True))(params)
    leaves = jax.tree.map(lambda leaf: torch.tensor(np.array(leaf), requires_grad=True), params)
    recurrent = {"lstm": torch.lstm, "gru": torch.gru}[kind]

    def read(scope, ids, states):
        layers = scope["encoder"]["layers"]
        weights = [
            tensor
            for layer in range(module.config.num_hidden_layers)
            for tensor in (
                layers["input"]["kernel"][layer].T,
                layers["recurrent"]["kernel"][layer].T,
                layers["input"]["bias"][layer],
                layers["recurrent"]["bias"][layer],
            )
        ]
        embedded = leaves["bert"]["embeddings"]["word_embeddings"]["embedding"][ids][None]
        depth = module.config.num_hidden_layers
        output, *states = recurrent(embedded, states, weights, True, depth, 0.0, False, False, True)
        return output[0], states

    rows = []
    for text, mask, written in zip(TEXTS, MASK, OUTPUTS, strict=True):
        zeros = torch.zeros(module.config.num_hidden_layers, 1, module.config.hidden_size)
        start = (zeros, zeros) if kind == "lstm" else zeros
        h, states = read(leaves["bert"], text[: mask.sum()].tolist(), start)
        s, _ = read(leaves["decoder"], written.tolist(), states if kind == "lstm" else states[0])
        if attention != NO_ATTENTION:
            kernels = {name: leaf["kernel"] for name, leaf in leaves["decoder_attention"].items()}
            if attention == "additive":
                sums = (s @ kernels["query"])[:, None] + h @ kernels["key"]
                scores = (torch.tanh(sums) @ kernels["score"])[..., 0]
            else:
                scores = s @ (h @ kernels["key"] if attention == "general" else h).T
            attended = torch.softmax(scores, dim=1) @ h
            s = torch.tanh(torch.cat([attended, s], dim=1) @ kernels["combination"])
        rows.append(s @ leaves["bert"]["embeddings"]["word_embeddings"]["embedding"].T)
    expected = torch.stack(rows)
    (expected * torch.tensor(factors)).sum().backward()
    np.testing.assert_allclose(logits, expected.detach(), atol=1e-5)
    wanted = jax.tree.map(lambda leaf: leaf.grad.numpy(), leaves)
    jax.tree.map(
        lambda one, other: np.testing.assert_allclose(one, other, atol=1e-4), gradients, wanted
    )

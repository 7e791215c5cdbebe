"""A trained mix of layers: values by hand, packed rows, and BERT's heads that read it."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bert_jax.errors import OptionError
from bert_jax.models import surgery
from bert_jax.models.encoder import Encoder, abstract_params
from bert_jax.models.execution import Execution
from bert_jax.models.head import find_head, with_fields
from bert_jax.models.layer_mix import LayerMix
from bert_jax.models.packed_rows import EncoderInputs, PackedRows, Tokens
from bert_jax.models.transformer_layer import RequestedOutputs
from bert_jax.tasks.base.model_init import ModelInit, ModelOptions
from tests.random_params import random_params, small_config


def tokens_of(text_ids):
    ids = jnp.asarray(text_ids)
    return Tokens.in_batch_order(ids, ids)


def mixed(states, text_ids, weights, scale=1.0, *, is_normalized=False):
    params = {"weights": jnp.float32(weights), "scale": jnp.float32([scale])}
    module = LayerMix(is_normalized)
    return module.apply({"params": params}, jnp.float32(states), tokens_of(text_ids))


def test_the_sum_by_hand():
    states = [[[[4.0, 0.0], [1.0, 1.0]]], [[[8.0, 4.0], [5.0, -3.0]]]]  # two layers, two tokens
    # softmax(0, ln 3) = 1/4, 3/4.
    result = mixed(states, [[1, 1]], [0, math.log(3)], scale=2)
    np.testing.assert_allclose(result, [[[14, 6], [8, -4]]], rtol=1e-6)


def test_normalised_layers_by_hand():
    """Padding does not count, and neither does the other text of a packed row."""
    states = [[[[1.0, 3.0], [5.0, 7.0], [10.0, 20.0], [99.0, 98.0]]]]
    result = mixed(states, [[1, 1, 2, 0]], [0.3], is_normalized=True)
    # Text 1: mean 4, variance 5; text 2: mean 15, variance 25.
    root = math.sqrt(5)
    expected = [[-3 / root, -1 / root], [1 / root, 3 / root], [-1, 1]]
    np.testing.assert_allclose(result[0, :3], expected, rtol=1e-6)


@pytest.mark.parametrize("mix", ["softmax", "normalized"])
def test_a_head_reads_the_mix_in_rows_and_in_packed_rows(mix):
    config = with_fields(small_config(), {"layer_mix": mix, "num_labels": 3})
    module = find_head("tagging").make(config)
    params = random_params(module, all_differ=True)
    assert {name: leaf.shape for name, leaf in params["layer_mix"].items()} == {
        "weights": (3,),
        "scale": (1,),
    }
    ids = np.int32([[2, 10, 11, 3], [2, 20, 3, 0]])
    mask = np.int32(ids != 0)

    def outputs(**packed):
        inputs = EncoderInputs(ids, attention_mask=mask, **packed)
        return jax.jit(lambda inputs: module.apply({"params": params}, inputs))(inputs)

    encoder = Encoder(config, add_pooling_layer=False)
    states = encoder.apply(
        {"params": params["bert"]},
        EncoderInputs(ids, attention_mask=mask),
        encoder_outputs=RequestedOutputs(hidden_states=True),
    ).hidden_states
    vectors = LayerMix(mix == "normalized").apply(
        {"params": params["layer_mix"]}, states, tokens_of(mask)
    )
    expected = vectors @ params["classifier"]["kernel"] + params["classifier"]["bias"]
    logits = outputs()
    np.testing.assert_allclose(logits[mask == 1], expected[mask == 1], atol=1e-5)

    pack = np.int32([[[0, 1, 2, 3, 4, 5, 6, -1]]])
    back = np.int32([[0, 1, 2, 3], [4, 5, 6, -1]])
    packed = PackedRows.from_batch({"pack_indices": pack, "unpack_indices": back})
    np.testing.assert_allclose(outputs(packed_rows=packed)[mask == 1], logits[mask == 1], atol=1e-5)


def test_a_model_without_a_mix_has_no_parameters_of_one():
    config = with_fields(small_config(), {"layer_mix": "none"})
    assert config == small_config()
    assert "layer_mix" not in abstract_params(find_head("classification").make(config))
    with pytest.raises(OptionError, match="layer_mix is 'sum'; known are none, softmax, normal"):
        with_fields(config, {"layer_mix": "sum"})


def test_the_pooler_reads_the_mix():
    config = with_fields(small_config(), {"layer_mix": "softmax"})
    module = find_head("classification").make(config)
    params = random_params(module)
    ids = np.int32([[2, 10, 11, 3]])
    states = (
        Encoder(config)
        .apply(
            {"params": params["bert"]}, ids, encoder_outputs=RequestedOutputs(hidden_states=True)
        )
        .hidden_states
    )
    weights = jax.nn.softmax(params["layer_mix"]["weights"])
    first = jnp.einsum("L,LD->D", weights, states[:, 0, 0]) * params["layer_mix"]["scale"]
    dense = params["bert"]["pooler"]["dense"]
    pooled = jnp.tanh(first @ dense["kernel"] + dense["bias"])
    expected = pooled @ params["classifier"]["kernel"] + params["classifier"]["bias"]
    actual = module.apply({"params": params}, ids)
    np.testing.assert_allclose(actual[0], expected, atol=1e-5)


def test_a_model_with_fewer_layers_has_the_weights_of_those_that_stay():
    config = with_fields(small_config(num_hidden_layers=3), {"layer_mix": "softmax"})
    params = random_params(find_head("classification").make(config))
    kept, fewer = surgery.keep_layers(params, config, (0, 2))
    weights = params["layer_mix"]["weights"]
    assert kept["layer_mix"]["weights"].tolist() == [weights[0], weights[1], weights[3]]
    expected = abstract_params(find_head("classification").make(fewer))
    assert jax.tree.map(jnp.shape, kept) == jax.tree.map(jnp.shape, expected)


def test_a_mix_that_the_head_of_a_training_does_not_read_is_refused(tokenizer):
    init = ModelInit(Execution(), options=ModelOptions(fields={"layer_mix": "softmax"}))
    for head in ("classification", "tagging", "multiple_choice"):
        config = init.describe(tokenizer, head).config
        assert "layer_mix" in abstract_params(find_head(head).make(config))
    for head in ("encoder", "question_answering"):
        message = f"layer_mix is 'softmax'; the head {head} reads the last layer alone: leave it"
        with pytest.raises(OptionError, match=message):
            init.describe(tokenizer, head)

"""The models with their heads: shapes, dropout before a classifier, requested values."""

import dataclasses

import flax
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax.traverse_util import flatten_dict

from bert_jax.models.config import EncoderConfig
from bert_jax.models.encoder import Encoder, RequestedOutputs, abstract_params
from bert_jax.models.execution import Execution
from bert_jax.models.head import all_heads, find_head
from tests.random_params import random_params

CONFIG = EncoderConfig(
    vocab_size=11,
    hidden_size=6,
    num_hidden_layers=2,
    num_attention_heads=3,
    intermediate_size=5,
    max_position_embeddings=9,
    num_labels=4,
)
IDS = np.array([[2, 5, 6, 3], [2, 7, 3, 0]])
MASK = np.array([[1, 1, 1, 1], [1, 1, 1, 0]])


def run(module, params, ids=IDS, attention_mask=None, encoder_outputs=None):
    """The module's output, compiled in one piece."""

    @jax.jit
    def apply(params, ids, attention_mask):
        return module.apply(
            {"params": params}, ids, None, attention_mask, encoder_outputs=encoder_outputs
        )

    return jax.tree.map(np.asarray, apply(params, ids, attention_mask))


POOLED = {"encoder", "pretraining", "next_sentence", "classification", "multiple_choice"}
SHAPES = {
    "masked_lm": (2, 4, 11),
    "next_sentence": (2, 2),
    "classification": (2, 4),
    "tagging": (2, 4, 4),
}


@pytest.mark.slow
def test_parameters_and_logits_of_every_head():
    for head in (name for name, head in all_heads().items() if head.module):
        params = abstract_params(find_head(head).make(CONFIG))
        assert any("pooler" in path for path in flatten_dict(params, sep="/")) == (head in POOLED)
        if head in SHAPES:
            module = find_head(head).make(CONFIG, Execution(dtype="bfloat16"))
            logits = jax.eval_shape(module.apply, {"params": params}, IDS, attention_mask=MASK)
            assert (logits.shape, logits.dtype) == (SHAPES[head], jnp.float32)


@pytest.mark.slow
@pytest.mark.parametrize("head", ["classification", "tagging"])
def test_the_rate_of_the_dropout_before_a_classifier(head):
    """All other dropout is off: with a rate of 0.5, logits differ between two draws."""
    config = dataclasses.replace(
        CONFIG, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0, classifier_dropout=0.5
    )
    module = find_head(head).make(config)
    params = random_params(module, scale=0.3)

    @jax.jit
    def logits(seed):
        rngs = {"dropout": jax.random.key(seed)}
        return module.apply({"params": params}, IDS, deterministic=False, rngs=rngs)

    assert logits(0).tolist() == logits(0).tolist() != logits(1).tolist()
    # None: the rate of the hidden states, here 0, for which no RNG is needed.
    default = module.clone(config=dataclasses.replace(config, classifier_dropout=None))
    jax.eval_shape(
        lambda params: default.apply({"params": params}, IDS, deterministic=False), params
    )
    with pytest.raises(flax.errors.InvalidRngError):
        jax.eval_shape(
            lambda params: module.apply({"params": params}, IDS, deterministic=False), params
        )


@pytest.mark.parametrize(("scan_layers", "remat"), [(True, "full"), (False, "none")])
@pytest.mark.slow
def test_hidden_states_attention_weights_and_value_relations(scan_layers, remat):
    params = random_params(Encoder(CONFIG), scale=0.3)
    plain = run(Encoder(CONFIG), params, attention_mask=MASK)
    assert (plain.hidden_states, plain.attentions, plain.value_relations) == (None, None, None)
    module = Encoder(CONFIG, Execution(scan_layers=scan_layers, remat=remat))
    requested = RequestedOutputs(hidden_states=True, attentions=True, value_relations=True)
    output = run(module, params, attention_mask=MASK, encoder_outputs=requested)
    np.testing.assert_allclose(output.last_hidden_state, plain.last_hidden_state, atol=1e-6)
    assert output.hidden_states.shape == (3, 2, 4, 6)  # [L + 1, B, T, D]
    np.testing.assert_array_equal(output.hidden_states[-1], output.last_hidden_state)
    # The first are the embeddings: normalised, so of mean 0 at every token.
    np.testing.assert_allclose(output.hidden_states[0].mean(axis=-1), 0, atol=1e-6)
    assert output.attentions.shape == (2, 2, 3, 4, 4)  # [L, B, N, T, T]
    np.testing.assert_allclose(output.attentions.sum(axis=-1), 1, rtol=1e-6)
    assert not output.attentions[:, 1, :, :, 3].any()  # no token sees padding

    value = params["encoder"]["layers"]["attention"]["value"]
    values = np.einsum("LBTD,LDNH->LBNTH", output.hidden_states[:2], value["kernel"])
    values += np.asarray(value["bias"])[:, None, :, None]
    scores = np.einsum("LBNTH,LBNSH->LBNTS", values, values) / np.sqrt(values.shape[-1])
    powers = np.exp(scores) * (np.asarray(MASK)[:, None, None] > 0)
    relations = powers / powers.sum(axis=-1, keepdims=True)
    np.testing.assert_allclose(output.value_relations, relations, atol=1e-5)

    requested = requested._replace(hidden_states=False, attention_layers=(2,))
    last = run(module, params, attention_mask=MASK, encoder_outputs=requested)
    assert last.hidden_states is None
    for name in ("attentions", "value_relations"):
        expected = getattr(output, name)[1:]
        np.testing.assert_allclose(getattr(last, name), expected, atol=1e-6, err_msg=name)

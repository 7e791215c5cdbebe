"""The models with their heads: shapes, dropout before a classifier, intermediate results."""

import dataclasses

import flax
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax.traverse_util import flatten_dict

from bert_jax.models.config import EncoderConfig
from bert_jax.models.encoder import Encoder, abstract_params
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


def run(module, params, ids=IDS, attention_mask=None, **switches):
    """The module's output, compiled in one piece."""

    @jax.jit
    def apply(params, ids, attention_mask):
        return module.apply({"params": params}, ids, attention_mask=attention_mask, **switches)

    return jax.tree.map(np.asarray, apply(params, ids, attention_mask))


POOLED = {
    "encoder",
    "pretraining",
    "next_sentence",
    "classification",
    "multiple_choice",
}


SHAPES = {
    "masked_lm": (2, 4, 11),
    "next_sentence": (2, 2),
    "classification": (2, 4),
    "tagging": (2, 4, 4),
}


def test_parameters_and_logits_of_every_head():
    for head in (name for name, head in all_heads().items() if head.module):
        params = abstract_params(find_head(head).make(CONFIG))
        assert any("pooler" in path for path in flatten_dict(params, sep="/")) == (head in POOLED)
        if head in SHAPES:
            module = find_head(head).make(CONFIG, Execution(dtype="bfloat16"))
            logits = jax.eval_shape(module.apply, {"params": params}, IDS, attention_mask=MASK)
            assert (logits.shape, logits.dtype) == (SHAPES[head], jnp.float32)


def test_an_answer_has_a_start_and_an_end():
    module = find_head("question_answering").make(CONFIG)
    params = random_params(module, scale=0.3)
    output = run(module, params, attention_mask=MASK)
    assert output.start_logits.shape == output.end_logits.shape == (2, 4)
    assert set(params["bert"]) == {"embeddings", "encoder"}
    encoder = Encoder(CONFIG, add_pooling_layer=False)
    hidden = run(encoder, params["bert"], attention_mask=MASK)
    assert hidden.pooler_output is None
    kernel = params["qa_outputs"]["kernel"]
    np.testing.assert_allclose(
        output.end_logits, hidden.last_hidden_state @ kernel[:, 1], atol=1e-6
    )


def test_every_choice_is_scored_by_itself():
    module = find_head("multiple_choice").make(CONFIG)
    params = random_params(module, seed=1, scale=0.3)
    # [B, C, T]: two choices of one question, and each as the only one of its question.
    both = run(module, params, IDS[None], MASK[None])
    alone = run(module, params, IDS[:, None], MASK[:, None])
    assert (both.shape, alone.shape) == ((1, 2), (2, 1))
    np.testing.assert_allclose(alone[:, 0], both[0], atol=1e-6)


@pytest.mark.parametrize("head", ["classification", "tagging"])
def test_the_dropout_before_a_classifier_has_its_own_rate(head):
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
    # None: that of the hidden states, here 0, for which no RNG is needed.
    default = module.clone(config=dataclasses.replace(config, classifier_dropout=None))
    jax.eval_shape(
        lambda params: default.apply({"params": params}, IDS, deterministic=False), params
    )
    with pytest.raises(flax.errors.InvalidRngError):
        jax.eval_shape(
            lambda params: module.apply({"params": params}, IDS, deterministic=False), params
        )


def test_an_untied_decoder_has_its_own_table():
    config = dataclasses.replace(CONFIG, tie_word_embeddings=False)
    module = find_head("masked_lm").make(config)
    params = random_params(module, scale=0.3)
    assert params["mlm_head"]["decoder"].shape == (11, 6)
    apply = jax.jit(lambda params: module.apply({"params": params}, IDS))
    before = apply(params)
    params["mlm_head"]["decoder"] = 2 * params["mlm_head"]["decoder"]
    np.testing.assert_allclose(apply(params), 2 * before, rtol=1e-5)


def test_hidden_states_attention_weights_and_value_relations():
    params = random_params(Encoder(CONFIG), scale=0.3)
    plain = run(Encoder(CONFIG), params, attention_mask=MASK)
    assert plain.hidden_states is None
    assert plain.attentions is None
    assert plain.value_relations is None
    for scan_layers, remat in ((True, "full"), (False, "none")):
        found = run(
            Encoder(CONFIG, Execution(scan_layers=scan_layers, remat=remat)),
            params,
            attention_mask=MASK,
            output_hidden_states=True,
            output_attentions=True,
            output_value_relations=True,
        )
        np.testing.assert_allclose(found.last_hidden_state, plain.last_hidden_state, atol=1e-6)
        assert found.hidden_states.shape == (3, 2, 4, 6)  # [L + 1, B, T, D]
        np.testing.assert_array_equal(found.hidden_states[-1], found.last_hidden_state)
        # The first are the embeddings: normalised, so of mean 0 at every token.
        np.testing.assert_allclose(found.hidden_states[0].mean(axis=-1), 0, atol=1e-6)
        assert found.attentions.shape == (2, 2, 3, 4, 4)  # [L, B, N, T, T]
        np.testing.assert_allclose(found.attentions.sum(axis=-1), 1, rtol=1e-6)
        assert not found.attentions[:, 1, :, :, 3].any()  # no token sees padding

        value = params["encoder"]["layers"]["attention"]["value"]
        values = np.einsum("LBTD,LDNH->LBNTH", found.hidden_states[:2], value["kernel"])
        values += np.asarray(value["bias"])[:, None, :, None]
        scores = np.einsum("LBNTH,LBNSH->LBNTS", values, values) / np.sqrt(values.shape[-1])
        powers = np.exp(scores) * (np.asarray(MASK)[:, None, None] > 0)
        relations = powers / powers.sum(axis=-1, keepdims=True)
        np.testing.assert_allclose(found.value_relations, relations, atol=1e-5)

        of_last = run(
            Encoder(CONFIG, Execution(scan_layers=scan_layers, remat=remat)),
            params,
            attention_mask=MASK,
            output_attentions=True,
            output_value_relations=True,
            attention_layers=(2,),
        )
        assert of_last.hidden_states is None
        for name in ("attentions", "value_relations"):
            expected, only = getattr(found, name)[1:], getattr(of_last, name)
            np.testing.assert_allclose(only, expected, atol=1e-6, err_msg=name)

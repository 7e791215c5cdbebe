"""The models with their heads: shapes, what the encoder tells on request, dropout before heads."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax.traverse_util import flatten_dict

from bert_jax.models.architectures import ARCHITECTURES
from bert_jax.models.bert import Bert, abstract_params, init_params
from bert_jax.models.config import BertConfig, Execution

CONFIG = BertConfig(
    vocab_size=11,
    hidden_size=6,
    num_hidden_layers=2,
    num_attention_heads=3,
    intermediate_size=5,
    max_position_embeddings=9,
    num_labels=4,
)
IDS = jnp.array([[2, 5, 6, 3], [2, 7, 3, 0]])
MASK = jnp.array([[1, 1, 1, 1], [1, 1, 1, 0]])

POOLED = {
    "BertModel",
    "BertForPreTraining",
    "BertForNextSentencePrediction",
    "BertForSequenceClassification",
    "BertForMultipleChoice",
}


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_only_models_that_read_it_have_a_pooler(name):
    names = flatten_dict(abstract_params(ARCHITECTURES[name](CONFIG)), sep="/")
    assert any("pooler" in path for path in names) == (name in POOLED)


@pytest.mark.parametrize(
    ("name", "shape"),
    [
        ("BertForMaskedLM", (2, 4, 11)),
        ("BertForNextSentencePrediction", (2, 2)),
        ("BertForSequenceClassification", (2, 4)),
        ("BertForTokenClassification", (2, 4, 4)),
    ],
)
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_shapes_of_logits(name, shape, dtype):
    module = ARCHITECTURES[name](CONFIG, Execution(dtype=dtype))
    params = init_params(module, jax.random.key(0))
    logits = module.apply({"params": params}, IDS, attention_mask=MASK)
    assert logits.shape == shape
    assert logits.dtype == jnp.float32
    assert np.isfinite(logits).all()


def test_an_answer_has_a_start_and_an_end():
    module = ARCHITECTURES["BertForQuestionAnswering"](CONFIG)
    params = init_params(module, jax.random.key(0))
    output = module.apply({"params": params}, IDS, attention_mask=MASK)
    assert output.start_logits.shape == output.end_logits.shape == (2, 4)
    hidden = Bert(CONFIG, add_pooling_layer=False).apply(
        {"params": params["bert"]}, IDS, attention_mask=MASK
    )
    kernel = params["qa_outputs"]["kernel"]
    np.testing.assert_allclose(
        output.end_logits, hidden.last_hidden_state @ kernel[:, 1], atol=1e-6
    )


def test_every_choice_is_scored_by_itself():
    module = ARCHITECTURES["BertForMultipleChoice"](CONFIG)
    params = init_params(module, jax.random.key(1))
    both = module.apply({"params": params}, IDS[None], attention_mask=MASK[None])
    assert both.shape == (1, 2)
    for choice in range(2):
        alone = module.apply(
            {"params": params},
            IDS[None, choice : choice + 1],
            attention_mask=MASK[None, choice : choice + 1],
        )
        np.testing.assert_allclose(alone[0, 0], both[0, choice], atol=1e-6)


@pytest.mark.parametrize(
    "name", ["BertForSequenceClassification", "BertForTokenClassification", "BertForMultipleChoice"]
)
def test_the_dropout_before_a_classifier_has_a_rate_of_its_own(name):
    """All other dropout is off: with a rate of 0.5, logits differ between two draws; with 0 not."""
    ids = IDS[None] if name == "BertForMultipleChoice" else IDS

    def logits(classifier_dropout, seed):
        config = BertConfig(
            **{
                **CONFIG.__dict__,
                "hidden_dropout_prob": 0.0,
                "attention_probs_dropout_prob": 0.0,
                "classifier_dropout": classifier_dropout,
            }
        )
        module = ARCHITECTURES[name](config)
        params = init_params(module, jax.random.key(0))
        return module.apply(
            {"params": params},
            ids,
            deterministic=False,
            rngs={"dropout": jax.random.key(seed)},
        ).tolist()

    assert logits(0.5, 1) != logits(0.5, 2)
    assert logits(None, 1) == logits(None, 2) == logits(0.0, 3)


def test_an_untied_decoder_is_a_table_of_its_own():
    config = BertConfig(**{**CONFIG.__dict__, "tie_word_embeddings": False})
    module = ARCHITECTURES["BertForMaskedLM"](config)
    params = init_params(module, jax.random.key(0))
    assert params["mlm_head"]["decoder"].shape == (11, 6)
    before = module.apply({"params": params}, IDS)
    params["mlm_head"]["decoder"] = 2 * params["mlm_head"]["decoder"]
    np.testing.assert_allclose(module.apply({"params": params}, IDS), 2 * before, rtol=1e-5)


@pytest.mark.parametrize("scan_layers", [True, False])
@pytest.mark.parametrize("remat", ["none", "full"])
def test_what_the_encoder_computes_inside(scan_layers, remat):
    module = Bert(CONFIG, Execution(scan_layers=scan_layers, remat=remat))
    params = init_params(module, jax.random.key(0))

    def run(**wishes):
        return module.apply({"params": params}, IDS, attention_mask=MASK, **wishes)

    plain = run()
    assert plain.hidden_states is None
    assert plain.attentions is None
    told = run(output_hidden_states=True, output_attentions=True)
    np.testing.assert_array_equal(told.last_hidden_state, plain.last_hidden_state)
    assert told.hidden_states.shape == (3, 2, 4, 6)  # [L + 1, B, T, D]
    np.testing.assert_array_equal(told.hidden_states[-1], told.last_hidden_state)
    # The first are the embeddings: normalised, so of mean 0 at every token.
    np.testing.assert_allclose(told.hidden_states[0].mean(axis=-1), 0, atol=1e-6)
    assert told.attentions.shape == (2, 2, 3, 4, 4)  # [L, B, N, T, T]
    np.testing.assert_allclose(told.attentions.sum(axis=-1), 1, rtol=1e-6)
    assert not np.asarray(told.attentions)[:, 1, :, :, 3].any()  # nobody looks at padding


def test_without_pooler():
    module = Bert(CONFIG, add_pooling_layer=False)
    params = init_params(module, jax.random.key(0))
    assert set(params) == {"embeddings", "encoder"}
    assert module.apply({"params": params}, IDS).pooler_output is None

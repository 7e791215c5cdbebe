"""The models with their heads: shapes, what the encoder tells on request, dropout before heads."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax.traverse_util import flatten_dict

from bert_jax.models.architectures import MODULES
from bert_jax.models.config import EncoderConfig, Head
from bert_jax.models.encoder import Encoder, abstract_params
from bert_jax.models.execution import Execution

CONFIG = EncoderConfig(
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


def random_params(module, seed=0):
    """Weights drawn by NumPy (nothing is compiled for it), biases 0 and scales 1."""
    generator = np.random.default_rng(seed)

    def draw(path, leaf):
        if path[-1].key in ("bias", "scale"):
            return np.full(leaf.shape, path[-1].key == "scale", np.float32)
        return generator.normal(0, 0.3, leaf.shape).astype(np.float32)

    return jax.tree_util.tree_map_with_path(draw, abstract_params(module))


def run(module, params, ids=IDS, attention_mask=None, **switches):
    """The module's output, compiled in one piece."""

    @jax.jit
    def apply(params, ids, attention_mask):
        return module.apply({"params": params}, ids, attention_mask=attention_mask, **switches)

    return apply(params, ids, attention_mask)


POOLED = {
    Head.ENCODER,
    Head.PRETRAINING,
    Head.NEXT_SENTENCE,
    Head.CLASSIFICATION,
    Head.MULTIPLE_CHOICE,
}


@pytest.mark.parametrize("name", MODULES)
def test_only_models_that_read_it_have_a_pooler(name):
    names = flatten_dict(abstract_params(MODULES[name](CONFIG)), sep="/")
    assert any("pooler" in path for path in names) == (name in POOLED)


@pytest.mark.parametrize(
    ("name", "shape"),
    [
        (Head.MASKED_LM, (2, 4, 11)),
        (Head.NEXT_SENTENCE, (2, 2)),
        (Head.CLASSIFICATION, (2, 4)),
        (Head.TAGGING, (2, 4, 4)),
    ],
)
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_shapes_of_logits(name, shape, dtype):
    module = MODULES[name](CONFIG, Execution(dtype=dtype))
    params = random_params(module, 0)
    logits = run(module, params, attention_mask=MASK)
    assert logits.shape == shape
    assert logits.dtype == jnp.float32
    assert np.isfinite(logits).all()


def test_an_answer_has_a_start_and_an_end():
    module = MODULES[Head.QUESTION_ANSWERING](CONFIG)
    params = random_params(module, 0)
    output = run(module, params, attention_mask=MASK)
    assert output.start_logits.shape == output.end_logits.shape == (2, 4)
    encoder = Encoder(CONFIG, add_pooling_layer=False)
    hidden = run(encoder, params["bert"], attention_mask=MASK)
    kernel = params["qa_outputs"]["kernel"]
    np.testing.assert_allclose(
        output.end_logits, hidden.last_hidden_state @ kernel[:, 1], atol=1e-6
    )


def test_every_choice_is_scored_by_itself():
    module = MODULES[Head.MULTIPLE_CHOICE](CONFIG)
    params = random_params(module, 1)
    both = run(module, params, IDS[None], MASK[None])
    assert both.shape == (1, 2)
    for choice in range(2):
        only = (None, slice(choice, choice + 1))
        alone = run(module, params, IDS[only], MASK[only])
        np.testing.assert_allclose(alone[0, 0], both[0, choice], atol=1e-6)


@pytest.mark.parametrize("name", [Head.CLASSIFICATION, Head.TAGGING, Head.MULTIPLE_CHOICE])
def test_the_dropout_before_a_classifier_has_a_rate_of_its_own(name):
    """All other dropout is off: with a rate of 0.5, logits differ between two draws; with 0 not."""
    ids = IDS[None] if name == Head.MULTIPLE_CHOICE else IDS

    def draws(classifier_dropout):
        """The logits of three draws."""
        config = dataclasses.replace(
            CONFIG,
            hidden_dropout_prob=0.0,
            attention_probs_dropout_prob=0.0,
            classifier_dropout=classifier_dropout,
        )
        module = MODULES[name](config)
        params = random_params(module)

        @jax.jit
        def logits(seed):
            rngs = {"dropout": jax.random.key(seed)}
            return module.apply({"params": params}, ids, deterministic=False, rngs=rngs)

        return [logits(seed).tolist() for seed in range(3)]

    dropped, none = draws(0.5), draws(None)
    assert dropped[0] != dropped[1]
    assert none[0] == none[1] == none[2]


def test_an_untied_decoder_is_a_table_of_its_own():
    config = dataclasses.replace(CONFIG, tie_word_embeddings=False)
    module = MODULES[Head.MASKED_LM](config)
    params = random_params(module, 0)
    assert params["mlm_head"]["decoder"].shape == (11, 6)
    before = run(module, params)
    params["mlm_head"]["decoder"] = 2 * params["mlm_head"]["decoder"]
    np.testing.assert_allclose(run(module, params), 2 * before, rtol=1e-5)


@pytest.mark.parametrize("scan_layers", [True, False])
@pytest.mark.parametrize("remat", ["none", "full"])
def test_what_the_encoder_computes_inside(scan_layers, remat):
    module = Encoder(CONFIG, Execution(scan_layers=scan_layers, remat=remat))
    params = random_params(module, 0)

    def told_by(**wishes):
        return run(module, params, attention_mask=MASK, **wishes)

    plain = told_by()
    assert plain.hidden_states is None
    assert plain.attentions is None
    told = told_by(output_hidden_states=True, output_attentions=True)
    np.testing.assert_array_equal(told.last_hidden_state, plain.last_hidden_state)
    assert told.hidden_states.shape == (3, 2, 4, 6)  # [L + 1, B, T, D]
    np.testing.assert_array_equal(told.hidden_states[-1], told.last_hidden_state)
    # The first are the embeddings: normalised, so of mean 0 at every token.
    np.testing.assert_allclose(told.hidden_states[0].mean(axis=-1), 0, atol=1e-6)
    assert told.attentions.shape == (2, 2, 3, 4, 4)  # [L, B, N, T, T]
    np.testing.assert_allclose(told.attentions.sum(axis=-1), 1, rtol=1e-6)
    assert not np.asarray(told.attentions)[:, 1, :, :, 3].any()  # nobody looks at padding


def test_without_pooler():
    module = Encoder(CONFIG, add_pooling_layer=False)
    params = random_params(module, 0)
    assert set(params) == {"embeddings", "encoder"}
    assert run(module, params).pooler_output is None

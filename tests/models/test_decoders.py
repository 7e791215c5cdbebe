"""Models that generate: a cache gives what the whole pass gives, and nothing sees the future."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax.traverse_util import flatten_dict

from bert_jax.families.family import find_family
from bert_jax.models import surgery
from bert_jax.models.decoding import DecoderCache
from bert_jax.models.embeddings import sinusoids
from bert_jax.models.encoder import abstract_params, init_params
from bert_jax.models.execution import Execution
from bert_jax.models.head import find_head
from bert_jax.models.heads.text_to_text import decoder_config
from bert_jax.models.packed_rows import EncoderInputs
from bert_jax.models.relative_positions import bucket_of
from tests.random_params import random_params

SIZES = {"vocab_size": 30, "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2}
DECODER = {"decoder_layers": 3, "decoder_attention_heads": 4, "decoder_ffn_dim": 20}
FIELDS = {
    "marian": {"intermediate_size": 24, "max_position_embeddings": 20, **DECODER},
    "bart": {"intermediate_size": 24, "max_position_embeddings": 20, **DECODER},
    "t5": {"attention_head_size": 6, "decoder_layers": 3, "hidden_act": "gated-gelu"},
    "gpt2": {"max_position_embeddings": 20},
    "openai_gpt": {"max_position_embeddings": 20},
}
TEXTS = np.int32([[5, 7, 9, 4], [8, 6, 0, 0]])
MASK = np.int32([[1, 1, 1, 1], [1, 1, 0, 0]])
OUTPUTS = np.int32([[3, 11, 12, 13, 14], [3, 21, 22, 23, 24]])


def model_of(name, head):
    config = find_family(name).new_config("tiny", **SIZES, **FIELDS[name])
    module = find_head(head).make(config)
    return config, module, random_params(module)


@pytest.mark.parametrize("name", ["marian", "bart", "t5"])
@pytest.mark.slow
def test_a_text_with_a_cache_is_the_whole_pass(name):
    """Two tokens at once, then one by one; then two beams that share the memory of a text."""
    config, module, params = model_of(name, "text_to_text")

    @jax.jit
    def whole(outputs):
        return module.apply(
            {"params": params}, TEXTS, attention_mask=MASK, decoder_input_ids=outputs
        )

    @jax.jit
    def step(ids, start, cache, memory):
        positions = jnp.broadcast_to(start + jnp.arange(ids.shape[1]), ids.shape)
        inputs = EncoderInputs(ids, position_ids=positions)
        return module.apply({"params": params}, inputs, cache, memory, method="decode")

    expected = whole(OUTPUTS)
    inputs = EncoderInputs(TEXTS, attention_mask=MASK)
    memory = module.apply({"params": params}, inputs, method="memory")
    cache = DecoderCache.empty(decoder_config(config), Execution(), 2, 6)
    logits, cache = step(OUTPUTS[:, :2], 0, cache, memory)
    np.testing.assert_allclose(logits, expected[:, 1], atol=1e-5)
    memory = memory.replace(hidden=None)  # the cache has its keys and values
    for position in (2, 3):
        ids = OUTPUTS[:, position : position + 1]
        logits, cache = step(ids, position, cache, memory)
        np.testing.assert_allclose(logits, expected[:, position], atol=1e-5)

    # The beams of a text end in different tokens; the second row of each pair comes first.
    last = np.int32([[14], [15], [24], [25]])
    logits, _ = step(last, 4, cache.reordered(lambda leaf: leaf[:, np.array([0, 0, 1, 1])]), memory)
    for beam in range(2):
        outputs = OUTPUTS.copy()
        outputs[:, 4] = last[beam::2, 0]
        np.testing.assert_allclose(logits[beam::2], whole(outputs)[:, 4], atol=1e-5)


@pytest.mark.parametrize("name", ["gpt2", "openai_gpt"])
@pytest.mark.slow
def test_a_prompt_with_padding_before_it_and_a_cache_is_the_whole_pass(name):
    config, module, params = model_of(name, "causal_lm")
    apply = jax.jit(lambda ids: module.apply({"params": params}, ids))
    cache = DecoderCache.empty(config, Execution(), 2, 8)

    @jax.jit
    def step(ids, positions, mask, cache):
        inputs = EncoderInputs(ids, position_ids=positions, attention_mask=mask)
        return module.apply({"params": params}, inputs, cache, method="decode")

    # The second prompt has two tokens, "8 6".
    prompts = np.int32([[5, 7, 9, 4], [0, 0, 8, 6]])
    mask = np.int32([[1, 1, 1, 1], [0, 0, 1, 1]])
    logits, cache = step(prompts, np.int32([[0, 1, 2, 3], [0, 0, 0, 1]]), mask, cache)
    np.testing.assert_allclose(logits[0], apply(prompts[:1])[0, -1], atol=1e-5)
    np.testing.assert_allclose(logits[1], apply(prompts[1:, 2:])[0, -1], atol=1e-5)
    logits, cache = step(np.int32([[2], [3]]), np.int32([[4], [2]]), None, cache)
    np.testing.assert_allclose(logits[0], apply(np.int32([[5, 7, 9, 4, 2]]))[0, -1], atol=1e-5)
    np.testing.assert_allclose(logits[1], apply(np.int32([[8, 6, 3]]))[0, -1], atol=1e-5)


@pytest.mark.slow
def test_no_token_sees_a_later_one_or_another_text_of_a_packed_row():
    """Two texts with their outputs in one row are the two texts alone."""
    _, module, params = model_of("t5", "text_to_text")
    apply = jax.jit(lambda *args, **inputs: module.apply({"params": params}, *args, **inputs))
    packed = apply(
        np.int32([[5, 7, 9, 8, 6, 0]]),
        segment_ids=np.int32([[1, 1, 1, 2, 2, 0]]),
        position_ids=np.int32([[0, 1, 2, 0, 1, 0]]),
        decoder_input_ids=np.int32([[3, 11, 3, 21, 22, 0]]),
        decoder_segment_ids=np.int32([[1, 1, 2, 2, 2, 0]]),
        decoder_position_ids=np.int32([[0, 1, 0, 1, 2, 0]]),
    )
    for text, output, start in (([5, 7, 9], [3, 11], 0), ([8, 6], [3, 21, 22], 2)):
        alone = apply(np.int32([text]), decoder_input_ids=np.int32([output]))
        np.testing.assert_allclose(packed[:, start : start + len(output)], alone, atol=1e-5)
    shorter = apply(np.int32([[8, 6]]), decoder_input_ids=np.int32([[3, 21]]))
    np.testing.assert_allclose(shorter, alone[:, :2], atol=1e-5)


@pytest.mark.slow
def test_buckets_of_distances():
    """T5's: 8 of 16 buckets for each direction, 4 exact ones, then logarithmic ones up to 20."""
    distances = jnp.array([-30, -20, -12, -5, -4, -3, -1, 0, 1, 3, 4, 12, 30])
    both = bucket_of(distances, 16, 20, is_causal=False)
    assert both.tolist() == [7, 7, 6, 4, 4, 3, 1, 0, 9, 11, 12, 14, 15]
    causal = bucket_of(distances, 8, 20, is_causal=True)
    assert causal.tolist() == [7, 7, 6, 4, 4, 3, 1, 0, 0, 0, 0, 0, 0]


def test_sinusoids_of_three_positions():
    expected = [
        [0, 0, 1, 1],
        [np.sin(1), np.sin(0.01), np.cos(1), np.cos(0.01)],
        [np.sin(2), np.sin(0.02), np.cos(2), np.cos(0.02)],
    ]
    np.testing.assert_allclose(sinusoids(3, 4), expected, atol=1e-7)


@pytest.mark.slow
def test_initial_values():
    """T5: 1 for tokens, else 1 / sqrt(inputs); GPT-2: 0.02, the last of a sub-layer smaller."""

    def deviations(name, head, **fields):
        config = find_family(name).new_config("tiny", vocab_size=500, **fields)
        params = jax.jit(lambda key: init_params(find_head(head).make(config), key))
        drawn = flatten_dict(params(jax.random.key(0)), sep="/")
        return {key: float(np.std(value)) for key, value in drawn.items()}

    t5 = deviations("t5", "text_to_text", hidden_act="gated-gelu")  # D 128, N 2, H 64, F 256
    layers = "decoder/encoder/layers"
    for name, expected in {
        "bert/embeddings/word_embeddings/embedding": 1.0,
        f"{layers}/cross_attention/query/kernel": (128 * 64) ** -0.5,
        f"{layers}/attention/value/kernel": 128**-0.5,
        f"{layers}/attention/output/kernel": 128**-0.5,
        f"{layers}/gate/kernel": 128**-0.5,
        f"{layers}/output/kernel": 256**-0.5,
    }.items():
        assert t5[name] == pytest.approx(expected, rel=0.03), name
    gpt = deviations("gpt2", "causal_lm")  # 2 layers; the normal distribution is cut at 2 sigma
    cut = 0.88
    assert gpt["bert/embeddings/word_embeddings/embedding"] == pytest.approx(0.02 * cut, rel=0.03)
    for name in ("attention/output/kernel", "output/kernel"):
        assert gpt[f"bert/encoder/layers/{name}"] == pytest.approx(0.01 * cut, rel=0.03)
    assert gpt["bert/encoder/layers/intermediate/kernel"] == pytest.approx(0.02 * cut, rel=0.03)


@pytest.mark.parametrize("name", ["marian", "bart", "t5"])
@pytest.mark.slow
def test_more_positions_and_fewer_layers_of_the_encoder(name):
    """Texts that fit keep their logits; the decoder keeps its three layers."""
    config, module, params = model_of(name, "text_to_text")
    longer, longer_config = surgery.extend_positions(params, config, config.max_length + 5)
    assert longer_config.max_length == config.max_length + 5
    inputs = {"attention_mask": MASK, "decoder_input_ids": OUTPUTS}
    expected = module.apply({"params": params}, TEXTS, **inputs)
    actual = module.clone(config=longer_config).apply({"params": longer}, TEXTS, **inputs)
    np.testing.assert_array_equal(actual, expected)
    fewer, fewer_config = surgery.keep_layers(params, config, [1])
    shapes = jax.tree.map(np.shape, fewer)
    assert shapes == jax.tree.map(np.shape, abstract_params(module.clone(config=fewer_config)))

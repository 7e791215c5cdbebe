"""Attention with a cache, token after token, and over the output of an encoder."""

import dataclasses
import functools
import operator

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bert_jax.models.attention import Attention
from bert_jax.models.config import EncoderConfig
from bert_jax.models.decoding import DecoderCache, EncoderMemory, KeyValueCache
from bert_jax.models.encoder import Encoder, RequestedOutputs, init_params
from bert_jax.models.execution import Execution
from bert_jax.models.kernels.xla import attention_weights
from bert_jax.models.layer_stack import LAYERS, LayerStack
from bert_jax.models.packed_rows import EncoderInputs, Tokens
from bert_jax.models.rotary_positions import rotated, rotations
from bert_jax.models.transformer_layer import LayerValues

ROWS, LENGTH = 2, 5
CONFIG = EncoderConfig(
    hidden_size=16, num_hidden_layers=4, num_attention_heads=2, intermediate_size=8
)
HIDDEN = np.random.default_rng(0).normal(size=(ROWS, LENGTH, 16)).astype(np.float32)


def causal_tokens(length, window):
    """Two rows of one text each; tokens see the window before them."""
    ids = np.ones((ROWS, length), np.int32)
    tokens = Tokens.in_batch_order(ids, ids)
    mask = tokens.mask.replace(
        query_positions=tokens.mask.key_positions, causal=True, window=window
    )
    return tokens._replace(mask=mask)


def drawn(shapes):
    generator = np.random.default_rng(2)
    return jax.tree.map(lambda leaf: generator.normal(0, 0.3, leaf.shape).astype("f"), shapes)


@pytest.mark.parametrize(("groups", "window"), [(None, None), (2, 1)])
@pytest.mark.slow
def test_token_after_token_with_a_cache_is_causal_attention(groups, window):
    """Three tokens at once, then one by one, with parameters of four layers or of two groups."""
    config = dataclasses.replace(CONFIG, num_hidden_groups=groups)
    module = LayerStack(config, Execution())
    options = {"deterministic": True, "requested": RequestedOutputs(attentions=True)}
    call, start = (functools.partial(method, **options) for method in (module.apply, module.init))
    whole = causal_tokens(LENGTH, window)
    params = drawn(jax.eval_shape(start, jax.random.key(0), HIDDEN, whole))
    expected, (_, expected_weights, *_), no_cache = jax.jit(call)(params, HIDDEN, whole)
    assert no_cache is None

    # A cache for one token more than there are.
    cache = DecoderCache.empty(config, Execution(), ROWS, LENGTH + 1)
    step = jax.jit(lambda hidden, tokens, cache: call(params, hidden, tokens, cache=cache))
    outputs, weights = [], []
    for begin, end in ((0, 3), (3, 4), (4, 5)):
        tokens = causal_tokens(end - begin, window)
        hidden, (_, attentions, *_), cache = step(HIDDEN[:, begin:end], tokens, cache)
        outputs.append(hidden)
        weights.append(attentions)
    np.testing.assert_allclose(np.concatenate(outputs, axis=1), expected, atol=1e-5)
    seen, empty = np.split(np.concatenate(weights, axis=3), [LENGTH], axis=4)
    np.testing.assert_allclose(seen, expected_weights, atol=1e-5)
    assert not empty.any()
    assert cache.tokens.length.tolist() == [LENGTH] * config.num_hidden_layers
    assert cache.tokens.key_ids[0].tolist() == [[1, 1, 1, 1, 1, 0]] * ROWS

    is_global = np.ones((ROWS, 1), bool)
    mask = tokens.mask.replace(global_queries=is_global, global_keys=is_global)
    with pytest.raises(ValueError, match="attention with a cache has no global tokens; leave them"):
        step(HIDDEN[:, 4:], tokens._replace(mask=mask), cache)


@pytest.mark.slow
def test_an_encoder_takes_and_returns_a_cache():
    """A row at once, and in two parts with the cache of the first."""
    module = Encoder(CONFIG, add_pooling_layer=False)
    empty = DecoderCache.empty(CONFIG, Execution(), ROWS, LENGTH)
    params = drawn(jax.eval_shape(functools.partial(init_params, module), jax.random.key(0)))
    ids = np.int32([[3, 1, 4, 1, 5], [2, 7, 1, 8, 2]])

    def encode(begin, end, cache, with_positions=True):
        positions = np.broadcast_to(np.arange(begin, end), (ROWS, end - begin))
        inputs = EncoderInputs(
            ids[:, begin:end], position_ids=positions if with_positions else None
        )
        return module.apply({"params": params}, inputs, True, cache=cache, method="encode")

    expected = encode(0, LENGTH, empty)
    first = encode(0, 3, empty)
    second = encode(3, LENGTH, first.cache)
    hidden = np.concatenate([first.last_hidden_state, second.last_hidden_state], axis=1)
    np.testing.assert_allclose(hidden, expected.last_hidden_state, atol=1e-5)
    assert second.cache.tokens.length.tolist() == [LENGTH] * CONFIG.num_hidden_layers
    with pytest.raises(ValueError, match="a cache needs position_ids"):
        encode(3, LENGTH, first.cache, with_positions=False)


@pytest.mark.slow
def test_attention_weights_of_three_tokens_one_at_a_time():
    """With parameters of 0 all scores are equal."""
    config = dataclasses.replace(CONFIG, num_hidden_layers=1)
    module = Encoder(config, add_pooling_layer=False)
    params = jax.tree.map(jnp.zeros_like, init_params(module, jax.random.key(0)))
    cache = DecoderCache.empty(config, Execution(), 1, 3)

    def encode(position, cache, requested):
        inputs = EncoderInputs(np.int32([[7]]), position_ids=np.int32([[position]]))
        return module.apply(
            {"params": params}, inputs, True, requested, cache=cache, method="encode"
        )

    for position, expected in enumerate([[1, 0, 0], [0.5, 0.5, 0], [1 / 3, 1 / 3, 1 / 3]]):
        output = encode(position, cache, RequestedOutputs(attentions=True))
        cache = output.cache
        assert output.attentions.shape == (1, 1, 2, 1, 3)
        np.testing.assert_allclose(output.attentions[0, 0, :, 0], [expected] * 2, rtol=1e-6)
    with pytest.raises(ValueError, match="no packed rows, trigrams, value relations or pooling"):
        encode(0, cache, RequestedOutputs(value_relations=True))
    # A fourth token has no room: NaN, not the attention of other tokens.
    assert np.isnan(encode(3, cache, None).last_hidden_state).all()
    assert np.isfinite(output.last_hidden_state).all()


def test_more_tokens_than_a_cache_has_room_for_are_refused():
    cache = KeyValueCache.empty(CONFIG, Execution(), ROWS, 2)
    tokens = np.zeros((ROWS, 2, 3, 8), np.float32)
    with pytest.raises(ValueError, match="^3 tokens do not fit in a cache of 2; make a larger one"):
        cache.append(tokens, tokens, np.ones((ROWS, 3), np.int32))


def test_a_pooling_layer_with_a_cache_is_refused():
    """It would return the vector of the first token of each call."""
    module = Encoder(CONFIG, add_pooling_layer=True)
    cache = DecoderCache.empty(CONFIG, Execution(), 1, 2)
    inputs = EncoderInputs(np.int32([[7, 8]]), position_ids=np.int32([[0, 1]]))
    with pytest.raises(ValueError, match="a cache needs position_ids, and no .* pooling layer"):
        jax.eval_shape(
            lambda key: module.init(key, inputs, True, cache=cache, method="encode"),
            jax.random.key(0),
        )


@pytest.mark.slow
def test_a_window_counts_no_padding_before_a_prompt():
    """A prompt of two tokens beside one of four, then two more tokens of each."""
    config = dataclasses.replace(CONFIG, num_hidden_layers=1)
    module = LayerStack(config, Execution())
    options = {"deterministic": True, "requested": RequestedOutputs()}
    call, start = (functools.partial(method, **options) for method in (module.apply, module.init))
    params = drawn(jax.eval_shape(start, jax.random.key(0), HIDDEN, causal_tokens(LENGTH, 1)))
    alone, *_ = call(params, HIDDEN[:, 1:], causal_tokens(LENGTH - 1, 1))

    ids = np.int32([[1, 1, 1, 1], [0, 0, 1, 1]])
    prompts = Tokens.in_batch_order(ids, ids)
    prompts = prompts._replace(mask=prompts.mask.replace(window=1))
    cache = DecoderCache.empty(config, Execution(), ROWS, 6)
    padded = np.concatenate([np.zeros_like(HIDDEN[:, :2]), HIDDEN[:, 1:3]], axis=1)
    hidden, _, cache = call(params, padded, prompts, cache=cache)
    np.testing.assert_allclose(hidden[1, 2:], alone[1, :2], atol=1e-5)
    for index in (3, 4):
        token = HIDDEN[:, index : index + 1]
        hidden, _, cache = call(params, token, causal_tokens(1, 1), cache=cache)
        np.testing.assert_allclose(hidden[1, 0], alone[1, index - 1], atol=1e-5)


@pytest.mark.slow
def test_a_bias_reaches_every_layer_and_the_attention_weights():
    """A bias that hides all keys but the first computes the same as a mask that does."""
    module = LayerStack(CONFIG, Execution())
    rows = 1024  # a CPU computes so many in several parts, without a bias
    hidden, ids = np.tile(HIDDEN, (rows // ROWS, 1, 1)), np.ones((rows, LENGTH), np.int32)
    tokens = Tokens.in_batch_order(ids, ids)
    options = {"deterministic": True, "requested": RequestedOutputs()}
    init = functools.partial(module.init, **options)
    params = drawn(jax.eval_shape(init, jax.random.key(0), hidden, tokens))
    is_first = np.arange(LENGTH) == 0
    first = Tokens.in_batch_order(ids, np.where(is_first, ids, 0))
    biased = tokens._replace(bias=np.where(is_first, 0, -1e9).astype("f")[None, None, None])
    expected, *_ = module.apply(params, hidden, first, **options)
    actual, *_ = module.apply(params, hidden, biased, **options)
    np.testing.assert_allclose(actual, expected, atol=1e-5)
    options["requested"] = RequestedOutputs(attentions=True)
    _, (_, attentions, *_), _ = module.apply(params, hidden, biased, **options)
    assert (attentions == is_first).all()


class CrossAttentionLayer(nn.Module):
    """Attention to the memory alone."""

    config: EncoderConfig
    execution: Execution

    @nn.compact
    def __call__(self, hidden, tokens, deterministic, requested, number, cache):
        attention = Attention(self.config, self.execution, name="attention")
        attended = attention(hidden, tokens, deterministic=deterministic, memory=tokens.memory)
        hidden = hidden + attended.hidden
        return hidden, LayerValues.needed(requested, hidden, attended)


@pytest.mark.slow
@pytest.mark.parametrize("remat", ["none", "full"])
def test_a_memory_reaches_every_layer(monkeypatch, remat):
    monkeypatch.setitem(LAYERS, "transformer", CrossAttentionLayer)
    module = LayerStack(CONFIG, Execution(remat=remat))
    memory = EncoderMemory(HIDDEN[:, :3] + 1, causal_tokens(3, None).mask)
    tokens = causal_tokens(LENGTH, None)._replace(memory=memory)
    options = {"deterministic": True, "requested": RequestedOutputs()}
    init = functools.partial(module.init, **options)
    params = drawn(jax.eval_shape(init, jax.random.key(0), HIDDEN, tokens))
    actual, *_ = module.apply(params, HIDDEN, tokens, **options)
    expected, attention = HIDDEN, Attention(CONFIG, Execution())
    for layer in range(CONFIG.num_hidden_layers):
        own = jax.tree.map(operator.itemgetter(layer), params["params"]["layers"]["attention"])
        attended = attention.apply(
            {"params": own}, expected, tokens, deterministic=True, memory=memory
        )
        expected = expected + attended.hidden
    np.testing.assert_allclose(actual, expected, atol=1e-5)


def test_attention_to_a_memory_by_hand():
    """Two queries over three tokens of an encoder, the last of which is padding in row 1."""
    module = Attention(CONFIG, Execution())
    memory_hidden = np.random.default_rng(1).normal(size=(ROWS, 3, 16)).astype(np.float32)
    tokens = Tokens.in_batch_order(np.ones((ROWS, 1), np.int32), np.ones((ROWS, 2), np.int32))
    is_token = np.int32([[1, 1, 1], [1, 1, 0]])
    of_memory = Tokens.in_batch_order(np.ones((ROWS, 1), np.int32), is_token)
    memory = EncoderMemory(memory_hidden, of_memory.mask)
    hidden = HIDDEN[:, :2]

    @jax.jit
    def call(params):
        attended = module.apply(params, hidden, tokens, memory=memory, deterministic=True)
        return attended.hidden, attention_weights(attended.inputs)

    start = functools.partial(module.init, deterministic=True)
    params = drawn(jax.eval_shape(start, jax.random.key(0), hidden, tokens))
    p = params["params"]
    actual, attentions = call(params)
    expected = np.zeros_like(hidden)
    for row, length in enumerate((3, 2)):
        x, m = hidden[row], memory_hidden[row, :length]
        expected[row] = p["output"]["bias"]
        for head in range(2):

            def project(source, name, head=head):
                return source @ p[name]["kernel"][:, head] + p[name]["bias"][head]

            scores = project(x, "query") @ project(m, "key").T / np.sqrt(8)
            weights = np.exp(scores) / np.exp(scores).sum(-1, keepdims=True)
            np.testing.assert_allclose(attentions[row, head, :, :length], weights, atol=1e-5)
            assert not attentions[row, head, :, length:].any()
            expected[row] += weights @ project(m, "value") @ p["output"]["kernel"][head]
    np.testing.assert_allclose(actual, expected, atol=1e-5)


def test_a_token_of_a_local_layer_sees_both_ends_of_its_window():
    """Of `local_attention` 128, 64 tokens on each side; of a global layer, all."""
    config = dataclasses.replace(CONFIG, global_attn_every_n_layers=3, position_kind="rotary")
    module, length, query = Attention(config, Execution()), 140, 70
    tokens = Tokens.in_batch_order(np.ones((1, 1), np.int32), np.ones((1, length), np.int32))
    tokens = tokens._replace(rotations=rotations(config, tokens.mask.key_positions))
    hidden = np.random.default_rng(0).normal(size=(1, length, 16)).astype(np.float32)
    start = functools.partial(module.init, deterministic=True, number=0)
    params = drawn(jax.eval_shape(start, jax.random.key(0), hidden, tokens))

    @jax.jit
    def moved_by(key, number):
        """How much the token at `key` matters to the query."""
        output = functools.partial(
            module.apply, params, tokens=tokens, deterministic=True, number=number
        )
        changed = output(hidden.at[0, key].add(1)).hidden - output(hidden).hidden
        return abs(changed[0, query]).max()

    hidden = jnp.asarray(hidden)
    seen = [key for key in (5, 6, 70, 134, 135) if moved_by(key, 1) > 1e-6]
    assert seen == [6, 70, 134]
    assert all(moved_by(key, 0) > 1e-6 for key in (5, 135))


def test_rotary_positions_by_hand():
    """Width 4, base 100: pairs (0, 2) turn by p, pairs (1, 3) by p / 10."""
    config = dataclasses.replace(CONFIG, attention_head_size=4, global_rope_theta=100.0)
    heads = np.float32([[[[1, 0, 0, 1]]]])  # BNTH
    turned = rotated(heads, rotations(config, np.int32([[3]])), None)
    expected = [np.cos(3), -np.sin(0.3), np.sin(3), np.cos(0.3)]
    np.testing.assert_allclose(turned[0, 0, 0], expected, atol=1e-6)

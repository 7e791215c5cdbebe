"""Every kernel of the table against the definition; for the choice see `test_kernel_choice.py`."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.experimental.pallas import tpu

from bert_jax.models.kernels import (
    KERNELS,
    blocked,
    cudnn,
    pallas,
    select_kernel,
    xla,
)
from bert_jax.models.kernels.definition import attention
from bert_jax.models.local_attention import attend_in_blocks
from bert_jax.planning.roofline import program_flops
from tests.models.attention_calls import inputs_of, tokens_of

TOLERANCE = {"float32": 1e-5, "bfloat16": 2e-2}


# Two texts in the first row; the last token of the second is padding, which no token sees and
# which sees none.
TOKENS = tokens_of([[1, 1, 2, 2, 2], [1, 1, 1, 1, 3]], [[1, 1, 2, 2, 0], [1, 1, 1, 1, 0]])


def drawn(dtype, *shape, count=4):
    """Query, key, value and the gradient of the output."""
    arrays = np.random.default_rng(3).normal(size=(count, *shape))
    return [array.astype(jnp.dtype(dtype)) for array in arrays]


def value_and_gradients(function, operands, tokens, rate=0.0):
    """The output, and the gradients for query, key and value."""
    *inputs, d_output = operands

    def run(*inputs):
        output, backward = jax.vjp(lambda *qkv: function(inputs_of(*qkv, tokens, rate)), *inputs)
        return output, *backward(d_output)

    return jax.tree.map(np.asarray, jax.jit(run)(*inputs))


def assert_close(computed, expected, dtype, tolerance):
    for value, truth in zip(computed, expected, strict=True):
        assert value.dtype == dtype
        scale = float(abs(truth).max())
        np.testing.assert_allclose(value.astype(np.float32), truth, atol=tolerance * scale)


def assert_definition(function, tokens, rate=0.0, dtypes=("float32", "bfloat16")):
    """A kernel has the output and the gradients of the definition in float32."""
    for dtype in dtypes:
        operands = drawn(dtype, 2, 3, 5, 8)
        exact = [array.astype(np.float32) for array in operands]
        expected = value_and_gradients(attention, exact, tokens, rate)
        computed = value_and_gradients(function, operands, tokens, rate)
        assert_close(computed, expected, dtype, TOLERANCE[dtype])


@pytest.mark.parametrize("rate", [0.0, 0.4])
def test_xla_computes_the_definition(rate):
    assert_definition(xla.attention, TOKENS, rate)


def test_the_definition_by_hand():
    # One head of width 4: scores q · k / 2, so softmax(0, ln 3) = (1/4, 3/4); the last key is
    # hidden. A bias of ln 3 for the first key makes the two weights equal.
    query = np.float32([2, 0, 0, 0]).reshape(1, 1, 1, 4)
    key = np.zeros((1, 1, 3, 4), np.float32)
    key[..., 0] = [0, np.log(3), 100]
    value = np.float32([4.0, 8.0, 1e6]).reshape(1, 1, 3, 1)
    inputs = inputs_of(query, key, value, tokens_of([[1]], [[1, 1, 0]]))
    weights = jax.jit(xla.attention_weights)(inputs)
    np.testing.assert_allclose(weights, [[[[0.25, 0.75, 0.0]]]], rtol=1e-6)
    np.testing.assert_allclose(jax.jit(attention)(inputs), [[[[7.0]]]], rtol=1e-6)
    biased = inputs.replace(bias=np.log(np.float32([3, 1, 1])))
    np.testing.assert_allclose(jax.jit(attention)(biased), [[[[6.0]]]], rtol=1e-6)
    assert select_kernel("xla", "cpu", biased).name == "xla"


@pytest.mark.slow
@pytest.mark.parametrize("shape", [(1, 3, 5, 5), (2, 1, 1, 5), (5, 5)])
def test_xla_has_the_gradient_of_a_bias(shape):
    """Summed over the axes along which the bias is broadcast."""
    query, key, value, d_output = drawn("float32", 2, 3, 5, 8)
    bias = np.random.default_rng(5).normal(size=shape).astype(np.float32)
    tokens = tokens_of([[1] * 5] * 2, [[1, 1, 1, 1, 0]] * 2, causal=True)

    def gradients(function):
        def run(*operands):
            *inputs, bias = operands
            return function(inputs_of(*inputs, tokens, 0.4, bias=bias))

        _, backward = jax.vjp(run, query, key, value, bias)
        return [np.asarray(gradient) for gradient in backward(d_output)]

    computed, expected = (gradients(function) for function in (xla.attention, attention))
    assert computed[-1].shape == shape
    assert_close(computed, expected, "float32", TOLERANCE["float32"])


FIRST = np.array([[True, False, False, False, False]] * 2)


@pytest.mark.parametrize(
    ("fields", "visible"),
    [
        ({}, [[1, 1, 1, 1, 0], [1, 1, 1, 1, 0], [1, 1, 1, 1, 0], [1, 1, 1, 1, 0], [0] * 5]),
        (
            {"causal": True},
            [[1, 0, 0, 0, 0], [1, 1, 0, 0, 0], [1, 1, 1, 0, 0], [1, 1, 1, 1, 0], [0] * 5],
        ),
        (
            {"window": 1},
            [[1, 1, 0, 0, 0], [1, 1, 1, 0, 0], [0, 1, 1, 1, 0], [0, 0, 1, 1, 0], [0] * 5],
        ),
        (  # The first token sees all, and all see it.
            {"window": 1, "global_queries": FIRST, "global_keys": FIRST},
            [[1, 1, 1, 1, 0], [1, 1, 1, 0, 0], [1, 1, 1, 1, 0], [1, 0, 1, 1, 0], [0] * 5],
        ),
        (
            {"window": 1, "global_queries": FIRST},
            [[1, 1, 1, 1, 0], [1, 1, 1, 0, 0], [0, 1, 1, 1, 0], [0, 0, 1, 1, 0], [0] * 5],
        ),
        (
            {"window": 1, "global_keys": FIRST},
            [[1, 1, 0, 0, 0], [1, 1, 1, 0, 0], [1, 1, 1, 1, 0], [1, 0, 1, 1, 0], [0] * 5],
        ),
        (
            {"window": 1, "causal": True},
            [[1, 0, 0, 0, 0], [1, 1, 0, 0, 0], [0, 1, 1, 0, 0], [0, 0, 1, 1, 0], [0] * 5],
        ),
    ],
    ids=["all", "causal", "window", "global", "queries", "keys", "causal-window"],
)
def test_masks_by_hand(fields, visible):
    """Four tokens and one of padding; every kernel that accepts the mask computes it."""
    tokens = tokens_of([[1, 1, 1, 1, 3]] * 2, [[1, 1, 1, 1, 0]] * 2, **fields)
    assert tokens.mask.visible[0].astype(int).tolist() == visible
    inputs = inputs_of(*drawn("float32", 2, 3, 5, 8, count=3), tokens)
    accepting = [kernel for kernel in KERNELS if not kernel.is_fused and kernel.supports(inputs)]
    assert [kernel.name for kernel in accepting] == ["blocked", "xla", "definition"]
    assert pallas.KERNEL.accepts(inputs) == (fields in ({}, {"causal": True}))
    for kernel in accepting[:2]:
        assert_definition(kernel.function, tokens, dtypes=("float32",))


@pytest.mark.parametrize("limit", [{"causal": True}, {"window": 1}])
def test_limits_of_positions_need_the_positions(limit):
    mask = TOKENS.mask.replace(**limit)
    inputs = inputs_of(*drawn("float32", 2, 3, 5, 8, count=3), TOKENS._replace(mask=mask))
    assert not pallas.KERNEL.accepts(inputs)
    with pytest.raises(ValueError, match="^a mask with causal or window lacks query_positions"):
        xla.attention(inputs)


@pytest.mark.parametrize("rate", [0.0, 0.4])
def test_blocks_of_a_window_compute_the_definition(rate):
    """Two texts in a row, padding inside another; the last block is not full."""
    tokens = tokens_of(
        [[1] * 9 + [2] * 5, [1] * 14], [[1] * 9 + [2] * 5, [1] * 6 + [0, 0] + [1] * 6], window=4
    )
    operands = drawn("float32", 2, 3, 14, 8)
    expected = value_and_gradients(attention, operands, tokens, rate)
    in_blocks = functools.partial(attend_in_blocks, xla.attention)
    computed = value_and_gradients(in_blocks, operands, tokens, rate)
    assert_close(computed, expected, "float32", TOLERANCE["float32"])


def test_a_window_costs_as_much_for_each_token_of_a_long_text():
    def flops(length):
        shape = jax.ShapeDtypeStruct((1, 2, length, 8), jnp.float32)
        tokens = tokens_of(np.ones((1, 1)), np.ones((1, length)), window=4)

        def run(*qkv):
            return attend_in_blocks(xla.attention, inputs_of(*qkv, tokens))

        return program_flops(jax.make_jaxpr(run)(shape, shape, shape).jaxpr)

    # Scores and sums over 12 keys of 8 values, in 2 heads.
    assert [flops(length) / length for length in (16, 160)] == [4 * 12 * 8 * 2] * 2


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_weights_follow_the_segment_ids(dtype):
    query, key = drawn(dtype, 2, 3, 5, 8, count=2)
    weights = np.asarray(jax.jit(xla.attention_weights)(inputs_of(query, key, key, TOKENS)))  # BNTS
    assert weights.dtype == np.float32
    assert (weights[:, 0] > 0).astype(int).tolist() == [
        [[1, 1, 0, 0, 0], [1, 1, 0, 0, 0], [0, 0, 1, 1, 0], [0, 0, 1, 1, 0], [0, 0, 1, 1, 0]],
        [[1, 1, 1, 1, 0]] * 4 + [[1] * 5],  # a query that sees no key attends to all alike
    ]
    np.testing.assert_allclose(weights[1, :, 4], 0.2, rtol=1e-6)
    np.testing.assert_allclose(weights.sum(-1), 1.0, rtol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("rate", [0.0, 0.4])
@pytest.mark.parametrize("heads", [1, 2, 6])
def test_blocks_compute_the_definition(monkeypatch, heads, rate):
    """Blocks of one head, of two of the three heads of a row, and of all rows."""
    monkeypatch.setattr(blocked, "_BLOCK_BYTES", heads * 4 * 5 * 5)
    # Not the function itself: JAX caches its trace with blocks of another size.
    assert_definition(lambda inputs: blocked.attention(inputs), TOKENS, rate)


@pytest.mark.parametrize("rate", [0.0, 0.4])
@pytest.mark.parametrize("blocks", [1, 3, None])
def test_blocks_of_queries_compute_the_definition(monkeypatch, blocks, rate):
    """Without a gradient: six queries at once, in pairs, or with too few for a block.

    With dropout a loop over heads computes it, whatever the number of blocks.
    """
    monkeypatch.setattr(blocked, "_query_blocks", lambda queries, width, keys: blocks)
    ids = np.array([[1, 1, 2, 2, 2, 0], [1] * 6])

    @jax.jit  # not of the function itself, see above
    def in_blocks(inputs):
        return blocked.attention(inputs)

    for tokens in (tokens_of(ids, ids), tokens_of(np.ones((2, 1)), ids[::-1] % 2)):
        for dtype, tolerance in TOLERANCE.items():
            operands = drawn(dtype, 2, 3, 6, 8, count=3)
            exact = [array.astype(np.float32) for array in operands]
            expected = jax.jit(attention)(inputs_of(*exact, tokens, rate))
            computed = in_blocks(inputs_of(*operands, tokens, rate))
            assert_close([np.asarray(computed)], [np.asarray(expected)], dtype, tolerance)


@pytest.mark.parametrize(
    ("queries", "width", "keys", "blocks"),
    [
        (5, 64, 5, 1),
        *((256, 64, 256, 1), (320, 64, 320, 2), (384, 64, 384, 3), (512, 64, 512, 8)),
        *((256, 32, 256, 1), (320, 32, 320, 2), (384, 32, 384, 3), (512, 32, 512, 4)),
        # The largest blocks would have 1, 16 and 32 queries.
        *((509, 32, 509, None), (1024, 64, 1024, None), (512, 128, 512, None)),
    ],
)
def test_the_blocks_of_queries(queries, width, keys, blocks):
    assert blocked._query_blocks(queries, width, keys) == blocks


@pytest.mark.usefixtures("optimized")
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_inference_stores_no_scores(dtype):
    """XLA makes one call of YNNPACK of it, except for small batches."""
    operand = jax.ShapeDtypeStruct((8, 12, 512, 32), dtype)
    inputs = inputs_of(operand, operand, operand, tokens_of(np.ones((8, 1)), np.ones((8, 512))))
    program = jax.jit(blocked.attention).lower(inputs).compile().as_text()
    parts, entry = program.split("ENTRY")
    assert "f32[8,12,4,128,512]" in parts
    assert "128,512]" not in entry


def test_scores_have_no_gradient_where_one_key_has_all_the_weight():
    query, key, value, d_output = drawn("float32", 2, 3, 5, 8)
    operands = (1e3 * query, 1e3 * key, value, d_output)
    _, d_query, d_key, d_value = value_and_gradients(blocked.attention, operands, TOKENS)
    assert not d_query.any()
    assert not d_key.any()
    assert d_value.any()


def test_blocks_are_as_large_as_the_cache_allows():
    length = 256  # a head has 256 KiB of scores
    operands = drawn("bfloat16", 6, 4, length, 8, count=3)
    ids = np.arange(length) // np.array([[200]] * 6)
    inputs = inputs_of(*operands, tokens_of(ids, ids), 0.1)
    text = jax.jit(blocked.attention).lower(inputs).as_text()
    assert "while" in text
    # 24 heads in blocks of 12, and every array that the loop slices is float32 or int32.
    assert "tensor<2x12x256x8xf32>" in text
    assert "tensor<2x12x256x8xbf16>" not in text


PADDING = tokens_of(np.ones((2, 1)), np.arange(256) < np.array([[256], [100]]))
PACKED_IDS = [np.arange(256) // 100 + np.array([[0], [1]])] * 2
PACKED, PACKED_CAUSAL = tokens_of(*PACKED_IDS), tokens_of(*PACKED_IDS, causal=True)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("tokens", "dtype", "tolerance"),
    [
        (PADDING, "float32", 2e-5),
        (PACKED, "float32", 2e-5),
        (PACKED_CAUSAL, "float32", 2e-5),
        (PADDING, "bfloat16", 3e-2),
    ],
    ids=["padding", "packed", "causal", "bfloat16"],
)
def test_pallas_computes_the_definition(tokens, dtype, tolerance):
    """The kernel itself, interpreted."""
    operands = drawn(dtype, 2, 2, 256, 64)
    exact = [array.astype(np.float32) for array in operands]
    expected = value_and_gradients(attention, exact, tokens)
    with tpu.force_tpu_interpret_mode():
        computed = value_and_gradients(pallas.attention, operands, tokens)
    for value, truth in zip(computed, expected, strict=True):
        assert value.dtype == dtype
        value = np.asarray(value, np.float32)
        np.testing.assert_allclose(value, truth, atol=tolerance, rtol=tolerance)


ONE_ID = np.ones((2, 1))
# Keys of rows whose queries have the segment id 1; a query sees the keys with it.
KEYS_OF_ROWS = {
    "padding at the end": tokens_of(ONE_ID, [[1, 1, 1, 1, 1], [1, 1, 1, 0, 0]]),
    "padding at the start": tokens_of(ONE_ID, [[0, 0, 1, 1, 1], [1, 1, 1, 1, 1]]),
    "holes": tokens_of(ONE_ID, [[1, 0, 1, 0, 1], [0, 1, 1, 1, 0]]),
    "two segments": tokens_of(ONE_ID, [[1, 1, 2, 2, 0], [2, 2, 2, 1, 1]]),
    "no key": tokens_of(ONE_ID, [[1, 1, 1, 1, 0], [0, 0, 0, 0, 0]]),
    "causal": tokens_of(ONE_ID, np.ones((2, 5)), causal=True),
}


@pytest.mark.parametrize("tokens", KEYS_OF_ROWS.values(), ids=KEYS_OF_ROWS)
def test_what_cudnn_is_given_computes_the_definition(tokens, monkeypatch):
    """The call, with JAX's own implementation of the same function on any platform."""
    function = jax.nn.dot_product_attention

    def call(*operands, implementation, **options):
        assert implementation == "cudnn"
        return function(*operands, **options, implementation="xla")

    monkeypatch.setattr(jax.nn, "dot_product_attention", call)
    assert_definition(cudnn.attention, tokens)


@pytest.mark.skipif(jax.default_backend() != "gpu", reason="cuDNN needs a GPU")
@pytest.mark.parametrize("limit", [{}, {"causal": True}])
def test_cudnn_computes_the_definition(limit):
    lengths = np.array([[512], [512 if limit else 100], [512 if limit else 0]])
    tokens = tokens_of(np.ones((3, 1)), np.arange(512) < lengths, **limit)
    operands = drawn("bfloat16", 3, 2, 512, 64)
    exact = [array.astype(np.float32) for array in operands]
    expected = value_and_gradients(attention, exact, tokens)
    computed = value_and_gradients(cudnn.attention, operands, tokens)
    for value, truth in zip(computed, expected, strict=True):
        value = np.asarray(value, np.float32)
        np.testing.assert_allclose(value, truth, atol=3e-2 * float(abs(truth).max()))

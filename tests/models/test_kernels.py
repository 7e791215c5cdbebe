"""Every kernel of the table against the definition in `models.attention`, and which is chosen."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.experimental.pallas import tpu

from bert_jax.models.attention import attention
from bert_jax.models.kernels import AttentionCall, blocked, cudnn, pallas, xla
from bert_jax.models.kernels.table import (
    KERNELS,
    SETTINGS,
    automatic_setting,
    length_multiple,
    runs_on,
    select_kernel,
)
from bert_jax.models.packed_rows import AttentionContext, SegmentIds, Tokens

KEY = np.uint32([7, 11])
# Two texts in the first row; the last token of the second is padding, which no token sees and
# which sees none.
SEGMENT_IDS = SegmentIds(
    np.array([[1, 1, 2, 2, 2], [1, 1, 1, 1, 3]]), np.array([[1, 1, 2, 2, 0], [1, 1, 1, 1, 0]])
)


@functools.partial(jax.jit, static_argnums=1)
def context_of(segment_ids, num_heads):
    return AttentionContext.from_tokens(Tokens.in_batch_order(segment_ids), num_heads)


CONTEXT = context_of(SEGMENT_IDS, 3)


def drawn(dtype, *shape, count=4):
    """Query, key, value and the gradient of the output."""
    arrays = np.random.default_rng(3).normal(size=(count, *shape))
    return [array.astype(jnp.dtype(dtype)) for array in arrays]


def value_and_gradients(function, operands, context, rate=0.0):
    """The output, and the gradients for query, key and value."""
    *inputs, d_output = operands

    def run(*inputs):
        output, backward = jax.vjp(lambda *qkv: function(*qkv, context, rate, KEY), *inputs)
        return output, *backward(d_output)

    return jax.tree.map(np.asarray, jax.jit(run)(*inputs))


def assert_close(found, expected, dtype, tolerance):
    for value, truth in zip(found, expected, strict=True):
        assert value.dtype == dtype
        scale = float(abs(truth).max())
        np.testing.assert_allclose(value.astype(np.float32), truth, atol=tolerance * scale)


@pytest.mark.parametrize("rate", [0.0, 0.4])
def test_xla_computes_the_definition(rate):
    operands = drawn("float32", 2, 3, 5, 8)
    for dtype, tolerance in (("float32", 1e-5), ("bfloat16", 2e-2)):
        rounded = [array.astype(jnp.dtype(dtype)) for array in operands]
        exact = [array.astype(np.float32) for array in rounded]
        expected = value_and_gradients(attention, exact, CONTEXT, rate)
        found = value_and_gradients(xla.attention, rounded, CONTEXT, rate)
        assert_close(found, expected, dtype, tolerance)


def test_the_definition_by_hand():
    # One head of width 4: scores q · k / 2, so softmax(0, ln 3) = (1/4, 3/4); the last key is
    # hidden.
    query = np.float32([2, 0, 0, 0]).reshape(1, 1, 1, 4)
    key = np.zeros((1, 1, 3, 4), np.float32)
    key[..., 0] = [0, np.log(3), 100]
    value = np.float32([4.0, 8.0, 1e6]).reshape(1, 1, 3, 1)
    context = context_of(SegmentIds(np.array([[1]]), np.array([[1, 1, 0]])), 1)
    weights = jax.jit(xla.attention_weights)(query, key, context)
    np.testing.assert_allclose(weights, [[[[0.25, 0.75, 0.0]]]], rtol=1e-6)
    output = jax.jit(attention, static_argnums=4)(query, key, value, context, 0.0, KEY)
    np.testing.assert_allclose(output, [[[[7.0]]]], rtol=1e-6)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_weights_follow_the_segment_ids(dtype):
    query, key = drawn(dtype, 2, 3, 5, 8, count=2)
    weights = np.asarray(jax.jit(xla.attention_weights)(query, key, CONTEXT))  # BNTS
    assert weights.dtype == np.float32
    assert (weights[:, 0] > 0).astype(int).tolist() == [
        [[1, 1, 0, 0, 0], [1, 1, 0, 0, 0], [0, 0, 1, 1, 0], [0, 0, 1, 1, 0], [0, 0, 1, 1, 0]],
        [[1, 1, 1, 1, 0]] * 4 + [[1] * 5],  # a query that sees no key attends to all alike
    ]
    np.testing.assert_allclose(weights[1, :, 4], 0.2, rtol=1e-6)
    np.testing.assert_allclose(weights.sum(-1), 1.0, rtol=1e-6)
    alone = context_of(SegmentIds(np.array([[1, 1]]), np.array([[1, 1]])), 3)
    np.testing.assert_allclose(
        weights[:1, :, 2:4, 2:4],
        jax.jit(xla.attention_weights)(query[:1, :, 2:4], key[:1, :, 2:4], alone),
        rtol=1e-6,
    )


def test_padding_gets_no_gradient():
    operands = drawn("float32", 2, 3, 5, 8)
    _, d_query, d_key, d_value = value_and_gradients(xla.attention, operands, CONTEXT)
    assert not d_query[1, :, 4].any()
    assert not d_key[0, :, 4].any()
    assert d_value[1, :, 4].any()  # of the query that sees no key
    assert d_query[1, :, 3].any()


@pytest.mark.parametrize("rate", [0.0, 0.4])
@pytest.mark.parametrize("heads", [1, 2, 6])
def test_blocks_compute_the_definition(monkeypatch, heads, rate):
    """Blocks of one head, of two of the three heads of a row, and of all rows."""
    monkeypatch.setattr(blocked, "_BLOCK_BYTES", heads * 4 * 5 * 5)
    operands = drawn("float32", 2, 3, 5, 8)
    for dtype, tolerance in (("float32", 1e-5), ("bfloat16", 2e-2)):
        rounded = [array.astype(jnp.dtype(dtype)) for array in operands]
        exact = [array.astype(np.float32) for array in rounded]
        expected = value_and_gradients(attention, exact, CONTEXT, rate)
        # Not the function itself: JAX would keep what it traced with blocks of another size.
        found = value_and_gradients(lambda *call: blocked.attention(*call), rounded, CONTEXT, rate)
        assert_close(found, expected, dtype, tolerance)


@pytest.mark.parametrize("rate", [0.0, 0.4])
@pytest.mark.parametrize("blocks", [1, 3, None])
def test_blocks_of_queries_compute_the_definition(monkeypatch, blocks, rate):
    """Without a gradient: six queries at once, in pairs, or with too few for a block.

    With dropout a loop over heads computes it, whatever the number of blocks.
    """
    monkeypatch.setattr(blocked, "_query_blocks", lambda queries, width, keys: blocks)
    ids = np.array([[1, 1, 2, 2, 2, 0], [1] * 6])
    of_rows = SegmentIds(np.ones((2, 1), np.int32), ids[::-1] % 2)
    *operands, _ = drawn("float32", 2, 3, 6, 8)

    @jax.jit  # not of the function itself, see above
    def in_blocks(context, *operands):
        return blocked.attention(*operands, context, rate, KEY)

    for context in (context_of(SegmentIds(ids, ids), 3), context_of(of_rows, 3)):
        for dtype, tolerance in (("float32", 1e-5), ("bfloat16", 2e-2)):
            rounded = [array.astype(jnp.dtype(dtype)) for array in operands]
            exact = [array.astype(np.float32) for array in rounded]
            expected = jax.jit(attention, static_argnums=4)(*exact, context, rate, KEY)
            found = in_blocks(context, *rounded)
            assert_close([np.asarray(found)], [np.asarray(expected)], dtype, tolerance)


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
    ids = SegmentIds(np.ones((8, 1), np.int32), np.ones((8, 512), np.int32))
    run = jax.jit(lambda *call: blocked.attention(*call, 0.0, KEY))
    program = run.lower(operand, operand, operand, context_of(ids, 12)).compile().as_text()
    parts, entry = program.split("ENTRY")
    assert "f32[8,12,4,128,512]" in parts
    assert "128,512]" not in entry


def test_blocks_have_no_gradient_of_scores_where_one_key_has_all_the_weight():
    query, key, value, d_output = drawn("float32", 2, 3, 5, 8)
    operands = (1e3 * query, 1e3 * key, value, d_output)
    _, d_query, d_key, d_value = value_and_gradients(blocked.attention, operands, CONTEXT)
    assert not d_query.any()
    assert not d_key.any()
    assert d_value.any()


def test_blocks_are_as_large_as_the_cache_allows():
    length = 256  # a head has 256 KiB of scores
    operands = drawn("bfloat16", 6, 4, length, 8, count=3)
    ids = np.arange(length) // np.array([[200]] * 6)
    context = context_of(SegmentIds(ids, ids), 4)
    program = jax.jit(lambda *qkv: blocked.attention(*qkv, context, 0.1, KEY)).lower(*operands)
    text = program.as_text()
    assert "while" in text
    # 24 heads in blocks of 12, and every array that the loop slices is float32 or int32.
    assert "tensor<2x12x256x8xf32>" in text
    assert "tensor<2x12x256x8xbf16>" not in text


PADDING = SegmentIds(np.ones((2, 1), np.int32), np.arange(256) < np.array([[256], [100]]))
PACKED = SegmentIds(*[np.arange(256) // 100 + np.array([[0], [1]])] * 2)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("segment_ids", "dtype", "tolerance"),
    [(PADDING, "float32", 2e-5), (PACKED, "float32", 2e-5), (PADDING, "bfloat16", 3e-2)],
    ids=["padding", "packed", "bfloat16"],
)
def test_pallas_computes_the_definition(segment_ids, dtype, tolerance):
    """The kernel itself, interpreted."""
    context = context_of(SegmentIds(*(ids.astype(np.int32) for ids in segment_ids)), 2)
    operands = drawn(dtype, 2, 2, 256, 64)
    exact = [array.astype(np.float32) for array in operands]
    expected = value_and_gradients(attention, exact, context)
    with tpu.force_tpu_interpret_mode():
        found = value_and_gradients(pallas.attention, operands, context)
    for value, truth in zip(found, expected, strict=True):
        assert value.dtype == dtype
        value = np.asarray(value, np.float32)
        np.testing.assert_allclose(value, truth, atol=tolerance, rtol=tolerance)


@pytest.mark.skipif(jax.default_backend() != "gpu", reason="cuDNN needs a GPU")
def test_cudnn_computes_the_definition():
    lengths = np.array([[512], [100], [0]])
    segment_ids = SegmentIds(np.ones((3, 1), np.int32), (np.arange(512) < lengths) * 1)
    operands = drawn("bfloat16", 3, 2, 512, 64)
    exact = [array.astype(np.float32) for array in operands]
    expected = value_and_gradients(attention, exact, context_of(segment_ids, 2))
    found = value_and_gradients(cudnn.attention, operands, context_of(segment_ids, 2))
    # The values for a row of padding alone do not matter, but they must be numbers.
    assert all(np.isfinite(np.asarray(value, np.float32)).all() for value in found)
    for value, truth in zip(found, expected, strict=True):
        value = np.asarray(value[:2], np.float32)
        np.testing.assert_allclose(value, truth[:2], atol=3e-2 * float(abs(truth[:2]).max()))


# --- Which kernel computes a call --------------------------------------------------------------


@pytest.mark.parametrize(
    ("setting", "platform", "call", "name"),
    [
        ("pallas", "tpu", {}, "pallas"),
        ("pallas", "tpu", {"dtype": "float32", "packed": True}, "pallas"),
        ("pallas", "tpu", {"dropout_rate": 0.1}, "xla"),
        ("pallas", "tpu", {"output_attentions": True}, "xla"),
        ("pallas", "tpu", {"length": 520}, "xla"),
        ("pallas", "tpu", {"length": 128}, "xla"),
        ("pallas", "gpu", {}, "xla"),
        ("pallas", "cpu", {}, "blocked"),
        ("cudnn", "gpu", {"length": 520}, "cudnn"),
        ("cudnn", "gpu", {"length": 511}, "xla"),
        ("cudnn", "gpu", {"dropout_rate": 0.1}, "xla"),
        ("cudnn", "gpu", {"packed": True}, "xla"),
        ("cudnn", "gpu", {"dtype": "float32"}, "xla"),
        ("cudnn", "tpu", {}, "xla"),
        ("xla", "cpu", {}, "blocked"),
        ("xla", "gpu", {}, "xla"),
        ("xla", "tpu", {}, "xla"),
        ("xla", "another", {}, "xla"),
        ("xla", "cpu", {"length": 5, "head_dim": 32, "dropout_rate": 0.1}, "blocked"),
        ("xla", "cpu", {"output_attentions": True}, "blocked"),
    ],
)
def test_the_kernel_of_a_call(setting, platform, call, name):
    fields = {"length": 512, "head_dim": 64, "dtype": "bfloat16"}
    assert select_kernel(setting, platform, AttentionCall(**fields | call)).name == name


def test_heads_on_several_devices_are_not_looped_over():
    call = AttentionCall(length=512, head_dim=64, dtype="float32")
    mesh = jax.sharding.AbstractMesh((2,), ("data",))
    with jax.sharding.use_abstract_mesh(mesh):
        assert select_kernel("xla", "cpu", call).name == "xla"


def test_what_the_table_says():
    assert SETTINGS == ("xla", "pallas", "cudnn")
    assert len({kernel.name for kernel in KERNELS}) == len(KERNELS) == 4
    automatic = {platform: automatic_setting(platform) for platform in ("cpu", "gpu", "tpu")}
    assert automatic == {"cpu": "xla", "gpu": "xla", "tpu": "pallas"}
    runs = [(s, p) for s in SETTINGS for p in automatic if runs_on(s, p)]
    assert runs == [
        *[("xla", "cpu"), ("xla", "gpu"), ("xla", "tpu")],
        *[("pallas", "tpu"), ("cudnn", "gpu")],
    ]
    assert [length_multiple(length) for length in (64, 511, 512, 4096)] == [1, 1, 128, 128]

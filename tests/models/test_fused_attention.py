"""Kernels of attention: where they are used, and that they compute the same."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.experimental.pallas import tpu

from bert_jax.models.attention import AttentionContext, attention
from bert_jax.models.kernels.fused_attention import fused_attention, select_kernel
from bert_jax.models.segments import SegmentIds, Tokens


@pytest.mark.parametrize(
    ("wanted", "length", "rate", "weights_wanted", "used"),
    [
        ("pallas", 512, 0.0, False, "pallas"),
        ("pallas", 512, 0.1, False, "xla"),
        ("pallas", 512, 0.0, True, "xla"),
        ("pallas", 128, 0.0, False, "xla"),
        ("pallas", 520, 0.0, False, "xla"),
        ("cudnn", 520, 0.0, False, "cudnn"),
        ("cudnn", 512, 0.1, False, "xla"),
        ("xla", 512, 0.0, False, "xla"),
    ],
)
def test_what_is_used_where(wanted, length, rate, weights_wanted, used):
    assert select_kernel(wanted, length, rate, weights_wanted=weights_wanted) == used


@pytest.mark.parametrize("what", [{"one_text": False}, {"dtype": "float32"}])
def test_what_cudnn_does_not_know_the_tpu_does(what):
    used = [
        select_kernel(wanted, 512, 0.0, weights_wanted=False, **what)
        for wanted in ("cudnn", "pallas")
    ]
    assert used == ["xla", "pallas"]


SEGMENTS = {
    "padding": SegmentIds(jnp.ones((2, 1), jnp.int32), jnp.arange(256) < jnp.array([[256], [100]])),
    "packed": SegmentIds(*[jnp.arange(256) // 100 + jnp.array([[0], [1]])] * 2),
}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "dtype", "tolerance"),
    [("padding", "float32", 2e-5), ("packed", "float32", 2e-5), ("padding", "bfloat16", 3e-2)],
)
def test_the_tpu_kernel_computes_the_same(name, dtype, tolerance):
    """The kernel itself, interpreted."""
    segments = SegmentIds(*(numbers.astype(jnp.int32) for numbers in SEGMENTS[name]))
    drawn = np.random.default_rng(5).normal(size=(4, 2, 2, 256, 64))
    query, key, value, cotangent = (jnp.asarray(array, dtype) for array in drawn)

    def exact(*operands):
        pairs = AttentionContext.of(Tokens.of(segments), 2)
        return attention(0.0, *operands, pairs, jnp.zeros(2, jnp.uint32))

    def fused(*operands):
        return fused_attention("pallas", *operands, segments)

    expected, backward = jax.vjp(exact, query, key, value)
    wanted = backward(cotangent)
    with tpu.force_tpu_interpret_mode():
        found, backward = jax.vjp(fused, query, key, value)
        gradients = backward(cotangent)
    for one, other in zip((found, *gradients), (expected, *wanted), strict=True):
        assert one.dtype == other.dtype == dtype
        one, other = np.asarray(one, np.float32), np.asarray(other, np.float32)
        np.testing.assert_allclose(one, other, atol=tolerance, rtol=tolerance)


@pytest.mark.skipif(jax.default_backend() != "gpu", reason="cuDNN is of GPUs")
def test_cudnn_computes_the_same():
    segments = SegmentIds(
        jnp.ones((3, 1), jnp.int32),
        (jnp.arange(512) < jnp.array([[512], [100], [0]])).astype(jnp.int32),
    )
    drawn = np.random.default_rng(5).normal(size=(3, 3, 2, 512, 64))
    query, key, value = (jnp.asarray(array, jnp.bfloat16) for array in drawn)
    pairs = AttentionContext.of(Tokens.of(segments), 2)
    expected = attention(0.0, query, key, value, pairs, jnp.zeros(2, jnp.uint32))
    found = fused_attention("cudnn", query, key, value, segments)
    # What a row of padding alone finds is of no interest, but it must be a number.
    assert np.isfinite(np.asarray(found, np.float32)).all()
    np.testing.assert_allclose(
        np.asarray(found[:2], np.float32), np.asarray(expected[:2], np.float32), atol=3e-2
    )

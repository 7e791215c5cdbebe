"""The kernel that a call gets, by setting, platform and inputs."""

import jax
import numpy as np
import pytest

from bert_jax.models.kernels import (
    KERNELS,
    SETTINGS,
    automatic_setting,
    length_multiple,
    runs_on,
    select_kernel,
)
from bert_jax.models.packed_rows import EncoderInputs
from tests.models.attention_calls import inputs_of, tokens_of


def call_of(*, length=512, dtype="bfloat16", **call):
    """The inputs of two rows of 12 heads; further fields of `call` may be set."""
    keys = call.get("keys", length)
    query, key = (jax.ShapeDtypeStruct((2, 12, count, 64), dtype) for count in (length, keys))
    limits = {name: True for name in ("causal", "all_visible") if call.get(name)}
    query_ids = np.ones((2, length if call.get("packed") else 1))
    tokens = tokens_of(query_ids, np.ones((2, keys)), **limits)
    return inputs_of(query, key, key, tokens, call.get("rate", 0.0))


def kernel_of(setting, platform, *, output_attentions=False, **call):
    inputs = call_of(**call)
    return select_kernel(setting, platform, inputs, output_attentions=output_attentions).name


@pytest.mark.parametrize(
    ("setting", "platform", "call", "name"),
    [
        ("pallas", "tpu", {}, "pallas"),
        ("pallas", "tpu", {"dtype": "float32", "packed": True}, "pallas"),
        ("pallas", "tpu", {"rate": 0.1}, "xla"),
        ("pallas", "tpu", {"output_attentions": True}, "xla"),
        ("pallas", "tpu", {"causal": True}, "pallas"),
        ("pallas", "tpu", {"length": 520}, "xla"),
        ("pallas", "tpu", {"length": 128}, "xla"),
        ("pallas", "tpu", {"keys": 128}, "pallas"),
        ("pallas", "tpu", {"keys": 200}, "xla"),
        ("pallas", "gpu", {}, "xla"),
        ("pallas", "cpu", {}, "blocked"),
        ("cudnn", "gpu", {"length": 520}, "cudnn"),
        ("cudnn", "gpu", {"length": 511}, "xla"),
        ("cudnn", "gpu", {"rate": 0.1}, "xla"),
        ("cudnn", "gpu", {"packed": True}, "xla"),
        ("cudnn", "gpu", {"causal": True}, "xla"),
        ("cudnn", "gpu", {"causal": True, "all_visible": True}, "cudnn"),
        ("cudnn", "gpu", {"causal": True, "packed": True}, "xla"),
        ("cudnn", "gpu", {"dtype": "float32"}, "xla"),
        ("cudnn", "tpu", {}, "xla"),
        ("xla", "cpu", {}, "blocked"),
        ("xla", "gpu", {}, "xla"),
        ("xla", "tpu", {}, "xla"),
        ("xla", "another", {}, "xla"),
        ("xla", "cpu", {"length": 5, "rate": 0.1}, "blocked"),
        ("xla", "cpu", {"output_attentions": True}, "blocked"),
        ("definition", "cpu", {"rate": 0.1}, "definition"),
        ("definition", "tpu", {"packed": True}, "definition"),
    ],
)
def test_the_kernel_of_a_call(setting, platform, call, name):
    assert kernel_of(setting, platform, **call) == name


def test_keys_that_are_known_to_be_visible():
    ids = np.ones((1, 4), np.int32)
    assert EncoderInputs(ids).tokens().causal().mask.all_visible
    assert not EncoderInputs(ids, attention_mask=ids).tokens().causal().mask.all_visible
    assert not EncoderInputs(ids, segment_ids=ids).tokens().causal().mask.all_visible


def test_heads_on_several_devices_are_not_looped_over():
    mesh = jax.sharding.AbstractMesh((2,), ("data",))
    inputs = call_of()
    with jax.sharding.use_abstract_mesh(mesh):
        assert select_kernel("xla", "cpu", inputs).name == "xla"


def test_settings_platforms_and_length_multiples_of_the_table():
    assert SETTINGS == ("xla", "pallas", "cudnn", "definition")
    assert len({kernel.name for kernel in KERNELS}) == len(KERNELS) == 5
    automatic = {platform: automatic_setting(platform) for platform in ("cpu", "gpu", "tpu")}
    assert automatic == {"cpu": "xla", "gpu": "xla", "tpu": "pallas"}
    runs = [(s, p) for s in SETTINGS for p in automatic if runs_on(s, p)]
    assert runs == [
        *[("xla", "cpu"), ("xla", "gpu"), ("xla", "tpu")],
        *[("pallas", "tpu"), ("cudnn", "gpu")],
        *[("definition", "cpu"), ("definition", "gpu"), ("definition", "tpu")],
    ]
    assert [length_multiple(length) for length in (64, 511, 512, 4096)] == [1, 1, 128, 128]

"""The table of published figures, the names of slices, placeholders, the compiler for TPUs."""

import importlib.metadata

import pytest

from bert_jax.errors import UserError
from bert_jax.planning.hardware import (
    HARDWARE,
    Hardware,
    check_libtpu,
    find_topology,
    hardware_of,
    parse_slice,
)


def test_the_peaks_are_those_that_were_published():
    # TFLOP/s in bfloat16, GiB or GB, GB/s of memory, GB/s that one device sends.
    assert {
        name: (
            hardware.bfloat16_flops / 1e12,
            hardware.memory_bytes,
            hardware.memory_bandwidth / 1e9,
            hardware.interconnect_bandwidth / 1e9,
        )
        for name, hardware in HARDWARE.items()
        if name != "cpu"
    } == {
        "v4": (275, 32 * 2**30, 1228, 300),
        "v5e": (197, 16 * 2**30, 819, 200),
        "v5p": (459, 95 * 2**30, 2765, 600),
        "v6e": (918, 32 * 2**30, 1638, 400),
        "a100": (312, 80 * 10**9, 2039, 300),
        "h100": (989, 80 * 10**9, 3350, 450),
        "h200": (989, 141 * 10**9, 4800, 450),
    }
    assert HARDWARE["h100"].flops("float32") == 494.5e12  # TensorFloat-32
    assert HARDWARE["v5e"].flops("float32") == 197e12  # in passes of bfloat16
    assert HARDWARE["cpu"] == Hardware("cpu", "cpu", "cpu")  # it has no published peak


@pytest.mark.parametrize(
    ("text", "devices", "shape"),
    [
        ("v5e:2x4", 8, (2, 4)),
        ("v4:4x4x4", 64, (4, 4, 4)),
        ("V6E:1x1", 1, (1, 1)),
        ("h100:8", 8, (8,)),
    ],
)
def test_slices(text, devices, shape):
    result = parse_slice(text)
    assert (result.count, result.shape, str(result)) == (devices, shape, text.lower())


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("v5:2x4", "^topology is 'v5:2x4'; the nearest known device is 'v5"),
        ("h300:8", "the nearest known device is 'h[12]00'"),
        ("v5e:2x2x2", "v5e are arranged in 2 dimensions; write it as v5e:4x4$"),
        ("h100", "h100 are arranged in 1 dimension; write it as h100:8"),
        ("cpu:0", "each number must be at least 1"),
        ("h100:100000000", "^h100:100000000 are 100,000,000 devices; a plan is made for 65,536 "),
        (f"h100:{'9' * 5000}", "h100 are arranged in 1 dimension; write it as h100:8"),
        ("h100:٣", "h100 are arranged in 1 dimension; write it as h100:8"),
    ],
)
def test_wrong_slices(text, message):
    with pytest.raises(UserError, match=message):
        parse_slice(text)


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        ("TPU v4", "v4"),
        ("TPU v5 lite", "v5e"),
        ("TPU v5", "v5p"),
        ("TPU v6 lite", "v6e"),
        ("NVIDIA H100 80GB HBM3", "h100"),
        ("NVIDIA H200", "h200"),
        ("cpu", "cpu"),
        ("TPU7x", None),
    ],
)
def test_the_names_that_jax_gives(kind, name):
    result = hardware_of(kind)
    assert (result and result.name) == name


@pytest.mark.parametrize(
    ("name", "compiles"), [("h100:8", False), ("cpu:1", True), ("cpu:99", False)]
)
def test_devices_of_a_topology(name, compiles):
    topology = find_topology(parse_slice(name))
    assert len(topology.devices) == topology.slice.count
    assert topology.compiles == compiles


@pytest.mark.parametrize(
    ("installed", "message"),
    [
        ({}, r'not installed; pip install "bert_jax\[tpu\]"$'),
        (
            {"libtpu": "0.0.1"},
            r'libtpu 0.0.1 does not match JAX [\d.]+, which needs ==.*; pip install "bert_jax',
        ),
    ],
)
def test_libtpu_is_missing_or_does_not_match(monkeypatch, installed, message):
    installed = installed | {"jax": importlib.metadata.version("jax")}

    def version(name: str) -> str:
        if name not in installed:
            raise importlib.metadata.PackageNotFoundError(name)
        return installed[name]

    monkeypatch.setattr(importlib.metadata, "version", version)
    with pytest.raises(UserError, match=message):
        check_libtpu()

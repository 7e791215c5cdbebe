"""What a device decides where a config does not."""

import types

import pytest

from bert_jax.models.kernels import selection
from bert_jax.models.kernels.cpu_features import cpu_flags


@pytest.fixture
def cpu(monkeypatch):
    def be(*flags):
        monkeypatch.setattr(selection, "cpu_flags", lambda: frozenset(flags))

    return be


def test_accelerators_compute_in_bfloat16():
    assert selection.resolve_execution("auto", platform="tpu") == ("bfloat16", True, "pallas")
    assert selection.resolve_execution("auto", platform="gpu") == ("bfloat16", True, "xla")


@pytest.mark.parametrize("flag", ["avx512_bf16", "amx_bf16"])
def test_a_processor_that_multiplies_bfloat16_does_so_layer_by_layer(cpu, flag):
    cpu("sse2", flag)
    assert selection.resolve_execution("auto", platform="cpu") == ("bfloat16", False, "xla")


def test_another_processor_computes_in_float32(cpu):
    cpu("sse2", "avx2")
    assert selection.resolve_execution("auto", platform="cpu") == ("float32", True, "xla")


def test_what_is_given_counts(cpu):
    cpu("avx512_bf16")
    assert selection.resolve_execution("float32", platform="cpu").dtype == "float32"
    assert not selection.resolve_execution("float32", False, platform="cpu").scan_layers
    assert selection.resolve_execution("auto", True, platform="cpu").scan_layers
    assert selection.resolve_execution("auto", None, "xla", platform="tpu").attention == "xla"
    assert selection.resolve_execution("auto", None, "cudnn", platform="gpu").attention == "cudnn"


def test_kernels_stay_on_their_devices(cpu):
    cpu("avx512_bf16")
    chosen = {
        (kernel, platform): selection.resolve_execution(
            "auto", None, kernel, platform=platform
        ).attention
        for kernel in ("pallas", "cudnn")
        for platform in ("cpu", "gpu", "tpu")
    }
    assert {place for place, found in chosen.items() if found != "xla"} == {
        ("pallas", "tpu"),
        ("cudnn", "gpu"),
    }


@pytest.mark.parametrize(
    ("capability", "dtype"), [("7.5", "float32"), ("8.0", "bfloat16"), (None, "bfloat16")]
)
def test_the_gpu_that_is_here(monkeypatch, capability, dtype):
    device = types.SimpleNamespace(platform="gpu", compute_capability=capability)
    monkeypatch.setattr(selection.jax, "devices", lambda: [device])
    assert selection.resolve_execution("auto") == (dtype, True, "xla")


def test_flags_are_read_as_linux_writes_them(tmp_path):
    file = tmp_path / "cpuinfo"
    file.write_text("processor\t: 0\nflags\t\t: fpu sse2 avx512_bf16\nbugs\t\t: none\n")
    assert {"fpu", "avx512_bf16"} < cpu_flags(file)
    assert cpu_flags(tmp_path / "none") == frozenset()

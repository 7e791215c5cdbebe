"""The values that an `Execution` accepts, and the choices for a device."""

import types

import jax
import pytest

from bert_jax.errors import UserError
from bert_jax.models.execution import Execution, resolve_execution
from bert_jax.sharding import runtime
from bert_jax.sharding.runtime import cpu_flags


@pytest.fixture
def cpu(monkeypatch):
    def be(*flags):
        monkeypatch.setattr(runtime, "cpu_flags", lambda: frozenset(flags))

    return be


def test_accelerators_compute_in_bfloat16():
    assert resolve_execution("auto", platform="another").attention == "xla"
    tpu, gpu = (resolve_execution("auto", platform=platform) for platform in ("tpu", "gpu"))
    assert tpu == Execution("bfloat16", attention="pallas", platform="tpu")
    assert gpu == Execution("bfloat16", attention="xla", platform="gpu")


def test_a_cpu_computes_in_bfloat16_only_where_it_has_the_instructions(cpu):
    for flags in (("sse2", "avx512_bf16"), ("sse2", "amx_bf16")):
        cpu(*flags)
        resolved = resolve_execution("auto", platform="cpu")
        assert resolved == Execution("bfloat16", scan_layers=False, platform="cpu")
    cpu("sse2", "avx2")
    resolved = resolve_execution("auto", platform="cpu")
    assert resolved == Execution("float32", scan_layers=True, platform="cpu")


def test_values_of_the_config_are_kept(cpu):
    cpu("avx512_bf16")
    assert resolve_execution("float32", platform="cpu").dtype == "float32"
    assert not resolve_execution("float32", False, platform="cpu").scan_layers
    assert resolve_execution("auto", True, platform="cpu").scan_layers
    assert resolve_execution("auto", None, "xla", platform="tpu").attention == "xla"
    kernels = {
        (kernel, platform): resolve_execution("auto", None, kernel, platform=platform).attention
        for kernel in ("pallas", "cudnn")
        for platform in ("cpu", "gpu", "tpu")
    }
    assert {key: name for key, name in kernels.items() if name != "xla"} == {
        ("pallas", "tpu"): "pallas",
        ("cudnn", "gpu"): "cudnn",
    }


@pytest.mark.parametrize(
    ("capability", "dtype"), [("7.5", "float32"), ("8.0", "bfloat16"), (None, "bfloat16")]
)
def test_the_local_gpu(monkeypatch, capability, dtype):
    device = types.SimpleNamespace(platform="gpu", compute_capability=capability)
    monkeypatch.setattr(jax, "devices", lambda: [device])
    assert resolve_execution("auto") == Execution(dtype, platform="gpu")


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"dtype": "float16"}, "precision is 'float16'; known are auto, float32, bfloat16"),
        ({"scan_layers": 1}, "model.scan_layers is 1; it must be True or False"),
        ({"remat": "some"}, "model.remat is 'some'; known are none, dots, dots_with_no_"),
        (
            {"attention": "flash"},
            "model.attention is 'flash'; known are auto, xla, pallas, cudnn",
        ),
        ({"attention": "blocked"}, "model.attention is 'blocked'"),
        ({"pad_vocab_to_multiple_of": 0}, "model.pad_vocab_to_multiple_of is 0; it must be at le"),
    ],
)
def test_errors_name_the_key(fields, message):
    with pytest.raises(UserError, match=f"^{message}"):
        Execution(**fields)


def test_padded_vocabulary_sizes_by_hand():
    sizes = [(30522, 1), (30522, 128), (30522, 384), (384, 384), (1, 384)]
    assert [Execution(pad_vocab_to_multiple_of=n).padded_vocab_size(v) for v, n in sizes] == [
        *(30522, 30592, 30720, 384, 384)
    ]


def test_flags_are_read_as_linux_writes_them(tmp_path):
    file = tmp_path / "cpuinfo"
    file.write_text("processor\t: 0\nflags\t\t: fpu sse2 avx512_bf16\nbugs\t\t: none\n")
    assert {"fpu", "avx512_bf16"} < cpu_flags(file)
    assert cpu_flags(tmp_path / "none") == frozenset()

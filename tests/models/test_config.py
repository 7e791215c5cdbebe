"""Model configs and executions: accepted values, defaults, and the choices for a device."""

import types

import jax
import pytest

from bert_jax.errors import UserError
from bert_jax.families import bert
from bert_jax.models.config import EncoderConfig
from bert_jax.models.execution import Execution, resolve_execution
from bert_jax.sharding import runtime
from bert_jax.sharding.runtime import cpu_flags


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"hidden_size": 0}, "model.hidden_size is 0; it must be at least 1"),
        ({"vocab_size": -5}, "model.vocab_size is -5; it must be at least 1"),
        ({"vocab_size": [3]}, r"model.vocab_size is \[3\]"),
        ({"hidden_size": "abc"}, "model.hidden_size is 'abc'"),
        ({"hidden_dropout_prob": "a lot"}, "model.hidden_dropout_prob is 'a lot'"),
        (
            {"hidden_size": 100, "num_attention_heads": 12},
            "model.hidden_size is 100; it must be a multiple of model.num_attention_heads, 12",
        ),
        (
            {"hidden_act": "prelu"},
            "model.hidden_act is 'prelu'; known are gelu, gelu_python, gelu_new, ",
        ),
        (
            {"hidden_dropout_prob": 1.0},
            r"model.hidden_dropout_prob is 1.0; it must be at least 0 and below 1",
        ),
        ({"attention_probs_dropout_prob": -0.1}, "model.attention_probs_dropout_prob is -0.1"),
        ({"layer_norm_eps": 1e30}, r"model.layer_norm_eps is 1e\+30; it must be .* at most 1"),
        ({"initializer_range": 10**12}, "model.initializer_range is .*; it must be .* at most 1"),
        ({"num_layers": 3}, "bert models have no num_layers; known are vocab_size, hidden_size, "),
    ],
)
def test_errors_name_the_field_in_one_line(changes, message):
    with pytest.raises(UserError, match=f"^{message}") as raised:
        bert.FAMILY.new_config("base", **changes)
    assert "\n" not in str(raised.value)


def test_the_defaults_are_bert_base():
    config = EncoderConfig()
    assert config == bert.FAMILY.new_config("base")
    sizes = (config.vocab_size, config.max_position_embeddings, config.type_vocab_size)
    assert sizes == (30522, 512, 2)
    assert (config.layer_norm_eps, config.initializer_range) == (1e-12, 0.02)
    assert (config.hidden_dropout_prob, config.attention_probs_dropout_prob) == (0.1, 0.1)
    assert config.hidden_act == "gelu"


def test_named_sizes():
    # google-research/bert, README, "24 smaller models"; paper, section 3.
    assert {name: tuple(size.values()) for name, size in bert.SIZES.items()} == {
        "tiny": (2, 128, 2, 512),
        "mini": (4, 256, 4, 1024),
        "small": (4, 512, 8, 2048),
        "medium": (8, 512, 8, 2048),
        "base": (12, 768, 12, 3072),
        "large": (24, 1024, 16, 4096),
    }
    config = bert.FAMILY.new_config("tiny", vocab_size=100, num_attention_heads=4)
    assert (config.vocab_size, config.head_dim, config.hidden_size) == (100, 32, 128)
    with pytest.raises(UserError, match="model.size is 'huge'; known are tiny, mini, "):
        bert.FAMILY.new_config("huge")


# --- Executions ----------------------------------------------------------------------------------


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
            "model.attention is 'flash'; known are auto, xla, pallas, cudnn, definition",
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

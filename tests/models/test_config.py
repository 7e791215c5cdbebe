"""What a model config accepts."""

import dataclasses

import pytest

from bert_jax.errors import UserError
from bert_jax.families import bert
from bert_jax.models.config import EncoderConfig


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"hidden_size": 0}, "model.hidden_size is 0; it must be at least 1"),
        ({"vocab_size": -5}, "model.vocab_size is -5; it must be at least 1"),
        ({"num_hidden_layers": 0}, "model.num_hidden_layers is 0; it must be at least 1"),
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
        (
            {"num_layers": 3},
            "bert models have no num_layers; known are vocab_size, hidden_size, ",
        ),
    ],
)
def test_what_is_wrong_is_named_in_one_line(changes, message):
    with pytest.raises(UserError, match=f"^{message}") as raised:
        bert.FAMILY.new_config("base", **changes)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    "changes", [{"hidden_size": "abc"}, {"vocab_size": [3]}, {"hidden_dropout_prob": "a lot"}]
)
def test_a_value_of_another_kind_is_a_user_error(changes):
    with pytest.raises(UserError, match=f"{next(iter(changes))}"):
        bert.FAMILY.new_config("base", **changes)


def test_the_defaults_are_bert_base():
    config = EncoderConfig()
    assert config == bert.FAMILY.new_config("base")
    assert (config.vocab_size, config.max_position_embeddings, config.type_vocab_size) == (
        30522,
        512,
        2,
    )
    assert (config.layer_norm_eps, config.initializer_range) == (1e-12, 0.02)
    assert (config.hidden_dropout_prob, config.attention_probs_dropout_prob) == (0.1, 0.1)
    assert config.hidden_act == "gelu"


@pytest.mark.parametrize(
    ("size", "layers", "width", "heads"),
    [
        # google-research/bert, README, "24 smaller models"; paper, section 3.
        ("tiny", 2, 128, 2),
        ("mini", 4, 256, 4),
        ("small", 4, 512, 8),
        ("medium", 8, 512, 8),
        ("base", 12, 768, 12),
        ("large", 24, 1024, 16),
    ],
)
def test_named_sizes(size, layers, width, heads):
    config = bert.FAMILY.new_config(size)
    assert (config.num_hidden_layers, config.hidden_size) == (layers, width)
    assert (config.num_attention_heads, config.head_dim) == (heads, 64)
    assert config.intermediate_size == 4 * width
    assert len(bert.SIZES) == 6


def test_a_size_with_other_fields():
    config = bert.FAMILY.new_config("tiny", vocab_size=100, num_attention_heads=4)
    assert (config.vocab_size, config.head_dim, config.hidden_size) == (100, 32, 128)
    with pytest.raises(UserError, match="model.size is 'huge'; known are tiny, mini, "):
        bert.FAMILY.new_config("huge")


def test_numbers_that_would_overflow():
    for name in ("layer_norm_eps", "initializer_range"):
        for value in (10**12, 1e30, 1.5):
            with pytest.raises(UserError, match=f"{name} is .*; it must be .* at most 1"):
                EncoderConfig(**{name: value})


def test_a_config_does_not_change():
    with pytest.raises(dataclasses.FrozenInstanceError):
        EncoderConfig().hidden_size = 3  # type: ignore[misc]

"""The values that a model config accepts, its sizes and defaults."""

import pytest

from bert_jax.errors import UserError
from bert_jax.families import bert
from bert_jax.models.config import EncoderConfig


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

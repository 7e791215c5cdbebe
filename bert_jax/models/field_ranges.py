"""The types and ranges of the fields of an `EncoderConfig`."""

from typing import Any

from bert_jax.errors import (
    INT32_MAX,
    OptionError,
    require_at_least,
    require_between,
    require_one_of,
)
from bert_jax.models.activations import ACTIVATIONS, GATED_ACTIVATIONS

# More would be traced for hours.
MOST_FEEDFORWARD_NETWORKS = 16
_MOST = {"num_hidden_layers": 1000, "num_feedforward_networks": MOST_FEEDFORWARD_NETWORKS}
# The lowest value of a whole number, if not 1.
_LEAST = {
    "type_vocab_size": 0,
    "pad_token_id": 0,
    "sep_token_id": 0,
    "extra_position_rows": 0,
    "position_buckets": -1,
    "max_relative_positions": -1,
    "conv_kernel_size": 0,
}
# Options of heads check themselves, and the family with windows of its layers these.
_CHECKED_ELSEWHERE = ("heads", "attention_window")
_BASES = ("global_rope_theta", "local_rope_theta", "rope_factor")
_CHOICES = {
    "hidden_act": (*ACTIVATIONS, *GATED_ACTIVATIONS),
    "normalization_type": ("layer_norm", "no_norm", "rms_norm"),
    "position_kind": ("learned", "sinusoidal", "relative", "rotary"),
    "head_act": tuple(ACTIVATIONS),
    "classifier_pooling": ("cls", "mean"),
    "initial_values": ("equal", "residual", "fan_in"),
    "layer_kind": ("transformer", "bottleneck", "lstm", "gru", "projected_lstm"),
    "pos_att_type": ("", "c2p", "p2c", "c2p|p2c"),
    "norm_rel_ebd": ("none", "layer_norm"),
    "conv_act": tuple(ACTIVATIONS),
}


def check_field(name: str, value: Any, kind: Any, default: Any) -> None:
    """Checks the type and the range of a field with this type and default.

    Raises:
        OptionError: the value has another type, or is out of range.
    """
    key = f"model.{name}"
    if value is None:
        if default is not None:
            raise OptionError(key, value, f"it must be of type {type(default).__name__}")
    elif kind in (int, int | None):
        require_at_least(key, value, _LEAST.get(name, 1), _MOST.get(name, INT32_MAX))
    elif kind is bool:
        if not isinstance(value, bool):
            raise OptionError(key, value, "it must be True or False")
    elif name in _CHOICES:
        require_one_of(key, value, _CHOICES[name])
    elif name in ("initializer_range", "layer_norm_eps"):
        require_between(key, value, 0, 1, without_low=name == "layer_norm_eps")
    elif name in _BASES:
        require_between(key, value, 1)
    elif name not in _CHECKED_ELSEWHERE:  # probabilities of dropout
        require_between(key, value, 0, 1, without_high=True)

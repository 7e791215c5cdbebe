"""GTE: Zhang et al., 2024 (https://arxiv.org/abs/2407.19669), `model_type` "gte".

BERT with rotary positions and a gated feed-forward block: gte-multilingual-base, gte-base-en-v1.5
and others. Source: Hugging Face transformers, models/gte; conversion_mapping.py has the names of
published files, which it writes, too. Those files name the family "new", see `families.new`.
"""

from typing import Any

from bert_jax.errors import OptionError
from bert_jax.families import bert
from bert_jax.families.family import Family, TensorNames, rope_theta, set_field
from bert_jax.models.config import ENCODER_SCOPE, EncoderConfig
from bert_jax.models.heads.masked_lm import MaskedLMOptions

_LAYERS = f"{ENCODER_SCOPE}/encoder/layers"


def tensor_names(prefix: str) -> TensorNames:
    """The names of tensors in files; those of the encoder begin with `prefix`."""
    layer = f"{prefix}encoder.layer.{{layer}}"
    return bert.names(
        *bert.embedding_rules(prefix),  # no model has the table of positions
        *bert.layer_rules(f"{layer}.", *["attention.qkv_proj"] * 3, "attention.o_proj", "attn_ln"),
        # The second half is activated.
        bert.kernel(f"{_LAYERS}/gated_intermediate", f"{layer}.mlp.up_gate_proj", part=(0, 2)),
        bert.kernel(f"{_LAYERS}/gate", f"{layer}.mlp.up_gate_proj", part=(1, 2)),
        *bert.dense(f"{_LAYERS}/output", f"{layer}.mlp.down_proj"),
        *bert.layer_norm(f"{_LAYERS}/output_norm", f"{layer}.mlp_ln"),
        *bert.dense(f"{ENCODER_SCOPE}/pooler/dense", f"{prefix}pooler.dense"),
        *bert.masked_lm_rules("lm_head.", "dense", "norm", bias="decoder.bias"),
        *bert.TASK_HEAD_RULES,
        prefix=prefix,
    )


def read_fields(fields: dict[str, Any]) -> dict[str, Any]:
    """`rope_parameters` of transformers 5 as `rope_theta`; `rope_scaling` as its factor."""
    fields = dict(fields)
    rope, scaling = fields.pop("rope_parameters", None), fields.get("rope_scaling")
    if rope is not None:
        set_field(fields, "rope_theta", rope_theta(rope), "rope_parameters")
    if scaling is not None:
        is_known = isinstance(scaling, dict) and scaling.keys() == {"type", "factor"}
        if not is_known or scaling["type"] != "ntk":
            rule = "only {'type': 'ntk', 'factor': …} is supported: give another model"
            raise OptionError("rope_scaling", scaling, rule)
        fields["rope_scaling"] = scaling["factor"]
    return fields


class _Gte(Family):
    def fields(self, config: EncoderConfig) -> dict[str, Any]:
        """The values, with `rope_scaling` as files have it."""
        factor = config.rope_factor
        scaling = None if factor == 1 else {"type": "ntk", "factor": factor}
        return {**super().fields(config), "rope_factor": scaling}


FAMILY = _Gte(
    model_type="gte",
    class_names=bert.class_names(
        "Gte", without=("pretraining", "next_sentence", "question_answering", "multiple_choice")
    ),
    huggingface=tensor_names("gte."),
    sizes=bert.SIZES,
    defaults={
        "attention_probs_dropout_prob": 0.0,
        "activation_dropout": 0.1,
        "max_position_embeddings": 8192,
        "type_vocab_size": 0,
        "global_rope_theta": 160_000.0,
    },
    constants={
        "has_inner_biases": False,
        "gated_feed_forward": True,
        "position_kind": "rotary",
        "heads": (MaskedLMOptions("gelu"),),
    },
    optional_fields=("activation_dropout", "global_rope_theta", "rope_factor"),
    required_fields=(
        *bert.REQUIRED_IN_RELATIVES,
        "type_vocab_size",
        "layer_norm_eps",
        "global_rope_theta",
    ),
    field_names={
        # One rate for the outputs of sub-layers and inside the feed-forward block.
        "activation_dropout": "hidden_dropout_prob",
        "global_rope_theta": "rope_theta",
        "rope_factor": "rope_scaling",
    },
    fixed_fields={
        "head_dim": None,
        "layer_norm_type": "layer_norm",
        "logn_attention_scale": False,
        "pack_qkv": True,
        "position_embedding_type": "rope",
    },
    read_fields=read_fields,
    token_types=None,
)

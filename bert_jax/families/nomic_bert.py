"""NomicBERT: Nussbaum et al., 2024 (https://arxiv.org/abs/2402.01613), `model_type` "nomic_bert".

BERT with rotary positions, a gated feed-forward block and no biases in its layers. Source: Hugging
Face transformers, models/nomic_bert; conversion_mapping.py has the names of published files, which
it writes, too. Published `config.json` have the keys of GPT-2.
"""

from typing import Any

from bert_jax.families import bert
from bert_jax.families.family import Family, Rule, rope_theta, set_field
from bert_jax.models.config import ENCODER_SCOPE

_EMBEDDINGS, _LAYERS = f"{ENCODER_SCOPE}/embeddings", f"{ENCODER_SCOPE}/encoder/layers"
_LAYER = "nomic_bert.encoder.layers.{layer}"


HUGGINGFACE = bert.names(
    *(
        Rule(f"{_EMBEDDINGS}/{table}/embedding", f"nomic_bert.embeddings.{table}.weight")
        for table in ("word_embeddings", "token_type_embeddings")
    ),
    *bert.layer_norm(f"{_EMBEDDINGS}/layer_norm", "nomic_bert.emb_ln"),
    *(
        bert.kernel(f"{_LAYERS}/attention/{name}", f"{_LAYER}.attn.Wqkv", part=(number, 3))
        for number, name in enumerate(("query", "key", "value"))
    ),
    bert.kernel(f"{_LAYERS}/attention/output", f"{_LAYER}.attn.out_proj", 2),
    *bert.layer_norm(f"{_LAYERS}/attention_norm", f"{_LAYER}.norm1"),
    bert.kernel(f"{_LAYERS}/gate", f"{_LAYER}.mlp.fc12"),
    bert.kernel(f"{_LAYERS}/gated_intermediate", f"{_LAYER}.mlp.fc11"),
    bert.kernel(f"{_LAYERS}/output", f"{_LAYER}.mlp.fc2"),
    *bert.layer_norm(f"{_LAYERS}/output_norm", f"{_LAYER}.norm2"),
    *bert.dense(f"{ENCODER_SCOPE}/pooler/dense", "nomic_bert.pooler.dense"),
    *bert.masked_lm_rules("cls.predictions.", "transform.dense", "transform.layer_norm"),
    *bert.TASK_HEAD_RULES,
    prefix="nomic_bert.",
    aliases=bert.DECODER_BIAS,
)

# Beyond `max_trained_positions` the published models need other frequencies: not supported.
_OLD_KEYS = {
    "n_embd": "hidden_size",
    "n_layer": "num_hidden_layers",
    "n_head": "num_attention_heads",
    "n_inner": "intermediate_size",
    "max_trained_positions": "max_position_embeddings",
    "layer_norm_epsilon": "layer_norm_eps",
    "rotary_emb_base": "rope_theta",
    "resid_pdrop": "hidden_dropout_prob",
    "attn_pdrop": "attention_probs_dropout_prob",
}


def read_fields(fields: dict[str, Any]) -> dict[str, Any]:
    """The keys of published files, and `rope_parameters`, as the keys that are written."""
    fields = dict(fields)
    found = [(old, key, fields.pop(old)) for old, key in _OLD_KEYS.items() if old in fields]
    if fields.pop("activation_function", None) is not None:
        found.append(("activation_function", "hidden_act", "silu"))
    rope = fields.pop("rope_parameters", None)
    if rope is not None:
        found.append(("rope_parameters", "rope_theta", rope_theta(rope)))
    for old, key, value in found:
        set_field(fields, key, value, old)
    return fields


FAMILY = Family(
    model_type="nomic_bert",
    class_names=bert.class_names(
        "NomicBert",
        without=("pretraining", "next_sentence", "question_answering", "multiple_choice"),
    ),
    huggingface=HUGGINGFACE,
    sizes=bert.SIZES,
    defaults={
        "hidden_act": "silu",
        "max_position_embeddings": 2048,
        "hidden_dropout_prob": 0.0,
        "attention_probs_dropout_prob": 0.0,
        "global_rope_theta": 1000.0,
    },
    constants={"has_biases": False, "gated_feed_forward": True, "position_kind": "rotary"},
    optional_fields=("attention_head_size", "global_rope_theta"),
    required_fields=(
        *bert.REQUIRED_IN_RELATIVES,
        "type_vocab_size",
        "layer_norm_eps",
        "global_rope_theta",
    ),
    field_names={"attention_head_size": "head_dim", "global_rope_theta": "rope_theta"},
    fixed_fields={
        "activation_function": "swiglu",
        "causal": False,
        "mlp_fc1_bias": False,
        "mlp_fc2_bias": False,
        "num_experts": 0,
        "parallel_block": False,
        "prenorm": False,
        "qkv_proj_bias": False,
        "rotary_emb_fraction": 1.0,
        "rotary_emb_interleaved": False,
        "rotary_emb_scale_base": None,
        "rotary_scaling_factor": None,
        "rope_scaling": None,
        "use_rms_norm": False,
    },
    read_fields=read_fields,
)

"""ModernBERT: Warner et al., 2024 (https://arxiv.org/abs/2412.13663), `model_type` "modernbert".

Also Ettin (https://arxiv.org/abs/2507.11412), mmBERT (https://arxiv.org/abs/2509.06888) and models
of them. Source: Hugging Face transformers, models/modernbert; keys are those of its version 4,
which version 5 reads, too.
"""

from typing import Any

from bert_jax.errors import OptionError
from bert_jax.families import bert
from bert_jax.families.family import Family, Rule, TensorNames, rope_theta, set_field
from bert_jax.models.config import ENCODER_SCOPE
from bert_jax.models.local_attention import global_every
from bert_jax.tokenization.interface import BYTE_LEVEL_BPE

_EMBEDDINGS, _STACK = f"{ENCODER_SCOPE}/embeddings", f"{ENCODER_SCOPE}/encoder"
_LAYERS, _LAYER = f"{_STACK}/layers", "model.layers.{layer}"


def _norm(parameter: str, tensor: str, first_layer: int = 0) -> Rule:
    return Rule(f"{parameter}/scale", f"{tensor}.weight", first_layer=first_layer)


HUGGINGFACE = TensorNames(
    (
        Rule(f"{_EMBEDDINGS}/word_embeddings/embedding", "model.embeddings.tok_embeddings.weight"),
        _norm(f"{_EMBEDDINGS}/layer_norm", "model.embeddings.norm"),
        _norm(f"{_LAYERS}/attention_norm", f"{_LAYER}.attn_norm", first_layer=1),
        *(
            bert.kernel(f"{_LAYERS}/attention/{name}", f"{_LAYER}.attn.Wqkv", part=(number, 3))
            for number, name in enumerate(("query", "key", "value"))
        ),
        bert.kernel(f"{_LAYERS}/attention/output", f"{_LAYER}.attn.Wo", 2),
        _norm(f"{_LAYERS}/output_norm", f"{_LAYER}.mlp_norm"),
        # The first half is activated.
        bert.kernel(f"{_LAYERS}/gate", f"{_LAYER}.mlp.Wi", part=(0, 2)),
        bert.kernel(f"{_LAYERS}/gated_intermediate", f"{_LAYER}.mlp.Wi", part=(1, 2)),
        bert.kernel(f"{_LAYERS}/output", f"{_LAYER}.mlp.Wo"),
        _norm(f"{_STACK}/final_norm", "model.final_norm"),
        # The hidden layer of every head, which a new head takes over from another.
        bert.kernel("mlm_head/dense", "head.dense"),
        _norm("mlm_head/layer_norm", "head.norm"),
        bert.kernel("prediction_head/dense", "head.dense"),
        _norm("prediction_head/layer_norm", "head.norm"),
        Rule("mlm_head/decoder", "decoder.weight"),
        Rule("mlm_head/bias", "decoder.bias"),
        *bert.TASK_HEAD_RULES,
    ),
    prefix="model.",
)


def read_fields(fields: dict[str, Any]) -> dict[str, Any]:
    """The `layer_types` and `rope_parameters` of version 5 as keys of version 4."""
    fields = dict(fields)
    kinds, parameters = fields.pop("layer_types", None), fields.pop("rope_parameters", None)
    if kinds is not None:
        every = global_every([kind == "full_attention" for kind in kinds])
        are_known = {*kinds} <= {"full_attention", "sliding_attention"}
        if every is None or not are_known or len(kinds) != fields.get("num_hidden_layers"):
            rule = (
                "of num_hidden_layers, every n-th must be full_attention, beginning with the first"
            )
            raise OptionError("layer_types", kinds, f"{rule}: give another model")
        set_field(fields, "global_attn_every_n_layers", every, "layer_types")
    for kind, key in (("full", "global_rope_theta"), ("sliding", "local_rope_theta")):
        named = (parameters or {}).get(f"{kind}_attention") or {}
        base = rope_theta(named)
        if "rope_theta" in named:
            set_field(fields, key, base, "rope_parameters")
    return fields


# What other families do not have; a file has all of it.
_FIELDS = (
    "local_attention",
    "global_attn_every_n_layers",
    "global_rope_theta",
    "local_rope_theta",
    "head_act",
    "classifier_pooling",
)

FAMILY = Family(
    model_type="modernbert",
    class_names=bert.class_names("ModernBert", without=("pretraining", "next_sentence")),
    huggingface=HUGGINGFACE,
    # base and large: the paper, table 1; the others but tiny: Ettin's 17m, 32m, 68m and 1b.
    sizes={
        "tiny": bert.size(4, 128, 2, 192),
        "mini": bert.size(7, 256, 4, 384),
        "small": bert.size(10, 384, 6, 576),
        "medium": bert.size(19, 512, 8, 768),
        "base": bert.size(22, 768, 12, 1152),
        "large": bert.size(28, 1024, 16, 2624),
        "xlarge": bert.size(28, 1792, 28, 3840),
    },
    defaults={
        "max_position_embeddings": 8192,
        "hidden_dropout_prob": 0.0,
        "attention_probs_dropout_prob": 0.0,
        "embedding_dropout": 0.0,
        "classifier_dropout": 0.0,
        "layer_norm_eps": 1e-5,
        "global_attn_every_n_layers": 3,
        "head_act": "gelu",
        "classifier_pooling": "mean",
    },
    constants={
        "type_vocab_size": 0,
        "has_pooler": False,
        "classifier_activation": False,
        "norm_first": True,
        "has_first_norm": False,
        "has_norm_biases": False,
        "has_biases": False,
        "gated_feed_forward": True,
        "feed_forward_dropout": False,
        "position_kind": "rotary",
        "initial_values": "residual",
    },
    optional_fields=("embedding_dropout", "activation_dropout", *_FIELDS),
    required_fields=(*bert.REQUIRED_IN_RELATIVES, "layer_norm_eps", *_FIELDS),
    field_names={
        "hidden_act": "hidden_activation",
        "layer_norm_eps": "norm_eps",
        # One rate for the attention weights and the output of attention.
        "hidden_dropout_prob": "attention_dropout",
        "attention_probs_dropout_prob": "attention_dropout",
        "activation_dropout": "mlp_dropout",
        "head_act": "classifier_activation",
    },
    fixed_fields={
        "attention_bias": False,
        "mlp_bias": False,
        "norm_bias": False,
        "classifier_bias": False,
        "decoder_bias": True,
        "rope_scaling": None,
        "head_dim": None,
        "sliding_window": None,
    },
    unread_fields=("position_embedding_type",),
    read_fields=read_fields,
    tokenizer_kind=BYTE_LEVEL_BPE,
    token_types=False,
)

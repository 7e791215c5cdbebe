"""GPT-2: Radford et al., 2019 ("Language models are unsupervised multitask learners").

`model_type` "gpt2". Source: Hugging Face transformers, models/gpt2/modeling_gpt2.py.
"""

import re

from bert_jax.families import bert
from bert_jax.families.family import Family, Rule, TensorNames
from bert_jax.models.config import ENCODER_SCOPE
from bert_jax.models.encoder_with_head import ClassifierOptions
from bert_jax.tokenization.interface import GPT2

_EMBEDDINGS = f"{ENCODER_SCOPE}/embeddings"


def _dense(parameter: str, tensor: str, axes: int) -> tuple[Rule, Rule]:
    """A linear layer of the class Conv1D, which is stored [in, out]."""
    return (
        Rule(f"{parameter}/kernel", f"{tensor}.weight", axes),
        Rule(f"{parameter}/bias", f"{tensor}.bias"),
    )


def names(words: str, positions: str, *rules: Rule) -> TensorNames:
    """The names of embeddings and layers, which GPT-1 and GPT-2 share, of heads, and others."""
    return TensorNames(
        (
            Rule(f"{_EMBEDDINGS}/word_embeddings/embedding", f"transformer.{words}.weight"),
            Rule(f"{_EMBEDDINGS}/position_embeddings/embedding", f"transformer.{positions}.weight"),
            *bert.layer_rules(
                "transformer.h.{layer}.",
                *(*["attn.c_attn"] * 3, "attn.c_proj", "ln_1"),
                *("mlp.c_fc", "mlp.c_proj", "ln_2"),
                dense=_dense,
            ),
            Rule("lm_head/decoder", "lm_head.weight"),
            Rule("classifier/kernel", "score.weight", 1, transposed=True),
            *bert.MIX_RULES,
            *rules,
        ),
        "transformer.",
        # The causal masks that older versions of transformers saved.
        ignored=re.compile(r"\.attn\.(masked_)?bias$"),
    )


FIELD_NAMES = {
    "hidden_size": "n_embd",
    "num_hidden_layers": "n_layer",
    "num_attention_heads": "n_head",
    "intermediate_size": "n_inner",
    "max_position_embeddings": "n_positions",
    "hidden_act": "activation_function",
    "hidden_dropout_prob": "resid_pdrop",
    "embedding_dropout": "embd_pdrop",
    "attention_probs_dropout_prob": "attn_pdrop",
    "layer_norm_eps": "layer_norm_epsilon",
}
CONSTANTS = {
    "type_vocab_size": 0,
    "classifier_dropout": None,  # that of the hidden states
    "pad_token_id": 0,  # no token is padding; the files may name one, which is kept there
    "has_pooler": False,
    "embedding_norm": False,
    "is_causal": True,
    "heads": (ClassifierOptions(of_last_token=True),),
}
DEFAULTS = {"embedding_dropout": 0.1, "layer_norm_eps": 1e-5, "hidden_act": "gelu_new"}
REQUIRED_FIELDS = (
    *(name for name in bert.REQUIRED_FIELDS if name != "intermediate_size"),
    "max_position_embeddings",
)

FAMILY = Family(
    model_type="gpt2",
    class_names={
        "causal_lm": "GPT2LMHeadModel",
        "classification": "GPT2ForSequenceClassification",
        "encoder": "GPT2Model",
    },
    huggingface=names(
        "wte", "wpe", *bert.layer_norm(f"{ENCODER_SCOPE}/encoder/final_norm", "transformer.ln_f")
    ),
    # base is the published "gpt2"; the three of the same name are medium, large and xl.
    sizes={
        name: {"num_hidden_layers": layers, "hidden_size": width, "num_attention_heads": heads}
        for name, layers, width, heads in (
            ("tiny", 2, 128, 2),
            ("mini", 4, 256, 4),
            ("small", 4, 512, 8),
            ("base", 12, 768, 12),
            ("medium", 24, 1024, 16),
            ("large", 36, 1280, 20),
            ("xl", 48, 1600, 25),
        )
    },
    defaults=DEFAULTS | {"max_position_embeddings": 1024},
    constants=CONSTANTS | {"norm_first": True, "initial_values": "residual"},
    optional_fields=("embedding_dropout",),
    required_fields=REQUIRED_FIELDS,
    field_names=FIELD_NAMES,
    fixed_fields={
        "scale_attn_weights": True,
        "scale_attn_by_inverse_layer_idx": False,
        "reorder_and_upcast_attn": False,
    },
    intermediate_factor=4,
    tokenizer_kind=GPT2,
    token_types=False,
)

"""ALBERT: Lan et al., 2020 (https://arxiv.org/abs/1909.11942), `model_type` "albert".

Sources: Hugging Face transformers, models/albert/modeling_albert.py; google-research/albert,
modeling.py. Its layers share their parameters; the published models have one group of layers.
"""

from bert_jax.families import bert
from bert_jax.families.family import Family
from bert_jax.models.config import ENCODER_SCOPE
from bert_jax.models.heads.next_sentence import NextSentenceOptions
from bert_jax.tokenization.interface import SENTENCEPIECE

_PROJECTION = f"{ENCODER_SCOPE}/encoder/embedding_projection"
_POOLER = f"{ENCODER_SCOPE}/pooler/dense"

HUGGINGFACE = bert.names(
    *bert.embedding_rules("albert."),
    *bert.dense(_PROJECTION, "albert.encoder.embedding_hidden_mapping_in"),
    *bert.layer_rules(
        "albert.encoder.albert_layer_groups.{layer}.albert_layers.0.",
        *("attention.query", "attention.key", "attention.value"),
        *("attention.dense", "attention.LayerNorm"),
        *("ffn", "ffn_output", "full_layer_layer_norm"),
    ),
    *bert.dense(_POOLER, "albert.pooler"),
    *bert.masked_lm_rules("predictions.", "dense", "LayerNorm"),
    *bert.dense("nsp_head", "sop_classifier.classifier"),
    *bert.TASK_HEAD_RULES,
    prefix="albert.",
    aliases={"predictions.decoder.bias": "predictions.bias"},
)

GOOGLE = bert.google_names(
    *bert.google_dense(_PROJECTION, "bert/encoder/embedding_hidden_mapping_in"),
    *bert.layer_rules(
        "bert/encoder/transformer/group_{layer}/inner_group_0/",
        *("attention_1/self/query", "attention_1/self/key", "attention_1/self/value"),
        *("attention_1/output/dense", "LayerNorm"),
        *("ffn_1/intermediate/dense", "ffn_1/intermediate/output/dense", "LayerNorm_1"),
        dense=bert.google_dense,
        layer_norm=bert.google_layer_norm,
    ),
)

FAMILY = Family(
    model_type="albert",
    class_names=bert.class_names("Albert", without=("next_sentence",)),
    huggingface=HUGGINGFACE,
    google=GOOGLE,
    google_config="albert_config.json",
    google_gelu="gelu_new",  # modeling.py, get_activation
    # README of google-research/albert; tiny to small are of the same shape as BERT's.
    sizes={
        **{name: bert.SIZES[name] for name in ("tiny", "mini", "small", "base", "large")},
        "xlarge": bert.size(24, 2048, 16, 8192),
        "xxlarge": bert.size(12, 4096, 64, 16_384),
    },
    # Version 2; version 1 has dropout 0.1.
    defaults={
        "embedding_size": 128,
        "num_hidden_groups": 1,
        "hidden_act": "gelu_new",
        "hidden_dropout_prob": 0.0,
        "attention_probs_dropout_prob": 0.0,
        "classifier_dropout": 0.1,
    },
    constants={
        "project_embeddings": True,
        "feed_forward_dropout": False,
        "heads": (NextSentenceOptions(dropout=True),),
    },
    optional_fields=("embedding_size", "num_hidden_groups"),
    required_fields=(
        *bert.REQUIRED_IN_RELATIVES,
        "embedding_size",
        "num_hidden_groups",
        "type_vocab_size",
    ),
    fixed_fields={"inner_group_num": 1},
    field_names={"classifier_dropout": "classifier_dropout_prob"},
    tokenizer_kind=SENTENCEPIECE,
)

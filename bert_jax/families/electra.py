"""ELECTRA: Clark et al., 2020 (https://arxiv.org/abs/2003.10555), `model_type` "electra".

Sources: Hugging Face transformers, models/electra/modeling_electra.py; google-research/electra.
Generator and discriminator are two models of this family.
"""

from bert_jax.families import bert
from bert_jax.families.family import Family
from bert_jax.models.config import ENCODER_SCOPE
from bert_jax.models.encoder_with_head import ClassifierOptions
from bert_jax.models.heads.masked_lm import MaskedLMOptions
from bert_jax.models.heads.multiple_choice import ChoiceHeadOptions

FAMILY = Family(
    model_type="electra",
    class_names={
        **bert.class_names("Electra", without=("pretraining", "next_sentence")),
        "replaced_tokens": "ElectraForPreTraining",
    },
    huggingface=bert.names(
        *bert.embedding_rules("electra."),
        *bert.dense(f"{ENCODER_SCOPE}/encoder/embedding_projection", "electra.embeddings_project"),
        *bert.layer_rules("electra.encoder.layer.{layer}."),
        *bert.dense("replaced_token_head/dense", "discriminator_predictions.dense"),
        *bert.dense("replaced_token_head/out_proj", "discriminator_predictions.dense_prediction"),
        *bert.masked_lm_rules(
            "generator_", "predictions.dense", "predictions.LayerNorm", "lm_head", "lm_head.bias"
        ),
        *bert.dense("classifier/dense", "classifier.dense"),
        *bert.dense("classifier/out_proj", "classifier.out_proj"),
        *bert.dense("sequence_summary", "sequence_summary.summary"),
        *bert.TASK_HEAD_RULES,
        prefix="electra.",
    ),
    # configure_pretraining.py, and the paper, table 6; the small one has embeddings of width 128.
    sizes={
        name: {**bert.SIZES[name], "embedding_size": width}
        for name, width in (("tiny", 128), ("mini", 256), ("base", 768), ("large", 1024))
    }
    | {"small": bert.size(12, 256, 4, 1024) | {"embedding_size": 128}},
    constants={
        "has_pooler": False,
        "heads": (
            MaskedLMOptions("gelu"),
            ClassifierOptions("gelu", input_dropout=True),
            ChoiceHeadOptions("summary"),
        ),
    },
    optional_fields=("embedding_size", "summary_last_dropout"),
    required_fields=(*bert.REQUIRED_IN_RELATIVES, "embedding_size", "type_vocab_size"),
    fixed_fields_of_heads={
        "multiple_choice": {
            "summary_type": "first",
            "summary_use_proj": True,
            "summary_proj_to_labels": False,
            "summary_activation": "gelu",
            "summary_first_dropout": 0,
        }
    },
)

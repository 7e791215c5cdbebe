"""DistilBERT: Sanh et al., 2019 (https://arxiv.org/abs/1910.01108), `model_type` "distilbert".

Source: Hugging Face transformers, models/distilbert/modeling_distilbert.py.
"""

from bert_jax.families import bert
from bert_jax.families.family import Family, Rule
from bert_jax.models.encoder_with_head import ClassifierOptions
from bert_jax.models.heads.multiple_choice import ChoiceHeadOptions
from bert_jax.models.heads.tagging import TaggingOptions


def encoder_rules(prefix: str) -> tuple[Rule, ...]:
    """Embeddings and layers; `prefix` is the prefix of the names, such as "distilbert."."""
    layers = bert.layer_rules(
        f"{prefix}transformer.layer.{{layer}}.",
        *("attention.q_lin", "attention.k_lin", "attention.v_lin"),
        *("attention.out_lin", "sa_layer_norm"),
        *("ffn.lin1", "ffn.lin2", "output_layer_norm"),
    )
    return *bert.embedding_rules(prefix), *layers


FAMILY = Family(
    model_type="distilbert",
    class_names=bert.class_names("DistilBert", without=("pretraining", "next_sentence")),
    # BERT's, without token types.
    token_types=False,
    huggingface=bert.names(
        *encoder_rules("distilbert."),
        *bert.masked_lm_rules("vocab_", "transform", "layer_norm", "projector", "projector.bias"),
        # The head of classification and multiple choice; the head of tagging has one layer alone.
        *bert.dense("classifier/dense", "pre_classifier"),
        *bert.dense("classifier/out_proj", "classifier"),
        *bert.TASK_HEAD_RULES,
        prefix="distilbert.",
    ),
    sizes=bert.SIZES | {"base": {**bert.SIZES["base"], "num_hidden_layers": 6}},
    defaults={"classifier_dropout": 0.2, "qa_dropout": 0.1},
    constants={
        "type_vocab_size": 0,
        "layer_norm_eps": 1e-12,
        "has_pooler": False,
        "attention_output_dropout": False,
        "heads": (
            ClassifierOptions("relu"),
            ChoiceHeadOptions("classifier"),
            TaggingOptions(dropout_of_hidden=True),
        ),
    },
    optional_fields=("qa_dropout",),
    required_fields=bert.REQUIRED_IN_RELATIVES,
    field_names={
        "hidden_size": "dim",
        "num_hidden_layers": "n_layers",
        "num_attention_heads": "n_heads",
        "intermediate_size": "hidden_dim",
        "hidden_act": "activation",
        "hidden_dropout_prob": "dropout",
        "attention_probs_dropout_prob": "attention_dropout",
        "classifier_dropout": "seq_classif_dropout",
    },
    synonyms=("hidden_size", "num_hidden_layers", "num_attention_heads"),
)

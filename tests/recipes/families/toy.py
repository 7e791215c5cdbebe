"""A family in one file: BERT with the differences that relatives have."""

from bert_jax.families import bert
from bert_jax.families.family import Family, Rule, TensorNames

FAMILY = Family(
    model_type="toy",
    class_names={
        "encoder": "ToyModel",
        "masked_lm": "ToyForMaskedLM",
        "classification": "ToyForSequenceClassification",
    },
    # As RoBERTa: one token type.
    token_types=False,
    huggingface=TensorNames(
        rules=(
            *bert.encoder_rules("toy."),
            *bert.dense("mlm_head/dense", "lm_head.dense"),
            *bert.layer_norm("mlm_head/layer_norm", "lm_head.layer_norm"),
            Rule("mlm_head/decoder", "lm_head.decoder.weight"),
            Rule("mlm_head/bias", "lm_head.bias"),
            *bert.dense("classifier", "score"),
        ),
        prefix="toy.",
        aliases={"lm_head.decoder.bias": "lm_head.bias"},
    ),
    # As DistilBERT: other keys in config.json.
    required_fields=("vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads"),
    field_names={"hidden_size": "dim", "num_hidden_layers": "n_layers"},
    # As RoBERTa: positions count from the row after the row of padding.
    sizes=bert.SIZES,
    constants={"positions_after_padding": True},
)

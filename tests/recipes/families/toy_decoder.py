"""A decoder in one file: BERT's layers with a causal mask, and a head for the next token."""

from bert_jax.families import bert
from bert_jax.families.family import Family, Rule, TensorNames

FAMILY = Family(
    model_type="toy_decoder",
    class_names={"causal_lm": "ToyForCausalLM", "encoder": "ToyDecoder"},
    huggingface=TensorNames(
        rules=(*bert.encoder_rules("toy."), Rule("lm_head/decoder", "lm_head.weight")),
        prefix="toy.",
    ),
    required_fields=("vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads"),
    sizes=bert.SIZES,
    constants={"is_causal": True, "has_pooler": False},
    token_types=False,
)

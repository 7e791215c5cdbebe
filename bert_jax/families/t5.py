"""T5: Raffel et al., 2020 (https://arxiv.org/abs/1910.10683), `model_type` "t5".

Versions 1.0 (one activation, tied table) and 1.1 (gated, with a table of the head). Source: Hugging
Face transformers, models/t5/modeling_t5.py.
"""

import re

from bert_jax.families import bert
from bert_jax.families.family import Family, Rule, TensorNames
from bert_jax.models.config import ENCODER_SCOPE
from bert_jax.models.heads.text_to_text import DECODER_SCOPE, TextToTextOptions
from bert_jax.tokenization.interface import T5


def _attention_rules(parameter: str, layer: str, tensor: str) -> tuple[Rule, ...]:
    return (
        *(
            bert.kernel(f"{parameter}/{name}", f"{layer}.{tensor}.{name[0]}")
            for name in ("query", "key", "value")
        ),
        bert.kernel(f"{parameter}/output", f"{layer}.{tensor}.o", 2),
        Rule(f"{parameter}_norm/scale", f"{layer}.layer_norm.weight"),
    )


def _stack_rules(scope: str, tensor: str) -> tuple[Rule, ...]:
    """Encoder or decoder, in the scope of its parameters."""
    stack, layers = f"{scope}/encoder", f"{scope}/encoder/layers"
    block = f"{tensor}.block.{{layer}}.layer"
    is_decoder = scope == DECODER_SCOPE
    cross = _attention_rules(f"{layers}/cross_attention", f"{block}.1", "EncDecAttention")
    last = f"{block}.{2 if is_decoder else 1}"
    return (
        *_attention_rules(f"{layers}/attention", f"{block}.0", "SelfAttention"),
        *(cross if is_decoder else ()),
        # The first is of version 1.0, the next two of version 1.1.
        bert.kernel(f"{layers}/intermediate", f"{last}.DenseReluDense.wi"),
        bert.kernel(f"{layers}/gate", f"{last}.DenseReluDense.wi_0"),
        bert.kernel(f"{layers}/gated_intermediate", f"{last}.DenseReluDense.wi_1"),
        bert.kernel(f"{layers}/output", f"{last}.DenseReluDense.wo"),
        Rule(f"{layers}/output_norm/scale", f"{last}.layer_norm.weight"),
        Rule(f"{stack}/final_norm/scale", f"{tensor}.final_layer_norm.weight"),
        Rule(
            f"{stack}/relative_positions/table/embedding",
            f"{tensor}.block.0.layer.0.SelfAttention.relative_attention_bias.weight",
        ),
    )


# Copies of the shared table; some files have a table of the cross-attention that is never used.
_SPELLINGS = ((r"^(encoder|decoder)\.embed_tokens\.weight$", "shared.weight"),)
_UNUSED = re.compile(r"EncDecAttention\.relative_attention_bias")


def _size(
    layers: int, width: int, heads: int, feed_forward: int, head_size: int = 64
) -> dict[str, int]:
    encoder = bert.size(layers, width, heads, feed_forward)
    return {**encoder, "decoder_layers": layers, "attention_head_size": head_size}


FAMILY = Family(
    model_type="t5",
    class_names={"text_to_text": "T5ForConditionalGeneration", "encoder": "T5EncoderModel"},
    huggingface=TensorNames(
        (
            Rule(f"{ENCODER_SCOPE}/embeddings/word_embeddings/embedding", "shared.weight"),
            *_stack_rules(ENCODER_SCOPE, "encoder"),
            *_stack_rules(DECODER_SCOPE, "decoder"),
            Rule("lm_head/decoder", "lm_head.weight"),
        ),
        ignored=_UNUSED,
        spellings=_SPELLINGS,
    ),
    # Version 1.1; below, version 1.0 (t5-small to t5-11b).
    sizes={
        "tiny": _size(2, 128, 2, 256),
        "small": _size(8, 512, 6, 1024),
        "base": _size(12, 768, 12, 2048),
        "large": _size(24, 1024, 16, 2816),
        "xl": _size(24, 2048, 32, 5120),
        "xxl": _size(24, 4096, 64, 10_240),
        "small_v1_0": _size(6, 512, 8, 2048),
        "base_v1_0": _size(12, 768, 12, 3072),
        "large_v1_0": _size(24, 1024, 16, 4096),
        "3b": _size(24, 1024, 32, 16_384, 128),
        "11b": _size(24, 1024, 128, 65_536, 128),
    },
    defaults={
        "hidden_act": "relu",
        "activation_dropout": 0.1,
        "decoder_start_token_id": 0,
        "layer_norm_eps": 1e-6,
    },
    constants={
        "type_vocab_size": 0,
        "classifier_dropout": None,  # there is no classifier
        "has_pooler": False,
        "normalization_type": "rms_norm",
        "norm_first": True,
        "embedding_norm": False,
        "has_biases": False,
        "position_kind": "relative",
        "relative_bias": True,
        "scale_attention": False,
        "final_dropout": True,
        "initial_values": "fan_in",
        "heads": (TextToTextOptions(scales_logits=True),),
    },
    optional_fields=(
        "attention_head_size",
        "relative_attention_num_buckets",
        "relative_attention_max_distance",
        "activation_dropout",
        "decoder_layers",
        "decoder_start_token_id",
        "scale_decoder_outputs",
    ),
    required_fields=(*bert.REQUIRED_FIELDS, "attention_head_size"),
    field_names={
        "hidden_size": "d_model",
        "num_hidden_layers": "num_layers",
        "decoder_layers": "num_decoder_layers",
        "num_attention_heads": "num_heads",
        "intermediate_size": "d_ff",
        "attention_head_size": "d_kv",
        "hidden_act": "feed_forward_proj",
        "max_position_embeddings": "n_positions",
        "layer_norm_eps": "layer_norm_epsilon",
        # T5 has one rate for all.
        "hidden_dropout_prob": "dropout_rate",
        "attention_probs_dropout_prob": "dropout_rate",
        "activation_dropout": "dropout_rate",
    },
    tokenizer_kind=T5,
    token_types=False,
)

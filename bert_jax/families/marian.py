"""Marian: the translation models of OPUS-MT, `model_type` "marian".

The Transformer of Vaswani et al., 2017 (https://arxiv.org/abs/1706.03762) with sinusoidal positions
and one table of word embeddings. Sources: Junczys-Dowmunt et al., 2018
(https://arxiv.org/abs/1804.00344); Hugging Face transformers, models/marian/modeling_marian.py.
"""

import re

from bert_jax.families import bert
from bert_jax.families.family import Family, Rule, TensorNames
from bert_jax.models.config import ENCODER_SCOPE
from bert_jax.models.heads.text_to_text import DECODER_SCOPE, TextToTextOptions
from bert_jax.tokenization.interface import MARIAN


def attention_rules(parameter: str, tensor: str) -> tuple[Rule, ...]:
    """Attention and its LayerNorm; `tensor` without "_attn" is the name in the file."""
    return (
        *bert.dense(f"{parameter}/query", f"{tensor}_attn.q_proj"),
        *bert.dense(f"{parameter}/key", f"{tensor}_attn.k_proj"),
        *bert.dense(f"{parameter}/value", f"{tensor}_attn.v_proj"),
        *bert.dense(f"{parameter}/output", f"{tensor}_attn.out_proj", 2),
        *bert.layer_norm(f"{parameter}_norm", f"{tensor}_attn_layer_norm"),
    )


def layer_rules(scope: str, tensor: str) -> tuple[Rule, ...]:
    """The layers of encoder or decoder, in the scope of its parameters."""
    layers, layer = f"{scope}/encoder/layers", f"{tensor}.layers.{{layer}}"
    cross = attention_rules(f"{layers}/cross_attention", f"{layer}.encoder")
    return (
        *attention_rules(f"{layers}/attention", f"{layer}.self"),
        *(cross if scope == DECODER_SCOPE else ()),
        *bert.dense(f"{layers}/intermediate", f"{layer}.fc1"),
        *bert.dense(f"{layers}/output", f"{layer}.fc2"),
        *bert.layer_norm(f"{layers}/output_norm", f"{layer}.final_layer_norm"),
    )


RULES = (
    Rule(f"{ENCODER_SCOPE}/embeddings/word_embeddings/embedding", "model.shared.weight"),
    *layer_rules(ENCODER_SCOPE, "model.encoder"),
    *layer_rules(DECODER_SCOPE, "model.decoder"),
    Rule("lm_head/decoder", "lm_head.weight"),
    Rule("lm_head/bias", "final_logits_bias", is_row=True),
)

# Copies of the shared table, and tables of sinusoids.
SPELLINGS = ((r"^model\.(encoder|decoder)\.embed_tokens\.weight$", "model.shared.weight"),)
_SINUSOIDS = re.compile(r"embed_positions\.weight$")

_OPTIONAL_FIELDS = (
    "activation_dropout",
    "scale_embedding",
    "decoder_layers",
    "decoder_attention_heads",
    "decoder_ffn_dim",
    "decoder_start_token_id",
)
CONSTANTS = {
    "type_vocab_size": 0,
    "classifier_dropout": None,  # there is no classifier
    "layer_norm_eps": 1e-5,
    "has_pooler": False,
    "heads": (TextToTextOptions(has_bias=True),),
}


def size(layers: int, width: int, heads: int, feed_forward: int) -> dict[str, int]:
    """The sizes of an encoder and a decoder of the same shape."""
    return {
        **bert.size(layers, width, heads, feed_forward),
        "decoder_layers": layers,
        "decoder_attention_heads": heads,
        "decoder_ffn_dim": feed_forward,
    }


FAMILY = Family(
    model_type="marian",
    class_names={"text_to_text": "MarianMTModel"},
    huggingface=TensorNames(RULES, "model.", ignored=_SINUSOIDS, spellings=SPELLINGS),
    # base and big: Vaswani et al., table 3.
    sizes={
        "tiny": size(2, 128, 2, 512),
        "small": size(3, 256, 4, 1024),
        "base": size(6, 512, 8, 2048),
        "big": size(6, 1024, 16, 4096),
    },
    defaults={"hidden_act": "relu", "scale_embedding": True},
    constants=CONSTANTS | {"position_kind": "sinusoidal", "embedding_norm": False},
    optional_fields=_OPTIONAL_FIELDS,
    required_fields=(*bert.REQUIRED_IN_RELATIVES, "pad_token_id", *_OPTIONAL_FIELDS[1:]),
    field_names={
        "hidden_size": "d_model",
        "num_hidden_layers": "encoder_layers",
        "num_attention_heads": "encoder_attention_heads",
        "intermediate_size": "encoder_ffn_dim",
        "hidden_act": "activation_function",
        "hidden_dropout_prob": "dropout",
        "attention_probs_dropout_prob": "attention_dropout",
        "initializer_range": "init_std",
    },
    fixed_fields={
        "share_encoder_decoder_embeddings": True,
        "static_position_embeddings": True,
        "normalize_before": False,
        "normalize_embedding": False,
        "add_final_layer_norm": False,
        "encoder_layerdrop": 0.0,
        "decoder_layerdrop": 0.0,
    },
    tokenizer_kind=MARIAN,
    token_types=False,
)

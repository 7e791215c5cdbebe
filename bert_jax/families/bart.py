"""BART: Lewis et al., 2019 (https://arxiv.org/abs/1910.13461), `model_type` "bart".

Source: Hugging Face transformers, models/bart/modeling_bart.py.
"""

import dataclasses

from bert_jax.families import bert, marian
from bert_jax.families.family import Rule, TensorNames
from bert_jax.models.config import ENCODER_SCOPE
from bert_jax.models.heads.text_to_text import DECODER_SCOPE
from bert_jax.tokenization.interface import BYTE_LEVEL_BPE


def _embedding_rules(scope: str, tensor: str) -> tuple[Rule, ...]:
    embeddings = f"{scope}/embeddings"
    return (
        Rule(f"{embeddings}/position_embeddings/embedding", f"{tensor}.embed_positions.weight"),
        *bert.layer_norm(f"{embeddings}/layer_norm", f"{tensor}.layernorm_embedding"),
    )


FAMILY = dataclasses.replace(
    marian.FAMILY,
    model_type="bart",
    class_names={"text_to_text": "BartForConditionalGeneration"},
    huggingface=TensorNames(
        (
            *marian.RULES,
            *_embedding_rules(ENCODER_SCOPE, "model.encoder"),
            *_embedding_rules(DECODER_SCOPE, "model.decoder"),
        ),
        "model.",
        spellings=marian.SPELLINGS,
    ),
    sizes={
        "tiny": marian.size(2, 128, 2, 512),
        "base": marian.size(6, 768, 12, 3072),
        "large": marian.size(12, 1024, 16, 4096),
    },
    defaults={"max_position_embeddings": 1024, "pad_token_id": 1, "decoder_start_token_id": 2},
    constants=marian.CONSTANTS | {"extra_position_rows": 2},
    fixed_fields={
        "static_position_embeddings": False,
        "normalize_before": False,
        "normalize_embedding": True,
        "add_final_layer_norm": False,
        "encoder_layerdrop": 0.0,
        "decoder_layerdrop": 0.0,
    },
    tokenizer_kind=BYTE_LEVEL_BPE,
)

"""ViT: Dosovitskiy et al., 2021 (https://arxiv.org/abs/2010.11929), `model_type` "vit".

Source: Hugging Face transformers, models/vit/modeling_vit.py; its files have the names of tensors
of version 4.
"""

from bert_jax.families import bert
from bert_jax.families.family import Family, Rule, TensorNames
from bert_jax.models.config import ENCODER_SCOPE
from bert_jax.models.image_options import ImageOptions
from bert_jax.tokenization.image_processor import IMAGES

_EMBEDDINGS = f"{ENCODER_SCOPE}/embeddings"


def encoder_rules(prefix: str) -> tuple[Rule, ...]:
    """Embeddings, layers and pooler; `prefix` is the prefix of the names, such as "vit."."""
    embeddings = f"{prefix}embeddings"
    return (
        Rule(f"{_EMBEDDINGS}/cls_token", f"{embeddings}.cls_token"),
        Rule(f"{_EMBEDDINGS}/position_embeddings", f"{embeddings}.position_embeddings"),
        # The kernel has the axes of the file.
        Rule(f"{_EMBEDDINGS}/patches/kernel", f"{embeddings}.patch_embeddings.projection.weight"),
        Rule(f"{_EMBEDDINGS}/patches/bias", f"{embeddings}.patch_embeddings.projection.bias"),
        *bert.layer_rules(
            f"{prefix}encoder.layer.{{layer}}.",
            *(f"attention.attention.{name}" for name in ("query", "key", "value")),
            *("attention.output.dense", "layernorm_before"),
            *("intermediate.dense", "output.dense", "layernorm_after"),
        ),
        *bert.layer_norm(f"{ENCODER_SCOPE}/encoder/final_norm", f"{prefix}layernorm"),
        *bert.dense(f"{ENCODER_SCOPE}/pooler/dense", f"{prefix}pooler.dense"),
    )


FAMILY = Family(
    model_type="vit",
    class_names={
        "encoder": "ViTModel",
        "image_classification": "ViTForImageClassification",
    },
    huggingface=TensorNames(
        (*encoder_rules("vit."), *bert.dense("classifier", "classifier")), "vit."
    ),
    # base to huge: table 1; tiny and small: Steiner et al., 2021 (https://arxiv.org/abs/2106.10270).
    sizes={
        "tiny": bert.size(12, 192, 3, 768),
        "small": bert.size(12, 384, 6, 1536),
        "base": bert.size(12, 768, 12, 3072),
        "large": bert.size(24, 1024, 16, 4096),
        "huge": bert.size(32, 1280, 16, 5120) | {"patch_size": 14},
    },
    defaults={
        "hidden_dropout_prob": 0.0,
        "attention_probs_dropout_prob": 0.0,
        "image_size": 224,
    },
    # There are no words: fields about them are carried over.
    constants={
        "vocab_size": 1,
        "max_position_embeddings": 1,
        "type_vocab_size": 0,
        "pad_token_id": 0,
        "tie_word_embeddings": True,
        "classifier_dropout": None,
        "norm_first": True,
        "embedding_norm": False,
    },
    # What other libraries' files have, also where no head reads it.
    optional_fields=("qkv_bias", *ImageOptions.keys),
    required_fields=(
        *(name for name in bert.REQUIRED_FIELDS if name != "vocab_size"),
        *("hidden_act", "image_size", "patch_size"),
    ),
    # transformers reads it where it is there; no published file has it.
    fixed_fields={"head_dim": None},
    tokenizer_kind=IMAGES,
)

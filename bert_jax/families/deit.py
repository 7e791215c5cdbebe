"""DeiT: Touvron et al., 2021 (https://arxiv.org/abs/2012.12877), `model_type` "deit".

ViT with a token that learns from a teacher. Source: Hugging Face transformers,
models/deit/modeling_deit.py.
"""

import dataclasses

from bert_jax.families import bert, vit
from bert_jax.families.family import Rule, TensorNames
from bert_jax.models.config import ENCODER_SCOPE
from bert_jax.models.image_options import ImageOptions

FAMILY = dataclasses.replace(
    vit.FAMILY,
    model_type="deit",
    class_names={
        "encoder": "DeiTModel",
        "image_classification": "DeiTForImageClassification",
        "image_classification_with_teacher": "DeiTForImageClassificationWithTeacher",
    },
    huggingface=TensorNames(
        (
            *vit.encoder_rules("deit."),
            Rule(
                f"{ENCODER_SCOPE}/embeddings/distillation_token",
                "deit.embeddings.distillation_token",
            ),
            *bert.dense("classifier", "classifier"),
            *bert.dense("cls_classifier", "cls_classifier"),
            *bert.dense("distillation_classifier", "distillation_classifier"),
        ),
        "deit.",
    ),
    sizes={name: vit.FAMILY.sizes[name] for name in ("tiny", "small", "base")},
    constants={**vit.FAMILY.constants, "heads": (ImageOptions(has_distillation_token=True),)},
)

"""DPR: Karpukhin et al., 2020 (https://arxiv.org/abs/2004.04906), `model_type` "dpr".

Source: Hugging Face transformers, models/dpr/modeling_dpr.py. Its three models are BERT under other
names: encoders of passages and of questions (their vector is the hidden state of [CLS]), and a
reader, which scores passages and the spans in them.
"""

import dataclasses

from bert_jax.families import bert
from bert_jax.families.family import Family, Rule, TensorNames
from bert_jax.models.heads.text_vectors import TextVectors


def _names(prefix: str, *head: Rule) -> TensorNames:
    """The names of a model with the encoder `prefix`."""
    layers = bert.layer_rules(f"{prefix}.encoder.layer.{{layer}}.")
    return bert.names(*bert.embedding_rules(f"{prefix}."), *layers, *head)


READER = Family(
    model_type="dpr",
    class_names={"reader": "DPRReader"},
    # Without token types: the class does not take any.
    token_types=False,
    huggingface=_names(
        "span_predictor.encoder.bert_model",
        *bert.dense("qa_outputs", "span_predictor.qa_outputs"),
        *bert.dense("relevance", "span_predictor.qa_classifier"),
    ),
    sizes=bert.SIZES,
    constants={"classifier_activation": False},
    required_fields=bert.REQUIRED_IN_RELATIVES,
    fixed_fields={"projection_dim": 0},
    vectors=TextVectors(poolings=("cls",), similarity="dot"),
)
QUESTIONS = dataclasses.replace(
    READER,
    class_names={"encoder": "DPRQuestionEncoder"},
    token_types=True,
    huggingface=_names("question_encoder.bert_model"),
)
FAMILY = dataclasses.replace(
    READER,
    class_names={"encoder": "DPRContextEncoder"},
    token_types=True,
    huggingface=_names("ctx_encoder.bert_model"),
    others=(QUESTIONS, READER),
)

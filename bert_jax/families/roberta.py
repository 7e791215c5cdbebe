"""RoBERTa: Liu et al., 2019 (https://arxiv.org/abs/1907.11692), `model_type` "roberta".

Sources: Hugging Face transformers, models/roberta/modeling_roberta.py; fairseq, models/roberta.
CodeBERT and many models of other languages are files of this family, with other vocabularies.
"""

from bert_jax.families import bert
from bert_jax.families.family import Family
from bert_jax.models.encoder_with_head import ClassifierOptions
from bert_jax.models.heads.masked_lm import MaskedLMOptions
from bert_jax.tokenization.interface import BYTE_LEVEL_BPE

# The heads of all classes, and the bias that the decoder computes with.
HEAD_RULES = (
    *bert.masked_lm_rules("lm_head.", "dense", "layer_norm"),
    # The head of classification; tagging and multiple choice have a single dense layer.
    *bert.dense("classifier/dense", "classifier.dense"),
    *bert.dense("classifier/out_proj", "classifier.out_proj"),
    *bert.TASK_HEAD_RULES,
)
DECODER_BIAS = {"lm_head.decoder.bias": "lm_head.bias"}

HUGGINGFACE = bert.names(
    *bert.encoder_rules("roberta."), *HEAD_RULES, prefix="roberta.", aliases=DECODER_BIAS
)


def class_names(prefix: str) -> dict[str, str]:
    """The heads and their classes, which begin with `prefix` in each relative of RoBERTa."""
    return bert.class_names(prefix, without=("pretraining", "next_sentence"))


FAMILY = Family(
    model_type="roberta",
    class_names=class_names("Roberta"),
    huggingface=HUGGINGFACE,
    sizes=bert.SIZES,
    # The first token has row 2 of the position table. The defaults of transformers are BERT's
    # values, with which published weights would have other outputs.
    defaults={"max_position_embeddings": 514, "type_vocab_size": 1, "layer_norm_eps": 1e-5},
    constants={
        "positions_after_padding": True,
        "heads": (MaskedLMOptions("gelu"), ClassifierOptions("tanh", input_dropout=True)),
    },
    required_fields=(
        *bert.REQUIRED_IN_RELATIVES,
        "type_vocab_size",
        "layer_norm_eps",
        "pad_token_id",
    ),
    tokenizer_kind=BYTE_LEVEL_BPE,
    token_types=None,
)

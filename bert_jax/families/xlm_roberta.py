"""XLM-R: Conneau et al., 2020 (https://arxiv.org/abs/1911.02116), `model_type` "xlm-roberta".

RoBERTa for 100 languages, with a SentencePiece vocabulary; the names of its tensors are RoBERTa's.
Source: Hugging Face transformers, models/xlm_roberta.
"""

import dataclasses

from bert_jax.families import roberta
from bert_jax.tokenization.interface import XLM_ROBERTA

FAMILY = dataclasses.replace(
    roberta.FAMILY,
    model_type="xlm-roberta",
    class_names=roberta.class_names("XLMRoberta"),
    tokenizer_kind=XLM_ROBERTA,
)

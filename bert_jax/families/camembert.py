"""CamemBERT: Martin et al., 2020 (https://arxiv.org/abs/1911.03894), `model_type` "camembert".

RoBERTa for French, with a SentencePiece vocabulary; the names of its tensors are RoBERTa's.
Source: Hugging Face transformers, models/camembert.
"""

import dataclasses

from bert_jax.families import roberta
from bert_jax.tokenization.interface import CAMEMBERT

FAMILY = dataclasses.replace(
    roberta.FAMILY,
    model_type="camembert",
    class_names=roberta.class_names("Camembert"),
    tokenizer_kind=CAMEMBERT,
)

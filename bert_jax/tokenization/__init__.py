"""Text to ids and back: load a tokenizer, or train one.

Importing this loads neither `tokenizers` nor `sentencepiece`; the first use does.
"""

from bert_jax.tokenization.interface import Encoding, SpecialIds, Template, Tokenizer
from bert_jax.tokenization.loading import load_tokenizer
from bert_jax.tokenization.sentencepiece import SentencePieceTokenizer
from bert_jax.tokenization.training import train_sentencepiece, train_wordpiece
from bert_jax.tokenization.wordpiece import BertSwitches, WordPieceTokenizer

__all__ = [
    "BertSwitches",
    "Encoding",
    "SentencePieceTokenizer",
    "SpecialIds",
    "Template",
    "Tokenizer",
    "WordPieceTokenizer",
    "load_tokenizer",
    "train_sentencepiece",
    "train_wordpiece",
]

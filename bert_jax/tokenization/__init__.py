"""Text to ids and back: load a tokenizer, or train one.

Importing this package does not import `tokenizers` or `sentencepiece`; the first use does.
"""

from bert_jax.tokenization.byte_level_bpe import (
    ByteLevelBPETokenizer,
    ByteLevelSwitches,
    GPT2Tokenizer,
)
from bert_jax.tokenization.description import Description, SpecialIds
from bert_jax.tokenization.encoding import Encoding, Template
from bert_jax.tokenization.interface import Tokenizer
from bert_jax.tokenization.loading import load_tokenizer
from bert_jax.tokenization.marian import MarianTokenizer
from bert_jax.tokenization.openai_gpt import OpenAIGPTTokenizer
from bert_jax.tokenization.sentencepiece import SentencePieceTokenizer
from bert_jax.tokenization.sentencepiece_training import (
    train_marian,
    train_sentencepiece,
    train_t5,
)
from bert_jax.tokenization.training import train_byte_level_bpe, train_gpt2, train_wordpiece
from bert_jax.tokenization.unigram import UnigramTokenizer
from bert_jax.tokenization.wordpiece import BertSwitches, WordPieceTokenizer

__all__ = [
    "BertSwitches",
    "ByteLevelBPETokenizer",
    "ByteLevelSwitches",
    "Description",
    "Encoding",
    "GPT2Tokenizer",
    "MarianTokenizer",
    "OpenAIGPTTokenizer",
    "SentencePieceTokenizer",
    "SpecialIds",
    "Template",
    "Tokenizer",
    "UnigramTokenizer",
    "WordPieceTokenizer",
    "load_tokenizer",
    "train_byte_level_bpe",
    "train_gpt2",
    "train_marian",
    "train_sentencepiece",
    "train_t5",
    "train_wordpiece",
]

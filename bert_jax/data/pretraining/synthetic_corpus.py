"""A corpus of nothing, for whoever asks only for the shapes of its batches."""

from pathlib import Path

import numpy as np

from bert_jax.data.pretraining.corpus import Corpus, CorpusSplit, token_dtype
from bert_jax.data.pretraining.corpus_manifest import FORMAT_VERSION, SPLITS, Manifest
from bert_jax.tokenization import BertSwitches, Tokenizer, WordPieceTokenizer

_SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
# Enough documents that one can be drawn that is another.
_DOCUMENTS, _SENTENCES, _TOKENS = 8, 64, 16


def stand_in_tokenizer(vocab_size: int) -> Tokenizer:
    """A WordPiece vocabulary of so many ids that name no words."""
    words = (f"word{number}" for number in range(vocab_size - len(_SPECIAL)))
    return WordPieceTokenizer.from_vocabulary([*_SPECIAL, *words], BertSwitches(True, None, True))


def stand_in_corpus(tokenizer: Tokenizer) -> Corpus:
    """A corpus in memory, the same text in both splits."""
    dtype = token_dtype(tokenizer.vocab_size)
    sentences = _DOCUMENTS * _SENTENCES
    split = CorpusSplit(
        tokens=np.full(sentences * _TOKENS, tokenizer.vocab_size - 1, dtype),
        sentence_offsets=np.arange(sentences + 1, dtype=np.int64) * _TOKENS,
        document_offsets=np.arange(_DOCUMENTS + 1, dtype=np.int64) * _SENTENCES,
        source_documents=np.array([0, _DOCUMENTS], np.int64),
        source_weights=np.ones(1),
    )
    manifest = Manifest(
        format_version=FORMAT_VERSION,
        fingerprint="",
        settings={},
        tokenizer_fingerprint=tokenizer.fingerprint(),
        vocab_size=tokenizer.vocab_size,
        dtype=dtype.name,
        splits={},
        sources=(),
        files={},
    )
    return Corpus(Path("stand-in"), manifest, dict.fromkeys(SPLITS, split))

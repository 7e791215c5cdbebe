"""Small tokenizers with ids that can be checked by eye."""

import pytest

from bert_jax.tokenization import (
    BertSwitches,
    SentencePieceTokenizer,
    Tokenizer,
    WordPieceTokenizer,
    load_tokenizer,
    train_sentencepiece,
)
from tests.tokenization.folders import write_folder

SPECIALS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]  # ids 0 to 4
# Ids 5 to 9, 10 to 14 and 15 to 19.
UNCASED_PIECES = [
    *SPECIALS,
    *("the", "play", "##ing", "##s", "cafe"),
    *("dog", ",", ".", "[", "]"),
    *("mask", "sep", "中", "国", "##国"),
]
# Ids 5 to 11.
CASED_PIECES = [*SPECIALS, "The", "the", "café", "cafe", "中国", "中", "国"]


@pytest.fixture
def uncased_pieces() -> list[str]:
    return list(UNCASED_PIECES)


@pytest.fixture
def cased_pieces() -> list[str]:
    return list(CASED_PIECES)


@pytest.fixture
def uncased(uncased_pieces) -> WordPieceTokenizer:
    switches = BertSwitches(do_lower_case=True, strip_accents=None, tokenize_chinese_chars=True)
    return WordPieceTokenizer.from_vocabulary(uncased_pieces, switches)


@pytest.fixture
def cased(cased_pieces) -> WordPieceTokenizer:
    switches = BertSwitches(do_lower_case=False, strip_accents=None, tokenize_chinese_chars=True)
    return WordPieceTokenizer.from_vocabulary(cased_pieces, switches)


@pytest.fixture(scope="session")
def cat_tokenizer() -> SentencePieceTokenizer:
    """Knows a few whole words: "▁the" "▁cat" "▁sat" "▁dog" "▁on" "▁mat" "▁and" "▁café"."""
    texts = [
        "the cat sat on the mat",
        "the dog sat on the cat",
        "a café in the street",
        "cat and dog and mat and café",
    ]
    return train_sentencepiece(texts * 5, vocab_size=42, lowercase=True, model_type="bpe")


@pytest.fixture
def byte_level(tmp_path) -> Tokenizer:
    """Byte-level BPE with six merges, and "[E1]"."""
    write_folder(tmp_path / "bpe", "BPE, tokenizer.json")
    return load_tokenizer(tmp_path / "bpe")


@pytest.fixture
def unigram(tmp_path) -> Tokenizer:
    """A Unigram model with the ids of XLM-R."""
    write_folder(tmp_path / "unigram", "XLM-R in a BERT")
    return load_tokenizer(tmp_path / "unigram")

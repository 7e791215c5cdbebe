"""Trains SentencePiece models from text, with the ids of ALBERT, T5 and Marian."""

import io
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from bert_jax.errors import OptionError, UserError, require_one_of
from bert_jax.tokenization.cleaning import TextCleaner
from bert_jax.tokenization.encoding import check_texts
from bert_jax.tokenization.interface import T5
from bert_jax.tokenization.marian import Language, MarianTokenizer
from bert_jax.tokenization.sentencepiece import SentencePieceTokenizer, parse_model
from bert_jax.tokenization.training import COVERAGE, NO_TEXT, too_small
from bert_jax.tokenization.unigram import UnigramTokenizer
from bert_jax.tokenization.unigram_model import SENTINELS, t5_description, unigram_model

MODEL_TYPES = ("unigram", "bpe")

# SentencePiece adds floating-point sums per thread, so the result depends on the number of threads,
# which therefore must not depend on the machine.
SENTENCEPIECE_THREADS = 16

# SentencePiece silently skips sentences over 4192 bytes; 1000 characters never take more.
SENTENCE_CHARACTERS = 1000


def train_sentencepiece(
    texts: Iterable[str],
    *,
    vocab_size: int,
    lowercase: bool = True,
    keep_accents: bool = True,
    model_type: str = "unigram",
    character_coverage: float = COVERAGE,
) -> SentencePieceTokenizer:
    """Trains a SentencePiece model with the ids of ALBERT.

    Ids 0 to 4 are <pad> <unk> [CLS] [SEP] [MASK]. The library holds all texts in memory.

    Args:
        texts: texts, read once; the library learns from their lines, long ones cut at a space.
        vocab_size: number of pieces V, exactly.
        lowercase: whether text is lower-cased.
        keep_accents: whether accents are kept.
        model_type: "unigram" (as in ALBERT) or "bpe".
        character_coverage: share of all characters that the alphabet covers, the most frequent
            first; each stretch of others becomes <unk>.

    Raises:
        UserError: there is no text, or `vocab_size` is too large or too small for it.
    """
    cleaner = TextCleaner(lowercase=lowercase, keep_accents=keep_accents)
    content = _trained(
        texts,
        cleaner.clean,
        vocab_size,
        {"pad_id": 0, "unk_id": 1, "control_symbols": ["[CLS]", "[SEP]", "[MASK]"]},
        model_type=model_type,
        character_coverage=character_coverage,
    )
    return SentencePieceTokenizer(content, lowercase=lowercase, keep_accents=keep_accents)


def train_t5(
    texts: Iterable[str],
    *,
    vocab_size: int,
    lowercase: bool = False,
    character_coverage: float = COVERAGE,
    sentinels: int = SENTINELS,
) -> UnigramTokenizer:
    """Trains a unigram model with the ids of T5.

    Ids 0 to 2 are <pad> </s> <unk>; the last ones are the sentinels, <extra_id_0> the last of all.
    The library holds all texts in memory.

    Args:
        texts: texts, read once; the library learns from their lines, long ones cut at a space.
        vocab_size: number of pieces V with the sentinels, exactly.
        lowercase: whether text is lower-cased, by the model's own table of normalisation.
        character_coverage: see `train_sentencepiece`.
        sentinels: number of pieces that stand for spans.

    Raises:
        UserError: there is no text, or `vocab_size` is too large or too small for it.
    """
    content = _trained(
        texts,
        str,
        vocab_size,
        {"pad_id": 0, "eos_id": 1, "unk_id": 2, **_normalization(lowercase=lowercase)},
        outside=sentinels,
        character_coverage=character_coverage,
    )
    origin = "the trained model"
    model = unigram_model(parse_model(content, origin), origin, T5, sentinels)
    return UnigramTokenizer(model, t5_description(sentinels))


def train_marian(
    texts: Iterable[str],
    *,
    vocab_size: int,
    lowercase: bool = False,
    model_type: str = "unigram",
    character_coverage: float = COVERAGE,
) -> MarianTokenizer:
    """Trains one SentencePiece model for both languages of a translation, in Marian's layout.

    Ids 0 and 1 are </s> <unk>; then follow the pieces; <pad> is the last one. The model is saved as
    that of the source and of the target.

    Args:
        texts: texts of both languages, read once; see `train_t5`.
        vocab_size: number of pieces V, exactly.
        lowercase: whether text is lower-cased, by the model's own table of normalisation.
        model_type: "unigram" or "bpe".
        character_coverage: see `train_sentencepiece`.

    Raises:
        UserError: there is no text, or `vocab_size` is too large or too small for it.
    """
    content = _trained(
        texts,
        str,
        vocab_size,
        {"unk_id": 0, **_normalization(lowercase=lowercase)},
        outside=2,
        model_type=model_type,
        character_coverage=character_coverage,
    )
    _, *pieces = (piece.piece for piece in parse_model(content, "the trained model").pieces)
    ids = {piece: number for number, piece in enumerate(["</s>", "<unk>", *pieces, "<pad>"])}
    language = Language(content, ids)
    return MarianTokenizer(language, language)


def _normalization(*, lowercase: bool) -> dict[str, str]:
    """The table of normalisation; "cf" is for case folding."""
    return {"normalization_rule_name": "nmt_nfkc_cf" if lowercase else "nmt_nfkc"}


def _trained(
    texts: Iterable[str],
    clean: Callable[[str], str],
    vocab_size: int,
    settings: Mapping[str, Any],
    *,
    outside: int = 0,
    model_type: str = "unigram",
    character_coverage: float,
) -> bytes:
    """The content of a .model file; for most arguments see `train_sentencepiece`.

    `clean` cleans a line of text; `outside` of the pieces are not in the model; `settings` are
    further ones of the library, where special pieces without an id are left out.
    """
    import sentencepiece

    require_one_of("model_type", model_type, MODEL_TYPES)
    # A list, because the library would replace an error of the iterator by another one.
    sentences = [sentence for text in texts for sentence in _sentences(text, clean)]
    if not sentences:
        raise UserError(NO_TEXT)
    model = io.BytesIO()
    try:
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter(sentences),
            model_writer=model,
            vocab_size=vocab_size - outside,
            model_type=model_type,
            character_coverage=character_coverage,
            pad_piece="<pad>",
            unk_piece="<unk>",
            num_threads=SENTENCEPIECE_THREADS,
            minloglevel=2,
            **{"pad_id": -1, "bos_id": -1, "eos_id": -1, **settings},
        )
    except RuntimeError as error:
        raise _explained(error, vocab_size, outside) from None
    return model.getvalue()


def _sentences(text: str, clean: Callable[[str], str]) -> Iterator[str]:
    check_texts([text])
    for line in map(clean, text.splitlines()):
        start = 0
        while start < len(line):
            end = start + SENTENCE_CHARACTERS
            if end < len(line):
                space = line.rfind(" ", start, end)
                end = space + 1 if space > start else end
            if not line[start:end].isspace():
                yield line[start:end]
            start = end


def _explained(error: RuntimeError, vocab_size: int, outside: int) -> OptionError:
    """The library's message, which names a line of its source, in terms of our options."""
    message = str(error)
    if limit := re.search(r"too high .* value <= (\d+)", message):
        most = int(limit[1]) + outside
        rule = f"the text is enough for {most} pieces: give at most {most}, or more text"
        return OptionError("tokenizer.vocab_size", vocab_size, rule)
    if limit := re.search(r"smaller than required_chars. \d+ vs (\d+)", message):
        return too_small(
            vocab_size, int(limit[1]) + outside, ", or lower {tokenizer.character_coverage}"
        )
    problem = f"SentencePiece cannot train {vocab_size} pieces: {message}"
    return OptionError(
        "tokenizer.vocab_size", vocab_size, "give another {tokenizer.vocab_size}", problem
    )

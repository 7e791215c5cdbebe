"""Trains a vocabulary from text. The same text gives the same bytes on every machine.

SentencePiece models: `sentencepiece_training`.
"""

import bisect
import collections
import itertools
import json
from collections.abc import Callable, Iterable, Iterator, Sequence

from bert_jax.errors import OptionError, UserError
from bert_jax.process import say
from bert_jax.tokenization.bpe_files import Merge
from bert_jax.tokenization.byte_level_bpe import (
    END_OF_TEXT,
    ByteLevelBPETokenizer,
    ByteLevelSwitches,
    GPT2Tokenizer,
)
from bert_jax.tokenization.description import BRACKETED, FAIRSEQ
from bert_jax.tokenization.encoding import check_texts
from bert_jax.tokenization.wordpiece import (
    CONTINUATION_PREFIX,
    MAX_CHARACTERS_PER_WORD,
    BertSwitches,
    WordPieceTokenizer,
)

COVERAGE = 0.9999
"""The share of the characters that a vocabulary knows, the most frequent ones.

Of 0.05 % unknown characters, a word for each, Korean with upper and lower case has 0.12 % [UNK].
"""

NO_TEXT = "training a vocabulary: the texts hold no word; give some text"


def train_wordpiece(
    texts: Iterable[str],
    *,
    vocab_size: int,
    lowercase: bool = True,
    strip_accents: bool | None = None,
    tokenize_chinese_chars: bool = True,
    min_frequency: int = 2,
    character_coverage: float = COVERAGE,
    alphabet_size: int = 1000,
    report: Callable[[OptionError], object] = lambda problem: say(f"warning: {problem}"),
) -> WordPieceTokenizer:
    """Trains a WordPiece vocabulary.

    Ids 0 to 4 are [PAD] [UNK] [CLS] [SEP] [MASK]; then follow the letters, the letters with "##",
    and the longer pieces in the order in which they were learnt. Memory grows with the number of
    different words, not with the length of the text.

    The library by itself is not deterministic: it numbers the letters with "##" in the order of a
    randomly seeded hash table, and breaks ties between equally frequent pairs by these numbers
    (huggingface/tokenizers#1794). So this function counts the words itself, and gives the library
    every letter, with and without "##", in a fixed order.

    Args:
        texts: texts in portions of any size, read once.
        vocab_size: maximum number V of pieces; fewer if the text has no more frequent pairs.
        lowercase: whether text is lower-cased.
        strip_accents: whether accents are removed; None: if and only if lower-cased.
        tokenize_chinese_chars: whether each Chinese character is a word.
        min_frequency: number of times that two pieces must occur together to be joined.
        character_coverage: share of all characters that the alphabet covers, the most frequent
            first; words with others become [UNK].
        alphabet_size: number of distinct characters that are kept in any case.
        report: is called if `vocab_size` is too small for the alphabet, which is then cut.

    Raises:
        UserError: the texts contain no word, or `vocab_size` is too small for the letters of any.
    """
    from tokenizers import Tokenizer, models, pre_tokenizers, trainers

    switches = BertSwitches(lowercase, strip_accents, tokenize_chinese_chars)
    words = _count_words(texts, switches)
    if not words:
        raise UserError(NO_TEXT)
    letters = _most_frequent_letters(words, character_coverage, alphabet_size)
    continuing = {letter for word in words for letter in word[1:]}
    costs = (1 + (letter in continuing) for letter in letters)
    sizes = list(itertools.accumulate(costs, initial=len(BRACKETED)))
    letters = letters[: max(0, bisect.bisect_right(sizes, vocab_size) - 1)]
    known = set(letters)
    words = {word: count for word, count in words.items() if known.issuperset(word)}
    if not words:
        raise too_small(vocab_size, sizes[-1])
    if sizes[-1] > vocab_size:
        report(too_small(vocab_size, sizes[-1]))
    continuing = {letter for word in words for letter in word[1:]}
    prefixed = (CONTINUATION_PREFIX + letter for letter in sorted(continuing))
    alphabet = [*BRACKETED, *sorted(letters), *prefixed]
    library = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    library.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    trainer = trainers.WordPieceTrainer(
        vocab_size=vocab_size,
        min_frequency=min_frequency,
        # Fixes the ids of the whole alphabet: the library numbers "special" tokens first.
        special_tokens=alphabet,
        show_progress=False,
    )
    library.train_from_iterator(_written_out(words), trainer)
    ids = library.get_vocab()
    return WordPieceTokenizer.from_vocabulary(sorted(ids, key=lambda piece: ids[piece]), switches)


def train_byte_level_bpe(
    texts: Iterable[str],
    *,
    vocab_size: int,
    add_prefix_space: bool = True,
    min_frequency: int = 2,
) -> ByteLevelBPETokenizer:
    """Trains byte-level BPE with the ids of RoBERTa.

    Ids 0 to 3 are <s> <pad> </s> <unk>; then follow the 256 bytes and the longer pieces in the
    order in which they were learnt; <mask> is the last one. Memory grows with the number of
    different words, not with the length of the text.

    Args:
        texts: texts in portions of any size, read once.
        vocab_size: maximum number V of pieces; fewer if the text has no more frequent pairs.
        add_prefix_space: whether a word has the same ids at the start of a text as after a space.
            RoBERTa's vocabulary is used without it.
        min_frequency: number of times that two pieces must occur together to be joined.

    Raises:
        UserError: the texts contain no word, or `vocab_size` is too small for the bytes.
    """
    pad, unk, cls, sep, mask = FAIRSEQ
    first = [cls, pad, sep, unk]
    pieces, merges = _byte_level_pieces(texts, vocab_size, min_frequency, first, mask)
    switches = ByteLevelSwitches(add_prefix_space=add_prefix_space)
    return ByteLevelBPETokenizer(pieces, merges, switches)


def train_gpt2(texts: Iterable[str], *, vocab_size: int, min_frequency: int = 2) -> GPT2Tokenizer:
    """Trains byte-level BPE with the ids of GPT-2.

    Ids 0 to 255 are the bytes; then follow the longer pieces in the order in which they were
    learnt; <|endoftext|> is the last one. Arguments and errors as of `train_byte_level_bpe`.
    """
    pieces, merges = _byte_level_pieces(texts, vocab_size, min_frequency, [], END_OF_TEXT)
    return GPT2Tokenizer(pieces, merges, ByteLevelSwitches(trim_offsets=False))


def _byte_level_pieces(
    texts: Iterable[str], vocab_size: int, min_frequency: int, first: Sequence[str], last: str
) -> tuple[dict[str, int], list[Merge]]:
    """The ids of the first pieces, the bytes, what is learnt and the last piece; the merges."""
    from tokenizers import Tokenizer, models, pre_tokenizers, trainers

    first = [*first, *sorted(pre_tokenizers.ByteLevel.alphabet())]
    if vocab_size < len(first) + 1:
        raise too_small(vocab_size, len(first) + 1)
    library = Tokenizer(models.BPE())
    library.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=True)
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size - 1,
        min_frequency=min_frequency,
        # Fixes the ids of the bytes: the library numbers "special" tokens first.
        special_tokens=first,
        show_progress=False,
    )
    library.train_from_iterator(_with_words(texts), trainer)
    model = json.loads(library.to_str())["model"]
    merges = [(left, right) for left, right in model["merges"]]
    return model["vocab"] | {last: len(model["vocab"])}, merges


def _with_words(texts: Iterable[str]) -> Iterator[str]:
    """The texts; raises UserError at the end if they hold no word."""
    is_blank = True
    for text in texts:
        check_texts([text])
        is_blank = is_blank and not text.strip()
        yield text
    if is_blank:
        raise UserError(NO_TEXT)


def _count_words(texts: Iterable[str], switches: BertSwitches) -> dict[str, int]:
    from tokenizers import pre_tokenizers

    normalizer = switches.normalizer()
    # Splitting at punctuation is slow, so it is done once per distinct string.
    chunks: collections.Counter[str] = collections.Counter()
    for text in texts:
        check_texts([text])
        chunks.update(normalizer.normalize_str(text).split(" "))
    splitter = pre_tokenizers.BertPreTokenizer()
    words: collections.Counter[str] = collections.Counter()
    for chunk, count in chunks.items():
        for word, _ in splitter.pre_tokenize_str(chunk):
            if len(word) <= MAX_CHARACTERS_PER_WORD:
                words[word] += count
    return words


def _most_frequent_letters(words: dict[str, int], coverage: float, least: int) -> list[str]:
    """The most frequent letters that make up the coverage, at least `least` of them."""
    counts: collections.Counter[str] = collections.Counter()
    for word, count in words.items():
        for letter in word:
            counts[letter] += count
    # Equally frequent letters are ordered by code point, whatever the order of the text.
    letters = sorted(counts, key=lambda letter: (-counts[letter], letter))
    covered = list(itertools.accumulate(counts[letter] for letter in letters))
    return letters[: max(least, 1 + bisect.bisect_left(covered, coverage * covered[-1]))]


def _written_out(words: dict[str, int], repeats_at_once: int = 1000) -> Iterator[str]:
    """Every word as often as it was counted: the library's trainer takes text, not counts."""
    for word, count in words.items():
        for done in range(0, count, repeats_at_once):
            yield " ".join([word] * min(repeats_at_once, count - done))


def too_small(vocab_size: int, least: int, otherwise: str = "") -> OptionError:
    """The error for a vocabulary that needs at least so many pieces; `otherwise` ends the rule."""
    rule = f"the special tokens and the alphabet of the text are {least} pieces: give at least that"
    return OptionError("tokenizer.vocab_size", vocab_size, rule + otherwise)

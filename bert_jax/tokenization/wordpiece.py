"""WordPiece (BERT paper, section 3), run by the Rust library `tokenizers`."""

import dataclasses
import itertools
import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from bert_jax.errors import UserError
from bert_jax.files import VOCABULARY_BYTES, read_limited
from bert_jax.tokenization.cleaning import looks_lowercased
from bert_jax.tokenization.definition import (
    check_unknown,
    checked_model,
    checked_pieces,
    checked_steps,
    decoded_lines,
    library_errors,
)
from bert_jax.tokenization.description import BRACKETED, FAIRSEQ, Description, SpecialTokens
from bert_jax.tokenization.encoding import DEFAULT_TEMPLATE, FAIRSEQ_TEMPLATE, check_texts
from bert_jax.tokenization.interface import MPNET
from bert_jax.tokenization.library import LIBRARY_CLASS, LibraryTokenizer
from bert_jax.tokenization.source import LIBRARY, VOCABULARY_FILE, TokenizerSource

if TYPE_CHECKING:
    import tokenizers

CONTINUATION_PREFIX = "##"

# Longer words become [UNK] as a whole (Hugging Face's fast tokenizer; google-research/bert: 200).
MAX_CHARACTERS_PER_WORD = 100

_BREAKS = re.compile("[ \n]")
# Each Chinese character is a word.
_BREAKS_OR_CHINESE = re.compile("[ \n\u4e00-\u9fff]")

# A word of n characters takes up to n² / 2 look-ups: a third of a second for 1,000 characters, and
# a minute and a half for 10,000.
MAX_STORED_CHARACTERS_PER_WORD = 1000

# Maximum amount of text that `encode_sentences` caches; with its ids, about 70 MB.
REMEMBERED_CHARACTERS = 2_000_000

# What a `tokenizer.json` may do to text. Nothing here takes a pattern, and each takes time in
# proportion to the text.
STEPS = {
    "normalizer": (
        *("BertNormalizer", "Lowercase", "StripAccents", "Strip"),
        *("NFC", "NFD", "NFKC", "NFKD"),
    ),
    "pre_tokenizer": (
        "BertPreTokenizer",
        "Whitespace",
        "WhitespaceSplit",
        "Punctuation",
        "Digits",
    ),
}


@dataclasses.dataclass(frozen=True, slots=True)
class BertSwitches:
    """How BERT's normaliser treats text; names as in `tokenizer_config.json`.

    Attributes:
        do_lower_case: whether text is lower-cased.
        strip_accents: whether accents are removed; None: if and only if text is lower-cased.
        tokenize_chinese_chars: whether each Chinese character is a word.
    """

    do_lower_case: bool
    strip_accents: bool | None
    tokenize_chinese_chars: bool

    def normalizer(self) -> "tokenizers.normalizers.BertNormalizer":
        """The normaliser of the library with these switches."""
        from tokenizers import normalizers

        return normalizers.BertNormalizer(
            clean_text=True,
            handle_chinese_chars=self.tokenize_chinese_chars,
            strip_accents=self.strip_accents,
            lowercase=self.do_lower_case,
        )


class WordPieceTokenizer(LibraryTokenizer):
    """Normalises text, splits it into words, and each word greedily into the longest known pieces.

    Attributes:
        switches: how text is normalised; None if a `tokenizer.json` has other rules than BERT.
    """

    class_description = Description(SpecialTokens.from_names(BRACKETED), DEFAULT_TEMPLATE)
    _class_name = "BertTokenizer"

    @classmethod
    def from_vocabulary(
        cls,
        pieces: Sequence[str] | Mapping[str, int],
        switches: BertSwitches,
        description: Description | None = None,
        origin: str = "the vocabulary",
        rows: int | None = None,
    ) -> "WordPieceTokenizer":
        """A tokenizer with BERT's rules; for further arguments see `LibraryTokenizer`.

        `pieces` are V pieces in the order of their ids, or the ids of pieces. Of the ids of a piece
        that occurs more than once, the last counts.

        Raises:
            UserError: a special token is missing.
        """
        import tokenizers
        from tokenizers import models, pre_tokenizers

        if not isinstance(pieces, Mapping):
            pieces = {piece: token_id for token_id, piece in enumerate(pieces)}
        description = description or cls.class_description
        unknown = description.tokens.names["unk"] or BRACKETED[1]
        check_unknown(origin, unknown, pieces)
        with library_errors(origin):
            model = models.WordPiece(
                vocab=dict(pieces),
                unk_token=unknown,
                max_input_chars_per_word=MAX_CHARACTERS_PER_WORD,
            )
        library = tokenizers.Tokenizer(model)
        library.normalizer = switches.normalizer()
        library.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
        return cls(library, description, origin, rows)

    def _complete(self, library: "tokenizers.Tokenizer") -> None:
        from tokenizers import decoders

        # No space before punctuation.
        library.decoder = decoders.WordPiece(prefix=CONTINUATION_PREFIX)
        self.switches = _bert_switches(library)
        self._remembered: dict[str, tuple[int, ...]] = {}
        self._remembered_characters = 0

    @property
    def word_breaks(self) -> re.Pattern[str] | None:
        if self.switches is None:
            return None
        return _BREAKS_OR_CHINESE if self.switches.tokenize_chinese_chars else _BREAKS

    def encode_sentences(self, sentences: Sequence[str]) -> list[list[int]]:
        """Ids of sentences without special tokens, from a cache of words.

        BERT's rules never look across a space, so the text between two spaces always has the
        same ids: it is encoded once and cached. On English text, one thread is then two to three
        times as fast as one thread of the library.
        """
        check_texts(sentences)
        if self.switches is None:
            return self._encode_plain(sentences)
        chunks = [sentence.split(" ") for sentence in sentences]
        # Another thread may replace the cache at any time; this call keeps its reference.
        remembered = self._remembered
        unseen = list(set(itertools.chain.from_iterable(chunks)).difference(remembered))
        # The garbage collector repeatedly traverses lists, but stops tracking tuples of numbers.
        remembered.update(zip(unseen, map(tuple, self._encode_plain(unseen)), strict=True))
        encoded = [
            list(itertools.chain.from_iterable(map(remembered.__getitem__, row))) for row in chunks
        ]
        self._remembered_characters += sum(map(len, unseen))
        if self._remembered_characters > REMEMBERED_CHARACTERS:
            self._remembered, self._remembered_characters = {}, 0
        return encoded

    def continuations(self) -> np.ndarray:
        """Which pieces begin with "##", bool [V]."""
        return np.array([piece.startswith(CONTINUATION_PREFIX) for piece in self._pieces])

    def _with_pieces(self, words: Sequence[str]) -> Self:
        """A copy with the words as entries of the vocabulary.

        "Added tokens" of the library would also match inside other words ("art" in "party"), and
        readers of `vocab.txt` miss them.
        """
        definition = json.loads(self._library.to_str())
        vocabulary = definition["model"]["vocab"]
        # Moved into the vocabulary, added tokens keep their ids; if split, they do not match.
        outside = {piece: i for i, piece in enumerate(self._pieces) if piece not in vocabulary}
        outside.pop("", None)
        if single := [piece for piece in outside if len(self._words_of(piece)) == 1]:
            raise UserError(
                f"words: this tokenizer has {len(single)} added tokens beside its vocabulary "
                f"({', '.join(single[:3])}); their ids would change: add the words with whole=True"
            )
        wholes = dict.fromkeys(map(self._whole_word, words))
        added = [whole for whole in wholes if whole not in vocabulary]
        vocabulary |= outside
        vocabulary |= {whole: self.vocab_size + index for index, whole in enumerate(added)}
        return self._changed(definition, self.description)

    def _words_of(self, text: str) -> list[str]:
        """The words of a text, normalised, as the model sees them."""
        normalizer, splitter = self._library.normalizer, self._library.pre_tokenizer
        text = text if normalizer is None else normalizer.normalize_str(text)
        if splitter is None:
            return [text]
        return [part for part, _ in splitter.pre_tokenize_str(text)]

    def _whole_word(self, word: str) -> str:
        """The normalised word that the model sees; it must be a single word."""
        parts = self._words_of(word)
        if not "".join(parts):
            raise UserError(f"words: nothing is left of {word!r} once normalised; remove it")
        if len(parts) > 1:
            raise UserError(
                f"words: {word!r} is always split into {', '.join(map(repr, parts[:5]))}, so it "
                "would never match; give words that stay whole"
            )
        (whole,) = parts
        limit = self._library.model.max_input_chars_per_word
        if len(whole) > limit:
            raise UserError(
                f"words: {whole[:20]!r}… has {len(whole)} characters; words of more than {limit} "
                "are unknown whatever the vocabulary: leave it out"
            )
        if whole.startswith(CONTINUATION_PREFIX):
            raise UserError(f"words: {whole!r} would be a piece inside words; give whole words")
        return whole

    def fingerprint(self) -> str:
        """A hash of vocabulary and rules: the same for `vocab.txt` and `tokenizer.json`."""
        if self.switches is None:
            definition = json.loads(self._library.to_str())
            definition["model"].pop("vocab")
            names = ("added_tokens", "normalizer", "pre_tokenizer", "model")
            rules = [definition[name] for name in names]
        else:
            lowercase, strip_accents, chinese = dataclasses.astuple(self.switches)
            rules = [lowercase, lowercase if strip_accents is None else strip_accents, chinese]
            added = json.loads(self._library.to_str())["added_tokens"]
            rules += [token for token in added if token["content"] not in BRACKETED]
        return self._digest(["WordPiece", rules, self._pieces])

    def save(self, directory: str | Path, *, max_length: int | None = None) -> None:
        """Writes `vocab.txt`, `tokenizer.json` and `tokenizer_config.json`.

        Hugging Face's `AutoTokenizer` reads the directory and returns the same ids and offsets.
        """
        rules: dict[str, Any] = {"tokenizer_class": LIBRARY_CLASS}
        if self.switches is not None:
            rules = {"tokenizer_class": self._class_name, **dataclasses.asdict(self.switches)}
        directory, _ = self._save(directory, rules, max_length)
        write_vocabulary(directory / VOCABULARY_FILE, self._pieces)


class MPNetTokenizer(WordPieceTokenizer):
    """WordPiece of MPNet: the special tokens of RoBERTa, except for [UNK], and its template.

    `<mask>` takes the space before it, which its offsets leave out.
    """

    class_description = Description(
        SpecialTokens.from_names((FAIRSEQ[0], BRACKETED[1], *FAIRSEQ[2:]), mask_takes_space=True),
        FAIRSEQ_TEMPLATE,
    )
    _class_name = "MPNetTokenizer"

    def _complete(self, library: "tokenizers.Tokenizer") -> None:
        from tokenizers import processors

        super()._complete(library)
        trimming = processors.ByteLevel(add_prefix_space=False, trim_offsets=True)
        library.post_processor = processors.Sequence([trimming, self._template_processor()])


def load(source: TokenizerSource) -> WordPieceTokenizer:
    """The tokenizer of some files: pieces with the rules of a class, or as `LIBRARY`.

    Raises:
        UserError: a file is missing or damaged, or has rules that are not supported.
    """
    path, definition = source.path(VOCABULARY_FILE), source.definition
    pieces: list[str] | dict[str, int]
    kind = MPNetTokenizer if source.kind == MPNET else WordPieceTokenizer
    default = kind.class_description
    if definition is None:
        pieces = read_vocabulary(path, source.rows)
        lowercase = source.class_name is not None or looks_lowercased(pieces)
    else:
        model = checked_model(path, definition, "WordPiece")
        pieces, lowercase = checked_pieces(path, model.get("vocab")), True
        prefix = model.get("continuing_subword_prefix", CONTINUATION_PREFIX)
        if prefix != CONTINUATION_PREFIX:
            raise UserError(
                f"{path}: pieces inside a word begin with {prefix!r}; only {CONTINUATION_PREFIX!r} "
                "is supported"
            )
        if source.kind == LIBRARY:
            library = _library(source, path, definition)
            described = source.describe(default, library.get_vocab())
            return WordPieceTokenizer(library, described, str(path), source.rows)
    switches = BertSwitches(
        do_lower_case=bool(source.switch("do_lower_case", lowercase)),
        strip_accents=source.switch("strip_accents"),
        tokenize_chinese_chars=bool(source.switch("tokenize_chinese_chars", True)),
    )
    described = source.describe(default, pieces)
    return kind.from_vocabulary(pieces, switches, described, str(path), source.rows)


def _library(
    source: TokenizerSource, path: Path, definition: dict[str, Any]
) -> "tokenizers.Tokenizer":
    """The tokenizer of the library for a `tokenizer.json`, if everything in it is admitted."""
    import tokenizers
    from tokenizers import normalizers

    model = definition["model"]
    check_unknown(path, model.get("unk_token", BRACKETED[1]), model["vocab"])
    limit = model.get("max_input_chars_per_word", 1)
    if type(limit) is not int or not 1 <= limit <= MAX_STORED_CHARACTERS_PER_WORD:
        raise UserError(
            f"{path}: max_input_chars_per_word is {limit!r:.80}; give a number from 1 to "
            f"{MAX_STORED_CHARACTERS_PER_WORD} (BERT's is {MAX_CHARACTERS_PER_WORD})"
        )
    for key, known in STEPS.items():
        checked_steps(path, definition, key, known)
    # Set anew by `LibraryTokenizer`, or not used.
    unused = dict.fromkeys(("truncation", "padding", "post_processor", "decoder"))
    with library_errors(path):
        library = tokenizers.Tokenizer.from_str(json.dumps({**definition, **unused}))
    normalizer = library.normalizer
    if not isinstance(normalizer, normalizers.BertNormalizer):
        reason = "can be changed only for a BertNormalizer, which this file lacks"
        source.check_no_arguments(path, reason)
        return library
    names = {"do_lower_case": "lowercase", "tokenize_chinese_chars": "handle_chinese_chars"}
    for key, value in source.arguments.items():
        setattr(normalizer, names.get(key, key), value)
    library.normalizer = normalizer
    return library


def read_vocabulary(path: Path, vocab_size: int | None = None) -> list[str]:
    """Reads and checks a vocabulary file.

    UTF-8, with or without a byte order mark; lines end in LF or CRLF. Only LF separates lines:
    `bert-base-chinese` contains U+2028, which `str.splitlines` would treat as a line end. White
    space at the end of a line is no part of a piece, as in transformers.

    Args:
        path: path of the file.
        vocab_size: number of ids of the model; None: unknown.

    Raises:
        UserError: the file is empty, too large or cut off, or has bytes that are not UTF-8.
    """
    data = read_limited(path, VOCABULARY_BYTES, remedy="give a file with one piece a line")
    pieces = decoded_lines(path, data)
    while pieces and not pieces[-1]:
        pieces.pop()
    if not pieces:
        raise UserError(f"{path}: the vocabulary is empty; give a file with one piece a line")
    if vocab_size and not data.endswith(b"\n") and not is_padded(len(pieces), vocab_size):
        raise UserError(
            f"{path}: the last line, {len(pieces)}, has no line end, and there are {len(pieces):,} "
            f"pieces for a model with {vocab_size:,} ids: the file is cut off, copy it again"
        )
    return [piece.rstrip() for piece in pieces]


def is_padded(count: int, rows: int) -> bool:
    """Whether a table has only the rows that round its size up to a multiple of 8 to 128."""
    return any(rows == -(-count // multiple) * multiple for multiple in (1, 8, 16, 32, 64, 128))


def write_vocabulary(path: Path, pieces: Sequence[str]) -> None:
    """Writes pieces as UTF-8 lines that end in LF, on every platform."""
    path.write_bytes("".join(f"{piece}\n" for piece in pieces).encode("utf-8"))


def _bert_switches(library: "tokenizers.Tokenizer") -> BertSwitches | None:
    """The switches of BERT's rules; None if any rule of the library's tokenizer differs."""
    from tokenizers import normalizers, pre_tokenizers

    normalizer, model = library.normalizer, library.model
    added_tokens = library.get_added_tokens_decoder().values()
    # The text between two spaces has the same ids in every text.
    is_local = all(" " not in token.content for token in added_tokens)
    is_bert = (
        isinstance(normalizer, normalizers.BertNormalizer)
        and normalizer.clean_text
        and isinstance(library.pre_tokenizer, pre_tokenizers.BertPreTokenizer)
        and is_local
        and model.max_input_chars_per_word == MAX_CHARACTERS_PER_WORD
    )
    if not is_bert:
        return None
    return BertSwitches(
        normalizer.lowercase, normalizer.strip_accents, normalizer.handle_chinese_chars
    )

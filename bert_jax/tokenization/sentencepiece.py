"""SentencePiece models as used by ALBERT, run by the C++ library `sentencepiece`."""

import dataclasses
import hashlib
import json
import re
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from bert_jax.errors import UserError
from bert_jax.tokenization.assembly import AssemblingTokenizer, check_texts
from bert_jax.tokenization.cleaning import TextCleaner, has_accents, looks_lowercased
from bert_jax.tokenization.interface import (
    ANGLED,
    BRACKETED,
    DEFAULT_TEMPLATE,
    TOKEN_KEYS,
    Pieces,
    Template,
    check_vocabulary_size,
    find_special_ids,
    pieces_without,
)

MODEL_FILE = "spiece.model"
CONFIG_FILE = "tokenizer_config.json"

WORD_MARKER = "▁"

NO_NEW_WORDS = (
    "words: a SentencePiece model cannot take new words, which have no learned scores; train a new "
    "one, or use a WordPiece tokenizer"
)


class SentencePieceTokenizer(AssemblingTokenizer):
    """Cleans text like ALBERT, then runs a SentencePiece model (unigram or BPE).

    A word begins at a piece with "▁"; in scripts without spaces a whole sentence is one word.

    A piece that ends in a digit and a comma is split again, so that numbers do not depend on the
    comma after them: "▁9," becomes "▁9" and "," (`encode_pieces` in google-research/albert,
    tokenization.py). Hugging Face's AlbertTokenizer does not do so: its `tokenizer.json` files
    lower the scores of these pieces by 100, and from a .model file transformers 5 keeps them, so
    ids differ in texts with such numbers.

    Attributes:
        cleaner: cleaning that is applied to text before the model.
    """

    def __init__(
        self,
        model: bytes,
        *,
        lowercase: bool | None = None,
        keep_accents: bool | None = None,
        origin: str = "the SentencePiece model",
        template: Template = DEFAULT_TEMPLATE,
        vocab_size: int | None = None,
    ) -> None:
        """Loads a model.

        Args:
            model: content of a `.model` file.
            lowercase: whether text is lower-cased; None: if no piece has an upper-case letter.
            keep_accents: whether accents are kept; None: if any piece has one.
            origin: file to name in errors.
            template: positions of special tokens around texts.
            vocab_size: number of ids of the model that uses it; None: unknown.

        Raises:
            UserError: it is not a SentencePiece model, or lacks a special token.
        """
        import sentencepiece

        self._library = sentencepiece.SentencePieceProcessor()
        try:
            self._library.load_from_serialized_proto(model)
        except RuntimeError:
            raise UserError(f"{origin}: not a SentencePiece model; give a .model file") from None
        self._model = model
        self.template = template
        self.vocab_size = self._library.get_piece_size()
        check_vocabulary_size(origin, self.vocab_size, vocab_size)
        try:
            self._pieces = [self._library.id_to_piece(i) for i in range(self.vocab_size)]
        except UnicodeDecodeError as error:
            raise UserError(
                f"{origin}: the piece {error.object!r:.80} is not UTF-8; copy the file again"
            ) from None
        self._ids = {piece: token_id for token_id, piece in enumerate(self._pieces)}
        self.special_ids = find_special_ids(self._ids.get, [BRACKETED, ANGLED], origin)
        self.cleaner = TextCleaner(
            lowercase=looks_lowercased(self._pieces) if lowercase is None else lowercase,
            keep_accents=has_accents(self._pieces) if keep_accents is None else keep_accents,
        )
        self._splits = self._digit_comma_splits()
        self._spaces: dict[str, bool] = {}
        self._specials = {self._pieces[i]: i for i in dataclasses.astuple(self.special_ids)}
        # Control symbols are never found in text. A model that holds special tokens as ordinary
        # pieces finds them, so `encode_sentences` breaks the literals up with a space.
        self._specials_found_in_text = [
            token
            for token, token_id in self._specials.items()
            if not self._library.is_control(token_id) and not self._library.is_unknown(token_id)
        ]
        self._special_pattern = re.compile(f"({'|'.join(map(re.escape, self._specials))})")

    def to_pieces(self, texts: Sequence[str]) -> list[Pieces]:
        return [self._pieces_of(text) for text in texts]

    def _pieces_of(self, text: str) -> Pieces:
        result = Pieces([], [], [], [])
        word_id, start = -1, 0
        for part in self._special_pattern.split(text):
            end = start + len(part)
            if part in self._specials:
                encoded = [(self._specials[part], (start, end))]
            else:
                encoded = self._ids_and_offsets(part, start)
            for index, (token_id, offsets) in enumerate(encoded):
                piece = self._pieces[token_id]
                word_id += index == 0 or piece.startswith(WORD_MARKER)
                result.ids.append(token_id)
                result.tokens.append(piece)
                result.offsets.append(offsets)
                result.word_ids.append(word_id)
            start = end
        return result

    def _ids_and_offsets(self, text: str, start: int) -> list[tuple[int, tuple[int, int]]]:
        """Ids of text without special tokens, each with its (start, end), counted from `start`."""
        cleaned, origins = self.cleaner.clean_with_origins(text)
        mapping = self._library.encode(cleaned, return_type="offset_mapping")
        encoded = []
        for token_id, (begin, end) in zip(mapping["ids"], mapping["offsets"], strict=True):
            # The library includes the space before a word in the word, and what it leaves out.
            while begin < end and self._is_space(cleaned[begin]):
                begin += 1
            while begin < end - 1 and self._is_space(cleaned[end - 1]):
                end -= 1
            # A "▁" alone, or one of several pieces of one character (Ⅷ is V, I, II), covers no
            # characters; it gets the offsets of the character at its position.
            end = min(max(end, begin + 1), len(cleaned))
            begin = min(begin, end - 1)
            for part, first, last in self._split(token_id, begin, end):
                encoded.append((part, (start + origins[first], start + origins[last - 1] + 1)))
        return encoded

    def _is_space(self, character: str) -> bool:
        """Whether the model reads a character as a space (most do so with U+200B) or not at all."""
        if character not in self._spaces:
            self._spaces[character] = not self._library.normalize(character).strip(WORD_MARKER)
        return self._spaces[character]

    def _digit_comma_splits(self) -> dict[int, list[int]]:
        """The ids in place of each piece that ends in a digit and a comma."""
        splits = {}
        for token_id, piece in enumerate(self._pieces):
            if len(piece) > 1 and piece[-1] == "," and piece[-2].isdigit():
                number = piece[:-1].replace(WORD_MARKER, "")
                parts = self._library.encode(number, out_type=str)
                if not piece.startswith(WORD_MARKER):
                    parts[0] = parts[0].removeprefix(WORD_MARKER)
                unknown = self.special_ids.unk
                parts = [part for part in (*parts, ",") if part]
                splits[token_id] = [self._ids.get(part, unknown) for part in parts]
        return splits

    def _split(self, token_id: int, begin: int, end: int) -> list[tuple[int, int, int]]:
        """The pieces in place of one piece, with their places in the text."""
        if token_id not in self._splits:
            return [(token_id, begin, end)]
        *number, comma = self._splits[token_id]
        places, at = [], begin
        for part in number:
            characters = len(self._pieces[part].removeprefix(WORD_MARKER))
            # The character 🄁 is both "0" and ",".
            first = min(at, max(end - 2, begin))
            places.append((part, first, max(first + 1, min(at + characters, end - 1))))
            at += characters
        return [*places, (comma, end - 1, end)]

    def encode_sentences(self, sentences: Sequence[str]) -> list[list[int]]:
        check_texts(sentences)
        encoded = self._library.encode([self._clean_sentence(sentence) for sentence in sentences])
        if not self._splits:
            return encoded
        return [
            [part for token_id in ids for part in self._splits.get(token_id, (token_id,))]
            for ids in encoded
        ]

    def _clean_sentence(self, sentence: str) -> str:
        cleaned = self.cleaner.clean(sentence)
        for token in self._specials_found_in_text:
            cleaned = cleaned.replace(token, f"{token[0]} {token[1:]}")
        return cleaned

    def decode(self, ids: Sequence[int], *, skip_special_tokens: bool = True) -> str:
        parts: list[str] = []
        text_ids: list[int] = []
        specials = set(self._specials.values())
        for token_id in map(int, ids):
            if token_id not in specials:
                text_ids.append(token_id)
            elif not skip_special_tokens:
                parts += [self._library.decode(text_ids), self._pieces[token_id]]
                text_ids = []
        parts.append(self._library.decode(text_ids))
        return " ".join(part for part in parts if part)

    def id_to_token(self, token_id: int) -> str:
        return self._pieces[token_id]

    def token_to_id(self, token: str) -> int | None:
        return self._ids.get(token)

    def continuations(self) -> np.ndarray:
        """See `Tokenizer.continuations`: the pieces without a leading "▁"."""
        return pieces_without(WORD_MARKER, self._pieces, self.special_ids)

    def with_words(self, words: Sequence[str]) -> "SentencePieceTokenizer":
        """See `Tokenizer.with_words`: refused.

        A SentencePiece model weighs its pieces against each other, with learned scores.

        Raises:
            UserError: always.
        """
        raise UserError(NO_NEW_WORDS)

    def fingerprint(self) -> str:
        """See `Tokenizer.fingerprint`: a hash of the model's bytes and the cleaning."""
        rules = json.dumps(
            [
                *("SentencePiece", self.cleaner.lowercase, self.cleaner.keep_accents),
                *(["digit-comma"] if self._splits else []),
            ]
        )
        return hashlib.sha256(rules.encode() + self._model).hexdigest()[:16]

    def save(self, directory: str | Path, *, max_length: int | None = None) -> None:
        """Writes `spiece.model` and `tokenizer_config.json`.

        Hugging Face's `AutoTokenizer` reads them as an `AlbertTokenizer`, if `sentencepiece` and
        `protobuf` are also installed; it returns the same ids for a unigram model, but not for a
        BPE model.
        """
        directory = Path(directory)
        directory.mkdir(parents=True, exist_ok=True)
        config: dict[str, object] = self.settings.saved(max_length) | {
            "tokenizer_class": "AlbertTokenizer",
            "do_lower_case": self.cleaner.lowercase,
            "keep_accents": self.cleaner.keep_accents,
            **dict(zip(TOKEN_KEYS, self._specials, strict=True)),
        }
        (directory / MODEL_FILE).write_bytes(self._model)
        (directory / CONFIG_FILE).write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")

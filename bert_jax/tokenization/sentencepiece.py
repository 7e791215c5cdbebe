"""SentencePiece models as ALBERT uses them, run by the C++ library `sentencepiece`."""

import dataclasses
import hashlib
import json
import re
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from bert_jax.errors import UserError
from bert_jax.tokenization.assembly import Pieces, assemble_batch, check_request, check_texts
from bert_jax.tokenization.cleaning import TextCleaner, has_accents, looks_lowercased
from bert_jax.tokenization.interface import (
    ANGLED,
    BRACKETED,
    DEFAULT_TEMPLATE,
    TOKEN_KEYS,
    Encoding,
    Template,
    Tokenizer,
    find_special_ids,
)

MODEL_FILE = "spiece.model"
CONFIG_FILE = "tokenizer_config.json"

WORD_MARKER = "▁"


class SentencePieceTokenizer(Tokenizer):
    """Cleans text as ALBERT does, then runs a SentencePiece model (unigram or BPE).

    A word begins at a piece with "▁"; in a script without spaces a whole sentence is one word.

    Attributes:
        cleaner: what happens to text before the model sees it.
    """

    def __init__(
        self,
        model: bytes,
        *,
        lowercase: bool | None = None,
        keep_accents: bool | None = None,
        origin: str = "the SentencePiece model",
        template: Template = DEFAULT_TEMPLATE,
    ) -> None:
        """Loads a model.

        Args:
            model: the bytes of a `.model` file.
            lowercase: whether text is lower-cased; None: if no piece has an upper-case letter.
            keep_accents: whether accents are kept; None: if any piece has one.
            origin: the file to name in an error.
            template: where special tokens stand around texts.

        Raises:
            UserError: not a SentencePiece model, or one without a special token.
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
        self._pieces = [self._library.id_to_piece(i) for i in range(self.vocab_size)]
        self._ids = {piece: token_id for token_id, piece in enumerate(self._pieces)}
        self.special_ids = find_special_ids(self._ids.get, [BRACKETED, ANGLED], origin)
        self.cleaner = TextCleaner(
            lowercase=looks_lowercased(self._pieces) if lowercase is None else lowercase,
            keep_accents=has_accents(self._pieces) if keep_accents is None else keep_accents,
        )
        self._specials = {self._pieces[i]: i for i in dataclasses.astuple(self.special_ids)}
        # Control symbols are never found in text. A model that holds special tokens as ordinary
        # pieces finds them, so `encode_sentences` breaks the literals up with a space.
        self._specials_found_in_text = [
            token
            for token, token_id in self._specials.items()
            if not self._library.is_control(token_id) and not self._library.is_unknown(token_id)
        ]
        self._special_pattern = re.compile(f"({'|'.join(map(re.escape, self._specials))})")

    def encode_batch(
        self,
        texts: Sequence[str],
        pairs: Sequence[str] | None = None,
        *,
        max_length: int | None = None,
        truncation: str = "longest_first",
        add_special_tokens: bool = True,
    ) -> list[Encoding]:
        """See `Tokenizer.encode_batch`.

        A literal "[MASK]" in a text is the special token here: that is how one asks `fill_mask`.
        """
        check_request(self, texts, pairs, max_length, truncation, add_special_tokens)
        firsts = [self._pieces_of(text) for text in texts]
        seconds = None if pairs is None else [self._pieces_of(pair) for pair in pairs]
        return assemble_batch(self, firsts, seconds, max_length, truncation, add_special_tokens)

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
        """Ids of text without special tokens, each with its place, counted from `start`."""
        cleaned, origins = self.cleaner.clean_with_origins(text)
        mapping = self._library.encode(cleaned, return_type="offset_mapping")
        encoded = []
        for token_id, (begin, end) in zip(mapping["ids"], mapping["offsets"], strict=True):
            # The library counts the space before a word to the word.
            while begin < end and cleaned[begin].isspace():
                begin += 1
            # A "▁" alone, or one of several pieces of one character (Ⅷ is V, I, II): nothing is
            # left, so the character that stands here is named.
            end = min(max(end, begin + 1), len(cleaned))
            begin = min(begin, end - 1)
            encoded.append((token_id, (start + origins[begin], start + origins[end - 1] + 1)))
        return encoded

    def encode_sentences(self, sentences: Sequence[str]) -> list[list[int]]:
        check_texts(sentences)
        return self._library.encode([self._clean_sentence(sentence) for sentence in sentences])

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
        specials = set(self._specials.values())
        return np.array(
            [
                token_id not in specials and not piece.startswith(WORD_MARKER)
                for token_id, piece in enumerate(self._pieces)
            ]
        )

    def with_words(self, words: Sequence[str]) -> "SentencePieceTokenizer":
        """See `Tokenizer.with_words`: refused.

        A SentencePiece model weighs its pieces against each other, by scores that it learned.

        Raises:
            UserError: always.
        """
        raise UserError(
            "words: a SentencePiece model cannot take new words, which have no learned scores; "
            "train a new one, or use a WordPiece tokenizer"
        )

    def fingerprint(self) -> str:
        """See `Tokenizer.fingerprint`: of the model's bytes and the cleaning."""
        rules = json.dumps(["SentencePiece", self.cleaner.lowercase, self.cleaner.keep_accents])
        return hashlib.sha256(rules.encode() + self._model).hexdigest()[:16]

    def save(self, directory: str | Path, *, max_length: int | None = None) -> None:
        """Writes `spiece.model` and `tokenizer_config.json`.

        Hugging Face's `AutoTokenizer` reads them as an `AlbertTokenizer`, if `sentencepiece` and
        `protobuf` are installed beside it; a unigram model gives the same ids there, a BPE model
        does not.
        """
        directory = Path(directory)
        directory.mkdir(parents=True, exist_ok=True)
        config: dict[str, object] = {
            "tokenizer_class": "AlbertTokenizer",
            "do_lower_case": self.cleaner.lowercase,
            "keep_accents": self.cleaner.keep_accents,
            **dict(zip(TOKEN_KEYS, self._specials, strict=True)),
        }
        (directory / MODEL_FILE).write_bytes(self._model)
        if max_length is not None:
            config["model_max_length"] = max_length
        (directory / CONFIG_FILE).write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")

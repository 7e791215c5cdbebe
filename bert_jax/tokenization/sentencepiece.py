"""SentencePiece models as used by ALBERT, run by the C++ library `sentencepiece`."""

import copy
import dataclasses
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, Self

from bert_jax.errors import UserError, first_line
from bert_jax.files import VOCABULARY_BYTES, read_limited
from bert_jax.tokenization.charsmap import check_charsmap
from bert_jax.tokenization.cleaning import TextCleaner, has_accents, looks_lowercased
from bert_jax.tokenization.description import (
    ALBERT,
    ANGLED,
    BERT_ROLES,
    BRACKETED,
    Description,
    SpecialTokens,
    Token,
)
from bert_jax.tokenization.encoding import DEFAULT_TEMPLATE, Pieces, check_texts
from bert_jax.tokenization.interface import Tokenizer
from bert_jax.tokenization.source import MODEL_FILE, TokenizerSource

WORD_MARKER = "▁"

PlacedPiece = tuple[int, str, tuple[int, int]]
"""The id of a piece, its text, and the (start, end) in characters where it stands in a text."""


class Splitter:
    """Splits a text at added tokens, before the model sees it; `ids` has the id of each piece."""

    def __init__(
        self, tokens: Sequence[Token], ids: Mapping[str, int], cleaner: TextCleaner
    ) -> None:
        import tokenizers
        from tokenizers import models, normalizers

        # All other text is one token of this one.
        library = tokenizers.Tokenizer(models.WordLevel({"": 0}, unk_token=""))
        steps: list[tokenizers.normalizers.Normalizer] = []
        if not cleaner.keep_accents:
            steps += [normalizers.NFKD(), normalizers.StripAccents()]
        if cleaner.lowercase:
            steps.append(normalizers.Lowercase())
        library.normalizer = normalizers.Sequence(steps)
        library.add_tokens([token.for_library() for token in tokens])
        added = library.get_added_tokens_decoder().items()
        self.library = library
        self.ids = {number: ids[token.content] for number, token in added}
        self.contents = {ids[token.content]: token.content for token in tokens}
        # First characters of the tokens; a normalised token may begin with other characters.
        is_plain = not any(token.normalized for token in tokens)
        self.firsts = {token.content[0] for token in tokens} if is_plain else None

    def parts(self, text: str) -> list[tuple[int | None, int, int]]:
        """The added tokens of a text with their ids, and the text between: (id, start, end)."""
        parts: list[tuple[int | None, int, int]] = []
        last = 0
        if self.firsts is None or any(first in text for first in self.firsts):
            encoding = self.library.encode(text)
            for number, (start, end) in zip(encoding.ids, encoding.offsets, strict=True):
                if number in self.ids:
                    parts += [(None, last, start), (self.ids[number], start, end)]
                    last = end
        return [*parts, (None, last, len(text))]

    def pieces(self, text: str, encode: Callable[[str, int], list[PlacedPiece]]) -> Pieces:
        """The added tokens of a text, and the pieces between them; a word begins at "▁".

        Args:
            text: the text.
            encode: makes pieces of a part without added tokens, which begins at a position.
        """
        result, word_id = Pieces([], [], [], []), -1
        for added, start, end in self.parts(text):
            if added is None:
                encoded = encode(text[start:end], start)
            else:
                encoded = [(added, self.contents[added], (start, end))]
            for index, (token_id, piece, offsets) in enumerate(encoded):
                word_id += index == 0 or piece.startswith(WORD_MARKER)
                result.ids.append(token_id)
                result.tokens.append(piece)
                result.offsets.append(offsets)
                result.word_ids.append(word_id)
        return result


class SentencePieceTokenizer(Tokenizer):
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

    _word_markers = (WORD_MARKER,)
    # Hugging Face's class, and the name of the file with its model.
    _class_name, _file = "AlbertTokenizer", MODEL_FILE
    _cleaner_class = TextCleaner

    def __init__(
        self,
        model: bytes,
        *,
        lowercase: bool | None = None,
        keep_accents: bool | None = None,
        description: Description | None = None,
        origin: str = "the SentencePiece model",
        rows: int | None = None,
    ) -> None:
        """Loads a model.

        Args:
            model: content of a `.model` file.
            lowercase: whether text is lower-cased; None: if no piece has an upper-case letter.
            keep_accents: whether accents are kept; None: if any piece has one.
            description: special tokens and template; None: ALBERT's, in any spelling.
            origin: file to name in errors.
            rows: number of ids of the model that uses it; None: unknown.

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
        size = self._library.get_piece_size()
        try:
            self._pieces = [self._library.id_to_piece(i) for i in range(size)]
        except UnicodeDecodeError as error:
            raise UserError(
                f"{origin}: the piece {error.object!r:.80} is not UTF-8; copy the file again"
            ) from None
        self._ids = {piece: token_id for token_id, piece in enumerate(self._pieces)}
        self.cleaner = self._cleaner_class(
            lowercase=looks_lowercased(self._pieces) if lowercase is None else lowercase,
            keep_accents=has_accents(self._pieces) if keep_accents is None else keep_accents,
        )
        self._spaces: dict[str, bool] = {}
        self._use(description or class_description(self._ids), origin, rows)

    def _use(self, description: Description, origin: str, rows: int | None = None) -> None:
        ordered = description.tokens.ordered(self._ids, rows)
        for token in ordered:
            if token.content not in self._ids:
                self._ids[token.content] = len(self._pieces)
                self._pieces.append(token.content)
        self._describe(description, origin, rows)
        self._splits = self._digit_comma_splits()
        self._added = {self._ids[token.content]: token for token in ordered}
        # Control symbols never match text. A model that has special tokens as ordinary pieces
        # matches them, so `encode_sentences` breaks the literals up with a space.
        self._specials_in_text = [
            token.content
            for token_id, token in self._added.items()
            if token.special
            and token_id < self._library.get_piece_size()
            and not self._library.is_control(token_id)
            and not self._library.is_unknown(token_id)
        ]
        self._splitter = Splitter(ordered, self._ids, self.cleaner)
        plain = [token for token in ordered if not token.special]
        self._plain_splitter = Splitter(plain, self._ids, self.cleaner) if plain else None

    def _with_added(self, description: Description) -> Self:
        changed = copy.copy(self)
        changed._ids, changed._pieces = dict(self._ids), list(self._pieces)
        changed._use(description, "the vocabulary with the new words")
        return changed

    def to_pieces(self, texts: Sequence[str]) -> list[Pieces]:
        return [self._splitter.pieces(text, self._encode_part) for text in texts]

    def _encode_part(self, text: str, start: int) -> list[PlacedPiece]:
        """The pieces of a text that begins at `start`, see `Splitter.pieces`."""
        cleaned, origins = self.cleaner.clean_with_origins(text)
        mapping = self._library.encode(cleaned, return_type="offset_mapping")
        encoded = []
        for token_id, (begin, end) in zip(mapping["ids"], mapping["offsets"], strict=True):
            # The library includes the space before a word in the word, and what it leaves out.
            while begin < end and self._is_space(cleaned[begin]):
                begin += 1
            while begin < end - 1 and self._is_space(cleaned[end - 1]):
                end -= 1
            # A single "▁", or one of several pieces of one character (Ⅷ is V, I, II), covers no
            # characters; it gets the offsets of the character at its position.
            end = min(max(end, begin + 1), len(cleaned))
            begin = min(begin, end - 1)
            for part, first, last in self._split(token_id, begin, end):
                offsets = (start + origins[first], start + origins[last - 1] + 1)
                encoded.append((part, self._pieces[part], offsets))
        return encoded

    def _is_space(self, character: str) -> bool:
        """Whether the model reads a character as a space (most do so with U+200B) or not at all."""
        if character not in self._spaces:
            self._spaces[character] = not self._library.normalize(character).strip(WORD_MARKER)
        return self._spaces[character]

    def _digit_comma_splits(self) -> dict[int, list[int]]:
        """The ids that replace each piece that ends in a digit and a comma."""
        splits = {}
        for token_id, piece in enumerate(self._pieces):
            if len(piece) > 1 and piece[-1] == "," and piece[-2].isdigit():
                number = piece[:-1].replace(WORD_MARKER, "")
                parts = self._library.encode(number, out_type=str)
                if not piece.startswith(WORD_MARKER):
                    parts[0] = parts[0].removeprefix(WORD_MARKER)
                unknown = self._library.unk_id()
                parts = [part for part in (*parts, ",") if part]
                splits[token_id] = [self._ids.get(part, unknown) for part in parts]
        return splits

    def _split(self, token_id: int, begin: int, end: int) -> list[tuple[int, int, int]]:
        """The pieces that replace one piece, with their (start, end) in the text."""
        if token_id not in self._splits:
            return [(token_id, begin, end)]
        *number, comma = self._splits[token_id]
        split, at = [], begin
        for part in number:
            characters = len(self._pieces[part].removeprefix(WORD_MARKER))
            # The character 🄁 is both "0" and ",".
            first = min(at, max(end - 2, begin))
            split.append((part, first, max(first + 1, min(at + characters, end - 1))))
            at += characters
        return [*split, (comma, end - 1, end)]

    def encode_sentences(self, sentences: Sequence[str]) -> list[list[int]]:
        check_texts(sentences)
        if self._plain_splitter is None:  # faster without its parts
            return self._encode_plain(sentences)
        rows = [self._plain_splitter.parts(sentence) for sentence in sentences]
        texts = [
            text[start:end]
            for text, parts in zip(sentences, rows, strict=True)
            for added, start, end in parts
            if added is None
        ]
        encoded = iter(self._encode_plain(texts))
        return [
            [
                token_id
                for added, _, _ in parts
                for token_id in (next(encoded) if added is None else [added])
            ]
            for parts in rows
        ]

    def _encode_plain(self, texts: Sequence[str]) -> list[list[int]]:
        encoded = self._library.encode([self._clean_sentence(text) for text in texts])
        if not self._splits:
            return encoded
        return [
            [part for token_id in ids for part in self._splits.get(token_id, (token_id,))]
            for ids in encoded
        ]

    def _clean_sentence(self, sentence: str) -> str:
        cleaned = self.cleaner.clean(sentence)
        for token in self._specials_in_text:
            cleaned = cleaned.replace(token, f"{token[0]} {token[1:]}")
        return cleaned

    def decode(self, ids: Sequence[int], *, skip_special_tokens: bool = True) -> str:
        parts: list[str] = []
        text_ids: list[int] = []
        for token_id in map(int, ids):
            added = self._added.get(token_id)
            if added is None:
                text_ids.append(token_id)
            elif not (added.special and skip_special_tokens):
                parts += [self._library.decode(text_ids), added.content]
                text_ids = []
        parts.append(self._library.decode(text_ids))
        return " ".join(part for part in parts if part)

    def token_to_id(self, token: str) -> int | None:
        return self._ids.get(token)

    def fingerprint(self) -> str:
        """A hash of the model's bytes, the cleaning and the added tokens."""
        further = self._further_tokens()
        added = (
            [token_id, *dataclasses.astuple(token)]
            for token_id, token in self._added.items()
            if token.content in further
        )
        rules = ["SentencePiece", self.cleaner.lowercase, self.cleaner.keep_accents]
        return self._digest(
            [*rules, *(["digit-comma"] if self._splits else []), *added], self._model
        )

    def _further_tokens(self) -> set[str]:
        """The added tokens without BERT's five."""
        names = self.description.tokens.names
        added = {token.content for token in self._added.values()}
        return added.difference(names[role] for role in BERT_ROLES)

    def save(self, directory: str | Path, *, max_length: int | None = None) -> None:
        """Writes the .model file and `tokenizer_config.json`.

        Hugging Face's `AutoTokenizer` reads them as the class that is named, if `sentencepiece` and
        `protobuf` are also installed; it returns the same ids for a unigram model, but not for a
        BPE model.
        """
        rules: dict[str, Any] = {
            "tokenizer_class": self._class_name,
            "do_lower_case": self.cleaner.lowercase,
            "keep_accents": self.cleaner.keep_accents,
        }
        if self._further_tokens():
            rules["added_tokens_decoder"] = {
                str(token_id): dataclasses.asdict(token) for token_id, token in self._added.items()
            }
        directory = self._write_config(directory, rules, max_length)
        (directory / self._file).write_bytes(self._model)


def class_description(pieces: Collection[str]) -> Description:
    """The special tokens of a vocabulary that may spell them as ALBERT or in other brackets."""
    names = (
        next((name for name in alternatives if name in pieces), alternatives[0])
        for alternatives in zip(ALBERT, BRACKETED, ANGLED, strict=True)
    )
    return Description(SpecialTokens.from_names(tuple(names)), DEFAULT_TEMPLATE)


def load(source: TokenizerSource) -> SentencePieceTokenizer:
    """The tokenizer of a .model file; ALBERT's class gives the rules that no file names.

    Raises:
        UserError: a file is missing or damaged, or has rules that are not supported.
    """
    path, arguments = source.files[MODEL_FILE], source.arguments
    has_class = source.class_name is not None
    if "tokenize_chinese_chars" in arguments:
        raise UserError(f"{path}: tokenize_chinese_chars is for WordPiece only; leave it out")
    content, proto = read_model(path)
    pieces = [piece.piece for piece in proto.pieces]
    keep_accents = source.switch("keep_accents", False if has_class else None)
    if "strip_accents" in arguments:
        keep_accents = not arguments["strip_accents"]
    return SentencePieceTokenizer(
        content,
        lowercase=source.switch("do_lower_case", has_class or None),
        keep_accents=keep_accents,
        description=source.describe(class_description(pieces), pieces),
        origin=str(path),
        rows=source.rows,
    )


def read_model(path: Path) -> tuple[bytes, Any]:
    """The content of a .model file, and its parts (sentencepiece_model.proto).

    Raises:
        UserError: it is not such a file, was cut off after a piece, so that the part after the
            pieces is missing, or has a damaged table of normalisation.
    """
    content = read_limited(path, VOCABULARY_BYTES, remedy="give a .model file of SentencePiece")
    return content, parse_model(content, str(path))


def parse_model(content: bytes, origin: str) -> Any:
    """The parts of the content of a .model file; `origin` is named in errors, see `read_model`."""
    from sentencepiece import sentencepiece_model_pb2

    proto = sentencepiece_model_pb2.ModelProto()  # type: ignore[attr-defined]
    try:
        proto.ParseFromString(content)
    except Exception as error:
        raise UserError(
            f"{origin}: not a SentencePiece model ({first_line(error)}); give a .model file"
        ) from None
    if not (proto.HasField("trainer_spec") and proto.HasField("normalizer_spec")):
        raise UserError(
            f"{origin}: the SentencePiece model is cut off: its last parts are missing; copy the "
            "file again"
        )
    for spec in (proto.normalizer_spec, proto.denormalizer_spec):
        if spec.precompiled_charsmap:
            check_charsmap(origin, spec.precompiled_charsmap)
    return proto

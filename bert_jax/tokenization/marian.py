"""The tokenizer of translation models of Marian (OPUS-MT): a SentencePiece model per language.

A model splits a text into pieces, and `vocab.json` has the ids of the pieces of both languages.
Source: Hugging Face transformers, models/marian/tokenization_marian.py.
"""

import copy
import dataclasses
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Self

from bert_jax.errors import UserError
from bert_jax.files import read_json_object
from bert_jax.tokenization.cleaning import TextCleaner, without_spaces_before_punctuation
from bert_jax.tokenization.definition import check_unknown, checked_pieces
from bert_jax.tokenization.description import Description
from bert_jax.tokenization.encoding import Encoding, Pieces, Template, check_texts
from bert_jax.tokenization.interface import Tokenizer
from bert_jax.tokenization.sentencepiece import WORD_MARKER, PlacedPiece, Splitter, read_model
from bert_jax.tokenization.source import (
    BPE_FILE,
    SOURCE_MODEL_FILE,
    TARGET_MODEL_FILE,
    TokenizerSource,
)
from bert_jax.tokenization.unigram_model import T5_CLASS

TARGET_VOCABULARY_FILE = "target_vocab.json"

# A text may begin with the code of the language to translate into, ">>fr<<".
_CODE_START, _CODE_END = ">>", "<<"


class Language:
    """How the texts of one language become ids.

    Attributes:
        content: content of the SentencePiece model.
        ids: id of each piece.
    """

    def __init__(self, content: bytes, ids: Mapping[str, int]) -> None:
        import sentencepiece

        self.content, self.ids = content, ids
        self.library = sentencepiece.SentencePieceProcessor(model_proto=content)

    def pieces(self, text: str, start: int) -> list[tuple[str, tuple[int, int]]]:
        """The pieces of a text, each with its (start, end), counted from `start`."""
        has_code = text.startswith(_CODE_START) and _CODE_END in text
        code = text.index(_CODE_END) + len(_CODE_END) if has_code else 0
        found = [(text[:code], (start, start + code))] if code else []
        mapping = self.library.encode(text[code:], return_type="offset_mapping")
        for piece, (begin, end) in zip(mapping["pieces"], mapping["offsets"], strict=True):
            begin, end = begin + code, end + code
            while begin < end and text[begin].isspace():
                begin += 1
            found.append((piece, (start + begin, start + end)))
        return found

    def decode(self, pieces: Sequence[str]) -> str:
        """The text of pieces; empty for none."""
        text: str = self.library.decode(list(pieces)) if pieces else ""
        return text


class MarianTokenizer(Tokenizer):
    """Splits text with the SentencePiece model of its language.

    `encode_targets` has the model of the target language, all other methods that of the source.
    A code such as ">>fr<<" at the start of a text is one piece. Texts end in `</s>`.

    Attributes:
        source, target: the two languages; the ids of both are the same, unless
            `separate_vocabs` is set in the files.
    """

    class_description = Description(T5_CLASS.tokens, Template(single="A eos", pair="A B eos"))
    _word_markers = (WORD_MARKER,)

    def __init__(
        self,
        source: Language,
        target: Language,
        description: Description | None = None,
        origin: str = "the vocabulary",
        rows: int | None = None,
    ) -> None:
        """A tokenizer of two languages.

        Args:
            source: language of the texts to translate.
            target: language of the translations.
            description: special tokens and template; None: the class defaults.
            origin: file to name in errors.
            rows: number of ids of the model; None: unknown.

        Raises:
            UserError: see `Tokenizer._describe`, or a vocabulary lacks the piece for unknown ones.
        """
        self.source, self.target = source, target
        description = description or self.class_description
        for language in (source, target):
            check_unknown(origin, description.tokens.names["unk"], language.ids)
        self._use(description, origin, rows)

    def _use(self, description: Description, origin: str, rows: int | None = None) -> None:
        tokens = description.tokens.ordered(self.source.ids, rows)
        new = [token.content for token in tokens if token.content not in self.source.ids]
        size = 1 + max(self.source.ids.values(), default=-1)
        added = {content: size + number for number, content in enumerate(new)}
        self._ids = {**self.source.ids, **added}
        self._added = {self._ids[token.content]: token for token in tokens}
        self._pieces = _listed(self._ids)
        self._written = _listed({**self.target.ids, **added})
        self._splitter = Splitter(
            tokens, self._ids, TextCleaner(lowercase=False, keep_accents=True)
        )
        self._current = self.source
        self._describe(description, origin, rows)

    def _with_added(self, description: Description) -> Self:
        changed = copy.copy(self)
        changed._use(description, "the vocabulary with the new words")
        return changed

    @property
    def has_separate_vocabularies(self) -> bool:
        """Whether the two languages have other ids."""
        return self.source.ids != self.target.ids

    def to_pieces(self, texts: Sequence[str]) -> list[Pieces]:
        return [self._splitter.pieces(text, self._encode_part) for text in texts]

    def _encode_part(self, text: str, start: int) -> list[PlacedPiece]:
        """The pieces of a text that begins at `start`, see `Splitter.pieces`."""
        language = self._current
        unknown = language.ids[self._pieces[self.special_id("unk", "Marian")]]
        found = language.pieces(text, start)
        return [(language.ids.get(piece, unknown), piece, offsets) for piece, offsets in found]

    def encode_targets(
        self, texts: Sequence[str], *, max_length: int | None = None
    ) -> list[Encoding]:
        writer = copy.copy(self)
        writer._current = self.target
        return writer.encode_batch(texts, max_length=max_length)

    def encode_sentences(self, sentences: Sequence[str]) -> list[list[int]]:
        check_texts(sentences)
        ids, unknown = self.source.ids, self.special_id("unk", "Marian")
        rows = self.source.library.encode(list(sentences), return_type=str)
        return [[ids.get(piece, unknown) for piece in row] for row in rows]

    def decode(self, ids: Sequence[int], *, skip_special_tokens: bool = True) -> str:
        """The text of ids of the target; <unk> counts as a special token."""
        # As in transformers: the model of the source joins pieces that both languages have.
        language = self.target if self.has_separate_vocabularies else self.source
        text, pieces = "", list[str]()
        for token_id in map(int, ids):
            added = self._added.get(token_id)
            if added is None or not added.special:
                pieces += self._written[token_id : token_id + 1]  # none for an id beyond V
            elif not skip_special_tokens:
                text += f"{language.decode(pieces)}{added.content} "
                pieces = []
        text = (text + language.decode(pieces)).replace(WORD_MARKER, " ").strip()
        is_cleaned = self.description.others.get("clean_up_tokenization_spaces")
        return without_spaces_before_punctuation(text) if is_cleaned else text

    def token_to_id(self, token: str) -> int | None:
        return self._ids.get(token)

    def fingerprint(self) -> str:
        """A hash of both models and vocabularies, and of the added tokens."""
        added = [[number, *dataclasses.astuple(token)] for number, token in self._added.items()]
        ids = [sorted(language.ids.items()) for language in (self.source, self.target)]
        return self._digest(["Marian", added, *ids], self.source.content + self.target.content)

    def save(self, directory: str | Path, *, max_length: int | None = None) -> None:
        """Writes `source.spm`, `target.spm`, `vocab.json` and `tokenizer_config.json`.

        With other ids for the target, also `target_vocab.json`. Hugging Face's `AutoTokenizer`
        reads them as a `MarianTokenizer`, and returns the same ids.
        """
        separate = self.has_separate_vocabularies
        rules: dict[str, Any] = {"tokenizer_class": "MarianTokenizer", "separate_vocabs": separate}
        rules["added_tokens_decoder"] = {
            str(token_id): dataclasses.asdict(token) for token_id, token in self._added.items()
        }
        directory = self._write_config(directory, rules, max_length)
        vocabularies = {BPE_FILE: self.source.ids}
        if separate:
            vocabularies[TARGET_VOCABULARY_FILE] = self.target.ids
        for name, ids in vocabularies.items():
            content = json.dumps(ids, ensure_ascii=False, indent=2)
            (directory / name).write_text(f"{content}\n", encoding="utf-8")
        (directory / SOURCE_MODEL_FILE).write_bytes(self.source.content)
        (directory / TARGET_MODEL_FILE).write_bytes(self.target.content)


def load(source: TokenizerSource) -> MarianTokenizer:
    """The tokenizer of the files of a directory.

    Raises:
        UserError: a file is missing or damaged, or separate vocabularies have other special ids.
    """
    directory = source.directory
    path = directory / BPE_FILE
    source.check_no_arguments(path, "do not apply to the models of Marian, which have a cleaning")
    remedy = "copy the tokenizer's files again"
    ids = targets = checked_pieces(path, read_json_object(path, remedy=remedy))
    if source.switch("separate_vocabs"):
        target_path = directory / TARGET_VOCABULARY_FILE
        targets = checked_pieces(target_path, read_json_object(target_path, remedy=remedy))
    described = source.describe(MarianTokenizer.class_description, ids)
    for token in described.tokens.all():
        first, second = ids.get(token.content), targets.get(token.content)
        if token.special and first != second:
            raise UserError(
                f"{directory / TARGET_VOCABULARY_FILE}: {token.content} has the id {second}, and "
                f"{first} in {BPE_FILE}; special tokens need the same id in both"
            )
    source_language, target_language = (
        Language(read_model(directory / name)[0], pieces)
        for name, pieces in ((SOURCE_MODEL_FILE, ids), (TARGET_MODEL_FILE, targets))
    )
    return MarianTokenizer(source_language, target_language, described, str(path), source.rows)


def _listed(ids: Mapping[str, int]) -> list[str]:
    """The piece of each id; empty for an id without one."""
    pieces = [""] * (1 + max(ids.values(), default=-1))
    for piece, token_id in ids.items():
        pieces[token_id] = piece
    return pieces

"""Unigram models as in CamemBERT, XLM-R and T5, run by the Rust library `tokenizers`."""

import base64
import dataclasses
import json
import re
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from bert_jax.errors import UserError
from bert_jax.tokenization.cleaning import without_spaces_before_punctuation
from bert_jax.tokenization.definition import (
    OTHER_MODEL,
    bare_library,
    library_errors,
    model_type,
)
from bert_jax.tokenization.description import ALBERT, BRACKETED, Description
from bert_jax.tokenization.interface import DEBERTA_V2, SENTENCEPIECE, T5
from bert_jax.tokenization.library import LIBRARY_CLASS, TOKENIZER_FILE, LibraryTokenizer
from bert_jax.tokenization.sentencepiece import WORD_MARKER, read_model
from bert_jax.tokenization.source import LIBRARY, MODEL_FILE, TokenizerSource
from bert_jax.tokenization.unigram_model import (
    ACCENTS,
    ALBERT_CLASS,
    CASE,
    SENTINELS,
    SPLITTER,
    T5_CLASS,
    UNIGRAM,
    UnigramModel,
    albert_cleaning,
    read_unigram_json,
    t5_description,
    unigram_model,
)

if TYPE_CHECKING:
    import tokenizers

MAX_PIECE_CHARACTERS = 1000
"""The time for a text is in proportion to the length of the longest piece; XLM-R's have 16."""


class UnigramTokenizer(LibraryTokenizer):
    """Normalises text, splits it at white space, and each word into the most probable pieces.

    This is what Hugging Face's classes do with the models of CamemBERT, XLM-R and T5, and with a
    `tokenizer.json` of ALBERT (without the rule for numbers of `SentencePieceTokenizer`); one that
    decides by itself may have other rules. The SentencePiece library differs where a text has the
    character "▁" itself. The mask token takes the space before it.
    """

    _word_markers = (WORD_MARKER,)

    def __init__(
        self,
        model: UnigramModel,
        description: Description | None = None,
        origin: str = "the vocabulary",
        rows: int | None = None,
    ) -> None:
        """A tokenizer of the library; for further arguments see `LibraryTokenizer`.

        Raises:
            UserError: the vocabulary lacks a special token, or has a piece that is too long.
        """
        _check_model(origin, model)
        self._model = model
        self.class_description = model.class_description
        description = description or self.class_description
        tokens = description.tokens
        tokens = dataclasses.replace(tokens, extra=(*model.user_defined, *tokens.extra))
        with library_errors(origin):
            library = self._make_library(())
        super().__init__(library, dataclasses.replace(description, tokens=tokens), origin, rows)

    def _make_library(self, hidden: Collection[str]) -> "tokenizers.Tokenizer":
        """A tokenizer of the library without added tokens; no text has the `hidden` pieces."""
        from tokenizers import models

        pieces = [
            # A piece with a space never matches: text is split there.
            (f"{piece} " if piece in hidden else piece, score)
            for piece, score in self._model.pieces
        ]
        steps = list(self._model.normalizer)
        normalizer = {"type": "Sequence", "normalizers": steps} if len(steps) > 1 else None
        library = bare_library(
            {
                "normalizer": normalizer or next(iter(steps), None),
                "pre_tokenizer": self._model.splitter,
            }
        )
        # From Python, scores are exact; the library's parser of JSON may round them.
        library.model = models.Unigram(pieces, unk_id=self._model.unknown, byte_fallback=False)
        return library

    def _complete(self, library: "tokenizers.Tokenizer") -> None:
        from tokenizers import decoders

        library.decoder = decoders.Metaspace(WORD_MARKER, prepend_scheme="always")

    @property
    def word_breaks(self) -> re.Pattern[str] | None:
        return self._between_words if self._model.splitter == SPLITTER else None

    def _for_sentences(self) -> "tokenizers.Tokenizer":
        """A copy without the special tokens: the model would match a literal "<mask>"."""
        added = self._library.get_added_tokens_decoder()
        specials = {token.content for token in added.values() if token.special}
        copied = self._make_library(specials)
        # Special tokens beside the vocabulary reserve their ids.
        size = len(self._model.pieces)
        tokens = [token for i, token in sorted(added.items()) if i >= size or not token.special]
        copied.add_tokens(tokens)
        copied.encode_special_tokens = True
        return copied

    def decode(self, ids: Sequence[int], *, skip_special_tokens: bool = True) -> str:
        text = super().decode(ids, skip_special_tokens=skip_special_tokens)
        is_cleaned = self.description.others.get("clean_up_tokenization_spaces")
        return without_spaces_before_punctuation(text) if is_cleaned else text

    def fingerprint(self) -> str:
        """A hash of pieces, rules and added tokens: the same for all files of a tokenizer."""
        added = json.loads(self._library.to_str())["added_tokens"]
        model = self._model
        steps, table = list(model.normalizer), b""
        if steps and steps[-1] in model.tables:  # it is most often the last step
            table = base64.b64decode(steps.pop()["precompiled_charsmap"])
        parts = [UNIGRAM, list(model.pieces), added, steps]
        parts += [model.splitter] if model.splitter != SPLITTER else []
        return self._digest(parts, table)

    def save(self, directory: str | Path, *, max_length: int | None = None) -> None:
        """Writes `tokenizer.json` and `tokenizer_config.json`.

        Hugging Face's `AutoTokenizer` reads them, as a `CamembertTokenizer`, `XLMRobertaTokenizer`,
        `T5Tokenizer` or `AlbertTokenizer` by the first ids if the rules for text are those of the
        class, and returns the same ids and offsets.
        """
        model, layout, cleaning = self._model, self._model.layout, list[Mapping[str, Any]]()
        rules: dict[str, Any] = {"tokenizer_class": layout.class_name if layout else LIBRARY_CLASS}
        if self.class_description is ALBERT_CLASS:
            rules = {
                "do_lower_case": CASE in model.normalizer,
                "keep_accents": ACCENTS not in model.normalizer,
            }
            cleaning = albert_cleaning(**rules)
            rules["tokenizer_class"] = "AlbertTokenizer"
        if model.with_rules(cleaning) != model:
            rules = {"tokenizer_class": LIBRARY_CLASS}
        if self.class_description is T5_CLASS:
            rules["extra_ids"] = len(self.sentinel_ids())
        self._save(directory, rules, max_length)


def load(source: TokenizerSource) -> UnigramTokenizer:
    """The tokenizer of a .model file with a family's ids, or of a `tokenizer.json`.

    Raises:
        UserError: a file is missing or damaged, or has rules that are not supported.
    """
    path, definition, kind = source.path(MODEL_FILE), source.definition, source.kind
    source.check_no_arguments(
        path, "do not apply to a SentencePiece model as in XLM-R, which has a normalisation"
    )
    if source.switch("add_prefix_space") is False:
        raise UserError(
            f"{source.config_path}: add_prefix_space is false; a SentencePiece model is supported "
            "only with it"
        )
    sentinels = _number_of_sentinels(source)
    if definition is not None and model_type(definition) == UNIGRAM:
        model = read_unigram_json(path, definition)
    elif MODEL_FILE in source.files:
        model = unigram_model(read_model(path)[1], str(path), kind, sentinels)
    else:
        raise UserError(
            f"{path.parent} has no *.model file, and no {TOKENIZER_FILE} with a Unigram model; "
            "copy the tokenizer's files there"
        )
    pieces = dict(model.pieces)
    if ALBERT[2] in pieces and source.class_name is None:
        source.check_kind(path, DEBERTA_V2 if BRACKETED[1] in pieces else SENTENCEPIECE)
    if kind == SENTENCEPIECE:
        named, steps = source.class_name is not None, model.normalizer
        model = model.with_rules(
            albert_cleaning(
                do_lower_case=bool(source.switch("do_lower_case", named or CASE in steps)),
                keep_accents=bool(source.switch("keep_accents", not (named or ACCENTS in steps))),
            )
        )
    elif kind != LIBRARY:
        model = model.with_rules()
    elif model.splitter is None:
        raise UserError(f"{path}: there is no pre_tokenizer, so text is not split; {OTHER_MODEL}")
    default = t5_description(sentinels) if kind == T5 else model.class_description
    described = source.describe(default, pieces)
    return UnigramTokenizer(model, described, str(path), source.rows)


def _number_of_sentinels(source: TokenizerSource) -> int:
    """The number of sentinels of T5; raises UserError for a value that is no number."""
    count = source.config.get("extra_ids", SENTINELS)
    if type(count) is not int or count < 0:
        raise UserError(f"{source.config_path}: extra_ids is {count!r:.80}; give a number from 0")
    return count


def _check_model(origin: str, model: UnigramModel) -> None:
    """Raises UserError where the library would panic or take too long."""
    for token_id, (piece, score) in enumerate(model.pieces):
        is_text = isinstance(piece, str) and len(piece) <= MAX_PIECE_CHARACTERS
        if not is_text or not np.isfinite(score):
            raise UserError(
                f"{origin}: the piece {token_id} is {piece!r:.80} with the score {score}, not a "
                f"text of at most {MAX_PIECE_CHARACTERS} characters with a finite score; copy the "
                "file again"
            )

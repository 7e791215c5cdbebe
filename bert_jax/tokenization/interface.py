"""The interface of all tokenizers, and what does not depend on their kind."""

import abc
import copy
import dataclasses
import hashlib
import itertools
import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self

import numpy as np

from bert_jax.errors import OptionError, UserError, require_one_of
from bert_jax.tokenization.description import CONFIG_FILE, Description, SpecialIds, Token
from bert_jax.tokenization.encoding import (
    TEXTS,
    TRUNCATIONS,
    Encoding,
    Pieces,
    Template,
    check_texts,
    cut,
)

# The kinds of tokenizers: for BERT, ALBERT and RoBERTa; for CamemBERT and XLM-R, and DeBERTa, with
# SentencePiece models with other ids or without cleaning; WordPiece with RoBERTa's special tokens.
WORDPIECE, SENTENCEPIECE, BYTE_LEVEL_BPE = "wordpiece", "sentencepiece", "byte_level_bpe"
CAMEMBERT, XLM_ROBERTA = "camembert", "xlm_roberta"
MPNET, DEBERTA_V2 = "mpnet", "deberta_v2"
# For the models that write text, and ELMo.
T5, GPT2, OPENAI_GPT, MARIAN, CHARACTERS = "t5", "gpt2", "openai_gpt", "marian", "characters"

SENTINEL = "<extra_id_{}>"
"""The pieces of T5, from number 0 on, that stand for the spans left out of a text."""


class Tokenizer(abc.ABC):
    """Text to ids and back.

    No call changes the result of another call, so threads may share a tokenizer. Another process
    loads the tokenizer from a directory.

    Attributes:
        special_ids: ids of [PAD], [UNK], [CLS], [SEP], [MASK], and of the ends of a text.
        vocab_size: V, number of ids.
        description: its special tokens, template, limits and further keys of its files.
    """

    special_ids: SpecialIds
    vocab_size: int
    description: Description
    # The piece of each id. Ids without a piece, and all but the last id of a piece, are never used.
    _pieces: list[str]
    # How pieces begin that begin a word.
    _word_markers: tuple[str, ...] = ()
    # A kind that cannot take words, why, and what can be done beside markers.
    _no_words = "a SentencePiece model", "which have no learned scores", ", or train a new model"

    @property
    def template(self) -> Template:
        """The positions of special tokens and token types around texts."""
        return self.description.template

    @property
    def model_max_length(self) -> int | None:
        """The maximum number of tokens that the tokenizer's files give; None for no limit."""
        return self.description.model_max_length

    @property
    def truncation_side(self) -> str:
        """The side where `encode_batch` cuts a text: "right", or "left" if the files say so."""
        return self.description.truncation_side

    @property
    def word_breaks(self) -> re.Pattern[str] | None:
        """Where a text may end: the tokens before do not depend on what follows; None: nowhere."""
        return None

    def with_description(self, description: Description) -> Self:
        """This tokenizer with another template or limit; this one is not changed."""
        changed = copy.copy(self)
        changed.description = description
        return changed

    def without_token_types(self) -> Self:
        """This tokenizer with token type 0 for all tokens; this one is not changed."""
        template = self.template.without_token_types()
        return self.with_description(dataclasses.replace(self.description, template=template))

    @property
    def padding_id(self) -> int:
        """The id of padding, which attention leaves out; 0 without a special token for it."""
        return self.special_ids.pad or 0

    def special_id(self, name: str, use: str) -> int:
        """The id of a special token.

        Args:
            name: field of `SpecialIds`.
            use: what needs it, the first words of the message.

        Raises:
            UserError: the tokenizer does not have it.
        """
        token_id: int | None = getattr(self.special_ids, name)
        if token_id is None:
            raise UserError(
                f"{use}: the tokenizer has no {name} token; copy all files of the model's "
                f"tokenizer, or name its token as {name}_token in tokenizer_config.json"
            )
        return token_id

    def sentinel_ids(self) -> list[int]:
        """The ids of T5's <extra_id_0>, <extra_id_1>, …; none for other tokenizers."""
        found = map(self.token_to_id, map(SENTINEL.format, itertools.count()))
        return [i for i in itertools.takewhile(lambda i: i is not None, found) if i is not None]

    def template_id(self, name: str) -> int:
        """The id of a special token of the template, see `TemplatePart.name`."""
        token_id = getattr(self.special_ids, name, None)
        return self.token_to_id(name) or 0 if token_id is None else token_id

    def _describe(self, description: Description, origin: str, rows: int | None) -> None:
        """Sets description, V and special ids, once the pieces are known.

        Raises:
            UserError: there are too many pieces, an added token has another id than in the files,
                or the vocabulary lacks a special token of the template.
        """
        self.description, self.vocab_size = description, len(self._pieces)
        if rows is not None and self.vocab_size > rows:
            raise UserError(
                f"{origin}: the tokenizer has {self.vocab_size} ids, the model only {rows}; they "
                "do not belong together"
            )
        description.tokens.check_ids(self.token_to_id, origin)
        names = description.tokens.names
        self.special_ids = description.tokens.ids(self.token_to_id)
        for part, _ in (*self.template.parts(pair=False), *self.template.parts(pair=True)):
            is_role = part in names
            token_id = getattr(self.special_ids, part) if is_role else self.token_to_id(part)
            if token_id is None and part not in TEXTS:
                raise UserError(
                    f"{origin}: the vocabulary has no {names.get(part) or f'{part}_token'}; copy "
                    f"all files of the model's tokenizer, or name its token as {part}_token in "
                    "tokenizer_config.json"
                )

    def num_special_tokens(self, *, pair: bool) -> int:
        """The number of special tokens that are added to one text or to a pair."""
        return self.template.num_special_tokens(pair=pair)

    def supports_pairs(self, type_vocab_size: int) -> bool:
        """Whether a model with this many token types has all that `template` uses for a pair."""
        # A model without a table of token types computes type 0 for all.
        return self.template.num_token_types(pair=True) <= max(1, type_vocab_size)

    def check_pairs(self, type_vocab_size: int, what: str) -> None:
        """Refuses pairs of texts if the model cannot tell their texts apart.

        Args:
            type_vocab_size: number of token types of the model.
            what: first words of the message, such as "choices".

        Raises:
            UserError: see `supports_pairs`.
        """
        if not self.supports_pairs(type_vocab_size):
            raise UserError(
                f"{what} need a model that tells two texts apart, but this one has type_vocab_size "
                f"{type_vocab_size}; give another model"
            )

    @abc.abstractmethod
    def to_pieces(self, texts: Sequence[str]) -> list[Pieces]:
        """The pieces of each text; a literal "[MASK]" becomes the special token."""

    def encode_batch(
        self,
        texts: Sequence[str],
        pairs: Sequence[str] | None = None,
        *,
        max_length: int | None = None,
        truncation: str = "longest_first",
        add_special_tokens: bool = True,
    ) -> list[Encoding]:
        """Encodes texts, or texts with their pairs, in the form of `template`.

        A text that is too long is cut on its `truncation_side`. A literal "[MASK]" in a text
        becomes the special token, as `fill_mask` requires.

        Args:
            texts: B texts.
            pairs: None, or B second texts.
            max_length: maximum number of tokens of one encoding, special tokens included; None for
                no limit.
            truncation: side that is cut: "longest_first", "only_first" or "only_second".
            add_special_tokens: whether the special tokens of `template` are added.

        Returns:
            B encodings, unpadded.

        Raises:
            UserError: `max_length` leaves no space for text, cutting only one text cannot reach it,
                or `texts` and `pairs` differ in length.
        """
        columns = [texts] if pairs is None else [texts, pairs]
        for column in columns:
            check_texts(column)
        if pairs is not None and len(texts) != len(pairs):
            raise UserError(
                f"encode_batch: {len(texts)} texts but {len(pairs)} pairs; give one pair for each "
                "text"
            )
        require_one_of("truncation", truncation, TRUNCATIONS)
        limit = None
        if max_length is not None:
            if truncation == "only_second" and pairs is None:
                raise OptionError("truncation", truncation, "there are no pairs; give pairs")
            special = self.num_special_tokens(pair=pairs is not None) if add_special_tokens else 0
            if (limit := max_length - special) < 1:
                rule = f"it leaves no space beside the special tokens: give at least {special + 1}"
                raise OptionError("max_length", max_length, rule)
        return [
            self.join(
                row if limit is None else cut(row, limit, truncation, self.truncation_side, index),
                add_special_tokens=add_special_tokens,
            )
            for index, row in enumerate(zip(*map(self.to_pieces, columns), strict=True))
        ]

    def join(self, texts: Sequence[Pieces], *, add_special_tokens: bool = True) -> Encoding:
        """One text or two with the special tokens and token types of `template`.

        Args:
            texts: pieces of the texts, without special tokens.
            add_special_tokens: False for the texts only.
        """
        joined = Encoding([], [], [], [], [], [])
        for name, type_id in self.template.parts(pair=len(texts) == 2):
            is_text = name in TEXTS
            if is_text:
                part = texts[TEXTS.index(name)]
            elif add_special_tokens:
                token_id = self.template_id(name)
                part = Pieces([token_id], [self._pieces[token_id]], [(0, 0)], [None])
            else:
                continue
            joined.ids.extend(part.ids)
            joined.tokens.extend(part.tokens)
            joined.offsets.extend(part.offsets)
            joined.word_ids.extend(part.word_ids)
            joined.type_ids.extend([type_id] * len(part))
            joined.special_tokens_mask.extend([int(not is_text)] * len(part))
        return joined

    def encode_words(self, texts: Sequence[str]) -> list[Encoding]:
        """Encodes words joined by spaces, without special tokens: each as it is after a space."""
        return self.encode_batch(texts, add_special_tokens=False)

    def encode_targets(
        self, texts: Sequence[str], *, max_length: int | None = None
    ) -> list[Encoding]:
        """Encodes texts that an encoder-decoder learns to write; see `encode_batch`."""
        return self.encode_batch(texts, max_length=max_length)

    def token_arrays(self, tokens: Sequence[str]) -> dict[str, np.ndarray]:
        """What models read of T tokens beside ids, [T, ...] each, 0 for padding; often nothing."""
        return {}

    @abc.abstractmethod
    def encode_sentences(self, sentences: Sequence[str]) -> list[list[int]]:
        """Ids of plain text, without special tokens: the fast path of corpus preparation.

        A literal "[MASK]" or "[SEP]" in the text is ordinary text, never a special token.
        """

    @abc.abstractmethod
    def decode(self, ids: Sequence[int], *, skip_special_tokens: bool = True) -> str:
        """The text of ids, with pieces joined to words."""

    def id_to_token(self, token_id: int) -> str:
        """The piece of an id."""
        return self._pieces[token_id]

    def readable_token(self, token_id: int) -> str:
        """The piece of an id as people read it."""
        return self.id_to_token(token_id)

    @abc.abstractmethod
    def token_to_id(self, token: str) -> int | None:
        """The id of a piece, or None."""

    def continuations(self) -> np.ndarray:
        """Whether a piece continues a word ("##ing"; no leading "▁"), no special one: bool [V]."""
        continues = np.array([not piece.startswith(self._word_markers) for piece in self._pieces])
        continues[self.special_ids.known()] = False
        return continues

    def with_words(self, words: Sequence[str], *, whole: bool = False) -> Self:
        """A tokenizer with more words; this one is not changed.

        Each word is normalised like text, and becomes one piece, with the ids V, V+1, … in the
        order of `words`. Words in the vocabulary and repeated words are skipped, so the new pieces
        are those from V on. Only whole words can be added: a piece inside words ("##19") would
        change the ids of other words.

        With `whole`, each is a marker such as "[E1]" or "<user>", which is recognised as written,
        anywhere in a text and before the text is split. A marker is not a special token: `decode`
        keeps it, and `encode_sentences` recognises it. Every kind of tokenizer takes them. A
        piece of the vocabulary, such as "[unused1]", keeps its id.

        Words that do not begin with a new word keep their ids. Others are split after the new word:
        with "covid", "covids" is "covid", "##s", and unknown if the rest has no pieces.

        Args:
            words: the words.
            whole: whether they are markers.

        Raises:
            UserError: a word is empty; or, without `whole`, it is never a single piece of text,
                because it is split ("New York", "covid-19") or too long, or the tokenizer cannot
                take words.
        """
        check_texts(words)
        words = list(dict.fromkeys(words))
        if not whole:
            return self._with_pieces(words)
        if blank := [word for word in words if not word.strip()]:
            raise UserError(f"words: nothing is left of {blank[0]!r}; remove it")
        # A piece of the vocabulary, such as "[unused1]", is not yet an added token.
        added = {token.content for token in self.description.tokens.all()}
        new = [word for word in words if word not in added or self.token_to_id(word) is None]
        return self._with_tokens([Token(word, special=False) for word in new])

    def known_token(self, text: str) -> str | None:
        """The text, or its first word, if that is a token of the vocabulary."""
        words = [word for word in (text, *text.split()[:1]) if word]
        return next((word for word in words if self.token_to_id(word) is not None), None)

    def with_special_tokens(self, texts: Sequence[str]) -> Self:
        """A tokenizer that finds the `known_token` of each text as written; this is not changed.

        Those that are split, as "[unused0]", are looked for before a text is normalised, and keep
        their ids.
        """
        known = filter(None, map(self.known_token, texts))
        split = [token for token in known if self.to_pieces([token])[0].tokens != [token]]
        tokens = self.description.tokens.with_special(split)
        return self._with_added(dataclasses.replace(self.description, tokens=tokens))

    def _with_tokens(self, tokens: Sequence[Token]) -> Self:
        """This tokenizer with more added tokens; this one is not changed."""
        old = self.description.tokens
        more = dataclasses.replace(old, extra=(*old.extra, *tokens))
        return self._with_added(dataclasses.replace(self.description, tokens=more))

    @abc.abstractmethod
    def _with_added(self, description: Description) -> Self:
        """This tokenizer with the added tokens of a description; this one is not changed."""

    def _with_pieces(self, words: Sequence[str]) -> Self:
        """This tokenizer with more words, without `whole`, see `with_words`."""
        kind, reason, otherwise = self._no_words
        raise UserError(
            f"words: {kind} cannot take new words, {reason}; add them as markers (whole=True), "
            f"recognised anywhere in a text{otherwise}"
        )

    @abc.abstractmethod
    def fingerprint(self) -> str:
        """16 hex digits that change whenever any text could get other ids."""

    def _digest(self, parts: list[Any], data: bytes = b"") -> str:
        """The fingerprint of values of JSON and of some bytes."""
        return hashlib.sha256(json.dumps(parts, sort_keys=True).encode() + data).hexdigest()[:16]

    @property
    def rules_of_rows(self) -> list[Any]:
        """Everything that the rows of texts depend on, as values of JSON."""
        limits = self.model_max_length, self.truncation_side
        return [self.fingerprint(), *dataclasses.astuple(self.template), *limits]

    @abc.abstractmethod
    def save(self, directory: str | Path, *, max_length: int | None = None) -> None:
        """Writes the tokenizer files of a model directory (Hugging Face's layout).

        Args:
            directory: directory, created if missing.
            max_length: number of tokens that the model takes, for other programs that read the
                files; `model_max_length` has precedence.
        """

    def _write_config(
        self, directory: str | Path, rules: dict[str, Any], max_length: int | None
    ) -> Path:
        """Writes `tokenizer_config.json`, see `save`; returns the directory.

        `rules` has `tokenizer_class`, unless the files named one, and further keys.
        """
        (directory := Path(directory)).mkdir(parents=True, exist_ok=True)
        rules["tokenizer_class"] = self.description.class_name or rules["tokenizer_class"]
        content = json.dumps(self.description.saved(rules, max_length), indent=2)
        (directory / CONFIG_FILE).write_text(f"{content}\n", encoding="utf-8")
        return directory

"""Loads a tokenizer of each kind from its files."""

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bert_jax.errors import UserError
from bert_jax.files import VOCABULARY_BYTES, is_there, read_json_object, read_limited
from bert_jax.tokenization import byte_level_bpe
from bert_jax.tokenization.byte_level_bpe import ByteLevelBPETokenizer, ByteLevelSwitches
from bert_jax.tokenization.cleaning import looks_lowercased
from bert_jax.tokenization.definition import (
    KINDS,
    OTHER_MODEL,
    READ_REMEDY,
    check_prefix,
    checked_pieces,
    make_library_tokenizer,
    model_type,
    read_bpe,
)
from bert_jax.tokenization.interface import ALBERT, BYTE_LEVEL_BPE, SENTENCEPIECE, Tokenizer
from bert_jax.tokenization.library import TOKENIZER_FILE
from bert_jax.tokenization.post_processor import read_template
from bert_jax.tokenization.sentencepiece import (
    SentencePieceTokenizer,
    parse_model,
    spelled_tokens,
)
from bert_jax.tokenization.settings import CONFIG_FILE
from bert_jax.tokenization.special_tokens import SpecialTokens, read_special_tokens
from bert_jax.tokenization.template import Template
from bert_jax.tokenization.tokenizer_class import LIBRARY
from bert_jax.tokenization.unigram import (
    LAYOUTS,
    UNIGRAM,
    UnigramTokenizer,
    cleaning_steps,
    read_model_file,
    read_unigram_json,
)
from bert_jax.tokenization.wordpiece import BertSwitches, WordPieceTokenizer, read_vocabulary

# What a model needs that cannot do with another kind, for messages.
_UNIGRAM = (
    "the SentencePiece model that it was trained with",
    f"sentencepiece.bpe.model or {TOKENIZER_FILE}",
)
_FILES_OF_KIND = {
    **dict.fromkeys(LAYOUTS, _UNIGRAM),
    BYTE_LEVEL_BPE: (
        "byte-level BPE",
        f"{byte_level_bpe.VOCABULARY_FILE} and {byte_level_bpe.MERGES_FILE}, or a {TOKENIZER_FILE}",
    ),
}


@dataclasses.dataclass(frozen=True, slots=True)
class Options:
    """The arguments of `load_tokenizer`; None: decided by the files."""

    lowercase: bool | None
    strip_accents: bool | None
    tokenize_chinese_chars: bool | None
    kind: str | None
    rows: int | None

    def check_no_rules(self, path: Path, reason: str) -> None:
        """Raises UserError if an argument changes how text is treated."""
        if (self.lowercase, self.strip_accents, self.tokenize_chinese_chars) != (None, None, None):
            raise UserError(
                f"{path}: lowercase, strip_accents and tokenize_chinese_chars {reason}; leave them "
                "out"
            )


@dataclasses.dataclass(frozen=True)
class Source:
    """The files of a tokenizer.

    Attributes:
        path: the file with the vocabulary.
        config: the content of `tokenizer_config.json`; empty if there is none, and for a file that
            is read by itself.
        definition: the content of `tokenizer.json`; None if there is none.
        options: arguments of the caller.
        has_class: whether a file names Hugging Face's class.
        is_alone: whether the file is read by itself.
    """

    path: Path
    config: Mapping[str, Any]
    definition: dict[str, Any] | None
    options: Options
    has_class: bool = False
    is_alone: bool = False

    @property
    def config_path(self) -> Path:
        """The path of `tokenizer_config.json`, to name in errors."""
        return self.path.with_name(CONFIG_FILE)

    def tokens(self, default: SpecialTokens) -> SpecialTokens:
        """The special and added tokens of the files; named ones of the class by default."""
        directory = None if self.is_alone else self.path.parent
        return read_special_tokens(
            directory, self.config_path, self.config, self.definition, default, self.options.rows
        )

    def template(self, tokens: SpecialTokens) -> Template | None:
        """The template that `tokenizer.json` gives; None if it is left to the class."""
        if self.definition is None:
            return None
        if self.definition.get("post_processor") is None and not self.has_class:
            return None
        return read_template(self.path, self.definition, tokens.names)

    def switch(self, key: str, *values: bool | None) -> bool | None:
        """The first of an argument, a key of the config and a default that is not None."""
        argument, *others = values
        found = (argument, self.config.get(key), *others)
        return next((value for value in found if value is not None), None)


def check_kind(path: Path, found: str, needed: str | None) -> None:
    """Raises UserError if a file belongs to the tokenizers of other models."""
    if needed in _FILES_OF_KIND and found != needed:
        name, files = _FILES_OF_KIND[needed]
        raise UserError(
            f"{path}: a {found} tokenizer, but the model needs {name}; give {files}, or name the "
            f"class of this one as tokenizer_class in a {CONFIG_FILE} beside it"
        )


def load_definition(source: Source) -> Tokenizer:
    """A tokenizer of which `tokenizer.json` says everything."""
    from tokenizers import normalizers

    definition = source.definition or {}
    found = model_type(definition)
    if found == UNIGRAM:
        return load_unigram(source, LIBRARY)
    if found not in KINDS:
        raise UserError(
            f"{source.path}: the model is {found}; only {' and '.join(KINDS)} are read from a "
            f"{source.path.name}: {OTHER_MODEL}"
        )
    if KINDS[found] == BYTE_LEVEL_BPE:
        return load_byte_level(source, LIBRARY)
    options = source.options
    library = make_library_tokenizer(source.path, definition, options.rows)
    normalizer = library.normalizer
    if not isinstance(normalizer, normalizers.BertNormalizer):
        options.check_no_rules(
            source.path, "can be changed only for a BertNormalizer, which this file has not"
        )
    else:
        for key, value in {
            "lowercase": options.lowercase,
            "strip_accents": options.strip_accents,
            "handle_chinese_chars": options.tokenize_chinese_chars,
        }.items():
            if value is not None:
                setattr(normalizer, key, value)
        library.normalizer = normalizer
    default = WordPieceTokenizer.class_tokens.within(library.get_vocab())
    tokens = source.tokens(default)
    template = source.template(tokens)
    return WordPieceTokenizer(library, str(source.path), template, tokens, options.rows)


def load_wordpiece(source: Source) -> Tokenizer:
    """Pieces of `tokenizer.json` or `vocab.txt`, and the rules of BERT's class."""
    path, options = source.path, source.options
    pieces: list[str] | dict[str, int]
    if source.definition is None:
        pieces = read_vocabulary(path, options.rows)
        lowercase = source.has_class or looks_lowercased(pieces)
    else:
        _check_model(path, source.definition, "WordPiece")
        check_prefix(path, source.definition["model"])
        pieces = checked_pieces(path, source.definition["model"].get("vocab"), options.rows)
        lowercase = True
    switches = BertSwitches(
        do_lower_case=bool(source.switch("do_lower_case", options.lowercase, lowercase)),
        strip_accents=source.switch("strip_accents", options.strip_accents),
        tokenize_chinese_chars=bool(
            source.switch("tokenize_chinese_chars", options.tokenize_chinese_chars, True)
        ),
    )
    tokens = source.tokens(WordPieceTokenizer.class_tokens)
    return WordPieceTokenizer.from_vocabulary(
        pieces, switches, str(path), tokens=tokens, rows=options.rows
    )


def _check_model(path: Path, definition: Mapping[str, Any], needed: str) -> None:
    found = model_type(definition)
    if found != needed:
        raise UserError(
            f"{path}: the model is {found}, but the class of the tokenizer needs {needed}; "
            f"{READ_REMEDY}"
        )


def load_byte_level(source: Source, kind: str = BYTE_LEVEL_BPE) -> Tokenizer:
    path, options, definition = source.path, source.options, source.definition
    options.check_no_rules(path, "do not apply to byte-level BPE, which encodes text as it is")
    switches = ByteLevelSwitches(
        add_prefix_space=bool(source.config.get("add_prefix_space")),
        trim_offsets=source.config.get("trim_offsets") is not False,
    )
    tokens = ByteLevelBPETokenizer.class_tokens
    if definition is not None:
        _check_model(path, definition, "BPE")
        vocabulary, merges = read_bpe(path, definition, options.rows)
        if kind == LIBRARY:
            switches = byte_level_bpe.read_switches(definition)
            tokens = tokens.within(vocabulary)
    else:
        merges_path = path.parent / byte_level_bpe.MERGES_FILE
        if not is_there(merges_path):
            raise UserError(
                f"{path} has no {merges_path.name} beside it; copy both files of the tokenizer "
                "there"
            )
        content = read_json_object(path, remedy="give an object of pieces and their ids")
        vocabulary = checked_pieces(path, content, options.rows)
        merges = byte_level_bpe.read_merges(merges_path, vocabulary)
    tokens = source.tokens(tokens)
    return ByteLevelBPETokenizer(
        vocabulary,
        merges,
        switches,
        origin=str(path),
        template=source.template(tokens) if kind == LIBRARY else None,
        tokens=tokens,
        rows=options.rows,
    )


def load_model_file(source: Source, kind: str | None) -> Tokenizer:
    path, options = source.path, source.options
    content = read_limited(path, VOCABULARY_BYTES, remedy="give a .model file of SentencePiece")
    proto = parse_model(str(path), content)
    if kind in LAYOUTS:
        return load_unigram(source, kind, proto)
    if options.tokenize_chinese_chars is not None:
        raise UserError(f"{path}: tokenize_chinese_chars is for WordPiece only; leave it out")
    keep_accents = None if options.strip_accents is None else not options.strip_accents
    return SentencePieceTokenizer(
        content,
        lowercase=source.switch("do_lower_case", options.lowercase, source.has_class or None),
        keep_accents=source.switch(
            "keep_accents", keep_accents, False if source.has_class else None
        ),
        origin=str(path),
        tokens=source.tokens(spelled_tokens([piece.piece for piece in proto.pieces])),
        rows=options.rows,
    )


def load_unigram(source: Source, kind: str, proto: Any = None) -> Tokenizer:
    path, options = source.path, source.options
    options.check_no_rules(
        path, "do not apply to a SentencePiece model as in XLM-R, which has its own normalisation"
    )
    if source.config.get("add_prefix_space") is False:
        raise UserError(
            f"{source.config_path}: add_prefix_space is false; a SentencePiece model is supported "
            "only with it"
        )
    if proto is not None:
        model = read_model_file(path, proto, kind, options.rows)
    elif source.definition is not None and model_type(source.definition) == UNIGRAM:
        model = read_unigram_json(path, source.definition, options.rows)
    else:
        raise UserError(
            f"{path.parent} has no *.model file, and no {TOKENIZER_FILE} with a Unigram model; "
            "copy the tokenizer's files there"
        )
    pieces = {piece for piece, _ in model.pieces}
    if ALBERT[2] in pieces and not source.has_class:
        check_kind(path, SENTENCEPIECE, options.kind)
    default = UnigramTokenizer.tokens_of(model)
    tokens = source.tokens(default.within(pieces) if kind == LIBRARY else default)
    template = source.template(tokens) if kind in (LIBRARY, SENTENCEPIECE) else None
    if kind != LIBRARY:
        model = dataclasses.replace(model, splitter=None)
    if kind == SENTENCEPIECE and source.has_class:
        lowercase = source.switch("do_lower_case", None, True)
        keep_accents = source.switch("keep_accents", None, False)
        cleaning = cleaning_steps(lowercase=bool(lowercase), keep_accents=bool(keep_accents))
        model = dataclasses.replace(model, cleaning=cleaning)
    return UnigramTokenizer(model, str(path), template, tokens, options.rows)

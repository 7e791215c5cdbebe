"""Finds out what kind of tokenizer a path holds, and loads it."""

import dataclasses
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bert_jax.errors import OptionError, UserError
from bert_jax.files import as_path, fetch, read_json_object
from bert_jax.tokenization.cleaning import looks_lowercased
from bert_jax.tokenization.interface import (
    BRACKETED,
    DEFAULT_TEMPLATE,
    SENTENCEPIECE,
    TOKEN_KEYS,
    WORDPIECE,
    Template,
    Tokenizer,
)
from bert_jax.tokenization.sentencepiece import MODEL_FILE, SentencePieceTokenizer
from bert_jax.tokenization.wordpiece import (
    CONFIG_FILE,
    CONTINUATION_PREFIX,
    TOKENIZER_FILE,
    VOCABULARY_FILE,
    BertSwitches,
    WordPieceTokenizer,
    read_vocabulary,
)

_REMEDY = "give a file that a tokenizer saved"


@dataclasses.dataclass(frozen=True, slots=True)
class Overrides:
    """The arguments of `load_tokenizer`; None where the files decide."""

    lowercase: bool | None
    strip_accents: bool | None
    tokenize_chinese_chars: bool | None
    template: Template
    kind: str

    @property
    def changes_rules(self) -> bool:
        """Whether any argument says how text is treated."""
        rules = (self.lowercase, self.strip_accents, self.tokenize_chinese_chars)
        return rules != (None, None, None)


def load_tokenizer(
    path: str | Path,
    *,
    lowercase: bool | None = None,
    strip_accents: bool | None = None,
    tokenize_chinese_chars: bool | None = None,
    template: Template = DEFAULT_TEMPLATE,
    kind: str = WORDPIECE,
) -> Tokenizer:
    """Loads a tokenizer from a model directory or a single file.

    Of a directory, the first of these is read: `tokenizer.json`; `vocab.txt`; `spiece.model` or
    the only `*.model` file. `tokenizer_config.json` says how text is treated; where it is that of
    a BertTokenizer, it overrules BERT's own rules in `tokenizer.json`, as with Hugging Face.
    A single file (`*.json`, `*.model`, anything else is a vocabulary) is read by itself.

    What neither an argument nor a file says is settled by the vocabulary. Text is lower-cased if
    no piece has an upper-case letter outside brackets (so bert-base-uncased and bert-base-chinese
    are, bert-base-cased is not). Accents are removed, with WordPiece, if and only if text is
    lower-cased; with SentencePiece, if no piece has any. Each Chinese character is a word.

    Args:
        path: directory or file, here or in a bucket.
        lowercase: overrules the files.
        strip_accents: overrules the files.
        tokenize_chinese_chars: overrules the files; WordPiece only.
        template: where special tokens stand around texts: that of the model's family.
        kind: `WORDPIECE` or `SENTENCEPIECE`, of the model's family. With the latter, a `*.model`
            file of a directory is read before all others.

    Raises:
        UserError: nothing there, a file that cannot be read, a `tokenizer.json` with another model
            than WordPiece, or a vocabulary that is empty, lists a piece twice or lacks a special
            token.
    """
    path = fetch(as_path(path))
    overrides = Overrides(lowercase, strip_accents, tokenize_chinese_chars, template, kind)
    if path.is_dir():
        return _load_directory(path, overrides)
    if not path.is_file():
        rule = "give a directory or a file as {path}"
        raise OptionError("path", str(path), rule, f"the tokenizer {path} does not exist")
    if path.suffix == ".json":
        return _load_tokenizer_json(path, overrides)
    if path.suffix == ".model":
        return _load_sentencepiece(path, {}, overrides)
    return _load_vocabulary(path, {}, overrides)


def _load_directory(directory: Path, overrides: Overrides) -> Tokenizer:
    tokenizer_path, vocabulary_path = directory / TOKENIZER_FILE, directory / VOCABULARY_FILE
    model_path = _sentencepiece_file(directory)
    config_path = directory / CONFIG_FILE
    config = read_json_object(config_path, remedy=_REMEDY) if config_path.is_file() else {}
    for key in ("do_lower_case", "strip_accents", "tokenize_chinese_chars", "keep_accents"):
        if not isinstance(config.get(key), bool | None):
            raise UserError(f"{config_path}: {key} is {config[key]!r}; give true or false")
    if overrides.kind == SENTENCEPIECE and model_path is not None:
        return _load_sentencepiece(model_path, config, overrides)
    if tokenizer_path.is_file():
        definition = read_json_object(tokenizer_path, remedy=_REMEDY)
        # ALBERT's directories hold a translation of their .model file, which is no WordPiece.
        if model_path is None or _model_type(definition) == "WordPiece":
            _check_special_tokens(config_path, config)
            return _load_tokenizer_json(tokenizer_path, _with_config(overrides, config, definition))
    if vocabulary_path.is_file():
        _check_special_tokens(config_path, config)
        return _load_vocabulary(vocabulary_path, config, overrides)
    if model_path is not None:
        return _load_sentencepiece(model_path, config, overrides)
    raise UserError(
        f"{directory} has no {TOKENIZER_FILE}, {VOCABULARY_FILE} or *.model file; copy the "
        "tokenizer's files there, or give another directory"
    )


def _check_special_tokens(path: Path, config: Mapping[str, Any]) -> None:
    """Raises UserError where a config gives a special token another name than BERT's."""
    for key, token in zip(TOKEN_KEYS, BRACKETED, strict=True):
        value = config.get(key)
        name = value.get("content") if isinstance(value, dict) else value
        if name not in (None, token):
            raise UserError(
                f"{path}: {key} is {name!r}; only {token} can be read: rename it there and in the "
                "vocabulary"
            )


def _with_config(
    overrides: Overrides, config: Mapping[str, Any], definition: Mapping[str, Any]
) -> Overrides:
    """The overrides, and what a BertTokenizer's config says of the normaliser that it has."""
    normalizer = definition.get("normalizer")
    is_bert = isinstance(normalizer, dict) and normalizer.get("type") == "BertNormalizer"
    if not is_bert or config.get("tokenizer_class") not in ("BertTokenizer", "BertTokenizerFast"):
        return overrides
    return Overrides(
        _first(overrides.lowercase, config.get("do_lower_case")),
        _first(overrides.strip_accents, config.get("strip_accents")),
        _first(overrides.tokenize_chinese_chars, config.get("tokenize_chinese_chars")),
        overrides.template,
        overrides.kind,
    )


def _sentencepiece_file(directory: Path) -> Path | None:
    if (directory / MODEL_FILE).is_file():
        return directory / MODEL_FILE
    candidates = list(directory.glob("*.model"))
    return candidates[0] if len(candidates) == 1 else None


def _load_vocabulary(
    path: Path, config: dict[str, Any], overrides: Overrides
) -> WordPieceTokenizer:
    pieces = read_vocabulary(path)
    lowercase = _first(overrides.lowercase, config.get("do_lower_case"))
    chinese = _first(overrides.tokenize_chinese_chars, config.get("tokenize_chinese_chars"))
    switches = BertSwitches(
        do_lower_case=looks_lowercased(pieces) if lowercase is None else lowercase,
        strip_accents=_first(overrides.strip_accents, config.get("strip_accents")),
        tokenize_chinese_chars=True if chinese is None else chinese,
    )
    return WordPieceTokenizer.from_vocabulary(
        pieces, switches, origin=str(path), template=overrides.template
    )


def _load_tokenizer_json(path: Path, overrides: Overrides) -> WordPieceTokenizer:
    import tokenizers
    from tokenizers import normalizers

    definition = read_json_object(path, remedy=_REMEDY)
    model_type = _model_type(definition)
    if model_type != "WordPiece":
        raise UserError(
            f"{path}: the model is {model_type}; only WordPiece is read from a {TOKENIZER_FILE} "
            "(SentencePiece: give the .model file)"
        )
    try:
        library = tokenizers.Tokenizer.from_str(json.dumps(definition))
    except Exception as error:  # the library raises nothing more precise
        raise UserError(f"{path}: the tokenizers library cannot read it: {error}") from None
    if library.model.continuing_subword_prefix != CONTINUATION_PREFIX:
        raise UserError(
            f"{path}: pieces inside a word begin with {library.model.continuing_subword_prefix!r}; "
            f"only {CONTINUATION_PREFIX!r} is supported"
        )
    if overrides.changes_rules:
        normalizer = library.normalizer
        if not isinstance(normalizer, normalizers.BertNormalizer):
            raise UserError(
                f"{path}: lowercase, strip_accents and tokenize_chinese_chars can be changed only "
                "for a BertNormalizer, which this file has not; leave them out"
            )
        if overrides.lowercase is not None:
            normalizer.lowercase = overrides.lowercase
        if overrides.strip_accents is not None:
            normalizer.strip_accents = overrides.strip_accents
        if overrides.tokenize_chinese_chars is not None:
            normalizer.handle_chinese_chars = overrides.tokenize_chinese_chars
        library.normalizer = normalizer
    return WordPieceTokenizer(library, str(path), overrides.template)


def _load_sentencepiece(
    path: Path, config: dict[str, Any], overrides: Overrides
) -> SentencePieceTokenizer:
    if overrides.tokenize_chinese_chars is not None:
        raise UserError(f"{path}: tokenize_chinese_chars is for WordPiece only; leave it out")
    keep_accents = None if overrides.strip_accents is None else not overrides.strip_accents
    return SentencePieceTokenizer(
        path.read_bytes(),
        lowercase=_first(overrides.lowercase, config.get("do_lower_case")),
        keep_accents=_first(keep_accents, config.get("keep_accents")),
        origin=str(path),
        template=overrides.template,
    )


def _model_type(definition: dict[str, Any]) -> str:
    """The kind of model; old files do not say it, but only WordPiece has this limit."""
    model = definition.get("model")
    if not isinstance(model, dict):
        return "missing"
    unnamed = "WordPiece" if "max_input_chars_per_word" in model else "of no known type"
    return str(model.get("type", unnamed))


def _first(*values: bool | None) -> bool | None:
    """The first value that says something."""
    return next((value for value in values if value is not None), None)

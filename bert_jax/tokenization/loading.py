"""Finds the class of the tokenizer that a path contains, and loads it."""

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bert_jax.errors import OptionError, UserError
from bert_jax.files import as_path, check_undamaged, fetch, is_there, read_json_object
from bert_jax.process import say
from bert_jax.tokenization import byte_level_bpe
from bert_jax.tokenization.definition import KINDS, READ_REMEDY, model_type, read_definition
from bert_jax.tokenization.interface import (
    BYTE_LEVEL_BPE,
    SENTENCEPIECE,
    WORDPIECE,
    Tokenizer,
    is_padded,
)
from bert_jax.tokenization.kinds import (
    Options,
    Source,
    check_kind,
    load_byte_level,
    load_definition,
    load_model_file,
    load_unigram,
    load_wordpiece,
)
from bert_jax.tokenization.library import (
    MODEL_INPUTS,
    TOKENIZER_FILE,
    VOCABULARY_FILES,
)
from bert_jax.tokenization.sentencepiece import MODEL_FILE
from bert_jax.tokenization.settings import CONFIG_FILE, read_settings
from bert_jax.tokenization.special_tokens import ADDED_TOKENS_FILE, SPECIAL_TOKENS_FILE
from bert_jax.tokenization.tokenizer_class import LIBRARY, named_class
from bert_jax.tokenization.unigram import LAYOUTS, UNIGRAM
from bert_jax.tokenization.wordpiece import VOCABULARY_FILE


def load_tokenizer(
    path: str | Path,
    *,
    lowercase: bool | None = None,
    strip_accents: bool | None = None,
    tokenize_chinese_chars: bool | None = None,
    kind: str | None = None,
    vocab_size: int | None = None,
) -> Tokenizer:
    """Loads a tokenizer from a model directory or a single file.

    In a directory, `tokenizer_class` in `tokenizer_config.json` or `config.json` decides what is
    read, as in transformers 5. The class BertTokenizer, for one, takes the pieces of
    `tokenizer.json`, or else of `vocab.txt`, and the rules for text from `tokenizer_config.json`;
    PreTrainedTokenizerFast takes everything from `tokenizer.json`. Without a class, the first of
    these is read: `tokenizer.json`; `vocab.txt`; `vocab.json` with `merges.txt`; `spiece.model` or
    the only `*.model` file. A single file (`*.json`, `*.model`, anything else is a vocabulary) is
    read by itself.

    If neither an argument nor a file decides, the vocabulary does. With WordPiece, text is
    lower-cased if a class is named or a `tokenizer.json` is read for one; else if no piece has an
    upper-case letter outside brackets (so bert-base-uncased and bert-base-chinese are,
    bert-base-cased is not). Accents are removed, with WordPiece, if and only if text is
    lower-cased; with SentencePiece, if a class is named or no piece has any. Each Chinese
    character is a word.

    Args:
        path: directory or file, local or in a bucket.
        lowercase: overrides the files.
        strip_accents: overrides the files.
        tokenize_chinese_chars: overrides the files; WordPiece only.
        kind: one of the kinds in `interface`, from the model's family, for a directory whose files
            name no class.
        vocab_size: number of ids of the model; None: that of a `config.json` in the directory.

    Raises:
        UserError: the path does not exist, a file cannot be read, is cut off or is of another kind
            than the model needs, its class is not supported, a `tokenizer.json` has a model or
            rules that `definition` does not admit, merges are missing or do not fit the
            vocabulary, or a vocabulary is empty, has more pieces than the model has ids, or lacks a
            special token of its template.
    """
    path = fetch(as_path(path))
    if not path.exists():
        rule = "give a directory or a file as {path}"
        raise OptionError("path", str(path), rule, f"the tokenizer {path} does not exist")
    options = Options(lowercase, strip_accents, tokenize_chinese_chars, kind, vocab_size)
    if path.is_dir():
        return _load_directory(path, options)
    return _check_rows(path, _load_file(path, options), vocab_size)


def _load_file(path: Path, options: Options) -> Tokenizer:
    source, expected = Source(path, {}, None, options, is_alone=True), options.kind
    if path.name == byte_level_bpe.VOCABULARY_FILE:
        check_kind(path, BYTE_LEVEL_BPE, expected)
        return load_byte_level(source)
    if path.suffix == ".json":
        definition = read_definition(path)
        kind = _kind_of(definition, expected)
        check_kind(path, kind, expected)
        return load_definition(dataclasses.replace(source, definition=definition))
    if path.suffix == ".model":
        if expected not in LAYOUTS:
            check_kind(path, SENTENCEPIECE, expected)
        return load_model_file(source, expected)
    check_kind(path, WORDPIECE, expected)
    return load_wordpiece(source)


def _kind_of(definition: Mapping[str, Any], expected: str | None) -> str:
    """The kind of a `tokenizer.json`; several kinds have a Unigram model."""
    found = model_type(definition)
    if found == UNIGRAM and expected in (SENTENCEPIECE, *LAYOUTS):
        return expected
    return KINDS.get(found, UNIGRAM)


def _load_directory(directory: Path, options: Options) -> Tokenizer:
    companions = (SPECIAL_TOKENS_FILE, ADDED_TOKENS_FILE)
    check_undamaged(directory, ["tokenizer*.json", *VOCABULARY_FILES, *companions])
    config_path, definition_path = directory / CONFIG_FILE, directory / TOKENIZER_FILE
    config, model_config = _read(config_path), _read(directory / "config.json")
    _check_switches(config_path, config)
    definition = read_definition(definition_path) if is_there(definition_path) else None
    rows = model_config.get("vocab_size") if options.rows is None else options.rows
    options = dataclasses.replace(options, rows=rows if isinstance(rows, int) else None)
    named = named_class(config_path, config, model_config, definition is not None)
    settings = read_settings(config_path, config, definition, named and named.name)
    source = Source(definition_path, config, definition, options, named is not None)
    tokenizer = _load_kind(source, named.kind if named else _default_kind(source))
    _check_rows(directory, tokenizer, options.rows)
    inputs = config.get("model_input_names")
    if inputs is None:
        inputs = [] if named and not named.has_types else list(MODEL_INPUTS)
    if not isinstance(inputs, list):
        raise UserError(f"{config_path}: model_input_names is {inputs!r:.80}; give a list of names")
    if MODEL_INPUTS[1] not in inputs:
        tokenizer = tokenizer.without_token_types()
    return tokenizer.with_settings(settings)


def _read(path: Path) -> dict[str, Any]:
    return read_json_object(path, remedy=READ_REMEDY) if is_there(path) else {}


def _default_kind(source: Source) -> str:
    """The kind for files that name no class: the family's, if they are of that kind."""
    directory, expected = source.path.parent, source.options.kind
    model_path = _sentencepiece_file(directory)
    if expected == SENTENCEPIECE and model_path is not None:
        return SENTENCEPIECE
    if source.definition is not None:
        kind = _kind_of(source.definition, expected)
        # ALBERT's directories hold a conversion of their .model file, which gives other ids.
        if kind == UNIGRAM and model_path is not None:
            return expected if expected in LAYOUTS else SENTENCEPIECE
        check_kind(source.path, kind, expected)
        return kind if kind == expected else LIBRARY
    has_vocabulary = is_there(directory / VOCABULARY_FILE)
    byte_level_path = directory / byte_level_bpe.VOCABULARY_FILE
    if is_there(byte_level_path) and (expected == BYTE_LEVEL_BPE or not has_vocabulary):
        check_kind(byte_level_path, BYTE_LEVEL_BPE, expected)
        return BYTE_LEVEL_BPE
    if has_vocabulary:
        check_kind(directory / VOCABULARY_FILE, WORDPIECE, expected)
        return WORDPIECE
    if model_path is None:
        known = ", ".join((TOKENIZER_FILE, VOCABULARY_FILE, byte_level_bpe.VOCABULARY_FILE))
        raise UserError(
            f"{directory} has no {known} or *.model file; copy the tokenizer's files there, or "
            "give another directory"
        )
    if expected in LAYOUTS:
        return expected
    check_kind(model_path, SENTENCEPIECE, expected)
    return SENTENCEPIECE


def _load_kind(source: Source, kind: str) -> Tokenizer:
    """The tokenizer of a directory, whose files are those of a kind."""
    directory = source.path.parent

    def at(name: str) -> Source:
        return source if source.definition else dataclasses.replace(source, path=directory / name)

    if kind == LIBRARY:
        return load_definition(source)
    if kind == WORDPIECE:
        return load_wordpiece(at(VOCABULARY_FILE))
    if kind == BYTE_LEVEL_BPE:
        return load_byte_level(at(byte_level_bpe.VOCABULARY_FILE))
    model_path = _sentencepiece_file(directory)
    is_unigram = source.definition is not None and model_type(source.definition) == UNIGRAM
    if model_path is not None and (kind == SENTENCEPIECE or not is_unigram):
        definition = source.definition if is_unigram else None
        beside = dataclasses.replace(source, path=model_path, definition=definition)
        return load_model_file(beside, kind)
    return load_unigram(at(MODEL_FILE), kind)


def _check_rows(path: Path, tokenizer: Tokenizer, rows: int | None) -> Tokenizer:
    """The tokenizer; a line on stderr if the model has many more rows than it has ids."""
    if rows is not None and not is_padded(tokenizer.vocab_size, rows):
        say(
            f"{path}: the tokenizer has {tokenizer.vocab_size:,} ids, and the model's table "
            f"{rows:,} rows; if a file of the tokenizer was cut off, copy it again"
        )
    return tokenizer


def _check_switches(path: Path, config: Mapping[str, Any]) -> None:
    """Raises UserError if a switch of a `tokenizer_config.json` is no truth value."""
    for key in (
        *("do_lower_case", "strip_accents", "tokenize_chinese_chars", "keep_accents"),
        *("add_prefix_space", "trim_offsets"),
    ):
        if not isinstance(config.get(key), bool | None):
            raise UserError(f"{path}: {key} is {config[key]!r:.80}; give true or false")


def _sentencepiece_file(directory: Path) -> Path | None:
    if is_there(directory / MODEL_FILE):
        return directory / MODEL_FILE
    candidates = list(directory.glob("*.model"))
    return candidates[0] if len(candidates) == 1 else None

"""Finds the kind of the tokenizer that a path contains, and loads it."""

import dataclasses
from pathlib import Path

from bert_jax.errors import UserError
from bert_jax.files import as_path, fetch
from bert_jax.process import say
from bert_jax.tokenization import (
    byte_fallback_bpe,
    byte_level_bpe,
    characters,
    deberta_v2,
    marian,
    openai_gpt,
    sentencepiece,
    unigram,
    wordpiece,
)
from bert_jax.tokenization.definition import OTHER_MODEL, model_type
from bert_jax.tokenization.interface import (
    BYTE_LEVEL_BPE,
    CHARACTERS,
    DEBERTA_V2,
    GPT2,
    MARIAN,
    MPNET,
    OPENAI_GPT,
    SENTENCEPIECE,
    WORDPIECE,
    Tokenizer,
)
from bert_jax.tokenization.library import TOKENIZER_FILE
from bert_jax.tokenization.source import (
    BPE_FILE,
    LIBRARY,
    MODEL_FILE,
    SOURCE_MODEL_FILE,
    VOCABULARY_FILE,
    TokenizerSource,
    read_source,
)
from bert_jax.tokenization.unigram_model import LAYOUTS, UNIGRAM

# The kind of tokenizer of each type of model in a `tokenizer.json`.
_KINDS = {"WordPiece": WORDPIECE, "BPE": BYTE_LEVEL_BPE, UNIGRAM: UNIGRAM}
_BPE_KINDS = (BYTE_LEVEL_BPE, GPT2, OPENAI_GPT)
_WORDPIECE_KINDS = (WORDPIECE, MPNET)
_SENTENCEPIECE_KINDS = (SENTENCEPIECE, DEBERTA_V2, *LAYOUTS)


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

    In a directory, `tokenizer_class` in `tokenizer_config.json` or `config.json` decides
    which file is read, as in transformers 5. The class BertTokenizer, for one, takes the pieces of
    `tokenizer.json`, or else of `vocab.txt`, and the rules for text from `tokenizer_config.json`;
    PreTrainedTokenizerFast takes everything from `tokenizer.json`. Without a class, the first of
    these is read: `source.spm` with `target.spm` and `vocab.json`; `tokenizer.json`; `vocab.txt`;
    `vocab.json` with `merges.txt`; `spiece.model` or the only `*.model` file. A single file
    (`*.json`, `*.model`, anything else is a vocabulary) is read by itself.

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
        vocab_size: number of ids of the model; None: as in a `config.json` in the directory.

    Raises:
        UserError: the path does not exist, a file cannot be read, is cut off or is of another kind
            than the model needs, its class is not supported, a `tokenizer.json` has a model or
            rules that `definition` does not admit, merges are missing or do not fit the
            vocabulary, or a vocabulary is empty, has more pieces than the model has ids, or lacks a
            special token of its template.
    """
    path = fetch(as_path(path))
    if not path.exists():
        raise UserError(f"the tokenizer {path} does not exist; give a directory or a file")
    switches = {
        "do_lower_case": lowercase,
        "strip_accents": strip_accents,
        "tokenize_chinese_chars": tokenize_chinese_chars,
    }
    arguments = {key: value for key, value in switches.items() if value is not None}
    source = read_source(path, arguments, kind, vocab_size)
    tokenizer = _load(source, source.named.kind if source.named else _kind(source))
    rows = source.rows
    if rows is not None and not wordpiece.is_padded(tokenizer.vocab_size, rows):
        say(
            f"{path}: the tokenizer has {tokenizer.vocab_size:,} ids, and the model's table "
            f"{rows:,} rows; if a file of the tokenizer was cut off, copy it again"
        )
    return tokenizer if source.has_types else tokenizer.without_token_types()


def _kind(source: TokenizerSource) -> str:
    """The kind for files that name no class: the family's, if they are of that kind."""
    files, expected = source.files, source.needed
    if expected == CHARACTERS and not files:
        return CHARACTERS
    has_model = MODEL_FILE in files
    of_model = expected if expected in _SENTENCEPIECE_KINDS else SENTENCEPIECE
    if expected in (SENTENCEPIECE, DEBERTA_V2) and has_model:
        return of_model
    if SOURCE_MODEL_FILE in files:
        source.check_kind(files[SOURCE_MODEL_FILE], MARIAN)
        return MARIAN
    if source.definition is not None:
        name, kind = TOKENIZER_FILE, _KINDS.get(model_type(source.definition), UNIGRAM)
        if kind == UNIGRAM and expected in _SENTENCEPIECE_KINDS:
            kind = expected
        if kind in _BPE_KINDS and expected in _BPE_KINDS:
            kind = expected
        # ALBERT's directories hold a conversion of their .model file, which gives other ids.
        if kind in (UNIGRAM, *_SENTENCEPIECE_KINDS) and has_model:
            return of_model
    elif BPE_FILE in files and (expected in _BPE_KINDS or VOCABULARY_FILE not in files):
        name, kind = BPE_FILE, expected if expected in _BPE_KINDS else BYTE_LEVEL_BPE
    elif VOCABULARY_FILE in files:
        name, kind = VOCABULARY_FILE, WORDPIECE
    elif has_model:
        name, kind = MODEL_FILE, of_model
    else:
        known = ", ".join((TOKENIZER_FILE, VOCABULARY_FILE, BPE_FILE))
        raise UserError(
            f"{source.directory} has no {known} or *.model file; copy the tokenizer's files there, "
            "or give another directory"
        )
    if kind == WORDPIECE and expected in _WORDPIECE_KINDS:
        kind = expected
    source.check_kind(files[name], kind)
    says_all = name == TOKENIZER_FILE and (source.is_alone or kind != expected)
    return LIBRARY if says_all else kind


def _load(source: TokenizerSource, kind: str) -> Tokenizer:
    """The tokenizer of a kind; the type of its model decides for `LIBRARY`."""
    known = model_type(source.definition)
    if kind == DEBERTA_V2 and MODEL_FILE not in source.files:
        kind = LIBRARY  # its class has other rules than its model
    of_library = _KINDS.get(known) if kind == LIBRARY else None
    if kind == LIBRARY and of_library is None:
        raise UserError(
            f"{source.path(TOKENIZER_FILE)}: the model is {known}; only {', '.join(_KINDS)} are "
            f"read from a {TOKENIZER_FILE}: {OTHER_MODEL}"
        )
    definition = source.definition
    if kind == CHARACTERS:
        return characters.load(dataclasses.replace(source, kind=kind))
    if kind == MARIAN:  # its class never reads a tokenizer.json
        return marian.load(dataclasses.replace(source, kind=kind, definition=None))
    if kind in _SENTENCEPIECE_KINDS and MODEL_FILE in source.files and known != UNIGRAM:
        definition = None  # of another model than the .model file
    source = dataclasses.replace(source, kind=kind, definition=definition)
    if {kind, of_library}.intersection(_WORDPIECE_KINDS):
        return wordpiece.load(source)
    if kind == OPENAI_GPT or (of_library == BYTE_LEVEL_BPE and openai_gpt.is_of(definition)):
        return openai_gpt.load(source)
    if of_library == BYTE_LEVEL_BPE and byte_fallback_bpe.is_of(definition):
        return byte_fallback_bpe.load(source)
    if {kind, of_library}.intersection(_BPE_KINDS):
        return byte_level_bpe.load(source)
    if kind == SENTENCEPIECE and MODEL_FILE in source.files:
        return sentencepiece.load(source)
    if kind == DEBERTA_V2:
        return deberta_v2.load(source)
    return unigram.load(source)

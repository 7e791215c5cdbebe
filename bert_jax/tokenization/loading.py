"""Finds the kind of the tokenizer that a path contains, and loads it: one table of all kinds."""

import dataclasses
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from bert_jax.errors import UserError, require_one_of
from bert_jax.files import as_path, check_undamaged, fetch, is_there, read_json_object
from bert_jax.files.paths import DESCRIPTION
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
from bert_jax.tokenization.definition import OTHER_MODEL, READ_REMEDY, model_type
from bert_jax.tokenization.description import CONFIG_FILE
from bert_jax.tokenization.interface import (
    BYTE_LEVEL_BPE,
    CAMEMBERT,
    CHARACTERS,
    DEBERTA_V2,
    GPT2,
    MARIAN,
    MPNET,
    OPENAI_GPT,
    SENTENCEPIECE,
    T5,
    WORDPIECE,
    XLM_ROBERTA,
    Tokenizer,
)
from bert_jax.tokenization.library import MODEL_INPUTS, TOKENIZER_FILE
from bert_jax.tokenization.source import (
    ADDED_TOKENS_FILE,
    BPE_FILE,
    LIBRARY,
    MODEL_FILE,
    SOURCE_MODEL_FILE,
    SPECIAL_TOKENS_FILE,
    TARGET_MODEL_FILE,
    VOCABULARY_FILE,
    Kind,
    TokenizerSource,
)
from bert_jax.tokenization.unigram_model import UNIGRAM

_WORDPIECE, _BPE = "WordPiece", "BPE"


def _load_bpe(source: TokenizerSource) -> Tokenizer:
    """The tokenizer of a `tokenizer.json` with a BPE model, whose rules say which."""
    assert source.definition is not None
    model = source.definition["model"]
    if model.get("end_of_word_suffix") == openai_gpt.WORD_END:
        return openai_gpt.load(source)
    if model.get("byte_fallback") is True:
        return byte_fallback_bpe.load(source)
    return byte_level_bpe.load(source)


def _load_albert(source: TokenizerSource) -> Tokenizer:
    """The tokenizer of a .model file, or else of its conversion to a `tokenizer.json`."""
    has_model = MODEL_FILE in source.files
    return sentencepiece.load(source) if has_model else unigram.load(source)


# For a tokenizer that takes everything from a `tokenizer.json`, by the type of its model.
_LIBRARY_LOADERS: Mapping[str, Callable[[TokenizerSource], Tokenizer]] = {
    _WORDPIECE: wordpiece.load,
    _BPE: _load_bpe,
    UNIGRAM: unigram.load,
}

# Hugging Face's classes without "Fast", and whether each gives the second text token type 1.
_BERT_CLASSES = {
    **dict.fromkeys(
        (  # a BertTokenizer in transformers 5
            *("BertTokenizer", "ConvBertTokenizer", "ElectraTokenizer", "LayoutLMTokenizer"),
            *("LxmertTokenizer", "MobileBertTokenizer", "SqueezeBertTokenizer"),
            *("DPRContextEncoderTokenizer", "DPRQuestionEncoderTokenizer"),
        ),
        True,
    ),
    **dict.fromkeys(("DPRReaderTokenizer", "DistilBertTokenizer"), False),
}
_ROBERTA = dict.fromkeys(("RobertaTokenizer", "LongformerTokenizer", "BartTokenizer"), False)
# transformers 5 gives no types for ALBERT, but its models were trained with them.
_ALBERT = {"AlbertTokenizer": True}

# What a model needs that supports no other kind, and the files to give, for messages.
_BPE_FILES = f"{BPE_FILE} and merges.txt, or a {LIBRARY}"
_BYTES, _GPT_1 = ("byte-level BPE", _BPE_FILES), ("the BPE of GPT-1", _BPE_FILES)
_XLM_R_FILE, _DEBERTA_FILE, _T5_FILE = (
    ("the SentencePiece model that it was trained with", f"{name} or {LIBRARY}")
    for name in ("sentencepiece.bpe.model", "spm.model", MODEL_FILE)
)
_LANGUAGES = (
    "the SentencePiece models of its languages",
    f"{SOURCE_MODEL_FILE}, {TARGET_MODEL_FILE} and {BPE_FILE}",
)
_NO_FILES = ("words that are spelled by characters", "no files of a tokenizer")

_KINDS = (
    Kind(WORDPIECE, wordpiece.load, _WORDPIECE, _BERT_CLASSES),
    Kind(MPNET, wordpiece.load, _WORDPIECE, {"MPNetTokenizer": False}),
    Kind(BYTE_LEVEL_BPE, byte_level_bpe.load, _BPE, _ROBERTA, _BYTES),
    Kind(GPT2, byte_level_bpe.load, _BPE, {"GPT2Tokenizer": False}, _BYTES),
    Kind(OPENAI_GPT, openai_gpt.load, _BPE, {"OpenAIGPTTokenizer": False}, _GPT_1),
    Kind(SENTENCEPIECE, _load_albert, UNIGRAM, _ALBERT),
    Kind(DEBERTA_V2, deberta_v2.load, UNIGRAM, {"DebertaV2Tokenizer": True}, _DEBERTA_FILE),
    Kind(CAMEMBERT, unigram.load, UNIGRAM, {"CamembertTokenizer": False}, _XLM_R_FILE),
    Kind(XLM_ROBERTA, unigram.load, UNIGRAM, {"XLMRobertaTokenizer": False}, _XLM_R_FILE),
    Kind(T5, unigram.load, UNIGRAM, {"T5Tokenizer": False}, _T5_FILE),
    Kind(MARIAN, marian.load, "", {"MarianTokenizer": False}, _LANGUAGES),
    Kind(CHARACTERS, characters.load, "", {"ElmoTokenizer": False}, _NO_FILES),
)
_KINDS_BY_NAME = {kind.name: kind for kind in _KINDS}
_KINDS_BY_CLASS = {name: kind for kind in _KINDS for name in kind.classes}
# These never read a `tokenizer.json`: code in their class splits the text.
_PROGRAMS = (
    *("BertJapaneseTokenizer", "BertweetTokenizer", "CharacterTokenizer", "EsmTokenizer"),
    *("FlaubertTokenizer", "MecabTokenizer", "PhobertTokenizer", "RoCBertTokenizer"),
    *("TapasTokenizer", "XLMTokenizer"),
)
_FILES_WITH_PIECES = (VOCABULARY_FILE, BPE_FILE, "merges.txt", "*.model", "*.spm")
_SWITCHES = (
    "split_by_punct",
    *("do_lower_case", "strip_accents", "tokenize_chinese_chars", "keep_accents"),
    *("add_prefix_space", "trim_offsets", "add_bos_token", "add_eos_token", "separate_vocabs"),
)


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
        UserError: the kind is unknown, the path does not exist, a file cannot be read, is cut off
            or is of another kind than the model needs, its class is not supported, a
            `tokenizer.json` has a model or rules that `definition` does not admit, merges are
            missing or do not fit the vocabulary, or a vocabulary is empty, has more pieces than the
            model has ids, or lacks a special token of its template.
    """
    require_one_of("kind", kind or None, (None, *_KINDS_BY_NAME))
    path = fetch(as_path(path))
    if not path.exists():
        raise UserError(f"the tokenizer {path} does not exist; give a directory or a file")
    switches = {
        "do_lower_case": lowercase,
        "strip_accents": strip_accents,
        "tokenize_chinese_chars": tokenize_chinese_chars,
    }
    arguments = {key: value for key, value in switches.items() if value is not None}
    needed = _KINDS_BY_NAME[kind] if kind else None
    source = _read_source(path, arguments, needed, vocab_size)
    tokenizer = _load(source, source.kind or _kind(source))
    rows = source.rows
    if rows is not None and not wordpiece.is_padded(tokenizer.vocab_size, rows):
        say(
            f"{path}: the tokenizer has {tokenizer.vocab_size:,} ids, and the model's table "
            f"{rows:,} rows; if a file of the tokenizer was cut off, copy it again"
        )
    return tokenizer if source.has_types else tokenizer.without_token_types()


def _read_source(
    path: Path, arguments: Mapping[str, bool], needed: Kind | None, rows: int | None
) -> TokenizerSource:
    """Reads the JSON files of a directory, or a file by itself; arguments as in `TokenizerSource`.

    Without `rows`, a `config.json` in the directory has them as `vocab_size`.

    Raises:
        UserError: a file is damaged, or names a class that is not supported.
    """
    if not path.is_dir():
        name = {".json": TOKENIZER_FILE, ".model": MODEL_FILE}.get(path.suffix, VOCABULARY_FILE)
        files = {BPE_FILE if path.name == BPE_FILE else name: path}
        definition = _read(path) if TOKENIZER_FILE in files else None
        return TokenizerSource(
            path.parent, files, arguments, needed, rows, definition, is_alone=True
        )
    check_undamaged(
        path, ["tokenizer*.json", *_FILES_WITH_PIECES, SPECIAL_TOKENS_FILE, ADDED_TOKENS_FILE]
    )
    names = (TOKENIZER_FILE, VOCABULARY_FILE, BPE_FILE, MODEL_FILE, SOURCE_MODEL_FILE)
    files = {name: path / name for name in names if is_there(path / name)}
    if MODEL_FILE not in files and len(models := list(path.glob("*.model"))) == 1:
        files[MODEL_FILE] = models[0]
    definition = _read(files[TOKENIZER_FILE]) if TOKENIZER_FILE in files else None
    config_path, model_path = path / CONFIG_FILE, path / DESCRIPTION
    config, model_config = (_read(p) if is_there(p) else {} for p in (config_path, model_path))
    _check_config(config_path, config)
    if rows is None and isinstance(stated := model_config.get("vocab_size"), int):
        rows = stated
    class_name: str | None = None
    kind, has_types = "", True
    for named_in, fields in ((model_path, model_config), (config_path, config)):
        if (given := fields.get("tokenizer_class")) is not None:
            class_name, (kind, has_types) = given, _class(named_in, given, definition)
    if (inputs := config.get("model_input_names")) is not None:
        has_types = MODEL_INPUTS[1] in inputs
    return TokenizerSource(
        path, files, arguments, needed, rows, definition, config, class_name, has_types, kind
    )


def _read(path: Path) -> dict[str, Any]:
    return read_json_object(path, remedy=READ_REMEDY)


def _check_config(path: Path, config: Mapping[str, Any]) -> None:
    """Raises UserError if a value of a `tokenizer_config.json` is of another type."""
    for key in _SWITCHES:
        if not isinstance(config.get(key), bool | None):
            raise UserError(f"{path}: {key} is {config[key]!r:.80}; give true or false")
    inputs, split = config.get("model_input_names"), config.get("split_special_tokens", False)
    if not isinstance(inputs, list | None):
        raise UserError(f"{path}: model_input_names is {inputs!r:.80}; give a list of names")
    if split is not False:
        raise UserError(f"{path}: split_special_tokens is {split!r:.80}; only False is supported")


def _class(path: Path, name: Any, definition: Mapping[str, Any] | None) -> tuple[str, bool]:
    """The kind of Hugging Face's class with this name in a file, and whether it gives types.

    Raises:
        UserError: the class is not supported, and there is no `tokenizer.json`.
    """
    base = str(name).removesuffix("Fast")
    if base in _KINDS_BY_CLASS:
        kind = _KINDS_BY_CLASS[base]
        return kind.name, kind.classes[base]
    if base in _PROGRAMS:
        raise UserError(
            f"{path}: tokenizer_class is {name}, a program that splits text in its own way; it is "
            "not supported: give a model with another tokenizer"
        )
    if definition is None:
        raise UserError(
            f"{path}: tokenizer_class is {name!r:.80}, which is supported only with a "
            "tokenizer.json: save the tokenizer with transformers into one"
        )
    return LIBRARY, False


def _kind(source: TokenizerSource) -> str:
    """The kind for files that name no class: the family's, if they are of that kind."""
    files, has_model = source.files, MODEL_FILE in source.files
    expected, expected_model = (
        (source.needed.name, source.needed.model) if source.needed else ("", "")
    )
    if expected == CHARACTERS and not files:
        return CHARACTERS
    if expected in (SENTENCEPIECE, DEBERTA_V2) and has_model:
        return expected
    if SOURCE_MODEL_FILE in files:
        source.check_kind(files[SOURCE_MODEL_FILE], MARIAN)
        return MARIAN
    if source.definition is not None:
        name, model = TOKENIZER_FILE, model_type(source.definition)
    elif BPE_FILE in files and (expected_model == _BPE or VOCABULARY_FILE not in files):
        name, model = BPE_FILE, _BPE
    elif VOCABULARY_FILE in files:
        name, model = VOCABULARY_FILE, _WORDPIECE
    elif has_model:
        name, model = MODEL_FILE, UNIGRAM
    else:
        known = ", ".join((TOKENIZER_FILE, VOCABULARY_FILE, BPE_FILE))
        raise UserError(
            f"{source.directory} has no {known} or *.model file; copy the tokenizer's files there, "
            "or give another directory"
        )
    if model in (_WORDPIECE, _BPE):
        kind = WORDPIECE if model == _WORDPIECE else BYTE_LEVEL_BPE
    else:
        model, kind = UNIGRAM, SENTENCEPIECE if has_model else UNIGRAM
    kind = expected if model == expected_model else kind
    # ALBERT's directories hold a conversion of their .model file, which gives other ids.
    if name == TOKENIZER_FILE and model == UNIGRAM and has_model:
        return kind
    source.check_kind(files[name], kind)
    says_all = name == TOKENIZER_FILE and (source.is_alone or kind != expected)
    return LIBRARY if says_all else kind


def _load(source: TokenizerSource, kind: str) -> Tokenizer:
    """The tokenizer of a kind; the type of its model decides for `LIBRARY`."""
    model, has_model = model_type(source.definition), MODEL_FILE in source.files
    if kind == DEBERTA_V2 and not has_model:
        kind = LIBRARY  # its class has other rules than its model
    if kind == LIBRARY:
        if model not in _LIBRARY_LOADERS:
            raise UserError(
                f"{source.path(TOKENIZER_FILE)}: the model is {model}; only "
                f"{', '.join(_LIBRARY_LOADERS)} are read from a {TOKENIZER_FILE}: {OTHER_MODEL}"
            )
        return _LIBRARY_LOADERS[model](dataclasses.replace(source, kind=kind))
    row = _KINDS_BY_NAME[kind]
    # Marian's class never reads a tokenizer.json; others may be of another model than the .model.
    is_other = row.model == UNIGRAM and has_model and model != UNIGRAM
    definition = None if kind == MARIAN or is_other else source.definition
    return row.load(dataclasses.replace(source, kind=kind, definition=definition))

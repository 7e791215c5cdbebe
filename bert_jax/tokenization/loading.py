"""Detects the kind of tokenizer that a path contains, and loads it."""

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bert_jax.errors import OptionError, UserError
from bert_jax.files import (
    VOCABULARY_BYTES,
    as_path,
    check_undamaged,
    fetch,
    is_there,
    read_json_object,
    read_limited,
)
from bert_jax.tokenization import byte_level_bpe
from bert_jax.tokenization.byte_level_bpe import ByteLevelBPETokenizer, ByteLevelSwitches
from bert_jax.tokenization.cleaning import looks_lowercased
from bert_jax.tokenization.definition import (
    KINDS,
    READ_REMEDY,
    make_library_tokenizer,
    model_type,
    read_added_tokens,
    read_definition,
)
from bert_jax.tokenization.interface import (
    ALBERT,
    BRACKETED,
    BYTE_LEVEL_BPE,
    CAMEMBERT,
    DEFAULT_TEMPLATE,
    FAIRSEQ,
    SENTENCEPIECE,
    TOKEN_KEYS,
    WORDPIECE,
    XLM_ROBERTA,
    Template,
    Tokenizer,
    check_vocabulary_size,
)
from bert_jax.tokenization.library import CONFIG_FILE, TOKENIZER_FILE, VOCABULARY_FILES
from bert_jax.tokenization.sentencepiece import MODEL_FILE, SentencePieceTokenizer
from bert_jax.tokenization.settings import read_settings
from bert_jax.tokenization.unigram import (
    LAYOUTS,
    UNIGRAM,
    UnigramModel,
    UnigramTokenizer,
    read_model_file,
    read_unigram_json,
)
from bert_jax.tokenization.wordpiece import (
    VOCABULARY_FILE,
    BertSwitches,
    WordPieceTokenizer,
    read_vocabulary,
)

if TYPE_CHECKING:
    import tokenizers

# The kind that a class of Hugging Face's stands for, named in `tokenizer_config.json` with or
# without "Fast".
_KIND_OF_CLASS = {
    "BertTokenizer": WORDPIECE,
    "DistilBertTokenizer": WORDPIECE,
    "ElectraTokenizer": WORDPIECE,
    "MobileBertTokenizer": WORDPIECE,
    "AlbertTokenizer": SENTENCEPIECE,
    "RobertaTokenizer": BYTE_LEVEL_BPE,
    "CamembertTokenizer": CAMEMBERT,
    "XLMRobertaTokenizer": XLM_ROBERTA,
}
# What a model needs that cannot do with another kind, for messages.
_UNIGRAM = (
    "the SentencePiece model that it was trained with",
    f"sentencepiece.bpe.model or {TOKENIZER_FILE}",
)
_FILES_OF_KIND = {
    CAMEMBERT: _UNIGRAM,
    XLM_ROBERTA: _UNIGRAM,
    BYTE_LEVEL_BPE: (
        "byte-level BPE",
        f"{byte_level_bpe.VOCABULARY_FILE} and {byte_level_bpe.MERGES_FILE}, or a {TOKENIZER_FILE}",
    ),
}


@dataclasses.dataclass(frozen=True, slots=True)
class Overrides:
    """The arguments of `load_tokenizer`; None: decided by the files."""

    lowercase: bool | None
    strip_accents: bool | None
    tokenize_chinese_chars: bool | None
    template: Template
    kind: str
    vocab_size: int | None

    @property
    def changes_rules(self) -> bool:
        """Whether any argument changes how text is treated."""
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
    vocab_size: int | None = None,
) -> Tokenizer:
    """Loads a tokenizer from a model directory or a single file.

    In a directory, the first of these is read: `tokenizer.json`; `vocab.txt`; `vocab.json` with
    `merges.txt`; `spiece.model` or the only `*.model` file. `tokenizer_config.json` defines how
    text is treated; if it belongs to a BertTokenizer, it overrides BERT's own rules in
    `tokenizer.json`, as in Hugging Face. A single file (`*.json`, `*.model`, anything else is a
    vocabulary) is read by itself.

    If neither an argument nor a file decides, the vocabulary does. Text is lower-cased if
    no piece has an upper-case letter outside brackets (so bert-base-uncased and bert-base-chinese
    are, bert-base-cased is not). Accents are removed, with WordPiece, if and only if text is
    lower-cased; with SentencePiece, if no piece has any. Each Chinese character is a word.

    Args:
        path: directory or file, local or in a bucket.
        lowercase: overrides the files.
        strip_accents: overrides the files.
        tokenize_chinese_chars: overrides the files; WordPiece only.
        template: positions of special tokens around texts, from the model's family.
        kind: one of the kinds in `interface`, from the model's family. With `SENTENCEPIECE`, a
            `*.model` file of a directory is read before all others. With `BYTE_LEVEL_BPE`,
            `CAMEMBERT` or `XLM_ROBERTA`, nothing else is read, unless `tokenizer_class` in
            `tokenizer_config.json` names another kind.
        vocab_size: number of ids of the model; None: unknown.

    Raises:
        UserError: the path does not exist, a file cannot be read or is of another kind than the
            model needs, a `tokenizer.json` has a model or rules that `definition` does not admit,
            merges are missing or do not fit the vocabulary, or a vocabulary is empty, has more
            pieces than the model has ids, contains a piece twice or lacks a special token.
    """
    path = fetch(as_path(path))
    overrides = Overrides(
        lowercase, strip_accents, tokenize_chinese_chars, template, kind, vocab_size
    )
    tokenizer = _load(path, overrides)
    check_vocabulary_size(path, tokenizer.vocab_size, vocab_size)  # added tokens included
    return tokenizer


def _load(path: Path, overrides: Overrides) -> Tokenizer:
    if path.is_dir():
        return _load_directory(path, overrides)
    if not path.exists():
        rule = "give a directory or a file as {path}"
        raise OptionError("path", str(path), rule, f"the tokenizer {path} does not exist")
    if path.name == byte_level_bpe.VOCABULARY_FILE:
        return _load_byte_level(path, {}, overrides)
    if path.suffix == ".json":
        return _load_tokenizer_json(path, read_definition(path), {}, overrides)
    if path.suffix == ".model":
        return _load_model_file(path, {}, overrides)
    return _load_vocabulary(path, {}, overrides)


def _load_directory(directory: Path, overrides: Overrides) -> Tokenizer:
    check_undamaged(directory, ["tokenizer*.json", *VOCABULARY_FILES])
    config_path = directory / CONFIG_FILE
    config = read_json_object(config_path, remedy=READ_REMEDY) if is_there(config_path) else {}
    _check_switches(config_path, config)
    settings = read_settings(config_path, config)
    return _load_files(directory, config, overrides).with_settings(settings)


def _load_files(directory: Path, config: dict[str, Any], overrides: Overrides) -> Tokenizer:
    tokenizer_path, vocabulary_path = directory / TOKENIZER_FILE, directory / VOCABULARY_FILE
    byte_level_path = directory / byte_level_bpe.VOCABULARY_FILE
    model_path = _sentencepiece_file(directory)
    named = _KIND_OF_CLASS.get(str(config.get("tokenizer_class")).removesuffix("Fast"))
    if named is not None and (overrides.kind in _FILES_OF_KIND or named in LAYOUTS):
        overrides = dataclasses.replace(overrides, kind=named)
    if overrides.kind == SENTENCEPIECE and model_path is not None:
        return _load_model_file(model_path, config, overrides)
    if is_there(tokenizer_path):
        definition = read_definition(tokenizer_path)
        # ALBERT's directories hold a conversion of their .model file, which gives other ids.
        readable = KINDS if overrides.kind not in LAYOUTS else (*KINDS, UNIGRAM)
        if model_path is None or model_type(definition) in readable:
            return _load_tokenizer_json(tokenizer_path, definition, config, overrides)
    if is_there(byte_level_path) and (
        overrides.kind == BYTE_LEVEL_BPE or not is_there(vocabulary_path)
    ):
        return _load_byte_level(byte_level_path, config, overrides)
    if is_there(vocabulary_path):
        _check_special_tokens(directory / CONFIG_FILE, config, BRACKETED)
        return _load_vocabulary(vocabulary_path, config, overrides)
    if model_path is not None:
        return _load_model_file(model_path, config, overrides)
    known = ", ".join((TOKENIZER_FILE, VOCABULARY_FILE, byte_level_bpe.VOCABULARY_FILE))
    raise UserError(
        f"{directory} has no {known} or *.model file; copy the tokenizer's files there, or give "
        "another directory"
    )


def _check_switches(path: Path, config: Mapping[str, Any]) -> None:
    """Raises UserError if a switch of a `tokenizer_config.json` is no truth value."""
    for key in (
        *("do_lower_case", "strip_accents", "tokenize_chinese_chars", "keep_accents"),
        *("add_prefix_space", "trim_offsets"),
    ):
        if not isinstance(config.get(key), bool | None):
            raise UserError(f"{path}: {key} is {config[key]!r:.80}; give true or false")


def _check_kind(path: Path, found: str, needed: str) -> None:
    """Raises UserError if a file belongs to the tokenizers of other models."""
    if needed in _FILES_OF_KIND and found != needed:
        name, files = _FILES_OF_KIND[needed]
        raise UserError(
            f"{path}: a {found} tokenizer, but the model needs {name}; give {files}, or name the "
            f"class of this one as tokenizer_class in a {CONFIG_FILE} beside it"
        )


def _check_special_tokens(path: Path, config: Mapping[str, Any], spelling: tuple[str, ...]) -> None:
    """Raises UserError if a config gives a special token another name than those of `spelling`."""
    for key, token in zip(TOKEN_KEYS, spelling, strict=True):
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
    """The overrides, completed from a BertTokenizer's config for the normaliser that it has."""
    normalizer = definition.get("normalizer")
    is_bert = isinstance(normalizer, dict) and normalizer.get("type") == "BertNormalizer"
    if not is_bert or config.get("tokenizer_class") not in ("BertTokenizer", "BertTokenizerFast"):
        return overrides
    return dataclasses.replace(
        overrides,
        lowercase=_first(overrides.lowercase, config.get("do_lower_case")),
        strip_accents=_first(overrides.strip_accents, config.get("strip_accents")),
        tokenize_chinese_chars=_first(
            overrides.tokenize_chinese_chars, config.get("tokenize_chinese_chars")
        ),
    )


def _sentencepiece_file(directory: Path) -> Path | None:
    if is_there(directory / MODEL_FILE):
        return directory / MODEL_FILE
    candidates = list(directory.glob("*.model"))
    return candidates[0] if len(candidates) == 1 else None


def _load_vocabulary(
    path: Path, config: dict[str, Any], overrides: Overrides
) -> WordPieceTokenizer:
    _check_kind(path, WORDPIECE, overrides.kind)
    pieces = read_vocabulary(path, overrides.vocab_size)
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


def _load_tokenizer_json(
    path: Path, definition: Mapping[str, Any], config: dict[str, Any], overrides: Overrides
) -> Tokenizer:
    if model_type(definition) == UNIGRAM:
        _check_kind(path, overrides.kind if overrides.kind in LAYOUTS else UNIGRAM, overrides.kind)
        model = read_unigram_json(path, definition, overrides.vocab_size)
        return _make_unigram(path, model, config, overrides)
    library = make_library_tokenizer(path, definition, overrides.vocab_size)
    kind = KINDS[model_type(definition)]
    _check_kind(path, kind, overrides.kind)
    if kind == BYTE_LEVEL_BPE:
        switches = _byte_level_switches(path, config, overrides, library.pre_tokenizer)
        return ByteLevelBPETokenizer(library, switches, str(path), overrides.template)
    _check_special_tokens(path.parent / CONFIG_FILE, config, BRACKETED)
    return _load_wordpiece_json(path, library, _with_config(overrides, config, definition))


def _load_wordpiece_json(
    path: Path, library: "tokenizers.Tokenizer", overrides: Overrides
) -> WordPieceTokenizer:
    from tokenizers import normalizers

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


def _load_byte_level(path: Path, config: dict[str, Any], overrides: Overrides) -> Tokenizer:
    _check_kind(path, BYTE_LEVEL_BPE, overrides.kind)
    merges_path = path.parent / byte_level_bpe.MERGES_FILE
    if not is_there(merges_path):
        raise UserError(
            f"{path} has no {merges_path.name} beside it; copy both files of the tokenizer there"
        )
    vocabulary = byte_level_bpe.read_vocabulary(path, overrides.vocab_size)
    tokenizer = ByteLevelBPETokenizer.from_vocabulary(
        vocabulary,
        byte_level_bpe.read_merges(merges_path, vocabulary),
        _byte_level_switches(path, config, overrides),
        added_tokens=[token for _, token in read_added_tokens(path.parent / CONFIG_FILE, config)],
        origin=str(path),
        template=overrides.template,
    )
    return _with_right_ids(tokenizer, path, config)


def _with_right_ids(tokenizer: Tokenizer, path: Path, config: dict[str, Any]) -> Tokenizer:
    """The tokenizer, if the added tokens have the ids that the config beside a file gives them."""
    for token_id, token in read_added_tokens(path.parent / CONFIG_FILE, config):
        found = tokenizer.token_to_id(token.content)
        if found != token_id:
            raise UserError(
                f"{path}: the added token {token.content!r:.80} has the id {found} beside the "
                f"vocabulary, but {token_id} in {CONFIG_FILE}; copy both files again"
            )
    return tokenizer


def _byte_level_switches(
    path: Path, config: Mapping[str, Any], overrides: Overrides, splitter: Any = None
) -> ByteLevelSwitches:
    """The switches of a config; where it has none those of the library's pre-tokenizer, if any."""
    if overrides.changes_rules:
        raise UserError(
            f"{path}: lowercase, strip_accents and tokenize_chinese_chars do not apply to "
            "byte-level BPE, which encodes text as it is; leave them out"
        )
    _check_special_tokens(path.parent / CONFIG_FILE, config, FAIRSEQ)
    is_roberta = "RobertaTokenizer" in str(config.get("tokenizer_class"))
    default = splitter is not None and not is_roberta and splitter.add_prefix_space
    return ByteLevelSwitches(
        add_prefix_space=bool(_first(config.get("add_prefix_space"), default)),
        trim_offsets=config.get("trim_offsets") is not False,
    )


def _load_model_file(path: Path, config: dict[str, Any], overrides: Overrides) -> Tokenizer:
    content = read_limited(path, VOCABULARY_BYTES, remedy="give a .model file of SentencePiece")
    if overrides.kind in LAYOUTS:
        model = read_model_file(path, content, overrides.kind, overrides.vocab_size)
        more = [token for _, token in read_added_tokens(path.parent / CONFIG_FILE, config)]
        model = dataclasses.replace(model, added_tokens=[*model.added_tokens, *more])
        return _with_right_ids(_make_unigram(path, model, config, overrides), path, config)
    _check_kind(path, SENTENCEPIECE, overrides.kind)
    if overrides.tokenize_chinese_chars is not None:
        raise UserError(f"{path}: tokenize_chinese_chars is for WordPiece only; leave it out")
    keep_accents = None if overrides.strip_accents is None else not overrides.strip_accents
    return SentencePieceTokenizer(
        content,
        lowercase=_first(overrides.lowercase, config.get("do_lower_case")),
        keep_accents=_first(keep_accents, config.get("keep_accents")),
        origin=str(path),
        template=overrides.template,
        vocab_size=overrides.vocab_size,
    )


def _make_unigram(
    path: Path, model: UnigramModel, config: Mapping[str, Any], overrides: Overrides
) -> UnigramTokenizer:
    if overrides.changes_rules:
        raise UserError(
            f"{path}: lowercase, strip_accents and tokenize_chinese_chars do not apply to a "
            "SentencePiece model as in XLM-R, which has its own normalisation; leave them out"
        )
    if config.get("add_prefix_space") is False:
        raise UserError(
            f"{path.parent / CONFIG_FILE}: add_prefix_space is false; a SentencePiece model can be "
            "read only with it: set it to true, or remove it"
        )
    tokenizer = UnigramTokenizer(model, str(path), overrides.template)
    if tokenizer.spelling == ALBERT:
        _check_kind(path, SENTENCEPIECE, overrides.kind)
    _check_special_tokens(path.parent / CONFIG_FILE, config, tokenizer.spelling)
    return tokenizer


def _first(*values: bool | None) -> bool | None:
    """The first value that is not None."""
    return next((value for value in values if value is not None), None)

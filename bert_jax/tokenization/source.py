"""The files of a tokenizer, and the classes of Hugging Face that they may name."""

import dataclasses
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from bert_jax.errors import UserError
from bert_jax.files import check_undamaged, is_there, read_json_object
from bert_jax.files.paths import DESCRIPTION
from bert_jax.tokenization.definition import READ_REMEDY, read_template
from bert_jax.tokenization.description import (
    ADDED_TOKENS_FILE,
    CONFIG_FILE,
    SPECIAL_TOKENS_FILE,
    Description,
    read_special_tokens,
    with_settings,
)
from bert_jax.tokenization.encoding import Template
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
)
from bert_jax.tokenization.library import MODEL_INPUTS, TOKENIZER_FILE

# The files with pieces; SentencePiece's may have another name, if it is the only `*.model` file.
VOCABULARY_FILE, BPE_FILE, MODEL_FILE = "vocab.txt", "vocab.json", "spiece.model"
SOURCE_MODEL_FILE, TARGET_MODEL_FILE = "source.spm", "target.spm"
_FILES_WITH_PIECES = (VOCABULARY_FILE, BPE_FILE, "merges.txt", "*.model", "*.spm")

LIBRARY = TOKENIZER_FILE
"""The kind of a tokenizer of which a `tokenizer.json` says everything."""


class TokenizerClass(NamedTuple):
    """A class of Hugging Face's.

    Attributes:
        name: its name, as a file has it.
        kind: see `TokenizerSource`.
        has_types: whether it gives the second text token type 1; `model_input_names` in
            `tokenizer_config.json` has precedence. (transformers 5 gives no types for ALBERT, but
            its models were trained with them.)
    """

    name: str
    kind: str
    has_types: bool


# Without "Fast". First the classes that are a BertTokenizer in transformers 5.
_CLASSES = {
    **dict.fromkeys(
        (
            *("BertTokenizer", "ConvBertTokenizer", "ElectraTokenizer", "LayoutLMTokenizer"),
            *("LxmertTokenizer", "MobileBertTokenizer", "SqueezeBertTokenizer"),
            *("DPRContextEncoderTokenizer", "DPRQuestionEncoderTokenizer"),
        ),
        (WORDPIECE, True),
    ),
    "DPRReaderTokenizer": (WORDPIECE, False),
    "DistilBertTokenizer": (WORDPIECE, False),
    "MPNetTokenizer": (MPNET, False),
    "AlbertTokenizer": (SENTENCEPIECE, True),
    "DebertaV2Tokenizer": (DEBERTA_V2, True),
    "RobertaTokenizer": (BYTE_LEVEL_BPE, False),
    "LongformerTokenizer": (BYTE_LEVEL_BPE, False),
    "BartTokenizer": (BYTE_LEVEL_BPE, False),
    "CamembertTokenizer": (CAMEMBERT, False),
    "XLMRobertaTokenizer": (XLM_ROBERTA, False),
    "T5Tokenizer": (T5, False),
    "GPT2Tokenizer": (GPT2, False),
    "OpenAIGPTTokenizer": (OPENAI_GPT, False),
    "MarianTokenizer": (MARIAN, False),
    "ElmoTokenizer": (CHARACTERS, False),
}
# These never read a `tokenizer.json`: code in their class splits the text.
_PROGRAMS = (
    *("BertJapaneseTokenizer", "BertweetTokenizer", "CharacterTokenizer", "EsmTokenizer"),
    *("FlaubertTokenizer", "MecabTokenizer", "PhobertTokenizer", "RoCBertTokenizer"),
    *("TapasTokenizer", "XLMTokenizer"),
)
# The kind and the files that a model needs if it supports no other kind, for messages.
_UNIGRAM = (
    "the SentencePiece model that it was trained with",
    f"sentencepiece.bpe.model or {LIBRARY}",
)
_BPE_FILES = f"{BPE_FILE} and merges.txt, or a {LIBRARY}"
_FILES_OF_KIND = {
    CAMEMBERT: _UNIGRAM,
    XLM_ROBERTA: _UNIGRAM,
    T5: ("the SentencePiece model that it was trained with", f"{MODEL_FILE} or {LIBRARY}"),
    DEBERTA_V2: ("the SentencePiece model that it was trained with", f"spm.model or {LIBRARY}"),
    BYTE_LEVEL_BPE: ("byte-level BPE", _BPE_FILES),
    GPT2: ("byte-level BPE", _BPE_FILES),
    OPENAI_GPT: ("the BPE of GPT-1", _BPE_FILES),
    CHARACTERS: ("words that are spelled by characters", "no files of a tokenizer"),
    MARIAN: (
        "the SentencePiece models of its languages",
        f"{SOURCE_MODEL_FILE}, {TARGET_MODEL_FILE} and {BPE_FILE}",
    ),
}
_SWITCHES = (
    "split_by_punct",
    *("do_lower_case", "strip_accents", "tokenize_chinese_chars", "keep_accents"),
    *("add_prefix_space", "trim_offsets", "add_bos_token", "add_eos_token", "separate_vocabs"),
)


# The kinds that add only the ends of a text, if anything.
_OF_GPT = (GPT2, OPENAI_GPT)


@dataclasses.dataclass(frozen=True)
class TokenizerSource:
    """The files of a tokenizer, and the arguments of `load_tokenizer`.

    Attributes:
        directory: directory of the files.
        files: the files with pieces, by the names that they have in a directory.
        arguments: switches that the caller sets, by their key of `tokenizer_config.json`.
        needed: kind of tokenizer that the caller's model needs; None: any.
        rows: number of ids of the model; None: unknown.
        definition: the content of `tokenizer.json`; None if there is none.
        config: the content of `tokenizer_config.json`; empty if there is none.
        named: the class that a file names; None if none does.
        kind: one of the kinds in `interface`, or `LIBRARY`.
        is_alone: whether a file is read without the files beside it.
    """

    directory: Path
    files: Mapping[str, Path]
    arguments: Mapping[str, bool]
    needed: str | None
    rows: int | None
    definition: dict[str, Any] | None
    config: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    named: TokenizerClass | None = None
    kind: str = ""
    is_alone: bool = False

    @property
    def has_types(self) -> bool:
        """Whether the second text may have token type 1."""
        inputs = self.config.get("model_input_names")
        if inputs is None:
            return self.named is None or self.named.has_types
        return MODEL_INPUTS[1] in inputs

    @property
    def config_path(self) -> Path:
        """The path of `tokenizer_config.json`, to name in errors."""
        return self.directory / CONFIG_FILE

    def path(self, name: str) -> Path:
        """The file of this name, even if it is missing; `tokenizer.json`, if there is one."""
        name = name if self.definition is None else TOKENIZER_FILE
        return self.files.get(name, self.directory / name)

    @property
    def sets_ends(self) -> bool:
        """Whether the config says which ends a text of GPT gets."""
        return any(self.switch(f"add_{role}_token") is not None for role in ("bos", "eos"))

    def check_kind(self, path: Path, kind: str) -> None:
        """Raises UserError if a file does not belong to the caller's model."""
        if self.needed in _FILES_OF_KIND and kind != self.needed:
            name, files = _FILES_OF_KIND[self.needed]
            raise UserError(
                f"{path}: a {kind} tokenizer, but the model needs {name}; give {files}, or name "
                f"the class of this one as tokenizer_class in a {CONFIG_FILE} beside it"
            )

    def check_no_arguments(self, path: Path, reason: str) -> None:
        """Raises UserError if an argument changes how text is treated."""
        if self.arguments:
            raise UserError(
                f"{path}: lowercase, strip_accents and tokenize_chinese_chars {reason}; leave them "
                "out"
            )

    def switch(self, key: str, default: bool | None = None) -> bool | None:
        """The caller's argument, else the value of the config, else the default."""
        value: bool | None = self.arguments.get(key, self.config.get(key))
        return default if value is None else value

    def describe(self, default: Description, pieces: Collection[str]) -> Description:
        """Special tokens, template and settings of the files.

        Args:
            default: special tokens and template of the class. If `tokenizer.json` says everything,
                only special tokens that are among the pieces count, and its template.
            pieces: the vocabulary.
        """
        tokens = read_special_tokens(
            self.directory,
            self.config,
            self.definition,
            default.tokens.within(pieces) if self.kind == LIBRARY else default.tokens,
            self.rows,
            is_alone=self.is_alone,
        )
        template, definition = default.template, self.definition or {}
        # transformers also takes the template of these classes from the file.
        of_file = self.kind in (LIBRARY, SENTENCEPIECE, *_OF_GPT) and MODEL_FILE not in self.files
        if of_file and (definition.get("post_processor") or (definition and self.named)):
            template = read_template(self.path(TOKENIZER_FILE), definition, tokens.names)
        if self.kind in _OF_GPT and self.sets_ends:
            bos, eos = (
                role if tokens.names[role] and self.switch(f"add_{role}_token") else ""
                for role in ("bos", "eos")
            )
            template = Template(f"{bos} A {eos}", f"{bos} A {eos} {bos} B {eos}")
        description = Description(tokens, template, self.named and self.named.name)
        return with_settings(description, self.config_path, self.config, self.definition)


def read_source(
    path: Path, arguments: Mapping[str, bool], needed: str | None, rows: int | None
) -> TokenizerSource:
    """Reads the JSON files of a directory, or a file by itself.

    Args:
        path: the directory, or the file.
        arguments: see `TokenizerSource`.
        needed: see `TokenizerSource`.
        rows: see `TokenizerSource`; None: `vocab_size` of a `config.json` in the directory.

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
    named = None
    for named_in, fields in ((model_path, model_config), (config_path, config)):
        if (class_name := fields.get("tokenizer_class")) is not None:
            named = _named_class(named_in, class_name, definition)
    return TokenizerSource(path, files, arguments, needed, rows, definition, config, named)


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


def _named_class(path: Path, name: Any, definition: Mapping[str, Any] | None) -> TokenizerClass:
    """The class of a name in a file.

    Raises:
        UserError: the class is not supported, and there is no `tokenizer.json`.
    """
    base = str(name).removesuffix("Fast")
    if base in _CLASSES:
        return TokenizerClass(name, *_CLASSES[base])
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
    return TokenizerClass(name, LIBRARY, has_types=False)

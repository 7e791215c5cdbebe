"""The files of a tokenizer as they were read, and what they say beside pieces and rules."""

import dataclasses
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from bert_jax.errors import UserError
from bert_jax.tokenization.definition import read_template
from bert_jax.tokenization.description import (
    CONFIG_FILE,
    Description,
    read_special_tokens,
    with_settings,
)
from bert_jax.tokenization.encoding import Template
from bert_jax.tokenization.interface import GPT2, OPENAI_GPT, SENTENCEPIECE, Tokenizer
from bert_jax.tokenization.library import TOKENIZER_FILE

# The files with pieces; SentencePiece's may have another name, if it is the only `*.model` file.
VOCABULARY_FILE, BPE_FILE, MODEL_FILE = "vocab.txt", "vocab.json", "spiece.model"
SOURCE_MODEL_FILE, TARGET_MODEL_FILE = "source.spm", "target.spm"

LIBRARY = TOKENIZER_FILE
"""The kind of a tokenizer that takes everything from a `tokenizer.json`."""


class Kind(NamedTuple):
    """What is known of a kind of tokenizer; the table of all is in `loading`.

    Attributes:
        name: its name, one of those in `interface`.
        load: makes the tokenizer of some files.
        model: type of the model in a `tokenizer.json`; "" for a kind that reads none.
        classes: Hugging Face's classes, without "Fast", and whether each gives the second text
            token type 1; `model_input_names` in `tokenizer_config.json` has precedence.
        needs: what a model of this kind needs, and the files to give, for messages; None for a
            model that may have a tokenizer of another kind.
    """

    name: str
    load: Callable[["TokenizerSource"], Tokenizer]
    model: str
    classes: Mapping[str, bool]
    needs: tuple[str, str] | None = None


# The kinds that add only the ends of a text, if anything.
_GPT_KINDS = (GPT2, OPENAI_GPT)


@dataclasses.dataclass(frozen=True)
class TokenizerSource:
    """The files of a tokenizer, and the arguments of `load_tokenizer`.

    Attributes:
        directory: directory of the files.
        files: the files with pieces, by the names that they have in a directory.
        arguments: switches that the caller sets, by their key of `tokenizer_config.json`.
        needed: kind of tokenizer that the caller's model has; None: unknown.
        rows: number of ids of the model; None: unknown.
        definition: the content of `tokenizer.json`; None if there is none.
        config: the content of `tokenizer_config.json`; empty if there is none.
        class_name: Hugging Face's class that a file names; None if none does.
        has_types: whether the second text may have token type 1.
        kind: one of the kinds in `interface`, or `LIBRARY`; "" before it is known.
        is_alone: whether a file is read without the files beside it.
    """

    directory: Path
    files: Mapping[str, Path]
    arguments: Mapping[str, bool]
    needed: Kind | None
    rows: int | None
    definition: dict[str, Any] | None
    config: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    class_name: str | None = None
    has_types: bool = True
    kind: str = ""
    is_alone: bool = False

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
        if self.needed and self.needed.needs and kind != self.needed.name:
            needs, files = self.needed.needs
            raise UserError(
                f"{path}: a {kind} tokenizer, but the model needs {needs}; give {files}, or name "
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
        is_read = (
            self.kind in (LIBRARY, SENTENCEPIECE, *_GPT_KINDS) and MODEL_FILE not in self.files
        )
        if is_read and (
            definition.get("post_processor") or (definition and self.class_name is not None)
        ):
            template = read_template(self.path(TOKENIZER_FILE), definition, tokens.names)
        if self.kind in _GPT_KINDS and self.sets_ends:
            bos, eos = (
                role if tokens.names[role] and self.switch(f"add_{role}_token") else ""
                for role in ("bos", "eos")
            )
            template = Template(f"{bos} A {eos}", f"{bos} A {eos} {bos} B {eos}")
        description = Description(tokens, template, self.class_name)
        return with_settings(description, self.config_path, self.config, self.definition)

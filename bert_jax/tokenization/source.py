"""The files of a tokenizer as they were read, and what they say beside pieces and rules.

Special and added tokens are read by the rules of transformers 5 (tokenization_utils_base.py,
`_from_pretrained`; tokenization_utils_tokenizers.py, `TokenizersBackend.__init__`), so they get the
same ids.
"""

import dataclasses
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from bert_jax.errors import UserError
from bert_jax.files import is_there, read_json_object
from bert_jax.tokenization.definition import read_template
from bert_jax.tokenization.description import (
    CONFIG_FILE,
    SIDES,
    TOKEN_KEYS,
    Description,
    SpecialTokens,
    Token,
)
from bert_jax.tokenization.encoding import Template, half_surrogate
from bert_jax.tokenization.interface import GPT2, OPENAI_GPT, SENTENCEPIECE, Tokenizer
from bert_jax.tokenization.library import TOKENIZER_FILE

# The files with pieces; SentencePiece's may have another name, if it is the only `*.model` file.
VOCABULARY_FILE, BPE_FILE, MODEL_FILE = "vocab.txt", "vocab.json", "spiece.model"
SOURCE_MODEL_FILE, TARGET_MODEL_FILE = "source.spm", "target.spm"

LIBRARY = TOKENIZER_FILE
"""The kind of a tokenizer that takes everything from a `tokenizer.json`."""

ADDED_TOKENS_FILE = "added_tokens.json"
SPECIAL_TOKENS_FILE = "special_tokens_map.json"

_REMEDY = "copy the tokenizer's files again"
_FLAGS = ("single_word", "lstrip", "rstrip", "normalized", "special")

# transformers writes 1e30 for "no limit"; every number above 1e20 means no limit.
_NO_LIMIT = 1e20

# Paths of the machine that saved the file, which transformers also drops; keys with a field.
_DROPPED = (
    *("name_or_path", "special_tokens_map_file", "tokenizer_file", "vocab_file", "merges_file"),
    *("model_max_length", "max_len", "truncation_side"),
)
# Keys of `tokenizer.json` that are not used here, except for the direction of truncation.
_LIBRARY = ("truncation", "padding", "decoder")


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
        tokens = self._special_tokens(
            default.tokens.within(pieces) if self.kind == LIBRARY else default.tokens
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
        return self._with_settings(Description(tokens, template, self.class_name))

    def _special_tokens(self, default: SpecialTokens) -> SpecialTokens:
        """The tokens that the files describe.

        `added_tokens_decoder` in `tokenizer_config.json` decides; without it,
        `special_tokens_map.json`, `added_tokens.json` and `tokenizer.json` do. Named tokens beyond
        `rows` are left out: transformers adds those of `default`, the tokens of a class, to the
        files that it saves.

        Raises:
            UserError: a file is damaged.
        """
        config, config_path = self.config, self.config_path
        fields, extra_key = dict(config), "extra_special_tokens"
        fields[extra_key] = fields.get(extra_key) or fields.get("additional_special_tokens")
        if "added_tokens_decoder" in config:
            added = _by_id(config_path, "added_tokens_decoder", config["added_tokens_decoder"])
        else:
            in_map, ids = (
                {} if self.is_alone else _read(self.directory / name)
                for name in (SPECIAL_TOKENS_FILE, ADDED_TOKENS_FILE)
            )
            later = in_map.pop("additional_special_tokens", None)
            fields |= in_map
            # Without the tokens of `later`, and without defaults.
            named, extra = _named(config_path, SpecialTokens({}), fields)
            special = {token.content for token in (*named.values(), *extra)}
            fields[extra_key] = fields[extra_key] or later
            added = {}
            for content, token_id in ids.items():
                if type(token_id) is not int or token_id < 0 or half_surrogate(content):
                    raise UserError(
                        f"{self.directory / ADDED_TOKENS_FILE}: the id of {content!r:.80} is "
                        f"{token_id!r:.80}; {_REMEDY}"
                    )
                is_special = content in special
                added[token_id] = Token(content, normalized=not is_special, special=is_special)
            if self.definition is not None:
                entries: Any = self.definition.get("added_tokens") or []
                try:
                    entries = {entry["id"]: entry for entry in entries}
                except (KeyError, TypeError):
                    entries = None
                added |= _by_id(self.directory / TOKENIZER_FILE, "added_tokens", entries)
        named, extra = _named(config_path, default, fields)
        by_content = {token.content: token for token in added.values()}
        named = {key: by_content.get(token.content, token) for key, token in named.items()}
        for token_id in [i for i, token in added.items() if token in named.values()]:
            if self.rows is not None and token_id >= self.rows:
                del added[token_id]
        in_files = {token.content for token in (*extra, *added.values())}
        extra += [token for token in default.extra if token.content not in in_files]
        return SpecialTokens(named, added, tuple(extra))

    def _with_settings(self, description: Description) -> Description:
        """A description with the limit, the side and the further keys of the files.

        Raises:
            UserError: a limit is not a positive number, or a side is neither "right" nor "left".
        """
        path, config = self.config_path, self.config
        # "max_len" is the key of transformers 2.
        key = "model_max_length" if "model_max_length" in config else "max_len"
        limit = config.get(key)
        if limit is not None:
            if isinstance(limit, bool) or not isinstance(limit, int | float) or not limit >= 1:
                raise UserError(f"{path}: {key} is {limit!r:.80}; give a number of tokens from 1")
            limit = int(limit) if limit <= _NO_LIMIT else None
        library = {key: value for key, value in (self.definition or {}).items() if key in _LIBRARY}
        cut = library.get("truncation")
        cut = str(cut.get("direction", SIDES[0])).lower() if isinstance(cut, dict) else SIDES[0]
        sides = {"truncation_side": cut, "padding_side": SIDES[0]}
        sides = {key: config.get(key, default) for key, default in sides.items()}
        for key, side in sides.items():
            if side not in SIDES:
                raise UserError(f"{path}: {key} is {side!r:.80}; give {' or '.join(SIDES)}")
        return dataclasses.replace(
            description,
            model_max_length=limit,
            truncation_side=sides["truncation_side"],
            others={key: value for key, value in config.items() if key not in _DROPPED},
            library=library,
        )


def _read(path: Path) -> dict[str, Any]:
    return read_json_object(path, remedy=_REMEDY) if is_there(path) else {}


def _named(
    path: Path, default: SpecialTokens, fields: Mapping[str, Any]
) -> tuple[dict[str, Token], list[Token]]:
    """The named tokens and the further ones of a config."""
    extra = fields.get("extra_special_tokens") or []
    specific = fields.get("model_specific_special_tokens") or {}
    named = dict(default.named)
    keys = [key for key in fields if key.endswith("_token") and isinstance(fields[key], str | dict)]
    values = {key: fields[key] for key in keys}
    if isinstance(extra, dict):
        values, extra = values | extra, []
    for key in (key for key in TOKEN_KEYS if key in fields and fields[key] is None):
        named.pop(key, None)
    if not isinstance(extra, list):
        raise UserError(f"{path}: extra_special_tokens is {extra!r:.80}; {_REMEDY}")
    if not isinstance(specific, dict):
        raise UserError(f"{path}: model_specific_special_tokens is {specific!r:.80}; {_REMEDY}")
    for key, value in {**values, **specific}.items():
        token = _token(path, key, value)
        before = named.get(key)
        if before is None or isinstance(value, dict) or before.content != token.content:
            named[key] = token
    return named, [_token(path, "extra_special_tokens", value) for value in extra]


def _by_id(path: Path, key: str, entries: Any) -> dict[int, Token]:
    if not isinstance(entries, dict):
        raise UserError(f"{path}: {key} does not list tokens with their ids; {_REMEDY}")
    tokens = {}
    for token_id, value in entries.items():
        number = str(token_id)
        if not (number.isascii() and number.isdigit()) or len(number) > 9:
            raise UserError(f"{path}: {key} has the id {token_id!r:.80}; {_REMEDY}")
        tokens[int(number)] = _token(path, key, value, special=False)
    return tokens


def _token(path: Path, key: str, value: Any, *, special: bool = True) -> Token:
    fields = value if isinstance(value, dict) else {"content": value}
    content = fields.get("content")
    if not isinstance(content, str) or not content or half_surrogate(content):
        raise UserError(f"{path}: {key} has {value!r:.80} for a token; {_REMEDY}")
    flags = {flag: bool(fields[flag]) for flag in _FLAGS if flag in fields}
    flags["special"] = special or flags.get("special", False)
    flags.setdefault("normalized", not flags["special"])
    return Token(content, **flags)

"""Special and added tokens, in every file where Hugging Face's libraries write them.

The rules are those of transformers 5 (tokenization_utils_base.py, `_from_pretrained`;
tokenization_utils_tokenizers.py, `TokenizersBackend.__init__`), so tokens get the same ids.
"""

import dataclasses
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bert_jax.errors import UserError
from bert_jax.files import is_there, read_json_object
from bert_jax.tokenization.interface import TOKEN_KEYS, is_unicode

if TYPE_CHECKING:
    import tokenizers

ADDED_TOKENS_FILE = "added_tokens.json"
SPECIAL_TOKENS_FILE = "special_tokens_map.json"

_REMEDY = "copy the tokenizer's files again"
# In the order in which missing ones get ids.
_NAMED = (
    *("bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token"),
    "mask_token",
)
_FLAGS = ("single_word", "lstrip", "rstrip", "normalized", "special")


@dataclasses.dataclass(frozen=True, slots=True)
class Token:
    """A token that is found in a text before the model sees it; as `tokenizers.AddedToken`.

    Attributes:
        content: its text.
        single_word: whether it is found only where no letter or digit is next to it.
        lstrip: whether it takes the white space before it.
        rstrip: whether it takes the white space after it.
        normalized: whether it is looked for in the normalised text.
        special: whether `decode` leaves it out.
    """

    content: str
    single_word: bool = False
    lstrip: bool = False
    rstrip: bool = False
    normalized: bool = False
    special: bool = True

    def for_library(self) -> "tokenizers.AddedToken":
        """The token as an object of the library."""
        from tokenizers import AddedToken

        return AddedToken(**dataclasses.asdict(self))


@dataclasses.dataclass(frozen=True)
class SpecialTokens:
    """The special and added tokens of a tokenizer.

    Attributes:
        named: tokens by their key of `tokenizer_config.json`, such as "mask_token".
        added: tokens by the id that the files give them.
        extra: further special tokens; those that the vocabulary lacks get the ids after it.
    """

    named: Mapping[str, Token]
    added: Mapping[int, Token] = dataclasses.field(default_factory=dict)
    extra: tuple[Token, ...] = ()

    @classmethod
    def of(cls, spelling: tuple[str, ...], *, mask_takes_space: bool = False) -> "SpecialTokens":
        """The defaults of a class: the five names, in the order of `TOKEN_KEYS`."""
        tokens = {key: Token(name) for key, name in zip(TOKEN_KEYS, spelling, strict=True)}
        tokens["mask_token"] = dataclasses.replace(tokens["mask_token"], lstrip=mask_takes_space)
        return cls(tokens)

    def within(self, pieces: Collection[str]) -> "SpecialTokens":
        """The tokens without named ones that a vocabulary lacks."""
        named = {key: token for key, token in self.named.items() if token.content in pieces}
        return dataclasses.replace(self, named=named)

    @property
    def names(self) -> tuple[str | None, ...]:
        """The five names, in the order of `TOKEN_KEYS`; None for a token that has none."""
        tokens = (self.named.get(key) for key in TOKEN_KEYS)
        return tuple(token.content if token else None for token in tokens)

    def all(self) -> tuple[Token, ...]:
        """The named, added and further tokens."""
        return (*self.named.values(), *self.added.values(), *self.extra)

    def ordered(self, vocabulary: Collection[str], rows: int | None) -> list[Token]:
        """The tokens in the order in which those that a vocabulary lacks get the ids after it.

        As in transformers, also those get ids that are only named; but not if the model has no
        rows for them.

        Args:
            vocabulary: pieces of the vocabulary.
            rows: number of ids of the model; None: unknown, and only extra tokens get ids.
        """
        names = {token.content for token in self.named.values()}
        tokens = [
            dataclasses.replace(token, special=token.special or token.content in names)
            for _, token in sorted(self.added.items())
        ]
        in_files = {token.content for token in tokens}
        keys = dict.fromkeys([*(key for key in _NAMED if key in self.named), *self.named])
        named = [self.named[key] for key in keys]
        others = [each for each in (*named, *self.extra) if each.content not in in_files]
        left_out: list[Token] = named if rows is None else []
        if rows and len({*vocabulary, *in_files, *(each.content for each in others)}) > rows:
            left_out = others
        absent = {token.content for token in left_out}.difference(vocabulary)
        return [*tokens, *(token for token in others if token.content not in absent)]


def read_special_tokens(
    directory: Path | None,
    config_path: Path,
    config: Mapping[str, Any],
    definition: Mapping[str, Any] | None,
    default: SpecialTokens,
    rows: int | None,
) -> SpecialTokens:
    """The tokens that the files of a directory describe.

    `added_tokens_decoder` in `tokenizer_config.json` decides alone; without it,
    `special_tokens_map.json`, `added_tokens.json` and `tokenizer.json` do.

    Args:
        directory: directory of the files; None for a file that is read by itself.
        config_path: path of `tokenizer_config.json`, to name in errors.
        config: its content.
        definition: the content of a `tokenizer.json`; None if there is none.
        default: named tokens of the class.
        rows: number of ids of the model; None: unknown. Named tokens beyond it are left out:
            transformers adds those that a class has by default to the files that it saves.

    Raises:
        UserError: a file is damaged.
    """
    fields = dict(config)
    added: dict[int, Token] = {}
    extra_key = "extra_special_tokens"
    if not fields.get(extra_key):
        fields[extra_key] = fields.get("additional_special_tokens")
    if "added_tokens_decoder" in config:
        added = _by_id(config_path, "added_tokens_decoder", config["added_tokens_decoder"])
    else:
        added_path = config_path.with_name(ADDED_TOKENS_FILE)
        found = _read(directory, SPECIAL_TOKENS_FILE)
        later = found.pop("additional_special_tokens", None)
        fields |= found
        # Not those of `later`, and no defaults.
        named, extra = _named(config_path, SpecialTokens({}), fields)
        special = {token.content for token in (*named.values(), *extra)}
        fields[extra_key] = fields[extra_key] or later
        for content, token_id in _read(directory, ADDED_TOKENS_FILE).items():
            if type(token_id) is not int or token_id < 0 or not is_unicode(content):
                raise UserError(
                    f"{added_path}: the id of {content!r:.80} is {token_id!r:.80}; {_REMEDY}"
                )
            is_special = content in special
            added[token_id] = Token(content, normalized=not is_special, special=is_special)
        if definition is not None:
            entries = definition.get("added_tokens") or []
            path = config_path.with_name("tokenizer.json")
            try:
                entries = {entry["id"]: entry for entry in entries}
            except (KeyError, TypeError):
                raise UserError(
                    f"{path}: added_tokens is not a list of tokens with ids; {_REMEDY}"
                ) from None
            added |= _by_id(path, "added_tokens", entries)
    named, extra = _named(config_path, default, fields)
    by_content = {token.content: token for token in added.values()}
    named = {key: by_content.get(token.content, token) for key, token in named.items()}
    for token_id in [i for i, token in added.items() if token in named.values()]:
        if rows is not None and token_id >= rows:
            del added[token_id]
    return SpecialTokens(named, added, tuple(extra))


def _read(directory: Path | None, name: str) -> dict[str, Any]:
    if directory is None or not is_there(directory / name):
        return {}
    return read_json_object(directory / name, remedy=_REMEDY)


def _named(
    path: Path, default: SpecialTokens, fields: Mapping[str, Any]
) -> tuple[dict[str, Token], list[Token]]:
    """The named tokens and the further ones of a config."""
    extra = fields.get("extra_special_tokens") or []
    named = dict(default.named)
    keys = [key for key in fields if key.endswith("_token") and isinstance(fields[key], str | dict)]
    values = {key: fields[key] for key in keys}
    if isinstance(extra, dict):
        values, extra = values | extra, []
    values |= fields.get("model_specific_special_tokens") or {}
    for key in (key for key in _NAMED if key in fields and fields[key] is None):
        named.pop(key, None)
    if not isinstance(extra, list):
        raise UserError(f"{path}: extra_special_tokens is {extra!r:.80}; {_REMEDY}")
    for key, value in values.items():
        token = _token(path, key, value)
        before = named.get(key)
        if before is None or isinstance(value, dict) or before.content != token.content:
            named[key] = token
    return named, [_token(path, "extra_special_tokens", value) for value in extra]


def _by_id(path: Path, key: str, entries: Any) -> dict[int, Token]:
    if not isinstance(entries, dict):
        raise UserError(f"{path}: {key} is not an object of ids and tokens; {_REMEDY}")
    tokens = {}
    for token_id, value in entries.items():
        try:
            number = int(token_id)
        except (TypeError, ValueError):
            number = -1
        if number < 0:
            raise UserError(f"{path}: {key} has the id {token_id!r:.80}; {_REMEDY}")
        tokens[number] = _token(path, key, value, special=False)
    return tokens


def _token(path: Path, key: str, value: Any, *, special: bool = True) -> Token:
    fields = value if isinstance(value, dict) else {"content": value}
    content = fields.get("content")
    if not isinstance(content, str) or not content or not is_unicode(content):
        raise UserError(f"{path}: {key} has {value!r:.80} for a token; {_REMEDY}")
    flags = {flag: bool(fields[flag]) for flag in _FLAGS if flag in fields}
    flags["special"] = special or flags.get("special", False)
    flags.setdefault("normalized", not flags["special"])
    return Token(content, **flags)


def add_tokens(
    library: "tokenizers.Tokenizer", tokens: SpecialTokens, origin: str, rows: int | None
) -> None:
    """Adds tokens to a tokenizer of the library, all in one call: each call takes linear time.

    Args:
        library: the tokenizer, which is changed.
        tokens: the tokens.
        origin: file to name in errors.
        rows: see `SpecialTokens.ordered`.

    Raises:
        UserError: a token gets another id than the files give it.
    """
    ordered = tokens.ordered(library.get_vocab(with_added_tokens=True), rows)
    # Those of a `tokenizer.json` stay as they are.
    known = {token.content for token in library.get_added_tokens_decoder().values()}
    known.difference_update(token.content for token in tokens.added.values())
    library.add_tokens([token.for_library() for token in ordered if token.content not in known])
    check_added_ids(tokens, library.token_to_id, origin)


def check_added_ids(
    tokens: SpecialTokens, token_to_id: Callable[[str], int | None], origin: str
) -> None:
    """Refuses tokens whose ids are not those that the files give them.

    Raises:
        UserError: see above.
    """
    for token_id, token in tokens.added.items():
        found = token_to_id(token.content)
        if found != token_id:
            raise UserError(
                f"{origin}: the added token {token.content!r:.80} has the id {found} after the "
                f"vocabulary, but {token_id} in the file that adds it; copy all files again"
            )

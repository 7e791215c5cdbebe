"""What the files of a tokenizer say beside its vocabulary and its rules for text.

Special and added tokens are read by the rules of transformers 5 (tokenization_utils_base.py,
`_from_pretrained`; tokenization_utils_tokenizers.py, `TokenizersBackend.__init__`), so they get the
same ids.
"""

import dataclasses
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bert_jax.errors import UserError
from bert_jax.files import is_there, read_json_object
from bert_jax.tokenization.encoding import Template, half_surrogate

if TYPE_CHECKING:
    import tokenizers

CONFIG_FILE = "tokenizer_config.json"
SIDES = ("right", "left")

# transformers writes 1e30 for "no limit"; every number above 1e20 means no limit.
_NO_LIMIT = 1e20

# Paths of the machine that saved the file, which transformers also drops; keys with a field.
_DROPPED = (
    *("name_or_path", "special_tokens_map_file", "tokenizer_file", "vocab_file", "merges_file"),
    *("model_max_length", "max_len", "truncation_side"),
)
# Keys of `tokenizer.json` that are not used here, except for the direction of truncation.
_LIBRARY = ("truncation", "padding", "decoder")

# The five special tokens of BERT in the order of `BERT_ROLES`, as spelled by BERT, by
# SentencePiece, by fairseq (RoBERTa, CamemBERT, XLM-R, BART) and by ALBERT.
BRACKETED = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
ANGLED = ("<pad>", "<unk>", "<cls>", "<sep>", "<mask>")
FAIRSEQ = ("<pad>", "<unk>", "<s>", "</s>", "<mask>")
ALBERT = (*ANGLED[:2], *BRACKETED[2:])

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
class SpecialIds:
    """Ids of the special tokens; None for one that is missing.

    The first five are BERT's (paper, section 3). Models that write text begin it with `bos` and end
    it with `eos`; two fields may have the same id, as cls and bos of RoBERTa.
    """

    pad: int | None
    unk: int | None
    cls: int | None
    sep: int | None
    mask: int | None
    bos: int | None = None
    eos: int | None = None

    def known(self) -> list[int]:
        """The ids of the tokens that are not missing, each once."""
        ids = dict.fromkeys(dataclasses.astuple(self))
        return [token_id for token_id in ids if token_id is not None]


_ROLES = tuple(field.name for field in dataclasses.fields(SpecialIds))
BERT_ROLES = _ROLES[:5]


@dataclasses.dataclass(frozen=True, slots=True)
class Token:
    """A token that is matched in a text before the model sees it; as `tokenizers.AddedToken`.

    Attributes:
        content: its text.
        single_word: whether it matches only where no letter or digit is next to it.
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
    def from_names(
        cls, spelling: tuple[str, ...], *, mask_takes_space: bool = False
    ) -> "SpecialTokens":
        """The defaults of a class: names of `BERT_ROLES`; <s> is also bos, and </s> is eos."""
        tokens = {f"{role}_token": Token(n) for role, n in zip(BERT_ROLES, spelling, strict=True)}
        tokens["mask_token"] = dataclasses.replace(tokens["mask_token"], lstrip=mask_takes_space)
        if spelling[2:4] == FAIRSEQ[2:4]:
            tokens |= {"bos_token": tokens["cls_token"], "eos_token": tokens["sep_token"]}
        return cls(tokens)

    def within(self, pieces: Collection[str]) -> "SpecialTokens":
        """The tokens without those that a vocabulary lacks."""
        named = {key: token for key, token in self.named.items() if token.content in pieces}
        extra = tuple(token for token in self.extra if token.content in pieces)
        return dataclasses.replace(self, named=named, extra=extra)

    @property
    def names(self) -> dict[str, str | None]:
        """The text of each field of `SpecialIds`; None for a missing token."""
        tokens = {role: self.named.get(f"{role}_token") for role in _ROLES}
        return {role: token.content if token else None for role, token in tokens.items()}

    def ids(self, token_to_id: Callable[[str], int | None]) -> SpecialIds:
        """The ids of the named tokens."""
        return SpecialIds(*(token_to_id(name) if name else None for name in self.names.values()))

    def check_ids(self, token_to_id: Callable[[str], int | None], origin: str) -> None:
        """Compares the ids of added tokens with the files.

        Raises:
            UserError: a token has another id than in the files.
        """
        for token_id, token in self.added.items():
            if (known := token_to_id(token.content)) != token_id:
                raise UserError(
                    f"{origin}: the added token {token.content!r:.80} has the id {known} after the "
                    f"vocabulary, but {token_id} in the file that adds it; copy all files again"
                )

    def all(self) -> tuple[Token, ...]:
        """The named, added and further tokens."""
        return (*self.named.values(), *self.added.values(), *self.extra)

    def with_special(self, contents: Collection[str]) -> "SpecialTokens":
        """These tokens, and further ones that are found in a text before it is normalised."""
        own = {content: Token(content) for content in contents}
        return dataclasses.replace(
            self,
            extra=(*(each for each in self.extra if each.content not in own), *own.values()),
            added={number: own.get(each.content, each) for number, each in self.added.items()},
        )

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


@dataclasses.dataclass(frozen=True)
class Description:
    """What changes no pieces of a text: special tokens around it, limits, and further keys.

    Attributes:
        tokens: special and added tokens.
        template: positions of special tokens and token types around texts.
        class_name: Hugging Face's class, as the files name it; None if they name none.
        model_max_length: maximum number of tokens that the tokenizer's files give; None for none.
        truncation_side: side where a text is cut, "right" or "left".
        others: keys of `tokenizer_config.json` that are saved as they were read.
        library: keys of `tokenizer.json` that are saved as they were read: settings of other
            programs that use the library.
    """

    tokens: SpecialTokens
    template: Template
    class_name: str | None = None
    model_max_length: int | None = None
    truncation_side: str = SIDES[0]
    others: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    library: Mapping[str, Any] = dataclasses.field(default_factory=dict)

    def saved(self, config: Mapping[str, Any], max_length: int | None) -> dict[str, Any]:
        """The content of a `tokenizer_config.json`.

        Args:
            config: its keys for class and rules.
            max_length: limit to write where the files gave none; None for none.
        """
        names = {f"{role}_token": name for role, name in self.tokens.names.items() if name}
        config = {**config, **names}
        others = {key: value for key, value in self.others.items() if key not in config}
        if self.truncation_side != SIDES[0]:
            others["truncation_side"] = self.truncation_side
        limit = max_length if self.model_max_length is None else self.model_max_length
        limits = {} if limit is None else {"model_max_length": limit}
        return {**config, **others, **limits}


def with_settings(
    description: Description,
    path: Path,
    config: Mapping[str, Any],
    definition: Mapping[str, Any] | None,
) -> Description:
    """A description with the limit, the side and the further keys of the files.

    Args:
        description: the description.
        path: `tokenizer_config.json`, to name in errors.
        config: its content.
        definition: the content of the `tokenizer.json` beside it; None if there is none.

    Raises:
        UserError: a limit is not a positive number, or a side is neither "right" nor "left".
    """
    # "max_len" is the key of transformers 2.
    key = "model_max_length" if "model_max_length" in config else "max_len"
    limit = config.get(key)
    if limit is not None:
        if isinstance(limit, bool) or not isinstance(limit, int | float) or not limit >= 1:
            raise UserError(f"{path}: {key} is {limit!r:.80}; give a number of tokens from 1")
        limit = int(limit) if limit <= _NO_LIMIT else None
    library = {key: value for key, value in (definition or {}).items() if key in _LIBRARY}
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


def read_special_tokens(
    directory: Path,
    config: Mapping[str, Any],
    definition: Mapping[str, Any] | None,
    default: SpecialTokens,
    rows: int | None,
    *,
    is_alone: bool,
) -> SpecialTokens:
    """The tokens that the files of a directory describe.

    `added_tokens_decoder` in `tokenizer_config.json` decides; without it,
    `special_tokens_map.json`, `added_tokens.json` and `tokenizer.json` do.

    Args:
        directory: directory of the files.
        config: the content of `tokenizer_config.json`.
        definition: the content of a `tokenizer.json`; None if there is none.
        default: named and further tokens of the class.
        rows: number of ids of the model; None: unknown. Named tokens beyond it are left out:
            transformers adds those that a class has by default to the files that it saves.
        is_alone: whether other files of the directory do not count.

    Raises:
        UserError: a file is damaged.
    """
    config_path = directory / "tokenizer_config.json"
    fields, extra_key = dict(config), "extra_special_tokens"
    fields[extra_key] = fields.get(extra_key) or fields.get("additional_special_tokens")
    if "added_tokens_decoder" in config:
        added = _by_id(config_path, "added_tokens_decoder", config["added_tokens_decoder"])
    else:
        in_map, ids = (
            {} if is_alone else _read(directory / name)
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
                    f"{directory / ADDED_TOKENS_FILE}: the id of {content!r:.80} is "
                    f"{token_id!r:.80}; {_REMEDY}"
                )
            is_special = content in special
            added[token_id] = Token(content, normalized=not is_special, special=is_special)
        if definition is not None:
            path, entries = directory / "tokenizer.json", definition.get("added_tokens") or []
            try:
                entries = {entry["id"]: entry for entry in entries}
            except (KeyError, TypeError):
                entries = None
            added |= _by_id(path, "added_tokens", entries)
    named, extra = _named(config_path, default, fields)
    by_content = {token.content: token for token in added.values()}
    named = {key: by_content.get(token.content, token) for key, token in named.items()}
    for token_id in [i for i, token in added.items() if token in named.values()]:
        if rows is not None and token_id >= rows:
            del added[token_id]
    in_files = {token.content for token in (*extra, *added.values())}
    extra += [token for token in default.extra if token.content not in in_files]
    return SpecialTokens(named, added, tuple(extra))


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
    for key in (key for key in _NAMED if key in fields and fields[key] is None):
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

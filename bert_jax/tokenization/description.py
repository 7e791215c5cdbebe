"""What a tokenizer has beside its vocabulary and its rules for text: special tokens and limits.

Added tokens get the same ids as in transformers 5.
"""

import dataclasses
from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING, Any

from bert_jax.errors import UserError
from bert_jax.tokenization.encoding import Template

if TYPE_CHECKING:
    import tokenizers

CONFIG_FILE = "tokenizer_config.json"
SIDES = ("right", "left")

# The five special tokens of BERT in the order of `BERT_ROLES`, as spelled by BERT, by
# SentencePiece, by fairseq (RoBERTa, CamemBERT, XLM-R, BART) and by ALBERT.
BRACKETED = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
ANGLED = ("<pad>", "<unk>", "<cls>", "<sep>", "<mask>")
FAIRSEQ = ("<pad>", "<unk>", "<s>", "</s>", "<mask>")
ALBERT = (*ANGLED[:2], *BRACKETED[2:])

# In the order in which missing ones get ids.
TOKEN_KEYS = (
    *("bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token"),
    "mask_token",
)


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
        keys = dict.fromkeys([*(key for key in TOKEN_KEYS if key in self.named), *self.named])
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

"""The tokens of texts, the template that joins them, and how many of them fit in a limit."""

import dataclasses
import functools
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from bert_jax.errors import UserError

TRUNCATIONS = ("longest_first", "only_first", "only_second")


@dataclasses.dataclass(frozen=True)
class Pieces:
    """The pieces of one text, without special tokens; all lists have the same length.

    Attributes:
        ids: token ids.
        tokens: the pieces as text, e.g. `["[CLS]", "play", "##ing", "[SEP]"]`.
        offsets: (start, end) in characters of the text that the token comes from; (0, 0) for
            special tokens.
        word_ids: index of the word within its text; None for special tokens.
    """

    ids: list[int]
    tokens: list[str]
    offsets: list[tuple[int, int]]
    word_ids: list[int | None]

    def __len__(self) -> int:
        return len(self.ids)

    def part(self, start: int, stop: int) -> "Pieces":
        """The pieces `start` to `stop` - 1."""
        kept = slice(start, stop)
        return Pieces(self.ids[kept], self.tokens[kept], self.offsets[kept], self.word_ids[kept])


@dataclasses.dataclass(frozen=True)
class Encoding(Pieces):
    """One encoded text or pair with its special tokens; all lists have the same length T.

    Attributes:
        type_ids: token types, as defined by the tokenizer's template.
        special_tokens_mask: 1 for tokens added around the texts, else 0.
    """

    type_ids: list[int]
    special_tokens_mask: list[int]


TEXTS = ("A", "B")
"""The names of the two texts in a template."""


class TemplatePart(NamedTuple):
    """One part of a template.

    Attributes:
        name: "A" or "B" for a text, else a field of `SpecialIds`, or the text of another token.
        type_id: token type of its tokens.
    """

    name: str
    type_id: int


@dataclasses.dataclass(frozen=True)
class Template:
    """The positions of special tokens and token types around one text, A, or two, A and B.

    Written as "cls A sep": the texts and tokens, each followed by a colon and its token type if
    that is not 0.
    """

    single: str
    pair: str

    def __post_init__(self) -> None:
        self.parts(pair=True)  # raises ValueError if it is not a template

    def parts(self, *, pair: bool) -> tuple[TemplatePart, ...]:
        """The parts of the template for one text or for a pair."""
        return self._parts[pair]

    def num_special_tokens(self, *, pair: bool) -> int:
        """The number of special tokens around and between the texts."""
        return len(self._parts[pair]) - (2 if pair else 1)

    def num_token_types(self, *, pair: bool) -> int:
        """The number of token types that a model needs for the template."""
        return 1 + max(part.type_id for part in self._parts[pair])

    def without_token_types(self) -> "Template":
        """The template with type 0 everywhere."""
        texts = (" ".join(name for name, _ in parts) for parts in self._parts)
        return Template(*texts)

    def starts(self, lengths: Sequence[Any]) -> list[tuple[TemplatePart, Any]]:
        """Each part, and the position where it begins.

        Args:
            lengths: number of tokens of A, or of A and B: numbers, or arrays of one shape for many
                rows.
        """
        starts: list[tuple[TemplatePart, Any]] = []
        start: Any = 0
        for part in self.parts(pair=len(lengths) == 2):
            starts.append((part, start))
            start = start + (lengths[TEXTS.index(part.name)] if part.name in TEXTS else 1)
        return starts

    def text_starts(self, lengths: Sequence[int]) -> list[int]:
        """The position of the first token of each text; `lengths` as in `starts`."""
        return [start for part, start in self.starts(lengths) if part.name in TEXTS]

    @functools.cached_property
    def _parts(self) -> tuple[tuple[TemplatePart, ...], tuple[TemplatePart, ...]]:
        return _parse(self.single, TEXTS[:1]), _parse(self.pair, TEXTS)


def _parse(template: str, texts: Sequence[str]) -> tuple[TemplatePart, ...]:
    named = (word.partition(":") for word in template.split())
    parts = tuple(TemplatePart(name, int(type_id or 0)) for name, _, type_id in named)
    if [part.name for part in parts if part.name in TEXTS] != list(texts):
        raise ValueError(f"the template {template!r} must hold {' then '.join(texts)}")
    return parts


DEFAULT_TEMPLATE = Template(single="cls A sep", pair="cls A sep B:1 sep:1")
"""BERT's template, the default for a tokenizer that is loaded without a model."""

FAIRSEQ_TEMPLATE = Template(single="cls A sep", pair="cls A sep sep B sep")
"""The template of RoBERTa, CamemBERT and XLM-R: <s> A </s></s> B </s>, with one token type."""

BARE_TEMPLATE = Template(single="A", pair="A B")
"""The template of GPT-1 and GPT-2: nothing is added."""


def truncated_lengths(lengths: Sequence[int], limit: int, truncation: str) -> list[int] | None:
    """The number of tokens of each text to keep so that the sum is at most `limit`.

    "longest_first" cuts the longer text until both are equally long, then both; if the limit is
    odd the longer text (the second of two equal ones) keeps one more, as in Hugging Face's
    tokenizers. (Pre-training cuts at random ends, see `bert_jax.data.pretraining.pairs`.)

    Args:
        lengths: number of tokens of the text, or of the text and its pair.
        limit: maximum number of tokens of both together, without special tokens.
        truncation: one of `TRUNCATIONS`.

    Returns:
        As many lengths, or None if cutting only one text would leave nothing of it.
    """
    if sum(lengths) <= limit:
        return list(lengths)
    if len(lengths) == 1:
        return [limit]
    first, second = lengths
    if truncation == "only_first":
        return [limit - second, second] if limit > second else None
    if truncation == "only_second":
        return [first, limit - first] if limit > first else None
    shorter = min(first, second, limit // 2)
    longer = limit - shorter
    return [longer, shorter] if first > second else [shorter, longer]


def cut(
    texts: tuple[Pieces, ...], limit: int, truncation: str, side: str, index: int
) -> tuple[Pieces, ...]:
    """A text or a pair with at most `limit` tokens together, see `truncated_lengths`.

    Args:
        texts: the text, or the text and its pair.
        limit: maximum number of tokens, without special tokens.
        truncation: one of `TRUNCATIONS`.
        side: side that is cut off, "right" or "left".
        index: index of the item in its batch, to name in errors.

    Raises:
        UserError: cutting only one text would leave nothing of it.
    """
    lengths = truncated_lengths([len(text) for text in texts], limit, truncation)
    if lengths is None:
        raise UserError(
            f"encode_batch: item {index} has {' + '.join(str(len(text)) for text in texts)} "
            f"tokens; {truncation!r} cannot bring them to {limit} beside the special tokens; "
            "use truncation 'longest_first' or a larger max_length"
        )
    return tuple(
        text.part(len(text) - length, len(text)) if side == "left" else text.part(0, length)
        for text, length in zip(texts, lengths, strict=True)
    )


def check_texts(texts: Sequence[str]) -> None:
    """Refuses input that is not a list of Unicode texts, and names the item.

    Raises:
        UserError: a single string or a dict instead of a list, an item that is not a string, or
            half of a surrogate pair (which JSON can contain).
    """
    if isinstance(texts, str | Mapping):
        kind = "string" if isinstance(texts, str) else "dict"
        raise UserError(f"tokenizer: the texts are one {kind}; give a list of strings")
    for index, text in enumerate(texts):
        if not isinstance(text, str):
            raise UserError(f"tokenizer: text {index} is {text!r}; give a string")
        if problem := half_surrogate(text):
            raise UserError(f"tokenizer: text {index}, {problem}")


def half_surrogate(text: str) -> str:
    """Where a text has half of a surrogate pair, as JSON may have, and the remedy; else ""."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        code = f"U+{ord(text[error.start]):04X}"
        what = "half of a surrogate pair, not a character; remove it"
        return f"character {error.start}: {code} is {what}"
    return ""

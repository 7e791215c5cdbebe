"""The tokens of texts, with and without special tokens, and how many of them fit in a limit."""

import dataclasses
from collections.abc import Sequence

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


def check_texts(texts: Sequence[str]) -> None:
    """Refuses input that is not a list of Unicode texts, and names the item.

    Raises:
        UserError: a single string instead of a list, an item that is not a string, or half of a
            surrogate pair (which JSON can contain).
    """
    if isinstance(texts, str):
        raise UserError("tokenizer: the texts are one string; give a list of strings")
    for index, text in enumerate(texts):
        if not isinstance(text, str):
            raise UserError(f"tokenizer: text {index} is {text!r}; give a string")
        if not text.isascii():
            try:
                text.encode()
            except UnicodeEncodeError as error:
                raise UserError(
                    f"tokenizer: text {index}, character {error.start}: "
                    f"U+{ord(text[error.start]):04X} is half of a surrogate pair, not a character; "
                    "remove it"
                ) from None


def is_unicode(text: str) -> bool:
    """Whether a text has no half of a surrogate pair."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True

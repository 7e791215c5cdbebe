"""Items of an input of any length to padded batches of rows of like length, in constant memory."""

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Generic, TypeVar

import numpy as np

from bert_jax.data.padding import bucket_length, bucket_rows
from bert_jax.errors import UserError
from bert_jax.models.config import EncoderConfig
from bert_jax.tokenization import Encoding, Tokenizer

Item = TypeVar("Item")

# However long the texts are, a window of them with their encodings stays below some 100 MB.
WINDOW_CHARACTERS = 1_000_000


@dataclasses.dataclass(frozen=True)
class BatchOptions:
    """How rows are grouped.

    Attributes:
        batch_size: the most rows of a batch.
        max_length: the most tokens of a row, special tokens counted; None for as many as the model
            has positions.
        refuse_long: whether a longer text is an error; otherwise it is cut and counted.
        window: how many batches are sorted by length together.
    """

    batch_size: int = 32
    max_length: int | None = None
    refuse_long: bool = False
    window: int = 64

    def __post_init__(self) -> None:
        if not isinstance(self.batch_size, int) or self.batch_size < 1:
            raise UserError(f"batch_size is {self.batch_size}; it must be at least 1")

    def limit(self, config: EncoderConfig) -> int:
        """The most tokens of a row.

        Raises:
            UserError: the model has fewer positions, or there is no room for text.
        """
        most = config.max_position_embeddings
        if self.max_length is None:
            return most
        if not 3 <= self.max_length <= most:
            raise UserError(
                f"max_length is {self.max_length}; this model takes 3 to {most} tokens, "
                "[CLS] and [SEP] counted"
            )
        return self.max_length


@dataclasses.dataclass(frozen=True)
class Request(Generic[Item]):
    """An item of the input with the rows of tokens that it gives.

    Attributes:
        number: where it stands in the input, from 0.
        item: itself.
        encodings: one row or more: windows of a passage, choices of a question.
    """

    number: int
    item: Item
    encodings: list[Encoding]


@dataclasses.dataclass(frozen=True)
class Batch(Generic[Item]):
    """Rows that are computed together.

    Attributes:
        rows: for each row, whose it is, and which of its rows.
        arrays: `input_ids`, `token_type_ids`, `attention_mask`, int32 [B, T], as `Bert` takes them;
            behind the rows there may be some of padding alone.
    """

    rows: list[tuple[Request[Item], int]]
    arrays: dict[str, np.ndarray]

    @property
    def encodings(self) -> list[Encoding]:
        """The tokens of each row, unpadded."""
        return [asked.encodings[row] for asked, row in self.rows]


def make_batches(
    items: Iterable[Item],
    encode: Callable[[Sequence[Item]], list[list[Encoding]]],
    tokenizer: Tokenizer,
    options: BatchOptions,
    *,
    characters: Callable[[Item], int],
    limit: int,
    row_multiple: int = 1,
) -> Iterator[Batch[Item]]:
    """Batches of rows of like length, the longest of each window first.

    Reads no further than one window. T and B take few values (`data.padding`), so a function under
    jit is compiled for few shapes.

    Args:
        items: read once.
        encode: the rows of each of several items, one or more, each of `limit` tokens at most.
        tokenizer: of the model.
        options: sizes.
        characters: how long an item is, roughly.
        limit: the most tokens of a row.
        row_multiple: what divides B: the devices that share the rows.
    """
    number = 0
    for window in _windows(items, options.batch_size * options.window, characters):
        asked = [
            Request(number + place, item, encodings)
            for place, (item, encodings) in enumerate(zip(window, encode(window), strict=True))
        ]
        number += len(window)
        rows = [(one, row) for one in asked for row in range(len(one.encodings))]
        # Sorted is stable: equal lengths stay in the order of the input.
        rows.sort(key=lambda of: -len(of[0].encodings[of[1]]))
        for start in range(0, len(rows), options.batch_size):
            chosen = rows[start : start + options.batch_size]
            members = [one.encodings[row] for one, row in chosen]
            count = bucket_rows(len(members), options.batch_size, row_multiple)
            length = bucket_length(len(members[0]), limit)
            yield Batch(chosen, pad(members, count, length, tokenizer))


def pad(
    encodings: Sequence[Encoding], rows: int, length: int, tokenizer: Tokenizer
) -> dict[str, np.ndarray]:
    """The arrays of a `Batch`, [rows, length]; padding is masked."""
    input_ids = np.full((rows, length), tokenizer.special_ids.pad, np.int32)
    token_type_ids = np.zeros((rows, length), np.int32)
    attention_mask = np.zeros((rows, length), np.int32)
    for row, encoding in enumerate(encodings):
        input_ids[row, : len(encoding)] = encoding.ids
        token_type_ids[row, : len(encoding)] = encoding.type_ids
        attention_mask[row, : len(encoding)] = 1
    return {
        "input_ids": input_ids,
        "token_type_ids": token_type_ids,
        "attention_mask": attention_mask,
    }


def _windows(
    items: Iterable[Item], most: int, characters: Callable[[Item], int]
) -> Iterator[list[Item]]:
    window: list[Item] = []
    length = 0
    for item in items:
        window.append(item)
        length += characters(item)
        if len(window) == most or length >= WINDOW_CHARACTERS:
            yield window
            window, length = [], 0
    if window:
        yield window

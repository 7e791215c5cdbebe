"""Rows of tokens as padded arrays.

Lengths and row counts are rounded up to a few values, so that few shapes are compiled.
"""

from array import array
from collections.abc import Iterable, Mapping

import numpy as np

from bert_jax.tokenization import Encoding, Tokenizer


def bucket_length(length: int, most: int) -> int:
    """The next of 16, 32, 48, 64, 96, 128, 192, 256, 384, 512, …, but not above `most`."""
    # A row may have no token, where a template adds none.
    return min(bucket_size(max(length, 1), 16), most)


def bucket_size(number: int, least: int) -> int:
    """The number rounded up to one of two sizes per power of two, and to a multiple of `least`."""
    step = max(least, 1 << max((number - 1).bit_length() - 2, 0))
    return -(-number // step) * step


def bucket_rows(rows: int, batch_size: int, multiple: int) -> int:
    """The next power of two, at most `batch_size`, rounded up to a multiple of `multiple`."""
    power = min(1 << (rows - 1).bit_length(), batch_size)
    return -(-power // multiple) * multiple


def filled(used: np.ndarray, values: np.ndarray, filler: int = 0) -> np.ndarray:
    """int32, in the shape of `used`: the values in order where it is True, else the filler."""
    array = np.full(used.shape, filler, np.int32)
    array[used] = values
    return array


def joined(
    padded: Mapping[str, np.ndarray], rows: np.ndarray, shape: tuple[int, int], padding_id: int
) -> dict[str, np.ndarray]:
    """Texts one after the other in packed rows.

    Args:
        padded: `input_ids`, `token_type_ids` and `attention_mask` of n texts, int32 [n, longest].
        rows: int64 [n], ascending, row of each text.
        shape: B, T.
        padding_id: what fills the rows of ids.

    Returns:
        `input_ids`, `token_type_ids`, `segment_ids`, the number of the text in its row, from 1, and
        `position_ids`, which count from each text on; int32 [B, T], 0 for padding.
    """
    # The tokens of all texts, and those of all rows, have the same order; only their number in each
    # row must be computed.
    is_token = padded["attention_mask"] > 0
    lengths = is_token.sum(axis=1)
    used = np.arange(shape[1]) < np.bincount(rows, lengths, shape[0])[:, None]
    numbers = 1 + np.arange(len(rows)) - np.searchsorted(rows, rows)
    positions = np.broadcast_to(np.arange(is_token.shape[1]), is_token.shape)
    return {
        "input_ids": filled(used, padded["input_ids"][is_token], padding_id),
        "token_type_ids": filled(used, padded["token_type_ids"][is_token]),
        "segment_ids": filled(used, np.repeat(numbers, lengths)),
        "position_ids": filled(used, positions[is_token]),
    }


def pad(
    encodings: Mapping[int, Encoding], rows: int, length: int, tokenizer: Tokenizer
) -> dict[str, np.ndarray]:
    """A batch from a few encodings.

    For a whole data set see `Sequences`; for a few rows this function takes half as long.

    Args:
        encodings: the encoding of each row of the batch that is not padding.
        rows: B.
        length: T.
        tokenizer: tokenizer that defines the padding.

    Returns:
        `input_ids`, `token_type_ids`, `attention_mask`, int32 [rows, length], and the arrays
        [rows, length, ...] of `Tokenizer.token_arrays`.
    """
    input_ids = np.full((rows, length), tokenizer.padding_id, np.int32)
    token_type_ids = np.zeros((rows, length), np.int32)
    attention_mask = np.zeros((rows, length), np.int32)
    others = {
        name: np.zeros((rows, length, *none.shape[1:]), none.dtype)
        for name, none in tokenizer.token_arrays([]).items()
    }
    for row, encoding in encodings.items():
        input_ids[row, : len(encoding)] = encoding.ids
        token_type_ids[row, : len(encoding)] = encoding.type_ids
        attention_mask[row, : len(encoding)] = 1
        for name, values in tokenizer.token_arrays(encoding.tokens).items():
            others[name][row, : len(encoding)] = values
    return {
        **others,
        "input_ids": input_ids,
        "token_type_ids": token_type_ids,
        "attention_mask": attention_mask,
    }


class Sequences:
    """Rows of token ids of any lengths in flat arrays: five bytes per token.

    Where a model reads more than ids, they are nine, and the arrays of each different token.

    Attributes:
        lengths: int64 [n], number of tokens of each row.
    """

    def __init__(
        self,
        ids: np.ndarray,
        type_ids: np.ndarray,
        lengths: np.ndarray,
        numbers: np.ndarray,
        others: Mapping[str, np.ndarray],
    ) -> None:
        """Takes the tokens of all rows, one row after the other; see `from_encodings`.

        Args:
            ids: int32 [sum of lengths].
            type_ids: int8 [sum of lengths].
            lengths: int64 [n].
            numbers: int32 [sum of lengths], of each token among the M different ones; empty without
                `others`.
            others: the arrays of `Tokenizer.token_arrays` of the M different tokens, [M, ...].
        """
        self.lengths = lengths
        self._numbers, self._others = np.append(numbers, np.int32(0)), others
        # Padding is read from one token beyond the end.
        self._ids = np.append(ids, np.int32(0))
        self._type_ids = np.append(type_ids, np.int8(0))
        self._starts = np.concatenate([[0], np.cumsum(lengths)])

    @classmethod
    def from_encodings(cls, encodings: Iterable[Encoding], tokenizer: Tokenizer) -> "Sequences":
        """Packs encodings one after the other; only one is in memory at a time."""
        ids, type_ids, lengths = array("i"), array("b"), array("q")
        different, numbers = dict[str, int](), array("i")
        has_others = bool(tokenizer.token_arrays([]))
        for encoding in encodings:
            ids.extend(encoding.ids)
            type_ids.extend(encoding.type_ids)
            lengths.append(len(encoding))
            if has_others:
                tokens = encoding.tokens
                numbers.extend(different.setdefault(token, len(different)) for token in tokens)
        return cls(
            np.array(ids, np.int32),
            np.array(type_ids, np.int8),
            np.array(lengths, np.int64),
            np.array(numbers, np.int32),
            tokenizer.token_arrays(list(different)),
        )

    def id_counts(self) -> np.ndarray:
        """How often each token id occurs, int64 [greatest id + 1]."""
        return np.bincount(self._ids[:-1])  # without the token of padding

    def pad(self, rows: np.ndarray, length: int, tokenizer: Tokenizer) -> dict[str, np.ndarray]:
        """Makes a batch of rows.

        Args:
            rows: int64 [...], numbers of rows; -1 for a row of padding.
            length: T, at least the length of the longest row.
            tokenizer: tokenizer that defines the padding.

        Returns:
            `input_ids`, `token_type_ids`, `attention_mask`, int32 [..., T], and the arrays
            [..., T, ...] of `Tokenizer.token_arrays`.
        """
        positions = np.arange(length)
        lengths = np.where(rows < 0, 0, self.lengths[rows]) if len(self.lengths) else rows * 0
        inside = positions < lengths[..., None]  # ...T
        indices = np.where(inside, self._starts[rows][..., None] + positions, -1)
        others = {}
        for name, values in self._others.items():
            others[name] = values[self._numbers[indices]]
            others[name][~inside] = 0
        return {
            **others,
            "input_ids": np.where(inside, self._ids[indices], tokenizer.padding_id),
            "token_type_ids": self._type_ids[indices].astype(np.int32) * inside,
            "attention_mask": inside.astype(np.int32),
        }

"""Token rows of a whole data set, packed, and cut out as padded arrays."""

from array import array
from collections.abc import Iterable

import numpy as np

from bert_jax.tokenization.interface import Encoding, Tokenizer


class Sequences:
    """Rows of token ids of any lengths in flat arrays: five bytes a token.

    Attributes:
        lengths: int64 [n], tokens of each row.
    """

    def __init__(self, ids: np.ndarray, type_ids: np.ndarray, lengths: np.ndarray) -> None:
        """Takes int32 and int8 [sum of the lengths] and int64 [n]; see `of`."""
        self.lengths = lengths
        # A row of padding is read somewhere, too: one token beyond the end.
        self._ids = np.append(ids, np.int32(0))
        self._type_ids = np.append(type_ids, np.int8(0))
        self._starts = np.concatenate([[0], np.cumsum(lengths)])

    @classmethod
    def of(cls, encodings: Iterable[Encoding]) -> "Sequences":
        """Packs encodings, one after the other; none is needed any more when the next is asked."""
        ids, type_ids, lengths = array("i"), array("b"), array("q")
        for encoding in encodings:
            ids.extend(encoding.ids)
            type_ids.extend(encoding.type_ids)
            lengths.append(len(encoding))
        return cls(
            np.array(ids, np.int32), np.array(type_ids, np.int8), np.array(lengths, np.int64)
        )

    def pad(self, rows: np.ndarray, length: int, tokenizer: Tokenizer) -> dict[str, np.ndarray]:
        """Some rows as a batch.

        Args:
            rows: int64 [...], numbers of rows; -1 is a row of padding alone.
            length: T, no row is longer.
            tokenizer: knows the padding.

        Returns:
            `input_ids`, `token_type_ids`, `attention_mask`, int32 [..., T].
        """
        positions = np.arange(length)
        lengths = np.where(rows < 0, 0, self.lengths[rows]) if len(self.lengths) else rows * 0
        inside = positions < lengths[..., None]  # ...T
        places = np.where(inside, self._starts[rows][..., None] + positions, -1)
        return {
            "input_ids": np.where(inside, self._ids[places], tokenizer.special_ids.pad),
            "token_type_ids": self._type_ids[places].astype(np.int32) * inside,
            "attention_mask": inside.astype(np.int32),
        }

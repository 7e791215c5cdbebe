"""A split of a corpus as one sequence of tokens, and the windows that it is cut into.

With a separator (GPT's end of a text), it stands before each document and after the last one:

    eos a a a eos b b eos

Otherwise the documents follow each other. Sentences and words do not matter to a window.
"""

from typing import NamedTuple

import numpy as np

from bert_jax.data.pretraining.corpus import CorpusSplit
from bert_jax.data.pretraining.pairs import source_repeats
from bert_jax.errors import UserError


class Windows(NamedTuple):
    """Ranges of the stream, int64 [B] each."""

    start: np.ndarray
    end: np.ndarray


class TokenStream:
    """The tokens of a split, by their position in the stream."""

    def __init__(self, split: CorpusSplit, separator: int | None) -> None:
        """Maps positions to documents.

        Args:
            split: documents of the split.
            separator: id of the token between documents; None: there is none.

        Raises:
            UserError: the split has no documents.
        """
        documents = np.asarray(split.document_offsets, np.int64)
        if len(documents) < 2:
            raise UserError("the corpus has no document; prepare it from more text")
        self._tokens, self._separator = split.tokens, separator
        self._extra = int(separator is not None)  # tokens before each document
        # The position of each document, separator included, and of the end; int64 [documents + 1].
        first_tokens = np.asarray(split.sentence_offsets, np.int64)[documents]
        self.documents = first_tokens + self._extra * np.arange(len(documents))

    def read(self, starts: np.ndarray, width: int) -> tuple[np.ndarray, np.ndarray]:
        """The tokens from some positions on.

        Args:
            starts: int64 [B], positions in the stream.
            width: W, number of tokens of each.

        Returns:
            Ids, int32 [B, W], and the number of the document of each, int64 [B, W]; a separator
            belongs to the document after it. Beyond the end they are arbitrary.
        """
        positions = starts[:, None] + np.arange(width)
        document = np.searchsorted(self.documents, positions, side="right") - 1
        ids = self._tokens.take(positions - self._extra * (document + 1), mode="clip")
        ids = ids.astype(np.int32)
        if self._separator is not None:
            ids[positions == self.documents[document]] = self._separator
        return ids, document


class WindowPlan:
    """Consecutive windows of the units of a stream, each longest but the last of a unit.

    Attributes:
        examples_per_epoch: number of windows of an epoch, with those that are repeated.
    """

    def __init__(
        self,
        split: CorpusSplit,
        stream: TokenStream,
        longest: int,
        *,
        cross_documents: bool,
        weighted: bool = True,
    ) -> None:
        """Counts the windows.

        Args:
            split: documents and sources of the split.
            stream: the tokens of the same split.
            longest: number of tokens of a window.
            cross_documents: whether a unit is all documents of a source, or one document.
            weighted: whether sources are repeated according to their weights (not in evaluation).
        """
        repeats = source_repeats(split, split.document_tokens)
        units = np.arange(len(stream.documents))
        if cross_documents:
            units = np.unique(split.source_documents)  # a source may have no document
            repeats = repeats[units[:-1]]
        self._bounds, self._longest = stream.documents[units], longest
        self._windows = -(-np.diff(self._bounds) // longest)
        counts = np.ceil(self._windows * repeats).astype(np.int64) if weighted else self._windows
        self._first_example = np.concatenate([[0], np.cumsum(counts)])
        self.examples_per_epoch = int(self._first_example[-1])

    def windows(self, indices: np.ndarray) -> Windows:
        """The windows with these indices in an epoch, int64 [B], in [0, examples_per_epoch)."""
        unit = np.searchsorted(self._first_example, indices, side="right") - 1
        number = (indices - self._first_example[unit]) % self._windows[unit]
        start = self._bounds[unit] + number * self._longest
        return Windows(start, np.minimum(start + self._longest, self._bounds[unit + 1]))

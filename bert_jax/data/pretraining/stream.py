"""A split of a corpus as one sequence of tokens, and the windows that it is cut into.

With a separator (GPT's end of a text), it stands before each document and after the last one:

    eos a a a eos b b eos

Otherwise the documents follow each other. Sentences and words do not matter to a window.
"""

import numpy as np

from bert_jax.data.pretraining.corpus import CorpusSplit
from bert_jax.data.pretraining.pairs import source_repeats
from bert_jax.errors import UserError


class TokenStream:
    """The tokens of a split, and windows of its units, each longest but the last of a unit.

    Attributes:
        examples_per_epoch: number of windows of an epoch, with those that are repeated.
    """

    def __init__(
        self,
        split: CorpusSplit,
        longest: int,
        separator: int | None = None,
        *,
        cross_documents: bool,
        weighted: bool = True,
    ) -> None:
        """Maps positions to documents, and counts the windows.

        Args:
            split: documents and sources of the split.
            longest: number of tokens of a window.
            separator: id of the token between documents; None: there is none.
            cross_documents: whether a unit is all documents of a source, or one document.
            weighted: whether sources are repeated according to their weights (not in evaluation).

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
        self._documents = first_tokens + self._extra * np.arange(len(documents))
        repeats = source_repeats(split, split.document_tokens)
        units = np.arange(len(documents))
        if cross_documents:
            units = np.unique(split.source_documents)  # a source may have no document
            repeats = repeats[units[:-1]]
        self._bounds, self._longest = self._documents[units], longest
        self._windows = -(-np.diff(self._bounds) // longest)
        counts = np.ceil(self._windows * repeats).astype(np.int64) if weighted else self._windows
        self._first_example = np.concatenate([[0], np.cumsum(counts)])
        self.examples_per_epoch = int(self._first_example[-1])

    def windows(self, indices: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The start and the end of windows, int64 [B] each.

        Args:
            indices: int64 [B], their indices in an epoch, in [0, examples_per_epoch).
        """
        unit = np.searchsorted(self._first_example, indices, side="right") - 1
        number = (indices - self._first_example[unit]) % self._windows[unit]
        starts = self._bounds[unit] + number * self._longest
        return starts, np.minimum(starts + self._longest, self._bounds[unit + 1])

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
        document = np.searchsorted(self._documents, positions, side="right") - 1
        ids = self._tokens.take(positions - self._extra * (document + 1), mode="clip")
        ids = ids.astype(np.int32)
        if self._separator is not None:
            ids[positions == self._documents[document]] = self._separator
        return ids, document

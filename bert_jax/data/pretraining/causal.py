"""Corpus → batches for causal language models: each token is predicted from those before it."""

import dataclasses

import numpy as np

from bert_jax.data.pipeline import Batch
from bert_jax.data.pretraining.corpus import CorpusSplit
from bert_jax.data.pretraining.examples import CorpusExamples
from bert_jax.data.pretraining.stream import TokenStream
from bert_jax.errors import require_at_least


@dataclasses.dataclass(frozen=True)
class CausalOptions:
    """The windows of a corpus.

    Attributes:
        length: T, tokens of a window.
        cross_documents: whether a token sees the documents before its own in a window; otherwise
            the documents of a window are separate texts, with positions of their own.
        seed: seed of the order of the windows.
    """

    length: int = 1024
    cross_documents: bool = True
    seed: int = 0

    def __post_init__(self) -> None:
        require_at_least("data.length", self.length, 2)


class CausalExamples(CorpusExamples):
    """The windows of one split of a corpus, in another order in each epoch.

    The stream of documents (see `stream`) is cut into windows of T tokens, and the label of each
    token is the next one of the stream, so that an epoch predicts every token once: with a
    separator also the first of each document, from the separator, and its end. Without a separator
    nothing precedes the first token of a document, which is not predicted. The windows of a source
    never go on in another source.

    Every batch has these keys (B rows of this host, T `length`):

    | key | dtype, shape | meaning |
    |---|---|---|
    | input_ids | int32 [B, T] | tokens of the window, then padding |
    | labels | int32 [B, T] | the next token of each |
    | weights | float32 [B, T] | 1; 0 for padding, and where the next token is of no text |

    Without `cross_documents`:

    | key | dtype, shape | meaning |
    |---|---|---|
    | segment_ids | int32 [B, T] | number of the document in the row, from 1; 0 for padding |
    | position_ids | int32 [B, T] | 0, 1, … from each document on; 0 for padding |
    """

    def __init__(
        self,
        split: CorpusSplit,
        options: CausalOptions,
        *,
        separator_id: int | None,
        padding_id: int = 0,
        weighted: bool = True,
    ) -> None:
        """Plans the windows.

        Args:
            split: documents of the split.
            options: length of the windows.
            separator_id: id of the end of a text; None: the tokenizer has none.
            padding_id: id of what fills the last window.
            weighted: whether sources are repeated according to their weights (not in evaluation).

        Raises:
            UserError: the split has no documents.
        """
        super().__init__(options.seed)
        self.options = options
        self._is_separated, self._padding_id = separator_id is not None, padding_id
        self._stream = TokenStream(
            split, options.length, separator_id, cross_documents=True, weighted=weighted
        )
        self.examples_per_epoch = self._stream.examples_per_epoch

    def examples(self, numbers: np.ndarray) -> Batch:
        """The examples with these numbers, int64 [B]."""
        starts, ends = self._stream.windows(self._drawn(numbers).indices)
        length = self.options.length
        ids, documents = self._stream.read(starts, length + 1)
        is_token = np.arange(length) < (ends - starts)[:, None]
        has_label = is_token
        if not self._is_separated:
            has_label = is_token & (documents[:, 1:] == documents[:, :-1])
        batch = {
            "input_ids": np.where(is_token, ids[:, :-1], self._padding_id).astype(np.int32),
            "labels": np.where(has_label, ids[:, 1:], self._padding_id).astype(np.int32),
            "weights": has_label.astype(np.float32),
        }
        if not self.options.cross_documents:
            segments = documents[:, :-1] - documents[:, :1] + 1
            begins = np.diff(segments, axis=1, prepend=0) != 0
            positions = np.arange(length)
            origin = np.maximum.accumulate(np.where(begins, positions, 0), axis=1)
            batch["segment_ids"] = (segments * is_token).astype(np.int32)
            batch["position_ids"] = ((positions - origin) * is_token).astype(np.int32)
        return batch

"""The training rows of tagged sentences: windows of words, and the label of each word."""

import dataclasses
from collections.abc import Iterator, Sequence

import numpy as np

from bert_jax.data.examples import Example, Sentence
from bert_jax.data.padding import Sequences
from bert_jax.data.pipeline import Batch
from bert_jax.data.windows.words import WordWindow, WordWindows
from bert_jax.tasks.base.labelled_options import length_key
from bert_jax.tasks.base.labelled_task import encode_in_chunks
from bert_jax.tasks.base.labels import balanced_weights
from bert_jax.tasks.tagging.tags import TagSet
from bert_jax.tokenization import Tokenizer


@dataclasses.dataclass(frozen=True, slots=True)
class TaggedRow:
    """The labels of a sentence, or of a window of a long one.

    Attributes:
        positions: position in the row of the first token of each of W words, int32 [W].
        labels: label numbers of these words, int32 [W].
        before: label number of the preceding word, which the window before learns; -1: none.
        after: label number of the following word, which the window after learns; -1: none.
    """

    positions: np.ndarray
    labels: np.ndarray
    before: int
    after: int


class TaggedRows:
    """The rows of all training sentences, and batches of them.

    Attributes:
        sequences: tokens of the R rows.
        lengths: int64 [R], number of tokens of each row.
    """

    def __init__(
        self,
        examples: Sequence[Example[Sentence]],
        tag_set: TagSet,
        tokenizer: Tokenizer,
        length: int,
        *,
        balanced: bool = False,
    ) -> None:
        """Tokenises sentences.

        Args:
            examples: tagged sentences; `tag_set` knows all their tags.
            tag_set: tags of the model.
            tokenizer: tokenizer of the model.
            length: maximum number of tokens per row.
            balanced: whether every tag has the same weight in the loss; otherwise every word.
        """
        self._rows: list[TaggedRow] = []
        self._tokenizer = tokenizer
        with length_key():
            windows = WordWindows(tokenizer, length)

        def encodings() -> Iterator[WordWindow]:
            encoded = encode_in_chunks(windows, (example.input.words for example in examples))
            for example, of_example in zip(examples, encoded, strict=True):
                self._rows += _tagged_rows(example, of_example, tag_set)
                yield from of_example

        self.sequences = Sequences.of(encodings())
        self.lengths = self.sequences.lengths
        counts = np.zeros(len(tag_set.labels), np.int64)
        for row in self._rows:
            np.add.at(counts, row.labels, 1)
        ones = np.ones(len(counts), np.float32)
        self._weights = balanced_weights(counts) if balanced else ones

    def __len__(self) -> int:
        return len(self._rows)

    def batch(self, rows: np.ndarray, length: int) -> Batch:
        """Rows as a batch.

        Args:
            rows: int64 [B], numbers of rows; -1 for a row of padding.
            length: T, the length of the batch; no row has more tokens.

        Returns:
            `input_ids`, `token_type_ids`, `attention_mask`, int32 [B, T]; `word_positions` int32
            [B, W], the positions of the first tokens of words; `labels` int32 [B, W] of these
            words, -1 after the last one; `weights` float32 [B, W], 0 after the last word;
            `label_before` and `label_after` int32 [B], see `TaggedRow`. W is T without the
            special tokens.
        """
        shape = len(rows), max(length - self._tokenizer.num_special_tokens(pair=False), 1)  # BW
        positions, labels = np.zeros(shape, np.int32), np.full(shape, -1, np.int32)
        beside = np.full((2, len(rows)), -1, np.int32)
        for index, number in enumerate(rows.tolist()):
            if number >= 0:
                row = self._rows[number]
                positions[index, : len(row.labels)] = row.positions
                labels[index, : len(row.labels)] = row.labels
                beside[:, index] = row.before, row.after
        return {
            **self.sequences.pad(rows, length, self._tokenizer),
            "word_positions": positions,
            "labels": labels,
            "weights": np.where(labels < 0, np.float32(0), self._weights[labels]),
            "label_before": beside[0],
            "label_after": beside[1],
        }


def _tagged_rows(
    example: Example[Sentence], windows: Sequence[WordWindow], tag_set: TagSet
) -> Iterator[TaggedRow]:
    tags = example.label or ()
    # A word without tokens is not learned; an entity that began with it begins at the next word.
    read = [tags[word] for window in windows for word in window.words]
    labels = np.append(tag_set.numbers(read), np.int32(-1))  # after the last, and so before 0
    start = 0
    for window in windows:
        end = start + len(window.words)
        positions = np.array(window.positions, np.int32)
        yield TaggedRow(positions, labels[start:end], int(labels[start - 1]), int(labels[end]))
        start = end

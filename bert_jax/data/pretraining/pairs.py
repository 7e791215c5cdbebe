"""The token ranges of an example in the corpus: sentence pairs for NSP and SOP, or one text.

With `cross_documents` a text continues in the next document (RoBERTa's FULL-SENTENCES), with a
separator between the two. Then the documents of a source are divided into examples together, as if
they were one.

The original (google-research/bert, create_pretraining_data.py) walks through a document and cuts
one chunk after the other. In this module example k of a document can be computed without its
predecessors: a document of n examples is divided into n equal strides with a random phase for each
epoch, and the example starts with the sentence at its stride. The content of an example (how a
chunk is filled, split, paired and truncated) follows the original. There are two known differences:

- the original draws the target length once per document and pass, so a short target also gives
  more examples (about a third of all); this module draws it per example: 10 % of them are short;
- the original puts the sentences that a random second segment displaced into the next chunk;
  in this module the next chunk keeps its start, and the random phase covers the displaced
  sentences over time.
"""

import enum
from typing import NamedTuple

import numpy as np

from bert_jax.data import randomness
from bert_jax.data.pretraining.corpus import CorpusSplit
from bert_jax.data.pretraining.options import PretrainingOptions
from bert_jax.errors import UserError


class Draw(enum.IntEnum):
    """Names of the random numbers of one example."""

    IS_SHORT = 0
    SHORT_LENGTH = 1
    SPLIT = 2
    IS_RANDOM_NEXT = 3
    RANDOM_DOCUMENT = 4
    RANDOM_SENTENCE = 5
    IS_SWAPPED = 6
    TRUNCATE_FIRST = 7
    TRUNCATE_SECOND = 40  # a truncation uses one number per 64 removed tokens


class Segments(NamedTuple):
    """Token ranges of B examples, all int64 [B], and their labels.

    They are the paper's segments A and B, which `token_type_ids` distinguish (the segment ids of
    `models.packed_rows` distinguish the texts of a row).

    The first segment is `tokens[first_start:first_end]`, the second
    `tokens[second_start:second_end]`, which is empty for the objective "none". With
    `cross_documents` the first segment may have tokens of several documents.
    """

    first_start: np.ndarray
    first_end: np.ndarray
    second_start: np.ndarray
    second_end: np.ndarray
    labels: np.ndarray


class ExamplePlan:
    """The document of each example of an epoch, and the token ranges of examples.

    Attributes:
        examples_per_epoch: number of examples in one epoch.
    """

    def __init__(
        self,
        split: CorpusSplit,
        options: PretrainingOptions,
        max_tokens: int,
        *,
        weighted: bool = True,
    ) -> None:
        """Counts the examples of each document.

        Args:
            split: documents of the split.
            options: objective and share of short examples.
            max_tokens: maximum number of tokens of both segments together, without special tokens
                but with the separators between documents.
            weighted: whether sources are repeated according to their weights (not in evaluation).

        Raises:
            UserError: the split has no documents.
        """
        self._split = split
        self._options, self._max_tokens = options, max_tokens
        # Offsets are accessed at random: keep them in memory, only the tokens on disk.
        self._sentences = np.asarray(split.sentence_offsets, np.int64)
        self._documents = np.asarray(split.document_offsets, np.int64)
        if len(self._documents) < 2:
            raise UserError("the corpus has no document; prepare it from more text")
        document_tokens = split.document_tokens
        repeats = source_repeats(split, document_tokens) if weighted else np.ones(1)
        repeats = np.broadcast_to(repeats, document_tokens.shape)
        # The first sentence of each unit: no example leaves its unit.
        self._units = self._documents
        # Where each sentence begins, and where the one before it ends, separators counted.
        self._begins = self._ends = self._sentences
        if options.cross_documents:
            self._starts = self._sentences[self._documents]  # first token of each document
            boundaries = np.unique(split.source_documents)  # a source may have no document
            self._units, repeats = self._documents[boundaries], repeats[boundaries[:-1]]
            is_start = np.zeros(len(self._sentences), np.int64)
            is_start[self._documents] = 1
            self._begins = self._sentences + np.cumsum(is_start)
            self._ends = self._begins - is_start
        unit_tokens = self._ends[self._units[1:]] - self._begins[self._units[:-1]]
        counts = np.ceil(unit_tokens / max_tokens * repeats).astype(np.int64)
        self._first_example = np.concatenate([[0], np.cumsum(counts)])
        self.examples_per_epoch = int(self._first_example[-1])

    def segments(self, indices: np.ndarray, phase_keys: np.ndarray, keys: np.ndarray) -> Segments:
        """The token ranges of examples.

        Args:
            indices: int64 [B], index of each example in its epoch, in [0, examples_per_epoch).
            phase_keys: uint64 [B], random key of the phases of the epoch.
            keys: uint64 [B], random key of each example.
        """
        targets = self._target_lengths(keys)
        first, unit_end = self._first_sentences(indices, phase_keys, targets)
        if self._options.objective == "none":
            return self._whole_sentences(first, unit_end, targets)
        stop = self._fill(first, unit_end, targets)
        if self._options.objective == "sop":
            pairs = self._ordered_pairs(first, stop, keys)
        else:
            pairs = self._next_sentence_pairs(indices, first, stop, targets, keys)
        return _truncate(pairs, self._max_tokens, keys)

    def separators(self, segments: Segments) -> tuple[np.ndarray, np.ndarray]:
        """The separators between the documents of each text of a plan with `cross_documents`.

        Returns:
            The number of tokens before each separator, with the separators before it, int64
            [B, separators], and whether the example has it, bool [B, separators].
        """
        first = np.searchsorted(self._starts, segments.first_start, side="right")
        last = np.searchsorted(self._starts, segments.first_end, side="left")
        number = np.arange(int((last - first).max(initial=0)))
        document = np.minimum(first[:, None] + number, len(self._starts) - 1)
        before = self._starts[document] - segments.first_start[:, None] + number
        return before, number < (last - first)[:, None]

    def _target_lengths(self, keys: np.ndarray) -> np.ndarray:
        """The target length of each chunk in tokens, int64 [B]."""
        longest = self._max_tokens
        is_short = randomness.uniform_at(keys, Draw.IS_SHORT) < self._options.short_probability
        short = 2 + randomness.integers_at(keys, Draw.SHORT_LENGTH, longest - 1)
        return np.where(is_short, short, longest)

    def _unit_of(self, indices: np.ndarray) -> np.ndarray:
        return np.searchsorted(self._first_example, indices, side="right") - 1

    def _first_sentences(
        self, indices: np.ndarray, phase_keys: np.ndarray, targets: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """The first sentence of each example, and the end of its unit.

        A unit is a document, or with `cross_documents` all documents of a source.
        """
        unit = self._unit_of(indices)
        number = indices - self._first_example[unit]
        count = self._first_example[unit + 1] - self._first_example[unit]
        unit_start = self._begins[self._units[unit]]
        length = self._ends[self._units[unit + 1]] - unit_start
        # All examples of a unit share the phase, so that they cover it evenly in each epoch.
        phase = randomness.uniform_at(phase_keys, unit)
        # A stride begins up to half of one earlier or later; before the unit is its start.
        offset = ((number + phase - 0.5) * (length / count)).astype(np.int64)
        start = unit_start + np.maximum(offset, 0)
        # After this token less than a whole target is left: the example takes the sentences from
        # there to the end of the unit, which no other example would contain.
        latest = unit_start + np.maximum(length - targets, 0)
        closing = np.searchsorted(self._begins, latest, side="left")
        closing = np.minimum(closing, self._units[unit + 1] - 1)
        containing = np.searchsorted(self._begins, start, side="right") - 1
        return np.where(start > latest, closing, containing), self._units[unit + 1]

    def _fill(self, first: np.ndarray, end: np.ndarray, targets: np.ndarray) -> np.ndarray:
        """The end of the sentences from `first` on that together have at least `targets` tokens.

        It is at most the sentence `end`.
        """
        reached = np.searchsorted(self._sentences, self._sentences[first] + targets, side="left")
        return np.minimum(np.maximum(reached, first + 1), end)

    def _whole_sentences(
        self, first: np.ndarray, unit_end: np.ndarray, targets: np.ndarray
    ) -> Segments:
        """As many whole sentences as fit; a sentence that is too long is cut.

        Source: RoBERTa, section 4.2, DOC-SENTENCES, and with `cross_documents` FULL-SENTENCES.
        """
        fitting = np.searchsorted(self._ends, self._begins[first] + targets, side="right") - 1
        start = self._sentences[first]
        end = self._sentences[np.clip(fitting, first + 1, unit_end)]
        # Only the first sentence can be too long; there is no separator in it.
        end = np.minimum(end, start + self._max_tokens)
        return Segments(start, end, end, end, np.zeros(len(first), np.int64))

    def _next_sentence_pairs(
        self,
        indices: np.ndarray,
        first: np.ndarray,
        stop: np.ndarray,
        targets: np.ndarray,
        keys: np.ndarray,
    ) -> Segments:
        """Half of the second segments are the next text, half come from another document.

        A chunk of one sentence has no next text, so its second segment is always random.
        """
        split = _split_point(first, stop, keys)
        is_random = (stop - first == 1) | (randomness.uniform_at(keys, Draw.IS_RANDOM_NEXT) < 0.5)
        documents = len(self._documents) - 1
        own = self._unit_of(indices)
        # Another document, uniformly: draw among one fewer and skip the own one. If the split has
        # only one document, it is used, as in the original after ten tries.
        other = randomness.integers_at(keys, Draw.RANDOM_DOCUMENT, max(documents - 1, 1))
        other += (other >= own) & (documents > 1)
        first_other, sentences = self._documents[other], np.diff(self._documents)[other]
        start = first_other + randomness.integers_at(keys, Draw.RANDOM_SENTENCE, sentences)
        missing = targets - (self._sentences[split] - self._sentences[first])
        end = self._fill(start, self._documents[other + 1], np.maximum(missing, 1))
        return Segments(
            first_start=self._sentences[first],
            first_end=self._sentences[split],
            second_start=self._sentences[np.where(is_random, start, split)],
            second_end=self._sentences[np.where(is_random, end, stop)],
            labels=is_random.astype(np.int64),
        )

    def _ordered_pairs(self, first: np.ndarray, stop: np.ndarray, keys: np.ndarray) -> Segments:
        """Two consecutive segments, swapped in half of the examples (ALBERT, section 3.1).

        A chunk of one sentence is split in the middle.
        """
        split = self._sentences[_split_point(first, stop, keys)]
        start, end = self._sentences[first], self._sentences[stop]
        split = np.where(stop - first == 1, (start + end + 1) // 2, split)
        swapped = randomness.uniform_at(keys, Draw.IS_SWAPPED) < 0.5
        return Segments(
            first_start=np.where(swapped, split, start),
            first_end=np.where(swapped, end, split),
            second_start=np.where(swapped, start, split),
            second_end=np.where(swapped, split, end),
            labels=swapped.astype(np.int64),
        )


def _split_point(first: np.ndarray, stop: np.ndarray, keys: np.ndarray) -> np.ndarray:
    """The first sentence of the second segment; each segment has at least one, if there are two."""
    choices = np.maximum(stop - first - 1, 1)
    return first + 1 + randomness.integers_at(keys, Draw.SPLIT, choices)


def source_repeats(split: CorpusSplit, document_tokens: np.ndarray) -> np.ndarray:
    """The number of passes over each document in an epoch, float64 [documents], at least 1.

    The passes make the tokens of the sources proportional to their weights; sources that are scarce
    for their weight are repeated, none is cut.
    """
    boundaries = np.asarray(split.source_documents)
    tokens_before = np.concatenate([[0], np.cumsum(document_tokens)])
    source_tokens = np.diff(tokens_before[boundaries])
    has_text = source_tokens > 0
    passes = np.ones(len(source_tokens))
    passes[has_text] = split.source_weights[has_text] / source_tokens[has_text]
    passes[has_text] /= passes[has_text].min()
    return np.repeat(passes, np.diff(boundaries))


def _truncate(pairs: Segments, max_tokens: int, keys: np.ndarray) -> Segments:
    """Removes tokens one by one from the longer segment, at front or back with equal probability.

    Source: create_pretraining_data.py, truncate_seq_pair; of two equal segments the second is cut.
    """
    first_length = pairs.first_end - pairs.first_start
    second_length = pairs.second_end - pairs.second_start
    excess = np.maximum(first_length + second_length - max_tokens, 0)
    uneven = np.minimum(np.abs(first_length - second_length), excess)
    even = excess - uneven
    remove_first = np.where(first_length > second_length, uneven, 0) + even // 2
    remove_second = np.where(first_length > second_length, 0, uneven) + (even + 1) // 2
    front_first = _coin_tosses(remove_first, keys, Draw.TRUNCATE_FIRST)
    front_second = _coin_tosses(remove_second, keys, Draw.TRUNCATE_SECOND)
    return Segments(
        first_start=pairs.first_start + front_first,
        first_end=pairs.first_end - (remove_first - front_first),
        second_start=pairs.second_start + front_second,
        second_end=pairs.second_end - (remove_second - front_second),
        labels=pairs.labels,
    )


def _coin_tosses(tosses: np.ndarray, keys: np.ndarray, draw: Draw) -> np.ndarray:
    """The number of heads among `tosses` fair coin tosses, int64 [B]: a count of random bits."""
    heads = np.zeros(len(tosses), np.int64)
    for word in range((int(tosses.max(initial=0)) + 63) // 64):
        left = np.clip(tosses - 64 * word, 0, 64)
        # Shifting by 64 is undefined, so the empty word is masked out instead.
        bits = randomness.random_bits(keys, draw + word) >> (64 - np.maximum(left, 1)).astype(
            np.uint64
        )
        heads += np.where(left > 0, np.bitwise_count(bits), 0)
    return heads

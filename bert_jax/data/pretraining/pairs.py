"""The token ranges of an example in the corpus: sentence pairs for NSP and SOP, or one text.

The original (google-research/bert, create_pretraining_data.py) walks through a document, cutting
one chunk after the other. Here example number k of a document can be computed without its
predecessors: a document of n examples is cut into n equal strides with a random phase for each
epoch, and the example starts with the sentence at its stride. What is in an example (how a chunk
is filled, split, paired and truncated) follows the original. Two differences are known:

- the original draws the target length once per document and pass, so a short target also gives
  more examples (about a third of all); here it is drawn per example: 10 % of examples are short;
- the original puts the sentences that a random second segment displaced into the next chunk; here
  the next chunk starts where it starts, and the random phase covers the displaced ones over time.
"""

import dataclasses
import enum
from typing import NamedTuple

import numpy as np

from bert_jax.data import randomness
from bert_jax.data.pretraining.corpus import CorpusSplit
from bert_jax.errors import OptionError, UserError

OBJECTIVES = ("nsp", "sop", "none")


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

    They are the paper's segments A and B, which `token_type_ids` tell apart (the
    segment ids of `models.packed_rows` tell the texts of a row apart).

    The first segment is `tokens[first_start:first_end]`, the second likewise; the second is empty
    in the objective "none". Labels: "nsp" 0 follows, 1 random; "sop" 1 swapped; "none" 0.
    """

    first_start: np.ndarray
    first_end: np.ndarray
    second_start: np.ndarray
    second_end: np.ndarray
    labels: np.ndarray


@dataclasses.dataclass(frozen=True)
class PairOptions:
    """How examples are cut from documents.

    Attributes:
        objective: "nsp", "sop" or "none".
        max_tokens: the most tokens of both segments together, special tokens not counted.
        short_probability: share of examples whose target length is uniform in [2, max_tokens].
    """

    objective: str = "nsp"
    max_tokens: int = 125
    short_probability: float = 0.1

    def __post_init__(self) -> None:
        if self.objective not in OBJECTIVES:
            raise OptionError("objective", self.objective, f"known are {', '.join(OBJECTIVES)}")
        if self.max_tokens < 2:
            raise OptionError("max_tokens", self.max_tokens, "it must be at least 2")
        if not 0 <= self.short_probability <= 1:
            rule = "it must lie between 0 and 1"
            raise OptionError("short_probability", self.short_probability, rule)


class ExamplePlan:
    """Which document each example of an epoch comes from, and how examples are cut.

    Attributes:
        examples_per_epoch: number of examples in one epoch.
    """

    def __init__(self, split: CorpusSplit, options: PairOptions, *, weighted: bool = True) -> None:
        """Counts the examples of each document.

        Args:
            split: the documents.
            options: how they are cut.
            weighted: whether sources are repeated by their weights (not in evaluation).

        Raises:
            UserError: the split has no documents.
        """
        self._split = split
        self._options = options
        # Offsets are looked up at random: keep them in memory, leave only the tokens on disk.
        self._sentences = np.asarray(split.sentence_offsets, np.int64)
        self._documents = np.asarray(split.document_offsets, np.int64)
        if len(self._documents) < 2:
            raise UserError("the corpus has no document; prepare it from more text")
        document_tokens = np.diff(self._sentences[self._documents])
        repeats = _source_repeats(split, document_tokens) if weighted else 1.0
        counts = np.ceil(document_tokens / options.max_tokens * repeats).astype(np.int64)
        self._first_example = np.concatenate([[0], np.cumsum(counts)])
        self.examples_per_epoch = int(self._first_example[-1])

    def segments(self, indices: np.ndarray, phase_keys: np.ndarray, keys: np.ndarray) -> Segments:
        """The token ranges of examples.

        Args:
            indices: int64 [B], which example of its epoch, in [0, examples_per_epoch).
            phase_keys: uint64 [B], the random key of the epoch's phases.
            keys: uint64 [B], the random key of each example.
        """
        targets = self._target_lengths(keys)
        first, stop = self._chunks(indices, phase_keys, targets)
        if self._options.objective == "none":
            return self._doc_sentences(first, stop, targets)
        if self._options.objective == "sop":
            pairs = self._ordered_pairs(first, stop, keys)
        else:
            pairs = self._next_sentence_pairs(indices, first, stop, targets, keys)
        return _truncate(pairs, self._options.max_tokens, keys)

    def _target_lengths(self, keys: np.ndarray) -> np.ndarray:
        """The target length of each chunk in tokens, int64 [B]."""
        longest = self._options.max_tokens
        is_short = randomness.uniform_at(keys, Draw.IS_SHORT) < self._options.short_probability
        short = 2 + randomness.integers_below(
            randomness.random_bits(keys, Draw.SHORT_LENGTH), longest - 1
        )
        return np.where(is_short, short, longest)

    def _document_of(self, indices: np.ndarray) -> np.ndarray:
        return np.searchsorted(self._first_example, indices, side="right") - 1

    def _chunks(
        self, indices: np.ndarray, phase_keys: np.ndarray, targets: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """Sentences [first, stop) of each example: enough for its target, within a document."""
        document = self._document_of(indices)
        number = indices - self._first_example[document]
        count = self._first_example[document + 1] - self._first_example[document]
        document_start = self._sentences[self._documents[document]]
        document_end = self._sentences[self._documents[document + 1]]
        length = document_end - document_start
        # All examples of a document share the phase, so that they cover it evenly in each epoch.
        phase = randomness.uniform_at(phase_keys, document)
        # A stride begins up to half of one earlier or later; before the document is its start.
        offset = ((number + phase - 0.5) * (length / count)).astype(np.int64)
        start = document_start + np.maximum(offset, 0)
        # Past this token no whole target is left: the example takes the sentences from there to
        # the end of the document, which no other example would reach.
        latest = document_start + np.maximum(length - targets, 0)
        closing = np.searchsorted(self._sentences, latest, side="left")
        closing = np.minimum(closing, self._documents[document + 1] - 1)
        containing = np.searchsorted(self._sentences, start, side="right") - 1
        first = np.where(start > latest, closing, containing)
        return first, self._fill(first, document, targets)

    def _fill(self, first: np.ndarray, document: np.ndarray, targets: np.ndarray) -> np.ndarray:
        """End of the sentences from `first` that together have `targets` tokens or more."""
        reached = np.searchsorted(self._sentences, self._sentences[first] + targets, side="left")
        return np.minimum(np.maximum(reached, first + 1), self._documents[document + 1])

    def _doc_sentences(self, first: np.ndarray, stop: np.ndarray, targets: np.ndarray) -> Segments:
        """As many whole sentences of one document as fit; one that alone is too long is cut.

        Source: RoBERTa, section 4.2, DOC-SENTENCES.
        """
        start = self._sentences[first]
        fitting = np.searchsorted(self._sentences, start + targets, side="right") - 1
        end = self._sentences[np.clip(fitting, first + 1, stop)]
        end = np.minimum(end, start + self._options.max_tokens)
        return Segments(start, end, end, end, np.zeros(len(first), np.int64))

    def _next_sentence_pairs(
        self,
        indices: np.ndarray,
        first: np.ndarray,
        stop: np.ndarray,
        targets: np.ndarray,
        keys: np.ndarray,
    ) -> Segments:
        """Half of the second segments follow, half come from another document.

        A chunk of one sentence has nothing that follows, so its second segment is always random.
        """
        split = _split_point(first, stop, keys)
        is_random = (stop - first == 1) | (randomness.uniform_at(keys, Draw.IS_RANDOM_NEXT) < 0.5)
        documents = len(self._documents) - 1
        own = self._document_of(indices)
        # Another document, uniformly: draw among one less and step over the own one. If the split
        # has only one, it is taken, as in the original after ten tries.
        other = randomness.integers_below(
            randomness.random_bits(keys, Draw.RANDOM_DOCUMENT), max(documents - 1, 1)
        )
        other += (other >= own) & (documents > 1)
        first_other, sentences = self._documents[other], np.diff(self._documents)[other]
        start = first_other + randomness.integers_below(
            randomness.random_bits(keys, Draw.RANDOM_SENTENCE), sentences
        )
        missing = targets - (self._sentences[split] - self._sentences[first])
        end = self._fill(start, other, np.maximum(missing, 1))
        return Segments(
            first_start=self._sentences[first],
            first_end=self._sentences[split],
            second_start=self._sentences[np.where(is_random, start, split)],
            second_end=self._sentences[np.where(is_random, end, stop)],
            labels=is_random.astype(np.int64),
        )

    def _ordered_pairs(self, first: np.ndarray, stop: np.ndarray, keys: np.ndarray) -> Segments:
        """Two consecutive segments, swapped in half of the examples (ALBERT, section 3.1).

        A chunk of one sentence is split in its middle.
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
    """The sentence that begins the second segment: both have at least one, if there are two."""
    choices = np.maximum(stop - first - 1, 1)
    return first + 1 + randomness.integers_below(randomness.random_bits(keys, Draw.SPLIT), choices)


def _source_repeats(split: CorpusSplit, document_tokens: np.ndarray) -> np.ndarray:
    """How often an epoch passes over each document, float64 [documents], at least 1.

    The passes make the tokens of the sources proportional to their weights; the source that is
    scarcest for its weight is repeated, none is cut.
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
    """Removes tokens one by one from the longer segment, at its front or back by a coin.

    Source: create_pretraining_data.py, truncate_seq_pair; of two equal segments the second loses.
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
    """How many of `tosses` fair coins show heads, int64 [B]: a count of random bits."""
    heads = np.zeros(len(tosses), np.int64)
    for word in range((int(tosses.max(initial=0)) + 63) // 64):
        left = np.clip(tosses - 64 * word, 0, 64)
        # Shifting by 64 is undefined, so the empty word is masked out instead.
        bits = randomness.random_bits(keys, draw + word) >> (64 - np.maximum(left, 1)).astype(
            np.uint64
        )
        heads += np.where(left > 0, np.bitwise_count(bits), 0)
    return heads

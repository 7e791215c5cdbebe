"""Masked language modelling: chooses the masked tokens and replaces them (paper, section 3.1)."""

import dataclasses
from typing import NamedTuple

import numpy as np

from bert_jax.data import randomness
from bert_jax.errors import OptionError

UNITS = ("token", "whole_word", "span")

# Positions of the random numbers of an example, past those of `pairs.Draw`.
_SELECT = 1 << 20
_ACTION = 2 << 20
_RANDOM_TOKEN = 3 << 20
_SPAN_LENGTH = 4 << 20

# A sort key carries the position in its lowest bits, so that sorting the keys is enough.
_POSITION_MASK = np.uint64(0xFFFF)
_LAST = np.uint64(0xFFFFFFFFFFFFFFFF)

# Lengths of masked spans in words: geometric with p = 0.2, cut at 10 (SpanBERT, section 3.1).
_SPAN_PROBABILITIES = 0.2 * 0.8 ** np.arange(10)
_SPAN_THRESHOLDS = np.cumsum(_SPAN_PROBABILITIES / _SPAN_PROBABILITIES.sum())


@dataclasses.dataclass(frozen=True)
class MaskingOptions:
    """How masked positions are chosen and replaced.

    Attributes:
        unit: "token", "whole_word" (all pieces of a word; BERT's later models) or "span" (whole
            words in a row, SpanBERT, section 3.1).
        max_predictions: P, the most masked positions of an example.
        mask_fraction: share of the tokens that is masked.
        mask_replace_prob, random_replace_prob: shares of masked tokens that become [MASK], or a
            random token; the others are unchanged.
        mask_id: id of [MASK].
        vocab_size: V; random tokens are drawn from all of them.
    """

    unit: str
    max_predictions: int
    mask_id: int
    vocab_size: int
    mask_fraction: float = 0.15
    mask_replace_prob: float = 0.8
    random_replace_prob: float = 0.1

    def __post_init__(self) -> None:
        if self.unit not in UNITS:
            raise OptionError("unit", self.unit, f"known are {', '.join(UNITS)}")
        if self.max_predictions < 1:
            raise OptionError("max_predictions", self.max_predictions, "it must be at least 1")
        if not 0 < self.mask_fraction < 1:
            raise OptionError("mask_fraction", self.mask_fraction, "it must lie between 0 and 1")


class MaskedPositions(NamedTuple):
    """The masked positions of B examples.

    Attributes:
        positions: int64 [B, P], ascending; if there are fewer than P, the others are 0.
        chosen: bool [B, P], False for these others.
        deciders: int64 [B, P], the position whose random number decides the replacement: its own,
            or the first one of its span, since a span is replaced as one.
    """

    positions: np.ndarray
    chosen: np.ndarray
    deciders: np.ndarray


def num_predictions(lengths: np.ndarray, options: MaskingOptions) -> np.ndarray:
    """Number of masked tokens of each example: int64 [B] from its number of tokens, int64 [B].

    At least one, at most P; with whole words it may be fewer.
    """
    targets = np.rint(lengths * options.mask_fraction).astype(np.int64)
    return np.clip(targets, 1, options.max_predictions)


def choose_positions(
    candidates: np.ndarray,
    continues_word: np.ndarray,
    lengths: np.ndarray,
    keys: np.ndarray,
    options: MaskingOptions,
) -> MaskedPositions:
    """Chooses the masked positions of B examples.

    Args:
        candidates: bool [B, T], tokens that may be masked: not [CLS], [SEP] or padding.
        continues_word: bool [B, T], tokens that continue the word of the token before them.
        lengths: int64 [B], tokens of each example, with [CLS] and [SEP].
        keys: uint64 [B], the random key of each example.
        options: see there.
    """
    targets = num_predictions(lengths, options)
    positions = np.arange(candidates.shape[1])
    if options.unit == "token":
        order = _shuffled(candidates, keys, options.max_predictions)
        kept = (np.arange(order.shape[1]) < targets[:, None]) & (order >= 0)
        order = np.sort(np.where(kept, order, len(positions)), axis=1)
        order = _widen(order, options.max_predictions, len(positions))
        chosen = order < len(positions)
        order[~chosen] = 0
        return MaskedPositions(order, chosen, order)
    after_gap = np.zeros_like(candidates)
    after_gap[:, 1:] = ~candidates[:, :-1]
    starts = candidates & (~continues_word | after_gap)
    if options.unit == "whole_word":
        masked = _mask_words(candidates, starts, targets, keys)
        deciders = np.broadcast_to(positions, candidates.shape)
    else:
        masked, deciders = _mask_spans(candidates, starts, targets, keys)
    return _gathered(masked, deciders, options.max_predictions)


def replace_tokens(
    input_ids: np.ndarray, masked: MaskedPositions, keys: np.ndarray, options: MaskingOptions
) -> tuple[np.ndarray, np.ndarray]:
    """Puts [MASK] (80 %), a random token (10 %) or the token itself (10 %) at masked positions.

    Args:
        input_ids: int32 [B, T].
        masked: the positions.
        keys: uint64 [B], the random key of each example.
        options: the shares, the id of [MASK] and V.

    Returns:
        The new ids, int32 [B, T], and the original ids at the positions, int32 [B, P], 0 where
        nothing is masked.
    """
    originals = np.take_along_axis(input_ids, masked.positions, axis=1)
    action = randomness.uniform_at(keys[:, None], _ACTION + masked.deciders)
    random_tokens = randomness.integers_below(
        randomness.random_bits(keys[:, None], _RANDOM_TOKEN + masked.positions), options.vocab_size
    )
    replacements = np.where(
        action < options.mask_replace_prob,
        options.mask_id,
        np.where(
            action < options.mask_replace_prob + options.random_replace_prob,
            random_tokens,
            originals,
        ),
    )
    # Unused entries of a row are position 0, [CLS], which is written back unchanged.
    replacements = np.where(masked.chosen, replacements, originals).astype(np.int32)
    replaced = input_ids.copy()
    np.put_along_axis(replaced, masked.positions, replacements, axis=1)
    return replaced, np.where(masked.chosen, originals, 0).astype(np.int32)


def _shuffled(eligible: np.ndarray, keys: np.ndarray, count: int) -> np.ndarray:
    """`count` positions of each row in random order, -1 if a row has fewer: int64 [B, count]."""
    positions = np.arange(eligible.shape[1])
    sort_keys = randomness.random_bits(keys[:, None], _SELECT + positions)
    sort_keys = (sort_keys & ~_POSITION_MASK) | positions.astype(np.uint64)
    sort_keys[~eligible] = _LAST
    if count < len(positions):
        sort_keys = np.partition(sort_keys, count - 1, axis=1)[:, :count]
    sort_keys = np.sort(sort_keys, axis=1)
    order = (sort_keys & _POSITION_MASK).astype(np.int64)
    order[sort_keys == _LAST] = -1
    return order


def _next_true(marks: np.ndarray) -> np.ndarray:
    """For each position the first marked one after it, or T: int64 [B, T]."""
    length = marks.shape[1]
    marked = np.where(marks, np.arange(length), length)
    following = np.full(marks.shape, length)
    following[:, :-1] = np.minimum.accumulate(marked[:, :0:-1], axis=1)[:, ::-1]
    return following


def _mask_words(
    candidates: np.ndarray, starts: np.ndarray, targets: np.ndarray, keys: np.ndarray
) -> np.ndarray:
    """Masks words in random order; a word that would exceed the number is skipped.

    Source: create_pretraining_data.py, create_masked_lm_predictions. Returns bool [B, T].
    """
    rows = np.arange(len(starts))
    boundaries = starts | ~candidates
    word_end = _next_true(boundaries)
    order = _shuffled(starts, keys, starts.shape[1])
    remaining = targets.copy()
    word_chosen = np.zeros_like(starts)
    for rank in range(int(starts.sum(axis=1).max(initial=0))):
        start = order[:, rank]
        size = np.where(start >= 0, word_end[rows, start] - start, len(starts[0]))
        fits = size <= remaining
        word_chosen[rows[fits], start[fits]] = True
        remaining -= np.where(fits, size, 0)
        if not remaining.any():
            break
    own_start = np.maximum.accumulate(np.where(boundaries, np.arange(starts.shape[1]), 0), axis=1)
    return np.take_along_axis(word_chosen, own_start, axis=1) & candidates


def _mask_spans(
    candidates: np.ndarray, starts: np.ndarray, targets: np.ndarray, keys: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Masks spans of whole words, each within one segment, until their number is reached.

    The last span is cut there. Returns bool [B, T], and the first position of the span that masked
    each token, int64 [B, T]: one random number there decides what replaces the whole span.
    """
    rows, positions = np.arange(len(starts)), np.arange(starts.shape[1])
    segment_end = _next_true(~candidates)
    lengths = np.searchsorted(
        _SPAN_THRESHOLDS,
        randomness.uniform_at(keys[:, None], _SPAN_LENGTH + positions),
        side="right",
    )  # words after the first one, [B, T]
    word_end = _next_true(starts | ~candidates)
    order = _shuffled(starts, keys, starts.shape[1])
    remaining = targets.copy()
    masked, deciders = np.zeros_like(starts), np.zeros(starts.shape, np.int64)
    # All examples at once: in each round, every example tries its next random word as the beginning
    # of a span. A word that is masked already, or that the example does not have, gives no span.
    for rank in range(int(starts.sum(axis=1).max(initial=0))):
        anchor = np.maximum(order[:, rank], 0)
        usable = (order[:, rank] >= 0) & ~masked[rows, anchor]
        end = word_end[rows, anchor]
        # Word by word, since words differ in tokens; at the end of the segment nothing grows.
        for extra in range(len(_SPAN_THRESHOLDS) - 1):
            grows = (lengths[rows, anchor] > extra) & (end < segment_end[rows, anchor])
            end = np.where(grows, word_end[rows, np.minimum(end, positions[-1])], end)
        span = usable[:, None] & (positions >= anchor[:, None]) & (positions < end[:, None])
        # A span may run into an older one; only its new tokens count towards the number.
        span &= ~masked
        span &= np.cumsum(span, axis=1) <= remaining[:, None]
        masked |= span
        deciders = np.where(span, anchor[:, None], deciders)
        remaining -= span.sum(axis=1)
        if not remaining.any():
            break
    return masked, deciders


def _gathered(masked: np.ndarray, deciders: np.ndarray, max_predictions: int) -> MaskedPositions:
    """The positions of a mask bool [B, T], at most `max_predictions` in each row."""
    rows, columns = np.nonzero(masked)
    counts = masked.sum(axis=1)
    ranks = np.arange(len(rows)) - np.repeat(np.cumsum(counts) - counts, counts)
    result = MaskedPositions(
        positions=np.zeros((len(masked), max_predictions), np.int64),
        chosen=np.arange(max_predictions) < counts[:, None],
        deciders=np.zeros((len(masked), max_predictions), np.int64),
    )
    result.positions[rows, ranks] = columns
    result.deciders[rows, ranks] = deciders[rows, columns]
    return result


def _widen(values: np.ndarray, width: int, filler: int) -> np.ndarray:
    """Adds columns of `filler` up to `width`."""
    missing = max(0, width - values.shape[1])
    return np.pad(values, ((0, 0), (0, missing)), constant_values=filler)

"""Masked language modelling: chooses the masked tokens and replaces them (paper, section 3.1).

The variants of BERT's descendants are values of the same options: RoBERTa's, ALBERT's n-grams,
ELECTRA's positions drawn with replacement, and SpanBERT's spans.
"""

from typing import NamedTuple

import numpy as np

from bert_jax.data import randomness
from bert_jax.data.pretraining.options import PretrainingOptions

# Indices of the random numbers of an example, after the indices of `pairs.Draw`.
_SELECT = 1 << 20
_ACTION = 2 << 20
_RANDOM_TOKEN = 3 << 20
_LENGTH = 4 << 20  # words of a span or n-gram
_ROUND = 5 << 20

# A sort key carries the position in its lowest bits, so that sorting the keys is enough.
_POSITION_MASK = np.uint64(0xFFFF)
_LAST = np.uint64(0xFFFFFFFFFFFFFFFF)


def _thresholds(weights: np.ndarray) -> np.ndarray:
    """Cumulative probabilities; `searchsorted` of a uniform number in them draws an index."""
    return np.cumsum(weights / weights.sum())


# Lengths of masked spans in words: geometric with p = 0.2, cut at 10 (SpanBERT, section 3.1).
_SPAN_LENGTHS = _thresholds(0.2 * 0.8 ** np.arange(10))
# Lengths of masked n-grams in words: p(n) proportional to 1 / n, n up to 3 (ALBERT, section 4.1).
_NGRAM_LENGTHS = _thresholds(1 / np.arange(1, 4))
_ONE_WORD = _thresholds(np.ones(1))


class MaskedPositions(NamedTuple):
    """The masked positions of B examples.

    Attributes:
        positions: int64 [B, P], ascending; unused entries are 0.
        chosen: bool [B, P], False for unused entries.
        deciders: int64 [B, P], position with the random number that decides the replacement: the
            same, or the first of its span, since a span is replaced as a whole. Spans that touch
            are one (SpanBERT, masking.py, merge_intervals).
    """

    positions: np.ndarray
    chosen: np.ndarray
    deciders: np.ndarray


def num_predictions(
    lengths: np.ndarray, options: PretrainingOptions, keys: np.ndarray | None = None
) -> np.ndarray:
    """The number of masked tokens: int64 [B], numbers of tokens → int64 [B].

    At least one, at most P; with whole words or draws with replacement fewer may be masked.

    Args:
        lengths: numbers of tokens, special tokens included.
        options: fraction, rounding and P.
        keys: uint64 [B], random key of each example; None: the largest number for any key.
    """
    exact = lengths * options.mask_fraction
    if options.mask_rounding == "nearest":
        targets = np.rint(exact)
    elif options.mask_rounding == "up" or keys is None:
        targets = np.ceil(exact)
    else:
        targets = np.floor(exact + randomness.uniform_at(keys, _ROUND))
    return np.clip(targets.astype(np.int64), 1, options.max_predictions)


def choose_positions(
    candidates: np.ndarray,
    continues_word: np.ndarray,
    lengths: np.ndarray,
    keys: np.ndarray,
    options: PretrainingOptions,
) -> MaskedPositions:
    """Chooses the masked positions of B examples.

    Args:
        candidates: bool [B, T], tokens that may be masked: not [CLS], [SEP] or padding.
        continues_word: bool [B, T], tokens that continue the word of the token before them.
        lengths: int64 [B], tokens of each example, including [CLS] and [SEP].
        keys: uint64 [B], random key of each example.
        options: unit, fraction, rounding and P.
    """
    targets = num_predictions(lengths, options, keys)
    if options.masking.startswith("token"):
        return _drawn_tokens(candidates, targets, keys, options)
    after_gap = np.zeros_like(candidates)
    after_gap[:, 1:] = ~candidates[:, :-1]
    starts = candidates & (~continues_word | after_gap)
    if options.masking == "span":
        masked = _mask_spans(candidates, starts, targets, keys)
        gathered = _gathered(masked, options.max_predictions)
        return gathered._replace(deciders=_run_starts(gathered))
    lengths_in_words = _NGRAM_LENGTHS if options.masking == "ngram" else _ONE_WORD
    masked = _mask_words(candidates, starts, targets, keys, lengths_in_words)
    return _gathered(masked, options.max_predictions)


def span_boundaries(
    masked: MaskedPositions, candidates: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The tokens next to the span of each masked token (SpanBERT, section 3.2).

    Args:
        masked: the masked positions; those without a gap between them are one span.
        candidates: bool [B, T], see `choose_positions`.

    Returns:
        The positions before and after the span, int64 [B, P], 0 for unused entries; and whether
        both are tokens of the text, bool [B, P]. (A span beside a special token has no such pair in
        the original, masking.py, span_masking.)
    """
    starts = _run_starts(masked)
    # The last position of a run, as the first one of the run in reverse order.
    backwards = MaskedPositions(*(array[:, ::-1] for array in masked))
    last = candidates.shape[1] - 1
    ends = last - _run_starts(backwards._replace(positions=last - backwards.positions))[:, ::-1]
    left, right = np.maximum(starts - 1, 0), np.minimum(ends + 1, last)
    rows = np.arange(len(candidates))[:, None]
    usable = masked.chosen & candidates[rows, left] & candidates[rows, right]
    usable &= (starts > 0) & (ends < last)
    return np.where(masked.chosen, left, 0), np.where(masked.chosen, right, 0), usable


def _run_starts(masked: MaskedPositions) -> np.ndarray:
    """The first position of the run of neighbouring masked positions: int64 [B, P]."""
    begins = np.ones_like(masked.chosen)
    begins[:, 1:] = masked.positions[:, 1:] != masked.positions[:, :-1] + 1
    begins[:, 1:] |= ~masked.chosen[:, :-1]
    index = np.maximum.accumulate(np.where(begins, np.arange(begins.shape[1]), 0), axis=1)
    return np.take_along_axis(masked.positions, index, axis=1)


def replace_tokens(
    input_ids: np.ndarray,
    masked: MaskedPositions,
    keys: np.ndarray,
    options: PretrainingOptions,
    mask_id: int,
    random_ids: np.ndarray,
) -> tuple[np.ndarray, np.ndarray]:
    """Puts [MASK] (80 %), a random token (10 %) or the token itself (10 %) at masked positions.

    Args:
        input_ids: int32 [B, T].
        masked: masked positions.
        keys: uint64 [B], random key of each example.
        options: replacement probabilities.
        mask_id: id of [MASK].
        random_ids: integers [n], the ids of which each random token is one.

    Returns:
        The new ids, int32 [B, T], and the original ids at the positions, int32 [B, P], 0 for
        unused entries.
    """
    originals = np.take_along_axis(input_ids, masked.positions, axis=1)
    action = randomness.uniform_at(keys[:, None], _ACTION + masked.deciders)
    positions = _RANDOM_TOKEN + masked.positions
    random_tokens = random_ids[randomness.integers_at(keys[:, None], positions, len(random_ids))]
    is_mask = action < options.mask_replace_prob
    is_replaced = action < options.mask_replace_prob + options.random_replace_prob
    replacements = np.select([is_mask, is_replaced], [mask_id, random_tokens], originals)
    # Unused entries are position 0, [CLS], which is written back unchanged.
    replacements = np.where(masked.chosen, replacements, originals).astype(np.int32)
    replaced = input_ids.copy()
    np.put_along_axis(replaced, masked.positions, replacements, axis=1)
    return replaced, np.where(masked.chosen, originals, 0).astype(np.int32)


def _drawn_tokens(
    candidates: np.ndarray, targets: np.ndarray, keys: np.ndarray, options: PretrainingOptions
) -> MaskedPositions:
    """`targets` [B] candidates, drawn without or with replacement.

    Source of the latter: google-research/electra, pretrain_helpers.py, mask.
    """
    length, most = candidates.shape[1], options.max_predictions
    if options.masking == "token":
        drawn = _shuffled(candidates, keys, most)
    else:
        counts = candidates.sum(axis=1)[:, None]
        limits = np.maximum(counts, 1)
        ranks = randomness.integers_at(keys[:, None], _SELECT + np.arange(most), limits)
        ascending = np.argsort(~candidates, axis=1, kind="stable")
        drawn = np.where(counts, np.take_along_axis(ascending, ranks, axis=1), -1)
    used = (np.arange(drawn.shape[1]) < targets[:, None]) & (drawn >= 0)
    positions = np.full((len(candidates), most), length)
    positions[:, : drawn.shape[1]] = np.where(used, drawn, length)
    positions.sort(axis=1)
    if options.masking != "token":
        positions[:, 1:][positions[:, 1:] == positions[:, :-1]] = length
        positions.sort(axis=1)
    chosen = positions < length
    positions[~chosen] = 0
    return MaskedPositions(positions, chosen, positions)


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
    """The first marked position after each position, or T if there is none: int64 [B, T]."""
    length = marks.shape[1]
    marked = np.where(marks, np.arange(length), length)
    following = np.full(marks.shape, length)
    following[:, :-1] = np.minimum.accumulate(marked[:, :0:-1], axis=1)[:, ::-1]
    return following


def _mask_words(
    candidates: np.ndarray,
    starts: np.ndarray,
    targets: np.ndarray,
    keys: np.ndarray,
    length_thresholds: np.ndarray,
) -> np.ndarray:
    """Masks n-grams of whole words that begin at random words, each within one segment.

    One that would exceed the number is shortened; if already its first word would, or if one of its
    words is masked already, it is skipped. With n = 1 these are whole words in random order.
    Source: google-research/albert and bert, create_pretraining_data.py,
    create_masked_lm_predictions. Returns bool [B, T].

    Args:
        candidates: bool [B, T].
        starts: bool [B, T], the first token of each word.
        targets: int64 [B].
        keys: uint64 [B].
        length_thresholds: cumulative probabilities of n = 1, 2, ….
    """
    rows, last = np.arange(len(starts)), starts.shape[1] - 1
    boundaries = starts | ~candidates
    word_end = _next_true(boundaries)
    order = _shuffled(starts, keys, starts.shape[1])
    remaining = targets.copy()
    word_chosen = np.zeros_like(starts)
    for rank in range(int(starts.sum(axis=1).max(initial=0))):
        begin = np.maximum(order[:, rank], 0)
        end = word_end[rows, begin]
        fits = (order[:, rank] >= 0) & (end - begin <= remaining) & ~word_chosen[rows, begin]
        words = [begin]
        if len(length_thresholds) > 1:
            uniform = randomness.uniform_at(keys, _LENGTH + begin)
            extra = np.searchsorted(length_thresholds, uniform, side="right")
        for number in range(1, len(length_thresholds)):
            word = np.minimum(end, last)
            grows = (extra >= number) & (end <= last) & starts[rows, word]
            grows &= word_end[rows, word] - begin <= remaining
            fits &= ~(grows & word_chosen[rows, word])
            words.append(np.where(grows, word, begin))
            end = np.where(grows, word_end[rows, word], end)
        for word in words:
            word_chosen[rows[fits], word[fits]] = True
        remaining -= np.where(fits, end - begin, 0)
        if not remaining.any():
            break
    own_start = np.maximum.accumulate(np.where(boundaries, np.arange(starts.shape[1]), 0), axis=1)
    return np.take_along_axis(word_chosen, own_start, axis=1) & candidates


def _mask_spans(
    candidates: np.ndarray, starts: np.ndarray, targets: np.ndarray, keys: np.ndarray
) -> np.ndarray:
    """Masks spans of whole words, each within one segment, until the number is reached.

    The last span is cut at the number. Returns bool [B, T].
    """
    rows, positions = np.arange(len(starts)), np.arange(starts.shape[1])
    segment_end = _next_true(~candidates)
    lengths = np.searchsorted(
        _SPAN_LENGTHS,
        randomness.uniform_at(keys[:, None], _LENGTH + positions),
        side="right",
    )  # words after the first one, [B, T]
    word_end = _next_true(starts | ~candidates)
    order = _shuffled(starts, keys, starts.shape[1])
    remaining = targets.copy()
    masked = np.zeros_like(starts)
    # All examples at once: in each round, every example tries its next random word as the start of
    # a span. A word that is already masked, or that the example does not have, gives no span.
    for rank in range(int(starts.sum(axis=1).max(initial=0))):
        anchor = np.maximum(order[:, rank], 0)
        usable = (order[:, rank] >= 0) & ~masked[rows, anchor]
        end = word_end[rows, anchor]
        # Word by word, since words differ in tokens; at the end of the segment the span stops.
        for extra in range(len(_SPAN_LENGTHS) - 1):
            grows = (lengths[rows, anchor] > extra) & (end < segment_end[rows, anchor])
            end = np.where(grows, word_end[rows, np.minimum(end, positions[-1])], end)
        span = usable[:, None] & (positions >= anchor[:, None]) & (positions < end[:, None])
        # A span may overlap an older one; only its new tokens count towards the number.
        span &= ~masked
        span &= np.cumsum(span, axis=1) <= remaining[:, None]
        masked |= span
        remaining -= span.sum(axis=1)
        if not remaining.any():
            break
    return masked


def _gathered(masked: np.ndarray, max_predictions: int) -> MaskedPositions:
    """The positions of a mask bool [B, T], at most `max_predictions` in each row."""
    chosen = np.arange(max_predictions) < masked.sum(axis=1)[:, None]
    positions = np.zeros(chosen.shape, np.int64)
    positions[chosen] = np.nonzero(masked)[1]  # row by row
    return MaskedPositions(positions, chosen, positions)

"""Which tokens are masked and what replaces them: by eye, as rules, and as rates."""

import math

import numpy as np
import pytest

from bert_jax.data import randomness
from bert_jax.data.pretraining import masking
from bert_jax.data.pretraining.masking import choose_positions, replace_tokens
from bert_jax.data.pretraining.options import PretrainingOptions
from tests.corpora import within

# Two sentences; "##a" to "##c" continue the word "w" before them.
TEXT = "[CLS] w w ##a ##b w w ##a [SEP] w w w ##a ##b ##c w ##a w [SEP] [PAD] [PAD]"
SENTENCES = TEXT.split()

MASK_ID, VOCAB_SIZE = 4, 3000


def options_of(unit="token", max_predictions=8, **changes) -> PretrainingOptions:
    return PretrainingOptions(masking=unit, max_predictions=max_predictions, **changes)


def keys_of(rows: int, seed: int = 3) -> np.ndarray:
    return randomness.random_bits(randomness.derive_key(seed), np.arange(rows))


def masked_sentences(rows: int, **options) -> list[str]:
    """`SENTENCES` with "_" for masked tokens."""
    candidates = np.array([[not token.startswith("[") for token in SENTENCES]] * rows)
    continues = np.array([[token.startswith("##") for token in SENTENCES]] * rows)
    lengths = np.full(rows, 19)
    all_masked = choose_positions(
        candidates, continues, lengths, keys_of(rows), options_of(**options)
    )
    result = []
    for positions, chosen in zip(all_masked.positions, all_masked.chosen, strict=True):
        masked = set(positions[chosen].tolist())
        result.append(" ".join("_" if n in masked else t for n, t in enumerate(SENTENCES)))
    return result


# 30 % of 19 tokens are 5.7, so 6 are masked.
@pytest.mark.parametrize(
    ("unit", "expected"),
    [
        (
            "token",
            [
                "[CLS] _ w ##a ##b w _ ##a [SEP] w _ w _ ##b _ w _ w [SEP] [PAD] [PAD]",
                "[CLS] w w _ ##b _ w _ [SEP] _ w w _ ##b ##c w ##a _ [SEP] [PAD] [PAD]",
                "[CLS] w w ##a ##b w _ ##a [SEP] w w _ ##a _ _ w _ _ [SEP] [PAD] [PAD]",
            ],
        ),
        (
            "whole_word",
            [
                "[CLS] _ w ##a ##b _ _ _ [SEP] w _ w ##a ##b ##c w ##a _ [SEP] [PAD] [PAD]",
                "[CLS] _ w ##a ##b _ _ _ [SEP] _ w w ##a ##b ##c w ##a _ [SEP] [PAD] [PAD]",
                "[CLS] w w ##a ##b _ _ _ [SEP] _ _ w ##a ##b ##c w ##a _ [SEP] [PAD] [PAD]",
            ],
        ),
        (
            "span",
            [
                # One span of three words, of which the last is cut: six tokens are reached.
                "[CLS] w w ##a ##b w w ##a [SEP] w _ _ _ _ _ _ ##a w [SEP] [PAD] [PAD]",
                "[CLS] _ w ##a ##b _ _ _ [SEP] _ w w ##a ##b ##c w ##a _ [SEP] [PAD] [PAD]",
                "[CLS] w w ##a ##b w _ _ [SEP] w w _ _ _ ##c w ##a _ [SEP] [PAD] [PAD]",
            ],
        ),
    ],
)
def test_masks_by_eye(unit, expected):
    assert masked_sentences(3, unit=unit, mask_fraction=0.3) == expected


def test_the_arrays_by_eye():
    #                       C  w  w  S  w  S  P  P     C  w  w  w  S  w  w  S
    candidates = np.array([[0, 1, 1, 0, 1, 0, 0, 0], [0, 1, 1, 1, 0, 1, 1, 0]], bool)
    continues = np.zeros((2, 8), bool)
    masked = choose_positions(
        candidates, continues, np.array([6, 8]), keys_of(2), options_of(mask_fraction=0.4)
    )
    # 0.4 × 6 = 2.4 and 0.4 × 8 = 3.2: two and three are masked, ascending, then filled with 0.
    assert masked.positions.tolist() == [[1, 2, 0, 0, 0, 0, 0, 0], [1, 3, 5, 0, 0, 0, 0, 0]]
    assert masked.chosen.sum(axis=1).tolist() == [2, 3]
    assert masked.deciders.tolist() == masked.positions.tolist()


def test_a_replaced_row_by_eye():
    ids = np.array([[2, 11, 12, 13, 14, 15, 3, 0]], np.int32)
    chosen = masking.MaskedPositions(
        positions=np.array([[1, 2, 3, 4, 5, 0, 0]]),
        chosen=np.array([[True] * 5 + [False] * 2]),
        deciders=np.array([[1, 2, 3, 4, 5, 0, 0]]),
    )

    def replaced(mask_replace_prob, random_replace_prob):
        options = options_of(
            mask_replace_prob=mask_replace_prob, random_replace_prob=random_replace_prob
        )
        return replace_tokens(ids, chosen, keys_of(1), options, MASK_ID, np.arange(VOCAB_SIZE))

    masked, originals = replaced(1.0, 0.0)
    assert masked.tolist() == [[2, 4, 4, 4, 4, 4, 3, 0]]
    assert originals.tolist() == [[11, 12, 13, 14, 15, 0, 0]]
    kept, _ = replaced(0.0, 0.0)
    assert kept.tolist() == ids.tolist()
    random, originals = replaced(0.0, 1.0)
    assert random[0, [0, 6, 7]].tolist() == [2, 3, 0]
    assert originals.tolist() == [[11, 12, 13, 14, 15, 0, 0]]
    assert len(set(random[0, 1:6].tolist())) == 5
    assert ids.tolist() == [[2, 11, 12, 13, 14, 15, 3, 0]]  # the argument is as it was
    assert (masked.dtype, originals.dtype) == (np.int32, np.int32)


def test_a_span_is_replaced_as_one():
    rows, options = 40, options_of("span", mask_replace_prob=0.4, random_replace_prob=0.0)
    candidates = np.ones((rows, 40), bool)
    masked = choose_positions(
        candidates, np.zeros_like(candidates), np.full(rows, 40), keys_of(rows), options
    )
    ids = np.full((rows, 40), 7, np.int32)
    replaced, _ = replace_tokens(
        ids, masked, keys_of(rows), options, MASK_ID, np.arange(VOCAB_SIZE)
    )
    outcomes: dict[tuple[int, int], list[int]] = {}
    for row, column in zip(*np.nonzero(masked.chosen), strict=True):
        position, first = masked.positions[row, column], masked.deciders[row, column]
        outcomes.setdefault((row, first), []).append(int(replaced[row, position]))
    spans = [ids for ids in outcomes.values() if len(ids) > 1]
    assert len(spans) > 30
    assert {tuple(set(ids)) for ids in spans} == {(MASK_ID,), (7,)}


def run_lengths(unit: str) -> np.ndarray:
    """Lengths of masked spans or n-grams, so few that hardly any two touch: int64 [n]."""
    candidates = np.ones((40, 8_000), bool)
    candidates[:, 0] = False
    options = options_of(unit, 80, mask_fraction=0.9)
    masked = choose_positions(candidates, ~candidates, np.full(40, 8_000), keys_of(40), options)
    starts = masking._run_starts(masked)
    return np.concatenate([np.unique(row, return_counts=True)[1] for row in starts])


@pytest.mark.parametrize(
    ("unit", "weights"),
    [
        # Section 3.1: geometric with p = 0.2, cut at 10, which makes 3.8 on average.
        ("span", 0.2 * 0.8 ** np.arange(10)),
        # ALBERT, section 4.1: p(n) proportional to 1 / n, n up to 3.
        ("ngram", 1 / np.arange(1, 4)),
    ],
)
def test_spans_and_ngrams_are_as_long_as_published(unit, weights):
    lengths, expected = run_lengths(unit), weights / weights.sum()
    assert len(lengths) > 800
    counts = np.bincount(lengths, minlength=len(expected) + 1)[1 : len(expected) + 1]
    deviation = np.sqrt(expected * (1 - expected) / len(lengths))
    # Four standard deviations, and a fiftieth that touch each other or are cut at the number.
    assert (np.abs(counts / len(lengths) - expected) < 4 * deviation + 0.02).all()


def test_boundaries_by_eye():
    #                       C  w  w  w  S  w  w  w  w  S
    candidates = np.array([[0, 1, 1, 1, 0, 1, 1, 1, 1, 0]], bool)
    positions = np.array([[2, 6, 7, 0]])
    masked = masking.MaskedPositions(positions, np.array([[True] * 3 + [False]]), positions)
    left, right, usable = masking.span_boundaries(masked, candidates)
    assert (left.tolist(), right.tolist()) == ([[1, 5, 5, 0]], [[3, 8, 8, 0]])
    assert usable.tolist() == [[True, True, True, False]]
    # Both spans are next to a special token.
    masked = masked._replace(positions=np.array([[1, 7, 8, 0]]))
    left, right, usable = masking.span_boundaries(masked, candidates)
    assert (left.tolist(), right.tolist()) == ([[0, 6, 6, 0]], [[2, 9, 9, 0]])
    assert not usable.any()


def test_electra_masks_85_percent_of_positions_drawn_with_replacement():
    rows, length, most = 4_000, 128, 19
    candidates = np.zeros((rows, length), bool)
    candidates[:, 1:31] = True
    options = PretrainingOptions(
        masking="token_with_replacement",
        max_predictions=most,
        mask_replace_prob=0.85,
        random_replace_prob=0.0,
    )
    lengths = np.full(rows, 100)
    masked = choose_positions(candidates, ~candidates, lengths, keys_of(rows), options)
    counts = masked.chosen.sum(axis=1)
    assert counts.max() == 15  # 15 % of 100
    for positions, chosen in zip(masked.positions, masked.chosen, strict=True):
        of_row = positions[chosen].tolist()
        assert of_row == sorted(set(of_row))
        assert not positions[~chosen].any()
    # 15 draws of 30 leave a position out with (29/30)^15. Its variance is at most 30 times the
    # variance of one position, and 4,000 rows are independent.
    share = 1 - (29 / 30) ** 15
    assert counts.mean() == pytest.approx(30 * share, abs=4 * math.sqrt(15 / rows))
    shares = np.bincount(masked.positions[masked.chosen], minlength=length)[1:31]
    assert all(within(count, rows, share) for count in shares)

    ids = np.broadcast_to(np.arange(100, 100 + length, dtype=np.int32), (rows, length))
    replaced, originals = replace_tokens(
        ids, masked, keys_of(rows), options, MASK_ID, np.arange(50)
    )
    shown = np.take_along_axis(replaced, masked.positions, axis=1)[masked.chosen]
    assert within((shown == MASK_ID).sum(), len(shown), 0.85)
    assert ((shown == MASK_ID) | (shown == originals[masked.chosen])).all()


def test_the_number_of_masked_tokens():
    lengths = np.array([3, 10, 30, 128, 512])

    def numbers(rounding: str, keys=None) -> list[int]:
        options = PretrainingOptions(max_predictions=77, mask_rounding=rounding)
        return masking.num_predictions(lengths, options, keys).tolist()

    # Exactly 0.45, 1.5, 4.5, 19.2 and 76.8.
    assert numbers("nearest") == [1, 2, 4, 19, 77]
    assert numbers("up") == numbers("random") == [1, 2, 5, 20, 77]
    options = PretrainingOptions(max_predictions=77, mask_rounding="random")
    counts = masking.num_predictions(np.full(2_000, 128), options, keys_of(2_000))
    assert set(counts.tolist()) == {19, 20}
    assert within((counts == 20).sum(), 2_000, 0.2)

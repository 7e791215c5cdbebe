"""Which tokens are masked and what replaces them: by eye, as rules, and as rates."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bert_jax.data import randomness
from bert_jax.data.pretraining import masking
from bert_jax.data.pretraining.masking import choose_positions, replace_tokens
from bert_jax.data.pretraining.options import UNITS, PretrainingOptions
from bert_jax.errors import UserError

# Two sentences; "##a" to "##c" continue the word "w" before them.
SENTENCES = [
    "[CLS]",
    "w",
    "w",
    "##a",
    "##b",
    "w",
    "w",
    "##a",
    "[SEP]",
    "w",
    "w",
    "w",
    "##a",
    "##b",
    "##c",
    "w",
    "##a",
    "w",
    "[SEP]",
    "[PAD]",
    "[PAD]",
]

MASK_ID, VOCAB_SIZE = 4, 3000


def options_of(unit="token", max_predictions=8, **changes) -> PretrainingOptions:
    return PretrainingOptions(masking=unit, max_predictions=max_predictions, **changes)


def keys_of(rows: int, seed: int = 3) -> np.ndarray:
    return randomness.random_bits(randomness.derive_key(seed), np.arange(rows))


def masked_sentences(rows: int, **options) -> list[str]:
    """`SENTENCES` with "_" for what is masked."""
    candidates = np.array([[not token.startswith("[") for token in SENTENCES]] * rows)
    continues = np.array([[token.startswith("##") for token in SENTENCES]] * rows)
    lengths = np.full(rows, 19)
    found = choose_positions(candidates, continues, lengths, keys_of(rows), options_of(**options))
    result = []
    for positions, chosen in zip(found.positions, found.chosen, strict=True):
        masked = set(positions[chosen].tolist())
        result.append(" ".join("_" if n in masked else t for n, t in enumerate(SENTENCES)))
    return result


# 30 % of 19 tokens are 5.7, so 6 are masked.
def test_token_masks_by_eye():
    assert masked_sentences(3, unit="token", mask_fraction=0.3) == [
        "[CLS] _ w ##a ##b w _ ##a [SEP] w _ w _ ##b _ w _ w [SEP] [PAD] [PAD]",
        "[CLS] w w _ ##b _ w _ [SEP] _ w w _ ##b ##c w ##a _ [SEP] [PAD] [PAD]",
        "[CLS] w w ##a ##b w _ ##a [SEP] w w _ ##a _ _ w _ _ [SEP] [PAD] [PAD]",
    ]


def test_whole_word_masks_by_eye():
    assert masked_sentences(3, unit="whole_word", mask_fraction=0.3) == [
        "[CLS] _ w ##a ##b _ _ _ [SEP] w _ w ##a ##b ##c w ##a _ [SEP] [PAD] [PAD]",
        "[CLS] _ w ##a ##b _ _ _ [SEP] _ w w ##a ##b ##c w ##a _ [SEP] [PAD] [PAD]",
        "[CLS] w w ##a ##b _ _ _ [SEP] _ _ w ##a ##b ##c w ##a _ [SEP] [PAD] [PAD]",
    ]


def test_span_masks_by_eye():
    assert masked_sentences(3, unit="span", mask_fraction=0.3) == [
        # One span of three words, of which the last is cut: six tokens are reached.
        "[CLS] w w ##a ##b w w ##a [SEP] w _ _ _ _ _ _ ##a w [SEP] [PAD] [PAD]",
        "[CLS] _ w ##a ##b _ _ _ [SEP] _ w w ##a ##b ##c w ##a _ [SEP] [PAD] [PAD]",
        "[CLS] w w ##a ##b w _ _ [SEP] w w _ _ _ ##c w ##a _ [SEP] [PAD] [PAD]",
    ]


def test_the_arrays_by_eye():
    #                       C  w  w  S  w  S  P  P     C  w  w  w  S  w  w  S
    candidates = np.array([[0, 1, 1, 0, 1, 0, 0, 0], [0, 1, 1, 1, 0, 1, 1, 0]], bool)
    continues = np.zeros((2, 8), bool)
    found = choose_positions(
        candidates, continues, np.array([6, 8]), keys_of(2), options_of(mask_fraction=0.4)
    )
    # 0.4 × 6 = 2.4 and 0.4 × 8 = 3.2: two and three are masked, ascending, then filled with 0.
    assert found.positions.tolist() == [[1, 2, 0, 0, 0, 0, 0, 0], [1, 3, 5, 0, 0, 0, 0, 0]]
    assert found.chosen.astype(int).tolist() == [[1, 1, 0, 0, 0, 0, 0, 0], [1, 1, 1, 0, 0, 0, 0, 0]]
    assert found.deciders.tolist() == found.positions.tolist()


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


@given(
    st.lists(st.text("swc", min_size=8, max_size=8), min_size=1, max_size=8),
    st.sampled_from(UNITS),
    st.integers(1, 12),
    st.floats(0.05, 0.9),
    st.integers(0, 1000),
)
def test_rules_that_hold_for_any_row(rows, unit, max_predictions, probability, seed):
    """Rows of s (special), w (begins a word) and c (continues it, if one stands before it)."""
    marks = np.array([["s", *row[1:]] for row in rows])  # [CLS] comes first
    candidates = marks != "s"
    lengths = np.full(len(rows), 8)
    options = options_of(unit, max_predictions, mask_fraction=probability)
    found = choose_positions(candidates, marks == "c", lengths, keys_of(len(rows), seed), options)
    wanted = min(max(1, round(8 * probability)), max_predictions)
    assert found.positions.shape == found.chosen.shape == (len(rows), max_predictions)
    for row, positions, chosen in zip(marks, found.positions, found.chosen, strict=True):
        masked = positions[chosen].tolist()
        assert masked == sorted(set(masked))
        assert not positions[~chosen].any()
        assert all(row[position] != "s" for position in masked)
        words = words_of(row)
        if unit in ("whole_word", "ngram"):
            assert len(masked) <= wanted
            assert all(set(word) <= set(masked) or not set(word) & set(masked) for word in words)
            left = wanted - len(masked)
            unmasked = [word for word in words if not set(word) & set(masked)]
            assert unit == "ngram" or all(len(word) > left for word in unmasked)
        elif unit == "token_with_replacement":
            assert min(1, (row != "s").sum()) <= len(masked) <= wanted
        else:
            assert len(masked) == min(wanted, (row != "s").sum())
        if unit == "span":
            cut = [word for word in words if set(word) & set(masked) and set(word) - set(masked)]
            assert len(cut) <= 1


def words_of(row: np.ndarray) -> list[list[int]]:
    """Positions of each word of a row of s, w and c."""
    words: list[list[int]] = []
    for position, mark in enumerate(row):
        if mark == "c" and words and words[-1][-1] == position - 1:
            words[-1].append(position)
        elif mark != "s":
            words.append([position])
    return words


@pytest.mark.parametrize("unit", UNITS)
def test_rows_do_not_depend_on_each_other(unit):
    generator = np.random.default_rng(0)
    candidates = generator.random((20, 40)) < 0.9
    continues = generator.random((20, 40)) < 0.3
    lengths, keys = np.full(20, 40), keys_of(20)
    options = options_of(unit)
    together = choose_positions(candidates, continues, lengths, keys, options)
    for row in range(20):
        alone = choose_positions(
            candidates[[row]], continues[[row]], lengths[[row]], keys[[row]], options
        )
        for found, expected in zip(alone, together, strict=True):
            assert found[0].tolist() == expected[row].tolist()


def test_all_tokens_are_chosen_equally_often():
    candidates = np.zeros((40_000, 16), bool)
    candidates[:, 1:11] = True
    rows = len(candidates)
    found = choose_positions(
        candidates, ~candidates, np.full(rows, 13), keys_of(rows), options_of()
    )
    shares = np.bincount(found.positions[found.chosen], minlength=16)[1:11] / rows
    # 15 % of 13 tokens are 1.95: two of ten candidates.
    np.testing.assert_allclose(shares, 0.2, atol=0.008)


def run_lengths(unit: str) -> np.ndarray:
    """Lengths of masked spans or n-grams, so few that hardly any two touch: int64 [n]."""
    candidates = np.ones((40, 8_000), bool)
    candidates[:, 0] = False
    options = options_of(unit, 80, mask_fraction=0.9)
    found = choose_positions(candidates, ~candidates, np.full(40, 8_000), keys_of(40), options)
    starts = masking._run_starts(found)
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


def test_bad_options():
    with pytest.raises(UserError, match="^masking is 'words'; known are token, "):
        options_of("words")
    with pytest.raises(UserError, match="^max_predictions is 0; it must be at least 1"):
        options_of(max_predictions=0)

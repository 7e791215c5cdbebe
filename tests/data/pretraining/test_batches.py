"""Batches for pre-training: rules for any corpus, rates over many tokens, and hosts."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bert_jax.data.pretraining import packing
from bert_jax.data.pretraining.batches import PretrainingBatches
from bert_jax.data.pretraining.options import UNITS, PretrainingOptions
from tests.corpora import rows_of, within

SHAPES_AND_DTYPES = {
    "input_ids": ("BT", np.int32),
    "token_type_ids": ("BT", np.int32),
    "attention_mask": ("BT", np.int32),
    "masked_lm_positions": ("BP", np.int32),
    "masked_lm_ids": ("BP", np.int32),
    "masked_lm_weights": ("BP", np.float32),
}
LABELS = {
    "next_sentence_labels": ("B", np.int32),
    "next_sentence_weights": ("B", np.float32),
}
BOUNDARIES = {
    "span_left_positions": ("BP", np.int32),
    "span_right_positions": ("BP", np.int32),
    "span_weights": ("BP", np.float32),
}


@pytest.fixture(scope="module")
def numbered_batches(numbered_tokenizer, make_numbered_split):
    """Batches of a corpus of sentences of 3 to 29 tokens, with ids that count up."""
    generator = np.random.default_rng(5)
    lengths = [generator.integers(3, 30, size).tolist() for size in generator.integers(30, 90, 40)]
    split = make_numbered_split(lengths)

    def make(**options) -> PretrainingBatches:
        return PretrainingBatches(split, numbered_tokenizer, PretrainingOptions(**options))

    return make


def check_row(row, objective: str, unit: str, probability: float = 0.15) -> None:
    """Rules of one example of a numbered corpus, read back without any of the code."""
    length = int(row["attention_mask"].sum())
    assert row["attention_mask"].tolist() == [1] * length + [0] * (len(row["input_ids"]) - length)
    assert not row["input_ids"][length:].any()
    assert not row["token_type_ids"][length:].any()

    chosen = row["masked_lm_weights"] == 1
    count = int(chosen.sum())
    assert row["masked_lm_weights"].tolist() == [1] * count + [0] * (len(chosen) - count)
    assert not row["masked_lm_positions"][~chosen].any()
    assert not row["masked_lm_ids"][~chosen].any()
    positions = row["masked_lm_positions"][chosen].tolist()
    assert positions == sorted(set(positions))
    original = row["input_ids"][:length].copy()
    original[positions] = row["masked_lm_ids"][chosen]

    # Special tokens were never masked: the restored text has them.
    separators = np.flatnonzero(original == 3).tolist()
    assert original[0] == 2
    assert len(separators) == (1 if objective == "none" else 2)
    assert separators[-1] == length - 1
    assert not {0, *separators} & set(positions)
    assert (original >= 5).sum() == length - 1 - len(separators)
    second = 0 if objective == "none" else separators[1] - separators[0]
    assert row["token_type_ids"][:length].tolist() == [0] * (length - second) + [1] * second

    # Ids count up through the corpus, so each segment counts up (and begins again after 2999).
    for start, end in zip([0, *separators], separators, strict=False):
        steps = np.diff(original[start + 1 : end])
        assert set(steps.tolist()) <= {1, 5 - 2999}

    expected = max(1, min(round(length * probability), len(chosen)))
    words = words_of(original)
    partly = [w for w in words if 0 < len(set(w) & set(positions)) < len(w)]
    if unit in ("whole_word", "ngram"):
        assert partly == []
        left = expected - count
        assert left >= 0
        unmasked = [word for word in words if not set(word) & set(positions)]
        # An n-gram of a masked and an unmasked word is skipped; a single word never is.
        assert unit == "ngram" or all(len(word) > left for word in unmasked)
    elif unit == "token_with_replacement":
        assert 1 <= count <= expected
    else:
        assert count == expected
    if unit == "span":
        assert len(partly) <= 1


def words_of(ids: np.ndarray) -> list[list[int]]:
    """Positions of each word; `numbered_tokenizer` says which ids continue one."""
    words: list[list[int]] = []
    for position, number in enumerate(ids.tolist()):
        continues = number >= 5 and (number % 4 == 0 or number % 12 == 1)
        if continues and words and words[-1][-1] == position - 1 and ids[position - 1] >= 5:
            words[-1].append(position)
        elif number >= 5:
            words.append([position])
    return words


@settings(max_examples=60)
@given(
    lengths=st.lists(st.lists(st.integers(2, 30), min_size=1, max_size=8), min_size=2, max_size=5),
    objective=st.sampled_from(["nsp", "sop", "none"]),
    unit=st.sampled_from(UNITS),
    length=st.integers(8, 60),
    max_predictions=st.integers(1, 10),
    fraction=st.floats(0.05, 0.5),
    seed=st.integers(0, 1000),
)
def test_rules_that_hold_for_any_corpus_and_options(
    make_numbered_split, numbered_tokenizer, lengths, objective, unit, length, max_predictions,
    fraction, seed,
):  # fmt: skip
    options = PretrainingOptions(
        length=length, objective=objective, masking=unit, max_predictions=max_predictions,
        mask_fraction=fraction, seed=seed, span_boundary=(objective, unit) == ("none", "span"),
    )  # fmt: skip
    batches = PretrainingBatches(make_numbered_split(lengths), numbered_tokenizer, options)
    batch = batches.batch(seed, 8)
    sizes = {"B": 8, "T": length, "P": max_predictions}
    expected = SHAPES_AND_DTYPES | (LABELS if objective != "none" else {})
    expected |= BOUNDARIES if options.span_boundary else {}
    assert list(batch) == list(expected)
    for name, (axes, dtype) in expected.items():
        assert batch[name].shape == tuple(sizes[axis] for axis in axes), name
        assert batch[name].dtype == dtype, name
    for row in rows_of(batch):
        check_row(row, objective, unit, fraction)


@pytest.mark.parametrize("unit", ["token", "whole_word", "span"])
def test_rates_over_many_tokens(numbered_batches, unit):
    """15 % of the tokens, [CLS] and [SEP] counted, each row rounded; of these 80, 10 and 10 %."""
    batch = numbered_batches(masking=unit).batch(0, 10_000)
    lengths = batch["attention_mask"].sum(axis=1)
    assert lengths.sum() > 1_000_000
    chosen = batch["masked_lm_weights"] == 1
    rounded = np.clip(np.rint(0.15 * lengths), 1, 20)
    assert chosen.sum() == pytest.approx(rounded.sum(), rel=0.01)
    assert chosen.sum() == pytest.approx(0.15 * lengths.sum(), rel=0.01)

    shown = np.take_along_axis(batch["input_ids"], batch["masked_lm_positions"], axis=1)[chosen]
    originals = batch["masked_lm_ids"][chosen]
    assert (shown == 4).mean() == pytest.approx(0.8, abs=0.01)
    assert (shown == originals).mean() == pytest.approx(0.1, abs=0.01)
    random = shown[(shown != 4) & (shown != originals)]
    assert len(random) / len(shown) == pytest.approx(0.1, abs=0.01)
    # Random tokens come from the whole vocabulary, equally: quarters of the 3000 ids.
    np.testing.assert_allclose(np.bincount(random // 750) / len(random), 0.25, atol=0.02)

    assert batch["next_sentence_labels"].mean() == pytest.approx(0.5, abs=0.02)
    assert set(np.unique(originals)) <= set(range(5, 3000))
    everywhere = np.ones_like(batch["input_ids"], bool)
    np.put_along_axis(everywhere, batch["masked_lm_positions"], False, axis=1)
    assert 4 not in batch["input_ids"][everywhere]


@pytest.fixture
def make(numbered_batches, monkeypatch):
    """Batches of rows of 64 tokens, packed on request in groups of 64 rows."""
    monkeypatch.setattr(packing, "GROUP_ROWS", 64)

    def make_batches(*, packed=False, **options):
        batches = numbered_batches(length=64, **options)
        return packing.PackedBatches(batches) if packed else batches

    return make_batches


def assert_same(batches, expected) -> None:
    """Compares the rows of batches, one after the other, with one batch."""
    assert all(list(batch) == list(expected) for batch in batches)
    for name, array in expected.items():
        assert np.concatenate([batch[name] for batch in batches]).tobytes() == array.tobytes(), name


@pytest.mark.parametrize(
    "options",
    [
        *({"masking": unit} for unit in UNITS),
        {"objective": "none", "cross_documents": True, "mask_rounding": "random"},
        {"objective": "none", "masking": "span", "span_boundary": True, "random_tokens": "corpus"},
        {"packed": True},
        {"packed": True, "masking": "whole_word"},
    ],
)
def test_four_hosts_make_the_rows_of_one(make, options):
    whole = make(**options).batch(5, 24)  # rows 120 … 143 are in two groups
    # Each host has its own planner, as it has its own process.
    assert_same([make(**options).batch(5, 6, host=host, hosts=4) for host in range(4)], whole)


@pytest.mark.parametrize("packed", [False, True])
def test_a_batch_does_not_depend_on_what_was_made_before(make, packed):
    batches, again = make(packed=packed), make(packed=packed)
    in_order = [batches.batch(number, 40) for number in range(4)]
    for number in (3, 1, 1, 0, 2):
        assert_same([again.batch(number, 40)], in_order[number])
    # Nor on how examples are grouped to batches.
    assert_same([again.batch(number, 1) for number in range(80, 120)], in_order[2])


def test_seed_and_epoch_change_the_examples(tiny_batches):
    batches, other = tiny_batches(seed=1), tiny_batches(seed=2)
    size = batches.examples_per_epoch
    first, second = batches.batch(0, size), batches.batch(1, size)
    assert first["input_ids"].tolist() != second["input_ids"].tolist()
    assert first["input_ids"].tolist() != other.batch(0, size)["input_ids"].tolist()


def test_an_epoch_has_each_stretch_once(numbered_tokenizer, make_numbered_split):
    # Ten documents of one sentence that fills an example: an epoch shows each of them once.
    split = make_numbered_split([[14]] * 10)
    options = PretrainingOptions(length=16, objective="none", short_probability=0.0)
    batches = PretrainingBatches(split, numbered_tokenizer, options)
    assert batches.examples_per_epoch == 10
    for epoch in range(3):
        starts = sorted(restored(batches.batch(epoch, 10))[:, 1].tolist())
        assert starts == [5 + 14 * number for number in range(10)]


def restored(batch) -> np.ndarray:
    """The ids before masking."""
    ids = batch["input_ids"].copy()
    for row, positions in enumerate(batch["masked_lm_positions"]):
        chosen = batch["masked_lm_weights"][row] == 1
        ids[row, positions[chosen]] = batch["masked_lm_ids"][row, chosen]
    return ids


@pytest.mark.parametrize(
    ("rows", "slots", "hosts"),
    [(1, 1, 1), (2, 2, 1), (4, 4, 1), (9, 9, 1), (10, 10, 1), (6, 6, 3), (2, 8, 1), (3, 4, 2)],
)
def test_an_evaluation_counts_each_example_once(tiny_batches, rows, slots, hosts):
    batches = tiny_batches()
    size = batches.examples_per_epoch
    assert size == 9
    expected = batches.batch(0, size)
    count = -(-size // rows)
    batches_of_hosts = [
        batches.evaluation_batch(number, rows, columns)
        for number in range(count)
        for columns in np.split(np.arange(slots), hosts)
    ]
    joined = {
        name: np.concatenate([batch[name] for batch in batches_of_hosts]) for name in expected
    }
    assert len(joined["input_ids"]) == count * slots
    counted = joined["next_sentence_weights"] > 0
    for name, array in joined.items():
        assert array.dtype == expected[name].dtype
        assert array[counted].tobytes() == expected[name].tobytes()
    assert not joined["masked_lm_weights"][~counted].any()


def test_where_random_tokens_come_from(tiny_batches, documents, tokenizer):
    options = {"mask_replace_prob": 0.0, "random_replace_prob": 1.0, "length": 16}

    def shown(kind: str) -> list[int]:
        batch = tiny_batches(random_tokens=kind, max_predictions=3, **options).batch(0, 400)
        ids = np.take_along_axis(batch["input_ids"], batch["masked_lm_positions"], axis=1)
        return ids[batch["masked_lm_weights"] == 1].tolist()

    assert set(shown("vocabulary")) == set(range(40))
    assert set(shown("non_special")) == set(range(5, 40))
    corpus = shown("corpus")
    assert set(corpus) < set(range(5, 40))
    sentences = [ids for document in documents for ids in tokenizer.encode_sentences(document)]
    assert sum(ids.count(6) for ids in sentences) == 18  # "the"
    assert within(corpus.count(6), len(corpus), 18 / sum(map(len, sentences)))

"""Several examples in a row: each whole, masked by its own rules, shown once, on any hosts."""

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from bert_jax.data.pretraining import packing
from bert_jax.data.pretraining.batches import PretrainingBatches
from bert_jax.data.pretraining.options import ROUNDINGS, UNITS, PretrainingOptions
from bert_jax.data.pretraining.packing import PackedBatches
from bert_jax.errors import UserError
from tests.corpora import rows_of

LABEL_KEYS = ("next_sentence_positions", "next_sentence_labels", "next_sentence_weights")
SPAN_KEYS = ("span_left_positions", "span_right_positions", "span_weights")


@pytest.fixture(autouse=True, scope="module")
def small_groups():
    """Groups of 64 rows, so that a few batches cross several."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(packing, "GROUP_ROWS", 64)
        yield


@pytest.fixture(scope="module")
def make_batches(numbered_tokenizer, make_numbered_split):
    """Batches of 40 documents of 100 to 1,600 tokens, with ids that count up."""
    generator = np.random.default_rng(5)
    lengths = [generator.integers(3, 30, size).tolist() for size in generator.integers(6, 100, 40)]
    split = make_numbered_split(lengths)

    def make(**options) -> PretrainingBatches:
        return PretrainingBatches(split, numbered_tokenizer, PretrainingOptions(**options))

    return make


def examples_of(row) -> list[tuple]:
    """The examples of a packed row, read back without any of the code; checks the filling."""
    is_token = row["segment_ids"] > 0
    count, used = int(row["segment_ids"].max(initial=0)), int(is_token.sum())
    assert row["segment_ids"][:used].tolist() == sorted(row["segment_ids"][:used].tolist())
    for name in ("input_ids", "token_type_ids", "segment_ids", "position_ids"):
        assert not row[name][used:].any(), name  # the id of [PAD] is 0
    chosen = row["masked_lm_weights"] == 1
    assert not row["masked_lm_weights"][~chosen].any()
    assert not row["masked_lm_positions"][~chosen].any()
    assert not row["masked_lm_ids"][~chosen].any()
    positions = row["masked_lm_positions"][chosen].tolist()
    assert positions == sorted(set(positions))
    for name in LABEL_KEYS:
        assert name not in row or not row[name][count:].any()

    examples = []
    for number in range(1, count + 1):
        columns = np.flatnonzero(row["segment_ids"] == number)
        start, end = int(columns[0]), int(columns[-1]) + 1
        if "next_sentence_positions" in row:
            assert row["next_sentence_positions"][number - 1] == start
        assert row["position_ids"][start:end].tolist() == list(range(end - start))
        assert row["input_ids"][start] == 2
        inside = [i for i, position in enumerate(positions) if start <= position < end]
        examples.append(
            (
                tuple(row["input_ids"][start:end].tolist()),
                tuple(row["token_type_ids"][start:end].tolist()),
                tuple(positions[i] - start for i in inside),
                tuple(row["masked_lm_ids"][inside].tolist()),
                *(row[name][number - 1].item() for name in LABEL_KEYS[1:] if name in row),
                *(
                    tuple((row[name][inside] - start * name.endswith("positions")).tolist())
                    for name in SPAN_KEYS
                    if name in row
                ),
            )
        )
    return examples


def unpacked(batch) -> list[tuple]:
    """The examples of rows with one example each, as `examples_of`."""
    examples = []
    for row in rows_of(batch):
        length, masked = int(row["attention_mask"].sum()), int(row["masked_lm_weights"].sum())
        examples.append(
            (
                tuple(row["input_ids"][:length].tolist()),
                tuple(row["token_type_ids"][:length].tolist()),
                tuple(row["masked_lm_positions"][:masked].tolist()),
                tuple(row["masked_lm_ids"][:masked].tolist()),
                *(row[name].item() for name in LABEL_KEYS[1:] if name in row),
                *(tuple(row[name][:masked].tolist()) for name in SPAN_KEYS if name in row),
            )
        )
    return examples


@pytest.mark.slow
@settings(max_examples=30)
@given(
    lengths=st.lists(st.lists(st.integers(2, 30), min_size=1, max_size=8), min_size=2, max_size=5),
    objective=st.sampled_from(["nsp", "sop", "none"]),
    unit=st.sampled_from(UNITS),
    length=st.integers(8, 80),
    spare=st.integers(0, 5),
    seed=st.integers(0, 1000),
)
@example([[2], [2]], "nsp", "token", 80, 0, 1)  # a row has 10 labels, but tokens for 13
def test_rows_hold_whole_examples_of_the_stretch_of_their_group(
    make_numbered_split, numbered_tokenizer, lengths, objective, unit, length, spare, seed
):
    options = PretrainingOptions(
        length=length, objective=objective, masking=unit, seed=seed,
        max_predictions=max(1, round(0.15 * length)) + 1 + spare,
        # Every other seed has the switches that only one text has.
        cross_documents=objective == "none" and seed % 2 == 0,
        span_boundary=(objective, unit) == ("none", "span"),
        mask_rounding=ROUNDINGS[seed % 3],
    )  # fmt: skip
    batches = PretrainingBatches(make_numbered_split(lengths), numbered_tokenizer, options)
    packed = PackedBatches(batches)
    examples = [example for row in rows_of(packed.batch(1, 64)) for example in examples_of(row)]
    pool = packed._pool
    expected = unpacked(batches.examples(np.arange(pool, 2 * pool)))
    left_out = list(expected)
    for entry in examples:
        left_out.remove(entry)  # each is one of them, and none is there twice
    assert len(left_out) < 0.25 * pool


@pytest.mark.parametrize(("length", "predictions"), [(128, 20), (512, 77), (512, 80)])
def test_nearly_all_tokens_are_real_and_few_examples_are_left_out(
    make_batches, monkeypatch, length, predictions
):
    monkeypatch.setattr(packing, "GROUP_ROWS", 1024)
    batches = make_batches(length=length, max_predictions=predictions)
    packed = PackedBatches(batches)
    real = np.mean(batches.lengths(np.arange(5000))) / length
    padding, left_out = packed.shares()
    assert 1 - padding > 0.965 > 0.945 > real
    assert left_out < 0.01
    # The figures agree with the batches.
    masks = np.concatenate([packed.batch(n, 1024)["segment_ids"] for n in range(8)])
    assert padding == pytest.approx((masks == 0).mean())
    # An epoch of rows holds all examples of an epoch, except those left out.
    shown = packed.rows_per_epoch * masks.max(axis=1).mean()
    assert shown == pytest.approx(batches.examples_per_epoch, rel=0.03)


def test_long_and_short_examples_are_spread_over_a_group(make_batches):
    """Packing begins with the longest; batches of a part of a group must not tell."""
    packed = PackedBatches(make_batches(length=512, max_predictions=80))
    counts = np.concatenate([packed.batch(n, 64)["segment_ids"].max(axis=1) for n in range(20)])
    halves = counts.reshape(20, 2, 32).mean(axis=(0, 2))
    assert halves.mean() > 1.1
    assert abs(halves[0] - halves[1]) < 0.05


def test_other_examples_are_left_out_in_each_epoch(make_batches):
    batches = make_batches(length=128, max_predictions=20)
    packed = PackedBatches(batches)
    size = batches.examples_per_epoch
    groups = 2 * size // packed._pool + 1
    shown = np.concatenate([packed._group(group).numbers for group in range(groups)])
    left_out = [set(range(e * size, (e + 1) * size)) - set(shown.tolist()) for e in range(2)]
    # By their lengths: numbers of an epoch are shuffled.
    lengths = [set(batches.lengths(np.array(sorted(numbers))).tolist()) for numbers in left_out]
    assert 0 < len(left_out[0]) < 0.05 * size
    assert lengths[0] != lengths[1]


def test_a_batch_far_into_a_run_costs_no_more_than_the_first(make_batches):
    batches = make_batches(length=64)
    sizes: list[int] = []
    draw = batches.lengths
    batches.lengths = lambda numbers: (sizes.append(len(numbers)), draw(numbers))[1]
    packed = PackedBatches(batches)
    sizes.clear()
    packed.batch(10**9, 32)
    assert sizes == [packed._pool]


def test_too_little_room_for_masks_is_refused(make_batches):
    with pytest.raises(
        UserError,
        match="^data.max_predictions is 20; a packed row of 512 tokens has 77 masked ones",
    ):
        PackedBatches(make_batches(length=512, max_predictions=20))

"""What BERT's descendants mask and pair otherwise: literal examples, rates with exact bounds."""

import math

import numpy as np
import pytest

from bert_jax.data import randomness
from bert_jax.data.pretraining import masking
from bert_jax.data.pretraining.masking import choose_positions, replace_tokens
from bert_jax.data.pretraining.options import PretrainingOptions
from bert_jax.data.pretraining.packing import PackedBatches
from bert_jax.data.pretraining.readable import as_text
from bert_jax.errors import UserError

MASK_ID = 4
ROBERTA = {
    "objective": "none", "cross_documents": True, "short_probability": 0.0,
    "random_tokens": "non_special", "mask_rounding": "random",
}  # fmt: skip
SPANBERT = {
    "objective": "none", "masking": "span", "span_boundary": True, "mask_rounding": "up",
    "mask_fraction": 0.25, "max_predictions": 8, "random_tokens": "corpus",
}  # fmt: skip


def keys_of(rows: int) -> np.ndarray:
    return randomness.random_bits(randomness.derive_key(3), np.arange(rows))


def within(count: int, total: int, share: float) -> bool:
    """Whether `count` of `total` draws is within four standard deviations of `share`."""
    return abs(count - total * share) <= 4 * math.sqrt(total * share * (1 - share))


def test_rows_across_documents_by_eye(tiny_batches, tokenizer):
    batch = tiny_batches(seed=3, length=28, max_predictions=5, **ROBERTA).batch(0, 2)
    assert as_text(batch, tokenizer, "none") == (
        "example 0: 28 tokens (28 + 0), 0 of padding, 4 masked\n"
        "  [CLS] the song was long [MASK]←and low . the sun went [MASK]←down . [SEP] the boy ##s "
        "walk ##ed to the sea . one play [MASK]←##ed [MASK]←. [SEP]\n"
        "\n"
        "example 1: 19 tokens (19 + 0), 9 of padding, 3 masked\n"
        "  [CLS] one found [MASK]←a shell .←. it was long and warm . [SEP] the sun went up "
        "[MASK]←. [SEP]"
    )
    assert batch["attention_mask"].sum(axis=1).tolist() == [28, 19]
    assert not batch["token_type_ids"].any()
    assert batch["input_ids"][0, 13:16].tolist() == [3, 6, 13]


def test_spans_and_their_boundaries_by_eye(tiny_batches, tokenizer):
    options = SPANBERT | {"seed": 3, "length": 28, "short_probability": 0.0}
    batch = tiny_batches(**options, max_span_targets=4).examples(np.array([0, 1]))
    rows = as_text(batch, tokenizer, "none").split("\n\n")
    assert rows[0].splitlines()[1:] == [
        "  [CLS] the boy ##s walk ##ed to the sea . one [MASK]←play [MASK]←##ed [MASK]←. "
        "[MASK]←one [MASK]←found [MASK]←a shell . it was [MASK]←long and warm . [SEP]",
        # Six tokens are masked, of which the first four are predicted so.
        "  from one and shell, the tokens next to them: play ##ed . one",
        "  from was and and, the tokens next to them: long",
    ]
    expected = """
masked_lm_positions  11 12 13 14 15 16 21 0
masked_lm_ids        24 38  5 36 26  7 34 0
span_left_positions  10 10 10 10 10 10 20 0
span_right_positions 17 17 17 17 17 17 22 0
span_weights          1  1  1  1  0  0  1 0
"""
    for line in expected.strip().splitlines():
        name, *values = line.split()
        assert batch[name][0].tolist() == [float(value) for value in values], name
    # The second row ends in a masked span: [SEP] is next to it, so it has no boundaries.
    assert batch["masked_lm_positions"][1].tolist() == [17, 18, 19, 20, 21, 23, 24, 0]
    assert batch["span_weights"][1].tolist() == [1, 1, 1, 1, 0, 0, 0, 0]


def test_packed_spans_have_the_boundaries_of_their_example(tiny_batches, tokenizer):
    options = SPANBERT | {"seed": 17, "length": 28, "short_probability": 0.9}
    batch = PackedBatches(tiny_batches(**options)).batch(0, 1)
    assert as_text(batch, tokenizer, "none").splitlines()[2:] == [
        "row 0, example 0: 7 tokens (7 + 0), 0 of padding, 2 masked",
        "  [CLS] the song [MASK]←was [MASK]←long . [SEP]",
        "  from song and ., the tokens next to them: was long",
        "",
        "row 0, example 1: 7 tokens (7 + 0), 0 of padding, 2 masked",
        "  [CLS] the [MASK]←sun went up←up . [SEP]",
        "  from the and went, the tokens next to them: sun",
        "  from went and ., the tokens next to them: up",
    ]
    assert batch["span_left_positions"][0].tolist() == [2, 2, 8, 10, 0, 0, 0, 0]


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
    found = choose_positions(candidates, ~candidates, lengths, keys_of(rows), options)
    counts = found.chosen.sum(axis=1)
    assert counts.max() == 15  # 15 % of 100
    for positions, chosen in zip(found.positions, found.chosen, strict=True):
        masked = positions[chosen].tolist()
        assert masked == sorted(set(masked))
        assert not positions[~chosen].any()
    # 15 draws of 30 leave a position out with (29/30)^15. Its variance is that of one position
    # at most 30 times, and 4,000 rows are independent.
    share = 1 - (29 / 30) ** 15
    assert counts.mean() == pytest.approx(30 * share, abs=4 * math.sqrt(15 / rows))
    shares = np.bincount(found.positions[found.chosen], minlength=length)[1:31]
    assert all(within(count, rows, share) for count in shares)

    ids = np.broadcast_to(np.arange(100, 100 + length, dtype=np.int32), (rows, length))
    replaced, originals = replace_tokens(ids, found, keys_of(rows), options, MASK_ID, np.arange(50))
    shown = np.take_along_axis(replaced, found.positions, axis=1)[found.chosen]
    assert within((shown == MASK_ID).sum(), len(shown), 0.85)
    assert ((shown == MASK_ID) | (shown == originals[found.chosen])).all()


def test_the_number_of_masked_tokens():
    lengths = np.array([3, 10, 30, 128, 512])

    def numbers(rounding: str, keys=None) -> list[int]:
        options = PretrainingOptions(max_predictions=77, mask_rounding=rounding)
        return masking.num_predictions(lengths, options, keys).tolist()

    # Exactly 0.45, 1.5, 4.5, 19.2 and 76.8.
    assert numbers("nearest") == [1, 2, 4, 19, 77]
    assert numbers("up") == numbers("random") == [1, 2, 5, 20, 77]
    options = PretrainingOptions(max_predictions=77, mask_rounding="random")
    found = masking.num_predictions(np.full(2_000, 128), options, keys_of(2_000))
    assert set(found.tolist()) == {19, 20}
    assert within((found == 20).sum(), 2_000, 0.2)


def test_where_random_tokens_come_from(tiny_batches, documents, tokenizer):
    options = {"mask_replace_prob": 0.0, "random_replace_prob": 1.0, "length": 16}

    def shown(kind: str) -> list[int]:
        batch = tiny_batches(random_tokens=kind, max_predictions=3, **options).batch(0, 400)
        found = np.take_along_axis(batch["input_ids"], batch["masked_lm_positions"], axis=1)
        return found[batch["masked_lm_weights"] == 1].tolist()

    assert set(shown("vocabulary")) == set(range(40))
    assert set(shown("non_special")) == set(range(5, 40))
    corpus = shown("corpus")
    assert set(corpus) < set(range(5, 40))
    sentences = [ids for document in documents for ids in tokenizer.encode_sentences(document)]
    assert sum(ids.count(6) for ids in sentences) == 18  # "the"
    assert within(corpus.count(6), len(corpus), 18 / sum(map(len, sentences)))


@pytest.mark.parametrize("options", [ROBERTA, SPANBERT], ids=["roberta", "spanbert"])
def test_batches_do_not_depend_on_hosts_and_evaluations_count_each_example_once(
    tiny_batches, options
):
    batches = tiny_batches(**{"length": 28, "max_predictions": 8} | options)
    whole = batches.batch(3, 8)
    parts = [batches.batch(3, 2, host=host, hosts=4) for host in range(4)]
    for name, array in whole.items():
        assert np.concatenate([part[name] for part in parts]).tobytes() == array.tobytes(), name
    size = batches.examples_per_epoch
    assert 2 < size < 8
    padded = batches.evaluation_batch(0, size, np.arange(8))
    for name in ("masked_lm_weights", "span_weights"):
        if name in padded:
            assert padded[name][:size].tobytes() == batches.batch(0, size)[name].tobytes()
            assert not padded[name][size:].any()


def test_bad_combinations():
    for changes, message in (
        ({"cross_documents": True}, "^cross_documents is True; only objective=none continues"),
        ({"span_boundary": True}, "^span_boundary is True; set masking=span, which is token"),
        ({"span_boundary": True, "masking": "span"}, "^span_boundary is True; set objective=none"),
        ({"mask_replace_prob": 0.95}, "^random_replace_prob is 0.1; with mask_replace_prob, 0.95"),
        ({"mask_rounding": "down"}, "^mask_rounding is 'down'; known are nearest, up, random"),
        ({"random_tokens": "words"}, "^random_tokens is 'words'; known are vocabulary, "),
    ):
        with pytest.raises(UserError, match=message):
            PretrainingOptions(**changes)

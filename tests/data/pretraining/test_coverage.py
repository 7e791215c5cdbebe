"""The share of the corpus that an epoch shows, against the ids of its examples."""

import itertools

import numpy as np
import pytest

from bert_jax.data.pretraining.batches import PretrainingBatches
from bert_jax.data.pretraining.coverage import _size_of_union, shown_share
from bert_jax.data.pretraining.options import PretrainingOptions


@pytest.mark.parametrize(
    ("objective", "cross"), [("nsp", False), ("sop", False), ("none", False), ("none", True)]
)
def test_the_share_is_that_of_the_ids_in_the_examples(
    objective, cross, make_numbered_split, numbered_tokenizer
):
    draw = np.random.default_rng(0)
    for length, documents in itertools.product((16, 40), ([1, 1], [1, 9, 30], [40] * 3)):
        sizes = [draw.integers(1, 15, sentences).tolist() for sentences in documents]
        split = make_numbered_split(sizes)  # every id occurs once
        options = PretrainingOptions(
            length=length, objective=objective, masking="token", max_predictions=8, seed=length,
            cross_documents=cross,
        )  # fmt: skip
        batches = PretrainingBatches(split, numbered_tokenizer, options)
        rows = batches.examples(np.arange(batches.examples_per_epoch))
        # Without the masks, some of which are other ids.
        example, column = rows["masked_lm_weights"].nonzero()
        places = rows["masked_lm_positions"][example, column]
        rows["input_ids"][example, places] = rows["masked_lm_ids"][example, column]
        seen = {*rows["input_ids"].ravel().tolist()} & {*split.tokens.tolist()}
        found = shown_share(split, numbered_tokenizer, options)
        assert found == pytest.approx(len(seen) / len(split.tokens), abs=1e-12)


def test_of_a_large_split_every_other_document_is_counted(make_numbered_split, numbered_tokenizer):
    draw = np.random.default_rng(1)
    sizes = [draw.integers(5, 40, draw.integers(5, 60)).tolist() for _ in range(300)]
    for boundaries, weights in (((0, 300), (1.0,)), ((0, 200, 300), (1.0, 3.0))):
        split = make_numbered_split(sizes, boundaries, weights)
        options = PretrainingOptions(length=64)
        exact = shown_share(split, numbered_tokenizer, options)
        assert 0.6 < exact < 0.95
        sampled = shown_share(
            split, numbered_tokenizer, options, most_tokens=len(split.tokens) // 3
        )
        assert sampled == pytest.approx(exact, abs=0.02)
        assert sampled != exact


def test_the_size_of_a_union_of_ranges():
    draw = np.random.default_rng(2)
    for count in (0, 1, 2, 5, 30):
        for _ in range(20):
            starts = draw.integers(0, 50, count)
            ends = starts + draw.integers(0, 9, count)  # some are empty
            inside = {n for a, b in zip(starts, ends, strict=True) for n in range(a, b)}
            assert _size_of_union(starts, ends) == len(inside)

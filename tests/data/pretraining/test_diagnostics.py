"""Share of shown tokens against the ids of the examples; warnings about the examples."""

import itertools

import numpy as np
import pytest

from bert_jax.data.pretraining.batches import PretrainingBatches
from bert_jax.data.pretraining.diagnostics import degenerate_targets, shown_share
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
        position = rows["masked_lm_positions"][example, column]
        rows["input_ids"][example, position] = rows["masked_lm_ids"][example, column]
        seen = {*rows["input_ids"].ravel().tolist()} & {*split.tokens.tolist()}
        share = shown_share(split, numbered_tokenizer, options)
        assert share == pytest.approx(len(seen) / len(split.tokens), abs=1e-12)


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


# Documents as the lengths of their sentences in tokens.
ONE_SENTENCE = [[10]] * 40
NEXT = "in 100% of the pairs the second sentence is random: "
PREPARE = "; prepare documents of several sentences (data.format, data.sentences), or set "
HALVES = f"100% of the documents have one sentence, and its halves are the pairs{PREPARE}"
MEDIAN = (
    f"{NEXT}the median sentence has 40 tokens, and a row 32; prepare shorter ones "
    "(data.sentences), or raise data.length, or set data.objective=none"
)
PADDING = "of the tokens of the rows are padding: most documents are shorter than 32 tokens; set"


@pytest.mark.parametrize(
    ("objective", "documents", "packing", "expected"),
    [
        # [CLS] 10 [SEP] 10 [SEP]: 23 of 32 tokens.
        ("nsp", ONE_SENTENCE, False, [f"{NEXT}100% of the documents have one sentence{PREPARE}"]),
        # [CLS] 5 [SEP] 5 [SEP].
        ("sop", ONE_SENTENCE, False, [HALVES, f"59% {PADDING} data.packing=true, or lower data."]),
        # [CLS] 10 [SEP].
        ("none", ONE_SENTENCE, False, [f"62% {PADDING} data.packing=true, or lower"]),
        ("none", ONE_SENTENCE, True, []),
        ("nsp", [[40] * 3] * 30, False, [MEDIAN]),
        ("nsp", [[5] * 30] * 10, False, []),
        ("sop", [[5] * 30] * 10, False, []),
        ("none", [[5] * 30] * 10, False, []),
    ],
)
def test_degenerate_targets(
    objective, documents, packing, expected, make_numbered_split, numbered_tokenizer
):
    split = make_numbered_split(documents)
    options = PretrainingOptions(length=32, objective=objective, short_probability=0.0)
    examples = PretrainingBatches(split, numbered_tokenizer, options)
    lines = list(degenerate_targets(split, examples, packing=packing))
    assert len(lines) == len(expected), lines
    for line, start in zip(lines, expected, strict=True):
        assert line.startswith(start)

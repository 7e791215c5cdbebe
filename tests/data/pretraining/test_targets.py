"""Targets that teach nothing are said: documents as the lengths of their sentences in tokens."""

import pytest

from bert_jax.data.pretraining.batches import PretrainingBatches
from bert_jax.data.pretraining.options import PretrainingOptions
from bert_jax.data.pretraining.targets import degenerate_targets

ONE_SENTENCE = [[10]] * 40
NEXT = "in 100% of the pairs the second sentence is random: "
PREPARE = "; prepare documents of several sentences (data.format, data.sentences), or set "
PADDING = "of the tokens of the rows are padding: most documents are shorter than 32 tokens; set"


@pytest.mark.parametrize(
    ("objective", "documents", "packing", "expected"),
    [
        # [CLS] 10 [SEP] 10 [SEP]: 23 of 32 tokens.
        ("nsp", ONE_SENTENCE, False, [f"{NEXT}100% of the documents have one sentence{PREPARE}"]),
        # [CLS] 5 [SEP] 5 [SEP].
        (
            "sop",
            ONE_SENTENCE,
            False,
            [
                f"100% of the documents have one sentence, whose halves are the pairs{PREPARE}",
                f"59% {PADDING} data.packing=true, or lower data.length",
            ],
        ),
        # [CLS] 10 [SEP].
        ("none", ONE_SENTENCE, False, [f"62% {PADDING} data.packing=true, or lower"]),
        ("none", ONE_SENTENCE, True, []),
        (
            "nsp",
            [[40] * 3] * 30,
            False,
            [
                f"{NEXT}the median sentence has 40 tokens, and a row 32; prepare shorter ones "
                "(data.sentences), or raise data.length, or set data.objective=none"
            ],
        ),
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
    found = list(degenerate_targets(split, examples, packing=packing))
    assert len(found) == len(expected), found
    for line, start in zip(found, expected, strict=True):
        assert line.startswith(start)

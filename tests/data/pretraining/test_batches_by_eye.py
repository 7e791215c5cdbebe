"""Whole batches, by literal values and as readable text."""

import dataclasses

import numpy as np
import pytest

from bert_jax.data.pretraining.batches import PretrainingBatches
from bert_jax.data.pretraining.diagnostics import as_text
from bert_jax.data.pretraining.options import PretrainingOptions
from bert_jax.data.pretraining.packing import PackedBatches
from bert_jax.tokenization import Template

ROBERTA = {
    "objective": "none", "cross_documents": True, "short_probability": 0.0,
    "random_tokens": "non_special", "mask_rounding": "random",
}  # fmt: skip
SPANBERT = {
    "objective": "none", "masking": "span", "span_boundary": True, "mask_rounding": "up",
    "mask_fraction": 0.25, "max_predictions": 8, "random_tokens": "corpus",
}  # fmt: skip


def assert_rows(batch, expected: str) -> None:
    """Compares a batch of 20 tokens with rows of numbers, a blank line between examples."""
    for row, block in enumerate(expected.strip().split("\n\n")):
        for line in block.splitlines():
            name, *values = line.split()
            assert batch[name][row].tolist() == list(map(float, values)), (row, name)


# The comments above the ids have the words of the corpus; the vocabulary is in tests/corpora.py.
def test_next_sentences_and_token_masks_by_eye(tiny_batches):
    batch = tiny_batches(seed=7).examples(np.array([5, 8, 4]))
    # 0: 17 tokens, 3 masked. "was" became "boy" (13); "low" and "." became [MASK] (4); random.
    #   [CLS] the song was long and low . [SEP] the dog ran to the tree . [SEP]
    # 1: "the" is missing: 13 + 5 tokens were one too many. "." was chosen and stays; "sun" became
    #   "mat" (14), "went" [MASK]; random.
    #   [CLS] boy ##s walk ##ed to the sea . one play ##ed . [SEP] the sun went down . [SEP]
    # 2: the last "." is missing. "down" was chosen and stays; it is the next sentence.
    #   [CLS] the sun went up . [SEP] the sea was low and the boy ##s ran down to it [SEP]
    expected = """
input_ids           2  6 16 13 34 30  4  4  3  6 11 21 29  6 15  5  3  0  0  0
token_type_ids      0  0  0  0  0  0  0  0  0  1  1  1  1  1  1  1  1  0  0  0
attention_mask      1  1  1  1  1  1  1  1  1  1  1  1  1  1  1  1  1  0  0  0
masked_lm_positions 3  6  7  0
masked_lm_ids       9 35  5  0
masked_lm_weights   1  1  1  0

input_ids           2 13 37 23 38 29  6 18  5 36 24 38  5  3  6 14  4 32  5  3
token_type_ids      0  0  0  0  0  0  0  0  0  0  0  0  0  0  1  1  1  1  1  1
attention_mask      1  1  1  1  1  1  1  1  1  1  1  1  1  1  1  1  1  1  1  1
masked_lm_positions 8 15 16  0
masked_lm_ids       5 17 25  0
masked_lm_weights   1  1  1  0

input_ids           2  6 17 25  4  5  3  6 18  9 35 30  6 13 37 21 32  4  8  3
token_type_ids      0  0  0  0  0  0  0  1  1  1  1  1  1  1  1  1  1  1  1  1
attention_mask      1  1  1  1  1  1  1  1  1  1  1  1  1  1  1  1  1  1  1  1
masked_lm_positions 4 16 17  0
masked_lm_ids      31 32 29  0
masked_lm_weights   1  1  1  0
"""
    assert_rows(batch, expected)
    assert batch["next_sentence_labels"].tolist() == [1, 1, 0]
    assert batch["next_sentence_weights"].tolist() == [1.0, 1.0, 1.0]


def test_special_tokens_follow_the_template(tokenizer, make_split):
    template = Template(single="A sep:1 cls:2", pair="cls:1 A sep sep B:3 sep:2")
    other = tokenizer.with_description(
        dataclasses.replace(tokenizer.description, template=template)
    )
    split = make_split([[[10, 11, 12], [13, 14]]])
    options = {"length": 16, "mask_fraction": 0.01, "short_probability": 0.0}

    def row(objective):
        pretraining = PretrainingOptions(objective=objective, max_predictions=1, **options)
        batches = PretrainingBatches(split, other, pretraining)
        batch = batches.batch(0, 1)
        assert batches.lengths([0]) == batch["attention_mask"].sum()
        # Of the one masked token, the original.
        (position,), (original,) = batch["masked_lm_positions"][0], batch["masked_lm_ids"][0]
        batch["input_ids"][0, position] = original
        return [batch[key][0].tolist() for key in ("input_ids", "token_type_ids", "attention_mask")]

    assert row("none") == [
        [10, 11, 12, 13, 14, 3, 2, *[0] * 9],
        [0, 0, 0, 0, 0, 1, 2, *[0] * 9],
        [1, 1, 1, 1, 1, 1, 1, *[0] * 9],
    ]
    ids, types, mask = row("sop")
    first = 3 if ids[1] == 10 else 2  # they may be swapped
    texts = [[10, 11, 12], [13, 14]]
    texts = texts if first == 3 else texts[::-1]
    assert ids == [2, *texts[0], 3, 3, *texts[1], 3, *[0] * 7]
    assert types == [1, *[0] * first, 0, 0, *[3] * (5 - first), 2, *[0] * 7]
    assert mask == [*[1] * 9, *[0] * 7]


@pytest.mark.parametrize(
    ("options", "numbers", "expected"),
    [
        (
            {"seed": 2, "objective": "sop", "masking": "whole_word"},
            [3, 1, 5],
            "example 0: 20 tokens (12 + 8), 0 of padding, 3 masked\n"
            "  [CLS] song [MASK]←was long and low [MASK]←. [MASK]←the sun went down [SEP]\n"
            "  a bird sang in the tree . [SEP]\n"
            "  label 1: the two are swapped\n"
            "\n"
            "example 1: 20 tokens (9 + 11), 0 of padding, 3 masked\n"
            "  [CLS] the [MASK]←cat sat on the mat [MASK]←. [SEP]\n"
            "  was warm . the dog ran to the [MASK]←tree . [SEP]\n"  # "it" is missing
            "  label 0: the two are in order\n"
            "\n"
            "example 2: 20 tokens (7 + 13), 0 of padding, 3 masked\n"
            "  [CLS] the sun went up . [SEP]\n"
            "  sea was low and the [MASK]←boy [MASK]←##s ran down to it [MASK]←. [SEP]\n"
            "  label 0: the two are in order",
        ),
        (
            {"seed": 2, "objective": "none", "masking": "span"},
            [3, 1],
            "example 0: 16 tokens (16 + 0), 4 of padding, 2 masked\n"
            "  [CLS] a [MASK]←bird [MASK]←sang in the tree . the song was long and low . [SEP]\n"
            "\n"
            "example 1: 20 tokens (20 + 0), 0 of padding, 3 masked\n"
            "  [CLS] the cat sat on the mat [MASK]←. [MASK]←it [MASK]←was warm . the dog ran to "
            "the tree . [SEP]",
        ),
        (
            {"seed": 7},
            [5, 4],
            "example 0: 17 tokens (9 + 8), 3 of padding, 3 masked\n"
            "  [CLS] the song boy←was long and [MASK]←low [MASK]←. [SEP]\n"
            "  the dog ran to the tree . [SEP]\n"
            "  label 1: the second sentence is random\n"
            "\n"
            "example 1: 20 tokens (7 + 13), 0 of padding, 3 masked\n"
            "  [CLS] the sun went [MASK]←up . [SEP]\n"
            "  the sea was low and the boy ##s ran down←down [MASK]←to it [SEP]\n"
            "  label 0: the second sentence is the next one",
        ),
        (
            {"seed": 3, "length": 28, "max_predictions": 5, **ROBERTA},
            [0, 1],
            "example 0: 28 tokens (28 + 0), 0 of padding, 4 masked\n"
            "  [CLS] the song was long [MASK]←and low . the sun went [MASK]←down . [SEP] the boy "
            "##s walk ##ed to the sea . one play [MASK]←##ed [MASK]←. [SEP]\n"
            "\n"
            "example 1: 19 tokens (19 + 0), 9 of padding, 3 masked\n"
            "  [CLS] one found [MASK]←a shell .←. it was long and warm . [SEP] the sun went up "
            "[MASK]←. [SEP]",
        ),
    ],
)
def test_examples_as_text_by_eye(tiny_batches, tokenizer, options, numbers, expected):
    batch = tiny_batches(**options).examples(np.array(numbers))
    assert as_text(batch, tokenizer, options.get("objective", "nsp")) == expected


def test_packed_rows_as_text_by_eye(tiny_batches, tokenizer, monkeypatch):
    monkeypatch.setattr("bert_jax.data.pretraining.packing.GROUP_ROWS", 64)
    options = {"length": 28, "max_predictions": 6, "short_probability": 0.9, "seed": 17}
    batch = PackedBatches(tiny_batches(**options)).batch(0, 1)
    assert as_text(batch, tokenizer, "nsp") == (
        "row 0: 28 tokens, 0 of padding, examples: 2\n"
        "\n"
        "row 0, example 0: 12 tokens (7 + 5), 0 of padding, 2 masked\n"
        "  [CLS] the sun went up . [SEP]\n"
        "  [MASK]←it [MASK]←was warm . [SEP]\n"
        "  label 1: the second sentence is random\n"
        "\n"
        "row 0, example 1: 16 tokens (9 + 7), 0 of padding, 2 masked\n"
        "  [CLS] a←a bird sang in [MASK]←the tree . [SEP]\n"
        "  the dog ##s ran on . [SEP]\n"
        "  label 1: the second sentence is random"
    )


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
    assert_rows(batch, expected)
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

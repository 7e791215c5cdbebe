"""Windows for causal language models, by eye and for any corpus."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bert_jax.data.pretraining.causal import CausalExamples, CausalOptions
from bert_jax.errors import UserError

END = 9_999


def first_epoch(examples: CausalExamples) -> list[dict[str, list]]:
    """The rows of an epoch in the order of the stream."""
    batch = examples.examples(np.arange(examples.examples_per_epoch))
    rows = [
        {name: array[row].tolist() for name, array in batch.items()}
        for row in range(examples.examples_per_epoch)
    ]
    return sorted(rows, key=lambda row: min(set(row["input_ids"]) - {END, 0}, default=0))


def test_windows_by_eye(make_numbered_split):
    """Documents 5 6 7 8 9 | 10 11 | 12 13 14 in windows of four."""
    split = make_numbered_split([[3, 2], [2], [3]])
    examples = CausalExamples(split, CausalOptions(length=4), separator_id=END)
    assert first_epoch(examples) == [
        {"input_ids": [END, 5, 6, 7], "labels": [5, 6, 7, 8], "weights": [1, 1, 1, 1]},
        {"input_ids": [8, 9, END, 10], "labels": [9, END, 10, 11], "weights": [1, 1, 1, 1]},
        {"input_ids": [11, END, 12, 13], "labels": [END, 12, 13, 14], "weights": [1, 1, 1, 1]},
        {"input_ids": [14, 0, 0, 0], "labels": [END, 0, 0, 0], "weights": [1, 0, 0, 0]},
    ]


def test_documents_that_do_not_see_each_other(make_numbered_split):
    split = make_numbered_split([[3, 2], [2], [3]])
    options = CausalOptions(length=5, cross_documents=False)
    rows = first_epoch(CausalExamples(split, options, separator_id=END))
    assert [(row["input_ids"], row["segment_ids"], row["position_ids"]) for row in rows] == [
        ([END, 5, 6, 7, 8], [1, 1, 1, 1, 1], [0, 1, 2, 3, 4]),
        ([9, END, 10, 11, END], [1, 2, 2, 2, 3], [0, 0, 1, 2, 0]),
        ([12, 13, 14, 0, 0], [1, 1, 1, 0, 0], [0, 1, 2, 0, 0]),
    ]


def test_without_an_end_of_text_the_first_tokens_are_not_predicted(make_numbered_split):
    split = make_numbered_split([[3, 2], [2], [3]])
    options = CausalOptions(length=6, cross_documents=False)
    rows = first_epoch(CausalExamples(split, options, separator_id=None))
    assert [(row["input_ids"], row["labels"], row["weights"]) for row in rows] == [
        ([5, 6, 7, 8, 9, 10], [6, 7, 8, 9, 0, 11], [1, 1, 1, 1, 0, 1]),
        ([11, 12, 13, 14, 0, 0], [0, 13, 14, 0, 0, 0], [0, 1, 1, 0, 0, 0]),
    ]
    assert [row["segment_ids"] for row in rows] == [[1, 1, 1, 1, 1, 2], [1, 2, 2, 2, 0, 0]]


@settings(max_examples=40, deadline=None)
@given(
    st.lists(st.integers(1, 30), min_size=1, max_size=12),
    st.integers(2, 12),
    st.booleans(),
    st.booleans(),
)
def test_every_token_is_predicted_once(make_numbered_split, sizes, length, separated, cross):
    split = make_numbered_split([[size] for size in sizes])
    options = CausalOptions(length=length, cross_documents=cross)
    examples = CausalExamples(split, options, separator_id=END if separated else None)
    predicted = []
    per_batch = 5
    for number in range(-(-examples.examples_per_epoch // per_batch)):
        batch = examples.evaluation_batch(number, per_batch, np.arange(8))
        predicted += batch["labels"][batch["weights"] == 1].tolist()
        # A token of the text is predicted from the one before it, or from the separator.
        before = batch["input_ids"][batch["weights"] == 1]
        labels = batch["labels"][batch["weights"] == 1]
        inside = (before != END) & (labels != END)
        assert (labels[inside] == before[inside] + 1).all()
    starts = 5 + np.cumsum([0, *sizes[:-1]])
    everything = set(range(5, 5 + sum(sizes)))
    if separated:
        assert sorted(predicted) == sorted([*everything, *[END] * len(sizes)])
    else:
        assert sorted(predicted) == sorted(everything - set(starts.tolist()))


def test_scarce_sources_are_repeated_in_training(make_numbered_split):
    """Two sources of 40 and 20 tokens with equal weights: the second has its windows twice."""
    split = make_numbered_split([[40], [10], [10]], [0, 1, 3], [1.0, 1.0])
    options = CausalOptions(length=10)
    once = CausalExamples(split, options, separator_id=None, weighted=False)
    assert once.examples_per_epoch == 6
    examples = CausalExamples(split, options, separator_id=None)
    assert examples.examples_per_epoch == 8
    firsts = examples.examples(np.arange(8))["input_ids"][:, 0].tolist()
    assert sorted(firsts) == [5, 15, 25, 35, 45, 45, 55, 55]
    # No window has tokens of both: the last label of the first source is missing.
    last = once.examples(np.arange(6))
    assert 45 not in last["labels"]


def test_each_epoch_has_another_order(make_numbered_split):
    examples = CausalExamples(
        make_numbered_split([[400]]), CausalOptions(length=4), separator_id=END
    )
    count = examples.examples_per_epoch
    assert count == 101
    orders = [
        examples.examples(epoch * count + np.arange(count))["input_ids"][:, 1].tolist()
        for epoch in range(2)
    ]
    assert orders[0] != orders[1]
    assert sorted(orders[0]) == sorted(orders[1])


def test_a_split_without_documents(make_split):
    with pytest.raises(UserError, match="the corpus has no document"):
        CausalExamples(make_split([]), CausalOptions(), separator_id=None)

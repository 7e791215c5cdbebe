"""Answers come in the order of the texts, and texts are read a little ahead only."""

import itertools

import jax
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bert_jax.inference.streams import BatchOptions, answers, in_order
from bert_jax.tasks.base.text_rows import text_answers


@given(st.permutations(range(12)))
def test_items_in_the_order_of_their_numbers(numbers):
    assert list(in_order((number, f"item {number}") for number in numbers)) == [
        f"item {number}" for number in range(12)
    ]


def test_an_item_is_given_as_soon_as_those_before_it_are():
    asked = []

    def numbered():
        for number in (1, 0, 2, 4, 3):
            asked.append(number)
            yield number, number

    items = in_order(numbered())
    assert next(items) == 0
    assert asked == [1, 0]
    assert next(items) == 1
    assert next(items) == 2
    assert asked == [1, 0, 2]


@pytest.fixture
def lengths(model):
    """Answers that are the number of tokens, as the device counts them, with the first token."""
    count = jax.jit(lambda batch: batch["attention_mask"].sum(axis=1))

    def ask(texts, **keywords):
        options = BatchOptions(batch_size=2, window=2)
        return text_answers(
            model,
            texts,
            count,
            lambda encoding, length: (encoding.tokens[1], int(length)),
            options,
            **keywords,
        )

    return ask


def test_answers_by_hand(lengths):
    texts = ["sun", "the cat sat .", "a dog", "", "the bird sang on", ("sea", "shell")]
    expected = [("sun", 3), ("the", 6), ("a", 4), ("[SEP]", 2), ("the", 6), ("sea", 5)]
    assert list(lengths(texts)) == expected
    assert list(lengths([])) == []


def test_progress_counts_every_text_once(lengths):
    done = []
    list(lengths(["sun"] * 11, advance=done.append))
    assert done == [2, 2, 2, 2, 2, 1]


def test_a_stream_without_end(lengths):
    asked = []

    def texts():
        for number in itertools.count():
            asked.append(number)
            yield "sun " * (number % 7)

    found = list(itertools.islice(lengths(texts()), 100))
    assert [length for _, length in found] == [number % 7 + 2 for number in range(100)]
    # The windows of the last answer and of the batch that is begun ahead, 4 texts each.
    assert len(asked) <= 100 + 8


def test_items_of_several_rows(model):
    """The most tokens of any choice, and how many choices there are."""
    count = jax.jit(lambda batch: batch["attention_mask"].sum(axis=1))
    items = [("sun", "the sea"), ("a",), ("the cat sat .", "sun", "a dog")] * 3
    found = answers(
        model,
        items,
        lambda some: [model.tokenizer.encode_batch(item) for item in some],
        count,
        lambda item, encodings, lengths: (item[0], len(encodings), [int(n) for n in lengths]),
        BatchOptions(batch_size=2, window=2),
        characters=len,
    )
    expected = [("sun", 2, [3, 4]), ("a", 1, [3]), ("the cat sat .", 3, [6, 3, 4])]
    assert list(found) == expected * 3

"""Texts grouped by length."""

import dataclasses
import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bert_jax.errors import UserError
from bert_jax.inference.streams import BatchOptions, make_batches
from bert_jax.tasks.base.text_rows import TextEncoder, text_characters

#              [CLS] … [SEP]
TEXTS = [
    "the cat sat",  # 5
    "",  # 2
    ("a dog", "a bird sang ."),  # 9
    "the cat sat on the mat .",  # 9
    "sun",  # 3
]


def batches_of(texts, tokenizer, config, options, row_multiple=1):
    """Batches of texts, one row each."""
    limit = options.limit(config)
    encode = TextEncoder(tokenizer, config, limit, refuse_long=options.refuse_long)
    yield from make_batches(
        encode.checked(texts),
        encode,
        tokenizer,
        options,
        characters=text_characters,
        limit=limit,
        row_multiple=row_multiple,
    )


def numbers(batch):
    return [asked.number for asked, _ in batch.rows]


def test_batches_by_hand(tokenizer, tiny_config):
    first, second = batches_of(TEXTS, tokenizer, tiny_config, BatchOptions(batch_size=3))
    assert numbers(first) == [2, 3, 0]
    assert numbers(second) == [1, 4][::-1]
    assert [asked.item for asked, _ in first.rows] == [TEXTS[2], TEXTS[3], TEXTS[0]]
    assert [array.shape for array in first.arrays.values()] == [(3, 16)] * 3
    assert [array.dtype for array in first.arrays.values()] == [np.int32] * 3
    np.testing.assert_array_equal(
        first.arrays["input_ids"][:, :10],
        [
            [2, 7, 11, 3, 7, 12, 22, 5, 3, 0],
            [2, 6, 10, 20, 27, 6, 14, 5, 3, 0],
            [2, 6, 10, 20, 3, 0, 0, 0, 0, 0],
        ],
    )
    np.testing.assert_array_equal(
        first.arrays["token_type_ids"][:, :10],
        [
            [0, 0, 0, 0, 1, 1, 1, 1, 1, 0],
            [0, 0, 0, 0, 0, 0, 0, 0, 0, 0],
            [0, 0, 0, 0, 0, 0, 0, 0, 0, 0],
        ],
    )
    np.testing.assert_array_equal(
        second.arrays["attention_mask"][:, :5],
        [
            [1, 1, 1, 0, 0],
            [1, 1, 0, 0, 0],
        ],
    )


def test_rows_of_padding_alone(tokenizer, tiny_config):
    options = BatchOptions(batch_size=4)
    (batch,) = batches_of(["sun", "a cat", "sea"], tokenizer, tiny_config, options, 8)
    assert numbers(batch) == [1, 0, 2]
    assert batch.arrays["input_ids"].shape == (8, 16)
    assert batch.arrays["attention_mask"].sum(axis=1).tolist() == [4, 3, 3, 0, 0, 0, 0, 0]


def test_windows_are_sorted_apart_and_no_further_is_read(tokenizer, tiny_config):
    asked = []

    def texts():
        for length in itertools.count(1):
            asked.append(length)
            yield "sun " * (length % 20)

    options = BatchOptions(batch_size=2, window=3)
    batches = batches_of(texts(), tokenizer, tiny_config, options)
    found = [numbers(batch) for batch in itertools.islice(batches, 4)]
    assert found == [[5, 4], [3, 2], [1, 0], [11, 10]]
    assert len(asked) == 12


def test_a_window_of_long_texts_is_short(tokenizer, tiny_config):
    asked = []

    def texts():
        for index in range(100):
            asked.append(index)
            yield "sun " * 100_000

    batches = batches_of(texts(), tokenizer, tiny_config, BatchOptions(batch_size=2))
    assert numbers(next(batches)) == [0, 1]
    assert len(asked) == 3


def test_a_limit_below_that_of_the_model(tokenizer, tiny_config):
    options = BatchOptions(max_length=5)
    (batch,) = batches_of(["the cat sat on it", "sun"], tokenizer, tiny_config, options)
    assert batch.encodings[0].tokens == ["[CLS]", "the", "cat", "sat", "[SEP]"]
    assert batch.arrays["input_ids"].shape == (2, 5)


def test_long_texts_can_be_refused(tokenizer, tiny_config):
    options = BatchOptions(batch_size=1, window=2, refuse_long=True)
    texts = ["a", "b", "a", "sun " * 99]
    batches = batches_of(texts, tokenizer, tiny_config, options)
    with pytest.raises(UserError, match="the text has 101 tokens, the model takes 32") as caught:
        list(batches)
    assert caught.value.index == 3


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"batch_size": 0}, "batch_size is 0; it must be at least 1"),
        ({"max_length": 33}, "max_length is 33; this model takes 3 to 32 tokens"),
        ({"max_length": 2}, "max_length is 2; this model takes 3 to 32 tokens"),
    ],
)
def test_sizes_that_make_no_sense(tokenizer, tiny_config, options, message):
    with pytest.raises(UserError, match=message):
        list(batches_of(["sun"], tokenizer, tiny_config, BatchOptions(**options)))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (None, "text 1 is None; give a string or a pair of strings"),
        (("a", 3), "text 1 is \\('a', 3\\); give a string or a pair of strings"),
        (("a", "b", "c"), "text 1 is \\('a', 'b', 'c'\\); give"),
    ],
)
def test_what_is_no_text(tokenizer, tiny_config, text, message):
    with pytest.raises(UserError, match=message):
        list(batches_of(["sun", text], tokenizer, tiny_config, BatchOptions()))


def test_a_model_of_one_segment_takes_no_pairs(tokenizer, tiny_config):
    config = dataclasses.replace(tiny_config, type_vocab_size=1)
    assert len(list(batches_of(["sun"], tokenizer, config, BatchOptions()))) == 1
    with pytest.raises(UserError, match="the text is a pair, but the model knows one segment only"):
        list(batches_of([("sun", "sea")], tokenizer, config, BatchOptions()))


words = st.lists(st.sampled_from(["sun", "boys", "walked", "?", "."]), max_size=40).map(" ".join)


@given(
    texts=st.lists(words | st.tuples(words, words), max_size=30),
    batch_size=st.integers(1, 7),
    window=st.integers(1, 3),
    row_multiple=st.integers(1, 4),
)
def test_every_text_is_in_one_batch(
    tokenizer, tiny_config, texts, batch_size, window, row_multiple
):
    options = BatchOptions(batch_size, window=window)
    seen = []
    for batch in batches_of(texts, tokenizer, tiny_config, options, row_multiple):
        ids, mask = batch.arrays["input_ids"], batch.arrays["attention_mask"]
        assert len(numbers(batch)) <= batch_size
        assert len(ids) % row_multiple == 0
        assert mask[len(numbers(batch)) :].sum() == 0
        for row, index in enumerate(numbers(batch)):
            text = texts[index]
            first, pair = ([text], None) if isinstance(text, str) else ([text[0]], [text[1]])
            (alone,) = tokenizer.encode_batch(first, pair, max_length=32)
            assert batch.encodings[row] == alone
            assert ids[row][mask[row] == 1].tolist() == alone.ids
            assert mask[row, : len(alone)].all()
        seen += numbers(batch)
    assert sorted(seen) == list(range(len(texts)))


def test_an_item_may_give_several_rows(tokenizer):
    def encode(items):
        return [tokenizer.encode_batch(item) for item in items]

    items = [["the cat sat", "sun"], ["a dog"], ["the cat sat on the mat .", "sea", "sun"]]
    batches = make_batches(
        items, encode, tokenizer, BatchOptions(batch_size=4), characters=len, limit=32
    )
    found = [[(asked.number, row) for asked, row in batch.rows] for batch in batches]
    assert found == [[(2, 0), (0, 0), (1, 0), (0, 1)], [(2, 1), (2, 2)]]

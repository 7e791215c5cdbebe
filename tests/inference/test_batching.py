"""Texts grouped by length."""

import dataclasses
import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bert_jax.errors import UserError
from bert_jax.inference.batching import BatchOptions, bucket_length, bucket_rows, make_batches

#              [CLS] … [SEP]
TEXTS = [
    "the cat sat",  # 5
    "",  # 2
    ("a dog", "a bird sang ."),  # 9
    "the cat sat on the mat .",  # 9
    "sun",  # 3
]


def test_lengths_take_few_values():
    asked = [1, 2, 16, 17, 32, 33, 48, 49, 64, 65, 96, 97, 128, 129, 192, 193, 257, 384, 385, 512]
    found = [bucket_length(length, 512) for length in asked]
    assert found == [
        *(16, 16, 16, 32, 32, 48, 48, 64, 64, 96, 96, 128, 128, 192, 192, 256, 384, 384, 512, 512),
    ]
    assert len({bucket_length(length, 4096) for length in range(1, 4097)}) == 16
    assert [bucket_length(length, 40) for length in (33, 40)] == [40, 40]


def test_rows_take_few_values():
    assert [bucket_rows(rows, 32, 1) for rows in (1, 2, 3, 5, 16, 17, 32)] == [
        *(1, 2, 4, 8, 16, 32, 32),
    ]
    assert [bucket_rows(rows, 20, 1) for rows in (16, 17, 20)] == [16, 20, 20]
    assert [bucket_rows(rows, 32, 8) for rows in (1, 8, 9, 32)] == [8, 8, 16, 32]
    assert [bucket_rows(rows, 32, 6) for rows in (1, 9, 32)] == [6, 18, 36]


def test_batches_by_hand(tokenizer, tiny_config):
    first, second = make_batches(TEXTS, tokenizer, tiny_config, BatchOptions(batch_size=3))
    assert first.indices == [2, 3, 0]
    assert second.indices == [1, 4][::-1]
    assert first.texts == [TEXTS[2], TEXTS[3], TEXTS[0]]
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
    (batch,) = make_batches(["sun", "a cat", "sea"], tokenizer, tiny_config, options, 8)
    assert batch.indices == [1, 0, 2]
    assert batch.arrays["input_ids"].shape == (8, 16)
    assert batch.arrays["attention_mask"].sum(axis=1).tolist() == [4, 3, 3, 0, 0, 0, 0, 0]


def test_windows_are_sorted_apart_and_no_further_is_read(tokenizer, tiny_config):
    asked = []

    def texts():
        for length in itertools.count(1):
            asked.append(length)
            yield "sun " * (length % 20)

    options = BatchOptions(batch_size=2, window=3)
    batches = make_batches(texts(), tokenizer, tiny_config, options)
    found = [batch.indices for batch in itertools.islice(batches, 4)]
    assert found == [[5, 4], [3, 2], [1, 0], [11, 10]]
    assert len(asked) == 12


def test_a_window_of_long_texts_is_short(tokenizer, tiny_config):
    asked = []

    def texts():
        for index in range(100):
            asked.append(index)
            yield "sun " * 100_000

    batches = make_batches(texts(), tokenizer, tiny_config, BatchOptions(batch_size=2))
    assert next(batches).indices == [0, 1]
    assert len(asked) == 3


def test_long_texts_are_cut_and_counted_once(tokenizer, tiny_config, capsys):
    texts = ["sun " * 31, "sun " * 30, "sun", ("sun " * 40, "sea " * 20), "sea " * 99]
    options = BatchOptions(batch_size=1, window=2)
    found = {
        index: encoding
        for batch in make_batches(texts, tokenizer, tiny_config, options)
        for index, encoding in zip(batch.indices, batch.encodings, strict=True)
    }
    assert [len(found[index]) for index in range(5)] == [32, 32, 3, 32, 32]
    assert [found[3].tokens.count(word) for word in ("sun", "sea")] == [15, 14]
    assert found[0].tokens == ["[CLS]", *["sun"] * 30, "[SEP]"]
    assert capsys.readouterr().err == "3 of 5 texts were longer than 32 tokens: cut\n"

    list(make_batches(["sun " * 30], tokenizer, tiny_config, options))
    assert capsys.readouterr().err == ""


def test_a_limit_below_that_of_the_model(tokenizer, tiny_config, capsys):
    options = BatchOptions(max_length=5)
    (batch,) = make_batches(["the cat sat on it", "sun"], tokenizer, tiny_config, options)
    assert batch.encodings[0].tokens == ["[CLS]", "the", "cat", "sat", "[SEP]"]
    assert batch.arrays["input_ids"].shape == (2, 5)
    assert capsys.readouterr().err == ""  # it was asked for


def test_long_texts_can_be_refused(tokenizer, tiny_config):
    options = BatchOptions(batch_size=1, window=2, refuse_long=True)
    texts = ["a", "b", "a", "sun " * 99]
    batches = make_batches(texts, tokenizer, tiny_config, options)
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
        list(make_batches(["sun"], tokenizer, tiny_config, BatchOptions(**options)))


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
        list(make_batches(["sun", text], tokenizer, tiny_config, BatchOptions()))


def test_a_model_of_one_segment_takes_no_pairs(tokenizer, tiny_config):
    config = dataclasses.replace(tiny_config, type_vocab_size=1)
    assert len(list(make_batches(["sun"], tokenizer, config, BatchOptions()))) == 1
    with pytest.raises(UserError, match="text 0 is a pair, but the model knows one segment only"):
        list(make_batches([("sun", "sea")], tokenizer, config, BatchOptions()))


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
    for batch in make_batches(texts, tokenizer, tiny_config, options, row_multiple):
        ids, mask = batch.arrays["input_ids"], batch.arrays["attention_mask"]
        assert len(batch.indices) <= batch_size
        assert len(ids) % row_multiple == 0
        assert mask[len(batch.indices) :].sum() == 0
        for row, index in enumerate(batch.indices):
            text = texts[index]
            first, pair = ([text], None) if isinstance(text, str) else ([text[0]], [text[1]])
            (alone,) = tokenizer.encode_batch(first, pair, max_length=32)
            assert batch.encodings[row] == alone
            assert ids[row][mask[row] == 1].tolist() == alone.ids
            assert mask[row, : len(alone)].all()
        seen += batch.indices
    assert sorted(seen) == list(range(len(texts)))

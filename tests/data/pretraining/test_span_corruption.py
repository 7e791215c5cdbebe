"""T5's span corruption: the lecture's example, random spans, and batches read back."""

import itertools
from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bert_jax.data import randomness
from bert_jax.data.pretraining.span_corruption import (
    SpanExamples,
    SpanOptions,
    SpanTokens,
    draw_noise,
    replace_runs,
)
from bert_jax.errors import OptionError
from tests.corpora import rows_of, within

TOKENS = SpanTokens(sentinels=(32_099, 32_098, 32_097), eos=1, start=0, padding=0)
# Ids that no numbered corpus has.
MANY = SpanTokens(sentinels=tuple(range(9_099, 8_999, -1)), eos=1, start=0, padding=0)


def keys_of(count: int) -> np.ndarray:
    return randomness.random_bits(randomness.derive_key(3), np.arange(count))


def replaced(words: str, is_noise: list[bool]) -> tuple[str, str]:
    """The input and the target of a text of words, with <X>, <Y>, <Z> for the sentinels."""
    vocabulary = words.split()
    names = dict(zip(TOKENS.sentinels, ("<X>", "<Y>", "<Z>"), strict=True))
    names |= {100 + number: word for number, word in enumerate(vocabulary)}
    ids, mask = 100 + np.arange(len(vocabulary))[None], np.array([is_noise])
    texts = []
    for in_run in (mask, ~mask):
        (row,), (length,) = replace_runs(ids, in_run, np.ones_like(mask), TOKENS, 20)
        assert row[length - 1] == TOKENS.eos
        assert not row[length:].any()
        texts.append(" ".join(names[token] for token in row[: length - 1]))
    return texts[0], texts[1]


def test_the_example_of_the_paper():
    text = "Thank you for inviting me to your party last week."
    is_noise = [word in ("for", "inviting", "last") for word in text.split()]
    assert replaced(text, is_noise) == (
        "Thank you <X> me to your party <Y> week.",
        "<X> for inviting <Y> last <Z>",
    )


def test_a_text_that_ends_with_a_span_has_no_last_sentinel():
    assert replaced("a b c d", [False, True, False, True]) == ("a <X> c <Y>", "<X> b <Y> d")
    assert replaced("a b", [True, False]) == ("<X> b", "a <X>")
    assert replaced("a b", [False, False]) == ("a b", "<X>")


@pytest.mark.parametrize(
    ("length", "options", "lengths"),
    # T5's: random_spans_helper of 512 gives 568 and 114.
    [
        (512, {}, (568, 114)),
        (256, {}, (284, 58)),
        (1024, {}, (1137, 229)),
        (8, {"noise_fraction": 0.5, "mean_span_length": 2.0}, (10, 8)),
    ],
)
def test_lengths(length, options, lengths):
    assert SpanOptions(length=length, **options).lengths == lengths


@pytest.mark.slow
def test_the_longest_text_fills_its_row():
    for length in range(4, 300):
        text, _ = SpanOptions(length=length).lengths
        for more, fits in ((text, True), (text + 1, False)):
            noise = min(max(round(more * 0.15), 1), more - 1)
            spans = max(1, round(noise / 3))
            assert (more - noise + spans + 1 <= length) == fits


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.integers(1, 90), min_size=1, max_size=6),
    st.sampled_from([0.01, 0.15, 0.5, 0.9]),
    st.sampled_from([1.0, 3.0, 10.0]),
)
def test_noise_has_its_size_and_number_of_spans(lengths, fraction, mean):
    options = SpanOptions(noise_fraction=fraction, mean_span_length=mean)
    noise = draw_noise(np.array(lengths), keys_of(len(lengths)), options)
    assert noise.shape == (len(lengths), max(lengths))
    for row, length in zip(noise.tolist(), lengths, strict=True):
        assert not any(row[length:])
        if length == 1:
            assert row[0] is False
            continue
        count = min(max(round(length * fraction), 1), length - 1)
        runs = [kind for kind, _ in itertools.groupby(row[:length])]
        spans = min(max(1, round(count / mean)), count, length - count)
        assert sum(row) == count
        assert runs == [False, True] * spans  # begins with text, ends with a span


def test_all_divisions_are_equally_likely():
    """Five tokens with two of noise in two spans: 1 + 2 or 2 + 1 of text, 1 + 1 of noise."""
    count = 4000
    options = SpanOptions(noise_fraction=0.4, mean_span_length=1.0)
    noise = draw_noise(np.full(count, 5), keys_of(count), options)
    found = Counter(map(tuple, noise.astype(int).tolist()))
    assert set(found) == {(0, 1, 0, 0, 1), (0, 0, 1, 0, 1)}
    assert within(found[0, 1, 0, 0, 1], count, 0.5)
    # 10 tokens, 5 of noise in 3 spans: C(4, 2) divisions of each, all 36 of them.
    options = SpanOptions(noise_fraction=0.5, mean_span_length=1.7)
    noise = draw_noise(np.full(36 * 200, 10), keys_of(36 * 200), options)
    found = Counter(map(tuple, noise.tolist()))
    assert len(found) == 36
    assert all(within(times, 36 * 200, 1 / 36) for times in found.values())


@pytest.fixture(scope="module")
def make_examples(make_numbered_split):
    split = make_numbered_split([[7, 9, 30], [1], [12] * 9, [2], [50, 3]])

    def make(**options) -> SpanExamples:
        return SpanExamples(split, SpanOptions(**{"length": 16} | options), MANY)

    return make


def restored(row) -> list[int]:
    """The uncorrupted text of a row: each sentinel of the input replaced by its span."""
    text = row["input_ids"][row["attention_mask"] == 1].tolist()
    labels = row["decoder/labels"][row["decoder/weights"] == 1].tolist()
    assert text.pop() == labels.pop() == MANY.eos
    spans = {}
    for token in labels:
        if token in MANY.sentinels:
            spans[token] = []
        else:
            spans[list(spans)[-1]].append(token)
    assert list(spans) == list(MANY.sentinels[: len(spans)])
    return [t for token in text for t in (spans[token] if token in MANY.sentinels else [token])]


@pytest.mark.parametrize("cross_documents", [True, False])
def test_an_epoch_has_every_token_once(make_examples, cross_documents):
    examples = make_examples(cross_documents=cross_documents)
    longest, target = examples.options.lengths
    assert (longest, target) == (17, 5)
    documents, total = [46, 1, 108, 2, 53], 210
    expected = -(-total // 17) if cross_documents else sum(-(-size // 17) for size in documents)
    assert examples.examples_per_epoch == expected
    texts = []
    for epoch in range(2):
        batch = examples.examples(np.arange(expected) + epoch * expected)
        shapes = {name: (array.shape[1:], array.dtype) for name, array in batch.items()}
        assert shapes == {
            "input_ids": ((16,), np.int32),
            "attention_mask": ((16,), np.int32),
            "decoder/input_ids": ((5,), np.int32),
            "decoder/labels": ((5,), np.int32),
            "decoder/weights": ((5,), np.float32),
        }
        for row in rows_of(batch):
            labels, count = row["decoder/labels"], int(row["decoder/weights"].sum())
            assert row["decoder/input_ids"][:count].tolist() == [0, *labels[: count - 1]]
            assert not row["decoder/input_ids"][count:].any()
        texts.append([restored(row) for row in rows_of(batch)])
    for each in texts:
        assert sorted(token for text in each for token in text) == list(range(5, 5 + total))
    assert texts[0] != texts[1]  # in another order
    assert sorted(texts[0]) == sorted(texts[1])


def test_batches_depend_on_seed_and_number_only(make_examples):
    examples = make_examples()
    whole = examples.batch(3, 4)
    halves = [examples.batch(3, 2, host=host, hosts=2) for host in range(2)]
    for name, array in whole.items():
        np.testing.assert_array_equal(array, np.concatenate([half[name] for half in halves]))
    assert not np.array_equal(whole["input_ids"], make_examples(seed=1).batch(3, 4)["input_ids"])


def test_rows_past_the_end_of_an_evaluation_weigh_nothing(make_examples):
    examples = make_examples()
    rows = examples.evaluation_batch(1, 8, np.arange(10))  # 13 examples: 5 are left
    assert (rows["decoder/weights"].sum(axis=1) > 0).tolist() == [True] * 5 + [False] * 5


def test_too_few_sentinels(make_numbered_split):
    split = make_numbered_split([[100]])
    with pytest.raises(OptionError) as raised:
        SpanExamples(split, SpanOptions(length=80), TOKENS)
    assert str(raised.value) == (
        "texts of 88 tokens have 4 spans, and the tokenizer has 3 sentinels <extra_id_0>, "
        "<extra_id_1>, …; use another tokenizer, raise data.mean_span_length, or lower data.length"
    )

"""Which tokens an example is made of: literal ranges, and rules that hold for any corpus."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bert_jax.data import randomness
from bert_jax.data.pretraining import pairs
from bert_jax.data.pretraining.options import OBJECTIVES, PretrainingOptions
from bert_jax.data.pretraining.pairs import ExamplePlan, Segments

# Lengths of the sentences of each document. Tokens 0-16, 17-24 and 25-30:
#   document 0:  0-2 | 3-6 | 7-8 | 9-13 | 14-16
#   document 1:  17-20 | 21-24
#   document 2:  25-30
THREE_DOCUMENTS = [[3, 4, 2, 5, 3], [4, 4], [6]]


def plan_epoch(
    split, *, max_tokens=125, seed=1, epoch=2, repeat=1, **options
) -> tuple[ExamplePlan, Segments]:
    """All examples of an epoch, `repeat` times with other keys."""
    plan = ExamplePlan(split, PretrainingOptions(**options), max_tokens)
    indices = np.tile(np.arange(plan.examples_per_epoch), repeat)
    keys = randomness.random_bits(randomness.derive_key(seed), np.arange(len(indices)))
    phases = np.broadcast_to(randomness.derive_key(epoch), keys.shape)
    return plan, plan.segments(indices, phases, keys)


def document_of(split, tokens: np.ndarray) -> np.ndarray:
    starts = split.sentence_offsets[split.document_offsets]
    return np.searchsorted(starts, tokens, side="right") - 1


def lengths_of(segments: Segments) -> np.ndarray:
    """Tokens of both segments, [B, 2]."""
    first = segments.first_end - segments.first_start
    return np.stack([first, segments.second_end - segments.second_start], axis=1)


@pytest.mark.parametrize(
    ("objective", "expected"),
    [
        (
            "nsp",
            [
                [0, 3, 4, 9, 0],  # 0-2, then 3-8 without its first token, since 3 + 6 > 8
                [9, 14, 14, 17, 0],  # two whole sentences
                [9, 13, 21, 25, 1],  # 9-13 cut at its end, then the last sentence of document 1
                [17, 21, 21, 25, 0],  # all of document 1
                [27, 31, 9, 13, 1],  # a single sentence: what follows is always random
            ],
        ),
        (
            "sop",
            [
                [0, 3, 4, 9, 0],
                [14, 17, 7, 12, 1],  # 14-16 before 7-13, which is cut at its end
                [14, 17, 9, 14, 1],
                [21, 25, 17, 21, 1],
                [28, 31, 25, 28, 1],  # a single sentence is cut in its middle
            ],
        ),
        (
            "none",
            [
                [0, 7, 7, 7, 0],  # a third sentence would make nine tokens
                [7, 14, 14, 14, 0],
                [9, 17, 17, 17, 0],
                [17, 25, 25, 25, 0],
                [25, 31, 31, 31, 0],
            ],
        ),
    ],
)
def test_segments_by_eye(make_numbered_split, objective, expected):
    split = make_numbered_split(THREE_DOCUMENTS)
    _, segments = plan_epoch(split, objective=objective, max_tokens=8, short_probability=0.0)
    assert np.stack(segments, axis=1).tolist() == expected


def test_full_sentences_across_documents_by_eye(make_numbered_split):
    split = make_numbered_split(THREE_DOCUMENTS)
    plan, segments = plan_epoch(
        split, objective="none", max_tokens=12, short_probability=0.0, cross_documents=True
    )
    # 31 tokens and 2 separators: three examples.
    assert np.stack(segments, axis=1)[:, :2].tolist() == [
        [3, 14],  # another sentence would make 14 tokens
        [14, 25],  # 14-16, a separator, and all of document 1: 12 tokens
        [21, 31],  # the last sentence of document 1, a separator, and document 2
    ]
    before, exists = plan.separators(segments)
    assert [row[there].tolist() for row, there in zip(before, exists, strict=True)] == [
        [],
        [3],
        [4],
    ]


@given(
    lengths=st.lists(st.lists(st.integers(1, 30), min_size=1, max_size=5), min_size=1, max_size=12),
    max_tokens=st.integers(5, 60),
    sources=st.integers(1, 3),
    seed=st.integers(0, 1000),
)
def test_rules_of_full_sentences_across_documents(
    make_numbered_split, lengths, max_tokens, sources, seed
):
    boundaries = sorted({0, len(lengths) // sources, len(lengths)})
    split = make_numbered_split(lengths, boundaries, [1.0] * (len(boundaries) - 1))
    plan, segments = plan_epoch(
        split, seed=seed, epoch=seed, objective="none", max_tokens=max_tokens,
        short_probability=0.0, cross_documents=True,
    )  # fmt: skip
    _, exists = plan.separators(segments)
    starts = split.sentence_offsets[split.document_offsets]
    for start, end, count in zip(
        segments.first_start, segments.first_end, exists.sum(1), strict=True
    ):
        assert start in split.sentence_offsets
        assert count == ((starts > start) & (starts < end)).sum()
        assert 1 <= end - start + count <= max_tokens
        # In one source.
        first, last = document_of(split, np.array([start, end - 1]))
        assert np.searchsorted(boundaries, first, "right") == np.searchsorted(
            boundaries, last, "right"
        )
        if end not in split.sentence_offsets:  # a sentence that is too long is cut
            assert end - start == max_tokens
            continue
        if end in starts[boundaries]:
            continue
        # The next sentence does not fit.
        following = split.sentence_offsets[split.sentence_offsets > end][0]
        assert following - start + count + (end in starts) > max_tokens


def test_weights_repeat_the_source_that_is_scarce_for_its_weight(make_numbered_split):
    def examples(weights, boundaries=(0, 2, 4), **arguments):
        # 160 tokens of the first source, 80 of the second.
        split = make_numbered_split([[80], [80], [40], [40]], boundaries, weights)
        options = PretrainingOptions(objective="none")
        return ExamplePlan(split, options, 8, **arguments).examples_per_epoch

    assert examples([2.0, 1.0]) == 20 + 10  # as the text is
    assert examples([1.0, 1.0]) == 20 + 20  # the second twice
    assert examples([1.0, 2.0]) == 20 + 40  # four times
    assert examples([6.0, 1.0]) == 60 + 10  # the first three times
    assert examples([100.0, 200.0]) == 20 + 40  # only their ratio counts
    assert examples([1.0, 2.0], weighted=False) == 20 + 10
    assert examples([2.0, 5.0, 1.0], (0, 2, 2, 4)) == 20 + 10  # the second has no document


@pytest.mark.parametrize("objective", ["nsp", "sop"])
def test_half_of_the_labels_are_1_and_random_sentences_come_from_all_other_documents(
    make_numbered_split, objective
):
    split = make_numbered_split([[5] * 20] * 5)
    _, segments = plan_epoch(split, objective=objective, max_tokens=20, repeat=1000)
    assert len(segments.labels) > 20_000
    assert segments.labels.mean() == pytest.approx(0.5, abs=0.01)
    own = document_of(split, segments.first_start)
    other = document_of(split, segments.second_start)
    random = (segments.labels == 1) & (objective == "nsp")
    assert (own != other).tolist() == random.tolist()
    if objective == "nsp":
        pairs_of_documents = np.zeros((5, 5))
        np.add.at(pairs_of_documents, (own[random], other[random]), 1 / random.sum())
        expected = np.where(np.eye(5), 0, 1 / 20)
        np.testing.assert_allclose(pairs_of_documents, expected, atol=0.01)


def test_one_example_in_ten_is_short(make_numbered_split):
    # Sentences of one token fill any target length exactly.
    split = make_numbered_split([[1] * 900] * 3)
    _, segments = plan_epoch(split, objective="nsp", max_tokens=30, repeat=300)
    lengths = lengths_of(segments).sum(axis=1)
    assert len(lengths) > 20_000
    # A short length is uniform in [2, 30], so one in 29 of the short ones is full.
    assert (lengths < 30).mean() == pytest.approx(0.1 * 28 / 29, abs=0.01)
    counts = np.bincount(lengths, minlength=31)
    assert counts[:2].tolist() == [0, 0]
    expected = len(lengths) * 0.1 / 29
    np.testing.assert_allclose(counts[2:30], expected, rtol=0.4)


def test_the_first_segment_ends_at_any_sentence_of_the_chunk(make_numbered_split):
    split = make_numbered_split([[5] * 40] * 2)
    _, segments = plan_epoch(
        split, objective="nsp", max_tokens=20, short_probability=0.0, repeat=500
    )
    ends = (segments.first_end - segments.first_start)[segments.labels == 0]
    # Four sentences of five tokens: the split is after the first, second or third.
    assert set(ends.tolist()) == {5, 10, 15}
    np.testing.assert_allclose(np.bincount(ends)[[5, 10, 15]] / len(ends), 1 / 3, atol=0.03)


def test_documents_of_one_sentence(make_numbered_split):
    split = make_numbered_split([[6], [7]])
    for objective, label in (("nsp", {1}), ("sop", {0, 1}), ("none", {0})):
        _, segments = plan_epoch(split, objective=objective, max_tokens=20, repeat=50)
        assert set(segments.labels.tolist()) == label
        if objective == "sop":  # cut in the middle
            assert {*map(tuple, lengths_of(segments).tolist())} == {(3, 3), (3, 4), (4, 3)}
    split = make_numbered_split([[5000], [5000, 300]])
    for objective in ("nsp", "sop", "none"):
        _, segments = plan_epoch(split, objective=objective, max_tokens=40, repeat=3)
        assert (lengths_of(segments).sum(axis=1) == 40).all()
    # The only document is its own random partner.
    _, segments = plan_epoch(make_numbered_split([[5] * 30]), max_tokens=20, repeat=50)
    assert segments.labels.mean() == pytest.approx(0.5, abs=0.1)
    assert segments.second_end.max() <= 150


def times_seen(split, epochs: int, **options) -> np.ndarray:
    """How often each token is in an example, random second sentences not counted."""
    changes = np.zeros(len(split.tokens) + 1)
    for epoch in range(epochs):
        _, segments = plan_epoch(split, seed=epoch, epoch=epoch, **options)
        follows = np.ones(len(segments.labels), bool)
        if options["objective"] == "nsp":
            follows = segments.labels == 0
        np.add.at(changes, segments.first_start, 1)
        np.add.at(changes, segments.first_end, -1)
        np.add.at(changes, segments.second_start[follows], 1)
        np.add.at(changes, segments.second_end[follows], -1)
    return np.cumsum(changes)[:-1]


@pytest.mark.parametrize(
    ("objective", "cross"), [("nsp", False), ("sop", False), ("none", False), ("none", True)]
)
def test_every_token_is_seen_within_a_hundred_epochs(make_numbered_split, objective, cross):
    split = make_numbered_split([[10] * 10, [7, 9, 4] * 5, [3], [20, 20]])
    options = {"max_tokens": 25, "short_probability": 0.0, "cross_documents": cross}
    seen = times_seen(split, 100, objective=objective, **options)
    assert np.flatnonzero(seen == 0).tolist() == []


# With "nsp", a random sentence replaces the next one in half of the examples.
@pytest.mark.parametrize(("objective", "share"), [("nsp", 0.4), ("sop", 0.5), ("none", 0.5)])
def test_the_ends_of_documents_are_not_neglected(make_numbered_split, objective, share):
    # Fifty documents of 8 to 57 sentences, of 5, 12, 19, 26 and 33 tokens in turn.
    lengths = [[5 + 7 * ((i + n) % 5) for i in range(8 + n)] for n in range(50)]
    split = make_numbered_split(lengths)
    seen = times_seen(split, 50, objective=objective, max_tokens=125)
    by_sentence = np.add.reduceat(seen, split.sentence_offsets[:-1]) / np.diff(
        split.sentence_offsets
    )
    for sentence in (split.document_offsets[:-1], split.document_offsets[1:] - 1):
        assert by_sentence[sentence].mean() > share * seen.mean()


def truncate_seq_pair(first: int, second: int, limit: int) -> tuple[int, int]:
    """Final lengths by the loop of create_pretraining_data.py."""
    while first + second > limit:
        if first > second:
            first -= 1
        else:
            second -= 1
    return first, second


@given(
    sizes=st.lists(st.tuples(st.integers(0, 400), st.integers(0, 400)), min_size=1, max_size=30),
    limit=st.integers(2, 509),
    key=st.integers(0, 2**64 - 1),
)
def test_truncation_is_that_of_the_original(sizes, limit, key):
    first, second = np.array(sizes, np.int64).T
    keys = randomness.random_bits(np.array([key], np.uint64), np.arange(len(sizes)))
    before = Segments(first * 0 + 1000, 1000 + first, first * 0, second, first * 0)
    after = pairs._truncate(before, limit, keys)
    expected = [truncate_seq_pair(*pair, limit) for pair in sizes]
    assert [tuple(pair) for pair in lengths_of(after).tolist()] == expected
    # What is left lies within what was there.
    assert (after.first_start >= before.first_start).all()
    assert (after.first_end <= before.first_end).all()
    assert (after.second_start >= before.second_start).all()
    assert (after.second_end <= before.second_end).all()


@pytest.mark.parametrize("removed", [1, 2, 63, 64, 65, 200])
def test_each_removed_token_is_at_the_front_or_the_back_by_a_fair_coin(removed):
    count = 20_000
    keys = randomness.random_bits(randomness.derive_key(removed), np.arange(count))
    zeros, size = np.zeros(count, np.int64), np.full(count, 500)
    # Twice as much is removed in turns, so each segment loses `removed`.
    after = pairs._truncate(Segments(zeros, size, zeros, size, zeros), 1000 - 2 * removed, keys)
    for front in (after.first_start, after.second_start):
        assert front.mean() == pytest.approx(removed / 2, abs=4 * (removed / 4 / count) ** 0.5)
        assert front.var() == pytest.approx(removed / 4, rel=0.05)
    assert abs(np.corrcoef(after.first_start, after.second_start)[0, 1]) < 0.03


LENGTHS = st.lists(
    # A single sentence of one token cannot be cut in two for "sop".
    st.lists(st.integers(2, 40), min_size=1, max_size=12),
    min_size=2,
    max_size=6,
)


@given(
    lengths=LENGTHS,
    objective=st.sampled_from(OBJECTIVES),
    max_tokens=st.integers(5, 60),
    seed=st.integers(0, 1000),
)
def test_rules_that_hold_for_any_corpus(make_numbered_split, lengths, objective, max_tokens, seed):
    split = make_numbered_split(lengths)
    plan, segments = plan_epoch(
        split, seed=seed, epoch=seed, repeat=3, objective=objective, max_tokens=max_tokens
    )
    sizes = lengths_of(segments)
    assert plan.examples_per_epoch == sum(-(-sum(sizes) // max_tokens) for sizes in lengths)
    assert (sizes[:, 0] >= 1).all()
    assert (sizes.sum(axis=1) <= max_tokens).all()
    first_document = document_of(split, segments.first_start)
    assert (document_of(split, segments.first_end - 1) == first_document).all()
    if objective == "none":
        assert (sizes[:, 1] == 0).all()
        assert (segments.labels == 0).all()
        at_sentence = np.isin(segments.first_start, split.sentence_offsets)
        whole = np.isin(segments.first_end, split.sentence_offsets) | (sizes[:, 0] == max_tokens)
        assert (at_sentence & whole).all()
        return
    assert (sizes[:, 1] >= 1).all()
    second_document = document_of(split, segments.second_start)
    assert (document_of(split, segments.second_end - 1) == second_document).all()
    in_order = segments.first_end <= segments.second_start
    if objective == "nsp":
        assert ((first_document == second_document) == (segments.labels == 0)).all()
        assert in_order[segments.labels == 0].all()
    else:
        assert (first_document == second_document).all()
        assert (in_order == (segments.labels == 0)).all()
        assert ((segments.second_end <= segments.first_start) == (segments.labels == 1)).all()

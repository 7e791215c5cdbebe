"""Paths of tags that a scheme allows, whatever the groups are."""

import itertools

import numpy as np
import pytest

from bert_jax.models.crf import IMPOSSIBLE, CRFParams
from bert_jax.tasks.tagging import tags
from bert_jax.tasks.tagging.tags import argmax_decode, mask_invalid_transitions, viterbi_decode

IOB2 = ("O", "B-LOC", "B-PER", "I-LOC", "I-PER")
BIOES = ("O", "B-PER", "E-PER", "I-PER", "S-PER")


def zero_params(labels):
    count = len(labels)
    return CRFParams(*(np.zeros(shape, np.float32) for shape in ((count, count), count, count)))


def allowed(labels):
    """Pairs that may follow each other, tags that may begin and tags that may end."""
    params = mask_invalid_transitions(zero_params(labels), labels)
    pairs = {
        f"{before} {after}"
        for (row, before), (column, after) in itertools.product(enumerate(labels), repeat=2)
        if params.transitions[row, column] > IMPOSSIBLE / 2
    }
    ends = [
        {label for label, score in zip(labels, scores, strict=True) if score > IMPOSSIBLE / 2}
        for scores in (params.start, params.end)
    ]
    return pairs, *ends


def test_steps_of_iob2():
    pairs, starts, ends = allowed(IOB2)
    assert {pair for pair in pairs if " I-" in pair} == {
        "B-LOC I-LOC",
        "I-LOC I-LOC",
        "B-PER I-PER",
        "I-PER I-PER",
    }
    assert len(pairs) == 4 + 5 * 3  # after any tag may stand O, B-LOC and B-PER
    assert starts == {"O", "B-LOC", "B-PER"}
    assert ends == set(IOB2)


def test_steps_of_bioes():
    pairs, starts, ends = allowed(BIOES)
    assert pairs == {
        *("O O", "O B-PER", "O S-PER"),
        *("B-PER I-PER", "B-PER E-PER", "I-PER I-PER", "I-PER E-PER"),
        *("E-PER O", "E-PER B-PER", "E-PER S-PER", "S-PER O", "S-PER B-PER", "S-PER S-PER"),
    }
    assert starts == {"O", "B-PER", "S-PER"}
    assert ends == {"O", "E-PER", "S-PER"}


@pytest.mark.parametrize("labels", ["BIES", "BMES", "BILU"])
def test_steps_of_word_segmentation(labels):
    labels = tuple(labels)
    begin, inside, end, single = labels
    pairs, starts, ends = allowed(labels)
    assert pairs == {
        *(f"{begin} {inside}", f"{begin} {end}", f"{inside} {inside}", f"{inside} {end}"),
        *(f"{end} {begin}", f"{end} {single}", f"{single} {begin}", f"{single} {single}"),
    }
    assert starts == {begin, single}
    assert ends == {end, single}


def test_tags_of_no_scheme_follow_as_they_like():
    labels = ("NN", "VB", "DT")
    params = zero_params(labels)
    assert mask_invalid_transitions(params, labels) is params


def test_a_label_without_a_prefix_stands_anywhere():
    pairs, starts, ends = allowed(("0", "B_PER", "I_PER", "MISC"))
    assert pairs == {
        *("0 0", "0 B_PER", "0 MISC", "MISC 0", "MISC B_PER", "MISC MISC"),
        *("B_PER 0", "B_PER B_PER", "B_PER I_PER", "B_PER MISC"),
        *("I_PER 0", "I_PER B_PER", "I_PER I_PER", "I_PER MISC"),
    }
    assert (starts, ends) == ({"0", "B_PER", "MISC"}, {"0", "B_PER", "I_PER", "MISC"})
    assert "MISC B-PER" in allowed((*BIOES, "MISC"))[0]
    assert allowed((*BIOES, "MISC"))[1:] == ({"O", "B-PER", "S-PER", "MISC"},
                                             {"O", "E-PER", "S-PER", "MISC"})  # fmt: skip


def test_each_word_by_itself():
    scores = np.log(np.array([[1, 2, 1], [6, 3, 1]], np.float32))
    (actual,) = argmax_decode([scores])
    assert actual.tags.tolist() == [1, 0]
    np.testing.assert_allclose(actual.scores, [0.5, 0.6], rtol=1e-6)


@pytest.mark.parametrize(("rows", "words"), [(64, 1 << 14), (3, 20)])
def test_groups_change_nothing(monkeypatch, rows, words):
    monkeypatch.setattr(tags, "_ROWS", rows)
    monkeypatch.setattr(tags, "_WORDS", words)
    generator = np.random.default_rng(5)
    lengths = [3, 0, 7, 1, 1, 18, 2, 5]
    scored = [generator.normal(0, 2, (length, 5)).astype(np.float32) for length in lengths]
    shapes = ((5, 5), (5,), (5,))
    params = CRFParams(*(np.asarray(generator.normal(size=shape), np.float32) for shape in shapes))
    actual = list(viterbi_decode(scored, mask_invalid_transitions(params, IOB2)))
    assert [len(decoded.tags) for decoded in actual] == lengths
    # The path and its probabilities by hand, of a sentence of three words.
    paths = [
        path
        for path in itertools.product(range(5), repeat=3)
        if not any(IOB2[tag][0] == "I" and (not index or IOB2[path[index - 1]][1:] != IOB2[tag][1:])
                   for index, tag in enumerate(path))
    ]  # fmt: skip
    emissions = scored[0]
    totals = np.array(
        [
            params.start[path[0]]
            + params.end[path[2]]
            + sum(emissions[word, tag] for word, tag in enumerate(path))
            + sum(params.transitions[pair] for pair in itertools.pairwise(path))
            for path in paths
        ],
        np.float64,
    )
    probabilities = np.exp(totals) / np.exp(totals).sum()
    decoded = actual[0]
    best = paths[int(probabilities.argmax())]
    assert tuple(decoded.tags.tolist()) == best
    expected = [
        sum(probabilities[index] for index, path in enumerate(paths) if path[word] == best[word])
        for word in range(3)
    ]
    np.testing.assert_allclose(decoded.scores, expected, rtol=1e-4)


def test_sentences_are_read_as_they_are_needed():
    read = []

    def sentences():
        for number in range(1000):
            read.append(number)
            yield np.zeros((4, 5), np.float32)

    next(viterbi_decode(sentences(), zero_params(IOB2)))
    assert len(read) == 65

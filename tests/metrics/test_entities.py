"""Entities by hand, as conlleval reads them, and against seqeval."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bert_jax.errors import UserError
from bert_jax.metrics.entities import (
    EntityCounts,
    Scores,
    Span,
    convert,
    detect_scheme,
    spans,
    tags_of,
)

# Each line: tags, and the entities in them as start-end:type, the end exclusive.
READINGS = """
                               |
O O O                          |
B-PER I-PER O B-LOC            | 0-2:PER 3-4:LOC
B-PER B-PER                    | 0-1:PER 1-2:PER
I-PER B-PER I-PER              | 0-1:PER 1-3:PER
I-PER I-PER O I-PER            | 0-2:PER 3-4:PER
I-PER I-LOC I-LOC              | 0-1:PER 1-3:LOC
B-PER I-LOC                    | 0-1:PER 1-2:LOC
O I-PER                        | 1-2:PER
I-PER                          | 0-1:PER
B-PER I-PER E-PER S-LOC        | 0-3:PER 3-4:LOC
S-PER S-PER                    | 0-1:PER 1-2:PER
B-PER E-PER B-PER E-PER        | 0-2:PER 2-4:PER
S-PER I-PER E-PER              | 0-1:PER 1-3:PER
E-PER E-PER                    | 0-1:PER 1-2:PER
E-PER I-PER                    | 0-1:PER 1-2:PER
O E-PER O                      | 1-2:PER
I-PER E-PER                    | 0-2:PER
B-PER S-PER                    | 0-1:PER 1-2:PER
B-PER E-LOC                    | 0-1:PER 1-2:LOC
B-PER M-PER E-PER              | 0-3:PER
B-PER I-PER L-PER U-PER W-PER  | 0-3:PER 3-4:PER 4-5:PER
B-work-of-art I-work-of-art    | 0-2:work-of-art
B-work-of-art I-work-of        | 0-1:work-of-art 1-2:work-of
B I O I                        | 0-2: 3-4:
B B I                          | 0-1: 1-3:
B I-PER                        | 0-1: 1-2:PER
"""


@pytest.mark.parametrize("line", READINGS.strip("\n").splitlines())
def test_readings(line):
    tags, _, expected = line.partition("|")
    entities = [f"{start}-{end}:{name}" for start, end, name in spans(tags.split())]
    assert entities == expected.split()


@pytest.mark.parametrize("tag", ["PER", "b-PER", "B_PER", "NN", "", "-X-", "BI-PER"])
def test_other_tags_are_refused(tag):
    with pytest.raises(UserError, match="is not the tag of an entity; known are O, and B, I, E, S"):
        spans(["O", tag])


@pytest.mark.parametrize(
    ("iob1", "iob2", "bioes"),
    [
        ("O", "O", "O"),
        ("I-PER", "B-PER", "S-PER"),
        ("I-PER I-PER I-PER", "B-PER I-PER I-PER", "B-PER I-PER E-PER"),
        ("I-PER B-PER I-PER O", "B-PER B-PER I-PER O", "S-PER B-PER E-PER O"),
        ("I-PER I-LOC O I-PER", "B-PER B-LOC O B-PER", "S-PER S-LOC O S-PER"),
        ("I-a-b I-a", "B-a-b B-a", "S-a-b S-a"),
        ("I I B O I", "B I B O B", "B E S O S"),
    ],
)
def test_schemes(iob1, iob2, bioes):
    written = {"iob1": iob1.split(), "iob2": iob2.split(), "bioes": bioes.split()}
    for source, (target, expected) in itertools.product(written, written.items()):
        assert convert(written[source], target) == expected


def test_malformed_sequences_and_unknown_schemes():
    assert convert(["O", "I-PER", "I-PER", "I-LOC"], "iob2") == ["O", "B-PER", "I-PER", "B-LOC"]
    assert convert(["B-PER", "I-PER", "O", "E-LOC"], "bioes") == ["B-PER", "E-PER", "O", "S-LOC"]
    with pytest.raises(UserError, match="tagging scheme 'bio' is unknown; known are iob1, iob2, b"):
        convert(["O"], "bio")


@pytest.mark.parametrize(
    ("sentences", "expected"),
    [
        ("I-PER I-PER O|I-LOC B-LOC", "iob1"),
        ("I-PER O", "iob1"),
        ("I-PER I-LOC", "iob1"),
        ("B-PER I-PER O|B-LOC B-LOC", "iob2"),
        ("B-PER I-PER|B-LOC|I-PER", "iob2"),  # one entity is malformed
        ("B-PER E-PER O", "bioes"),
        ("O O|S-PER", "bioes"),
        ("B-PER M-PER L-PER", "bioes"),
        ("O O", "iob2"),
        ("B I O", "iob2"),
        ("I I B O", "iob1"),
        ("NN VB", None),
        ("B-PER NN", None),
        ("PER O LOC", None),
    ],
)
def test_the_scheme_of_a_file(sentences, expected):
    assert detect_scheme([line.split() for line in sentences.split("|")]) == expected


# ---------------------------------------------------------------- scores

GOLD = ["B-PER I-PER O B-LOC", "O B-ORG I-ORG", "B-LOC"]
GUESS = ["B-PER I-PER O B-ORG", "O B-ORG O", "B-LOC"]


def tagged(lines: list[str]) -> list[list[str]]:
    return [line.split() for line in lines]


def test_counts_by_hand():
    counts = EntityCounts.from_tags(tagged(GOLD), tagged(GUESS))
    assert counts.gold == {"PER": 1, "LOC": 2, "ORG": 1}
    assert counts.predicted == {"PER": 1, "ORG": 2, "LOC": 1}
    assert counts.correct == {"PER": 1, "LOC": 1}
    assert (counts.tokens, counts.correct_tokens) == (8, 6)
    assert counts.accuracy == 0.75
    assert counts.overall == Scores(0.5, 0.5, 0.5)
    assert counts.scores(["PER"]) == Scores(1, 1, 1)
    assert counts.scores(["LOC"]) == Scores(1, 0.5, 2 / 3)
    assert counts.scores(["ORG"]) == Scores(0, 0, 0)
    assert counts.scores(["MISC"]) == Scores(0, 0, 0)
    assert counts.types == ("LOC", "ORG", "PER")


def test_the_lines_of_conlleval():
    assert (
        EntityCounts.from_tags(tagged(GOLD), tagged(GUESS)).as_text()
        == """\
processed 8 tokens with 4 phrases; found: 4 phrases; correct: 2.
accuracy:  75.00%; precision:  50.00%; recall:  50.00%; FB1:  50.00
              LOC: precision: 100.00%; recall:  50.00%; FB1:  66.67  1
              ORG: precision:   0.00%; recall:   0.00%; FB1:   0.00  2
              PER: precision: 100.00%; recall: 100.00%; FB1: 100.00  1"""
    )
    assert EntityCounts.from_tags([], []).as_text() == (
        "processed 0 tokens with 0 phrases; found: 0 phrases; correct: 0."
    )


@pytest.mark.parametrize(
    ("gold", "guess", "correct"),
    [
        # Both ends and the type must be right.
        ("B-PER I-PER I-PER", "B-PER I-PER O", 0),
        ("O B-PER", "B-PER I-PER", 0),
        ("B-PER I-PER", "B-LOC I-LOC", 0),
        # The next one begins where the gold one ends, so the first is right.
        ("B-PER I-PER O", "B-PER I-PER B-PER", 1),
        # The type changes half-way: the gold entity is not predicted.
        ("B-PER I-PER", "B-PER I-LOC", 0),
        # Another scheme, the same entities.
        ("I-PER I-PER B-PER", "B-PER I-PER B-PER", 2),
        ("B-PER I-PER O B-LOC", "B-PER E-PER O S-LOC", 2),
        # A beginning that is missing is read as one.
        ("O B-PER I-PER", "O I-PER I-PER", 1),
        ("B-PER B-LOC", "I-PER I-LOC", 2),
    ],
)
def test_correct_entities(gold, guess, correct):
    counts = EntityCounts.from_tags([gold.split()], [guess.split()])
    assert sum(counts.correct.values()) == correct


def test_the_end_of_a_sentence_ends_an_entity():
    apart = EntityCounts.from_tags(tagged(["I-PER", "I-PER"]), tagged(["I-PER", "I-PER"]))
    joined = EntityCounts.from_tags(tagged(["I-PER I-PER"]), tagged(["I-PER I-PER"]))
    assert (apart.correct["PER"], joined.correct["PER"]) == (2, 1)


TAGS = st.lists(st.sampled_from(["O", *(f"{p}-{t}" for p in "BIES" for t in ("X", "Y-Z"))]))


@given(TAGS)
def test_every_sequence_has_one_reading_in_all_schemes(tags):
    entities = spans(tags)
    inside = {position for start, end, _ in entities for position in range(start, end)}
    assert inside == {position for position, tag in enumerate(tags) if tag != "O"}
    assert all(entity.end <= following.start for entity, following in itertools.pairwise(entities))
    for scheme in ("iob1", "iob2", "bioes"):
        written = tags_of(entities, len(tags), scheme)
        assert spans(written) == entities
        assert convert(written, scheme) == written


def ends_here(before, after):
    """endOfChunk of conlleval.pl: before and after are (prefix, type), O is ("O", "")."""
    (prefix, kind), (following, other) = before, after
    return (
        (prefix, following) in {("B", "B"), ("B", "O"), ("I", "B"), ("I", "O")}
        or prefix == "E"
        or (prefix != "O" and kind != other)
    )


def begins_here(before, after):
    """startOfChunk of conlleval.pl."""
    (prefix, kind), (following, other) = before, after
    pairs = {"BB", "IB", "OB", "OI", "EE", "EI", "OE"}
    return prefix + following in pairs or (following != "O" and kind != other)


@given(st.lists(st.sampled_from(["O", "B-X", "I-X", "B-Y", "I-Y", "B", "I"])))
def test_entities_equal_the_chunks_of_conlleval(tags):
    parsed = [tuple((tag + "-").split("-")[:2]) for tag in tags]
    chunks, start = [], None
    pairs = itertools.pairwise([("O", ""), *parsed, ("O", "")])
    for position, (before, after) in enumerate(pairs):
        if start is not None and ends_here(before, after):
            chunks.append(Span(start, position, before[1]))
            start = None
        if begins_here(before, after):
            start = position
    assert spans(tags) == chunks

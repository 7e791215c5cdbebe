"""What labels stand for, however they are written."""

import pytest

from bert_jax.metrics.tag_names import TagNames

# Each line: labels, their tags, and the line that says what was understood.
READINGS = """
O B-PER I-PER          | O B-PER I-PER         | scheme BIO, 1 type
O B_PER I_PER B_LOC    | O B-PER I-PER B-LOC   | scheme BIO, 2 types; B-LOC is 'B_LOC'
O B:PER I:PER          | O B-PER I-PER         | scheme BIO, 1 type; B-PER is 'B:PER'
O PER-B PER-I MISC     | O B-PER I-PER MISC    | scheme BIO, 2 types; B-PER is 'PER-B'; \
without a prefix: MISC
O PER_B PER_I          | O B-PER I-PER         | scheme BIO, 1 type; B-PER is 'PER_B'
o b-per i-per          | O B-per I-per         | scheme BIO, 1 type; O is 'o'; B-per is 'b-per'
0 B-PER I-PER B-LOC    | O B-PER I-PER B-LOC   | scheme BIO, 2 types; O is '0'
None B_PER             | O B-PER               | scheme BIO, 1 type; O is 'None'; B-PER is 'B_PER'
OUTSIDE B-PER          | O B-PER               | scheme BIO, 1 type; O is 'OUTSIDE'
O None B-PER           | O None B-PER          | scheme BIO, 2 types; without a prefix: None
O B-PER I-PER X [PAD]  | O B-PER I-PER X [PAD] | scheme BIO, 3 types; without a prefix: X, [PAD]
O B-PER I-PER B_PER    | O B-PER I-PER B-PER   | scheme BIO, 1 type; B-PER is 'B_PER'
O B-PER PER            | O B-PER PER           | scheme BIO, 1 type
O B-PER O-PER          | O B-PER O             | scheme BIO, 1 type; O is 'O-PER'
O B-a_b I-a_b B-a-b    | O B-a_b I-a_b B-a-b   | scheme BIO, 2 types
O I-PER B-LOC I-LOC    | O I-PER B-LOC I-LOC   | scheme IOB1, 2 types
B-PER L-PER U-PER M-PER | B-PER E-PER S-PER I-PER | scheme BIOES, 1 type; E-PER is 'L-PER'
B M E S                | B I E S               | scheme BIOES, 1 type; I is 'M'
b i o                  | B I O                 | scheme BIO, 1 type; O is 'o'; B is 'b'
O B-PER I-PER E-MAIL   | O B-PER I-PER E-MAIL | scheme BIO, 2 types; without a prefix: E-MAIL
O B_PER I_PER S_CORP   | O B-PER I-PER S_CORP | scheme BIO, 2 types; B-PER is 'B_PER'; \
without a prefix: S_CORP
O B-PER E-PER S-LOC E-MAIL | O B-PER E-PER S-LOC E-MAIL | scheme BIOES, 3 types; \
without a prefix: E-MAIL
O I-PER E-PER          | O I-PER E-PER         | scheme BIOES, 1 type
O S-PER                | O S-PER               | scheme BIOES, 1 type
"""

# No letter is a prefix here.
NAMES = """
NN VB DT IN            | NN VB DT IN
O NN I                 | O NN I
N V I S B              | N V I S B
0 PER LOC              | O PER LOC
l u m o                | l u m O
O E-MAIL PHONE         | O E-MAIL PHONE
o e-mail               | O e-mail
O vitamin-A vitamin-B vitamin-E | O vitamin-A vitamin-B vitamin-E
group_a group_b group_i | group_a group_b group_i
a_x b_x i_x y          | a_x b_x i_x y
LABEL_0 LABEL_1        | LABEL_0 LABEL_1
"""


def rows(table):
    return [[*map(str.strip, line.split("|"))] for line in table.strip().splitlines()]


@pytest.mark.parametrize(("labels", "tags", "text"), rows(READINGS))
def test_labels_with_prefixes(labels, tags, text):
    names = TagNames.from_labels(labels.split())
    assert [names.tags[label] for label in labels.split()] == tags.split()
    assert names.has_prefixes
    assert names.as_text(names.scheme) == text


@pytest.mark.parametrize(("labels", "tags"), rows(NAMES))
def test_labels_without_prefixes(labels, tags):
    names = TagNames.from_labels(labels.split())
    assert [names.tags[label] for label in labels.split()] == tags.split()
    assert not names.has_prefixes
    assert names.marks_entities == ("O" in tags.split())


def test_types_without_a_prefix():
    names = TagNames.from_labels(["O", "B-PER", "I-PER", "PER", "MISC", "X"])
    assert names.types == {"PER", "MISC", "X"}
    assert names.whole == {"MISC", "X"}
    tags = ["MISC", "MISC", "X", "B-PER", "PER", "O"]
    assert names.entity_tags(tags) == ["I-MISC", "I-MISC", "I-X", "B-PER", "I-PER", "O"]
    assert names.convert(tags, "bioes") == ["MISC", "MISC", "X", "B-PER", "E-PER", "O"]
    assert TagNames.from_labels(["0", "PER"]).as_text(None) == "no prefixes, 1 type; O is '0'"


def test_a_type_that_looks_like_a_prefix():
    """Its neighbours are one entity, whatever the scheme is."""
    names = TagNames.from_labels(["O", "B-PER", "I-PER", "E-MAIL"])
    tags = ["E-MAIL", "E-MAIL", "O", "B-PER", "I-PER"]
    assert names.types == {"PER", "E-MAIL"}
    assert names.entity_tags(tags) == ["I-E-MAIL", "I-E-MAIL", "O", "B-PER", "I-PER"]
    assert names.convert(tags, "bioes") == ["E-MAIL", "E-MAIL", "O", "B-PER", "E-PER"]
    assert names.within(["O", "E-MAIL"]).types == {"E-MAIL"}

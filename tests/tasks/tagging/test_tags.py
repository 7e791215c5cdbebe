"""Which labels a tagger gets, and which tags it refuses."""

import dataclasses

import pytest

from bert_jax.checkpoints.config_file import ModelDescription
from bert_jax.data.examples import ColumnLines, Example, Sentence
from bert_jax.errors import UserError
from bert_jax.metrics.entities import EntityCounts
from bert_jax.models.config import EncoderConfig
from bert_jax.models.execution import Execution
from bert_jax.tasks.base.model_init import ModelInit
from bert_jax.tasks.base.splits import EvalSet
from bert_jax.tasks.tagging.tags import TagSet, find_tag_set, read_tags

INIT = ModelInit(Execution())
IOB2 = ("O", "B-LOC", "B-PER", "I-LOC", "I-PER")
BIOES = ("O", "B-LOC", "E-LOC", "I-LOC", "S-LOC")


def sentence(*tags, line=1):
    return Example(Sentence(tuple("abcdefgh"[: len(tags)])), tags, "0", f"f:{line}")


def finished(labels, *, is_finished=True):
    config = EncoderConfig(num_labels=len(labels) or 2)
    description = ModelDescription(config, "tagging", labels=labels)
    return dataclasses.replace(INIT, description=description, is_finished=is_finished)


@pytest.mark.parametrize(
    ("tags", "scheme", "labels"),
    [
        (("I-PER", "O", "I-LOC", "B-LOC"), "iob2", IOB2),  # from IOB1
        (("B-PER", "O", "B-LOC"), "iob2", IOB2),  # no name has two words
        (("S-PER", "B-LOC", "E-LOC", "O"), "iob2", IOB2),  # from BIOES
        (("B-LOC", "I-LOC"), "bioes", BIOES),  # nothing is outside, but could be
        (("NN", "VB", "DT", "O"), "iob2", ("O", "DT", "NN", "VB")),  # parts of speech
        (("PER", "O"), "bioes", ("O", "PER")),
        (("I", "O", "NN"), "iob2", ("O", "I", "NN")),  # no hyphen, so no entity
        # What has no prefix is a type of its own.
        (("B-LOC", "MISC", "O"), "bioes", ("O", "B-LOC", "E-LOC", "I-LOC", "MISC", "S-LOC")),
    ],
)
def test_labels_of_data(tags, scheme, labels):
    actual = find_tag_set([sentence(*tags)], INIT, scheme, ())
    assert actual.labels == labels
    assert actual.scheme == (scheme if "B-LOC" in labels else None)


def test_labels_in_the_order_of_the_config():
    named = ("B-PER", "I-PER", "O")
    assert find_tag_set([sentence("B-PER")], INIT, "iob2", named).labels == named
    # Not all tags of the scheme, if the data have no others.
    few = find_tag_set([sentence("B-PER")], INIT, "iob2", ("O", "B-PER"))
    assert few == TagSet(("O", "B-PER"), "iob2")
    with pytest.raises(UserError, match="label 'I-PER' is not a label of the config"):
        find_tag_set([sentence("B-PER", "I-PER")], INIT, "iob2", ("O", "B-PER"))
    with pytest.raises(UserError, match="the tag 'I-PER' of .* is unknown to the model, which has"):
        few.check([sentence("B-PER", "I-PER")])
    # The first tag of an entity in IOB1 is B- in IOB2.
    few.check([sentence("I-PER")])


def test_labels_of_a_model_that_has_the_same_keep_their_numbers():
    labels = ("B-PER", "O", "I-PER")
    begun = finished(labels, is_finished=False)
    assert find_tag_set([sentence("B-PER")], begun, "iob2", ()).labels == labels
    other = finished(("O", "X", "Y"), is_finished=False)
    assert find_tag_set([sentence("B-PER")], other, "iob2", ()).labels == ("O", "B-PER", "I-PER")


@pytest.mark.parametrize(
    ("labels", "scheme"),
    [
        (IOB2, "iob2"),
        (BIOES, "bioes"),
        (("O", "I-LOC", "B-LOC", "I-PER"), "iob1"),  # as some models of CoNLL-2003 have it
        (("NN", "VB"), None),
    ],
)
def test_a_finished_model_keeps_its_labels(labels, scheme):
    assert find_tag_set([], finished(labels), "iob2", ()) == TagSet(labels, scheme)
    # Its outputs have names already, in whatever order a config has them.
    named = tuple(reversed(labels))
    assert find_tag_set([], finished(labels), "iob2", named) == TagSet(labels, scheme)


def test_a_finished_model_must_name_them():
    with pytest.raises(UserError, match="the model does not name its tags"):
        find_tag_set([], finished(()), "iob2", ())
    named = finished(tuple(f"LABEL_{number}" for number in range(len(IOB2))))
    assert find_tag_set([], named, "iob2", IOB2) == TagSet(IOB2, "iob2")
    with pytest.raises(UserError, match="data.labels is .*; name as many tags as the model has, 5"):
        find_tag_set([], named, "iob2", ("O",))


def test_tags_of_a_file_however_they_are_written(capsys):
    lines = ColumnLines("# a\na x B_PER\nb x 0\n\n", (1, 2), "")
    first = dataclasses.replace(sentence("B_PER", "0"), input=Sentence(("a", "b"), lines))
    actual = read_tags("train.txt", [first, sentence("I_PER", "MISC"), sentence()])
    assert [each.label for each in actual] == [("B-PER", "O"), ("I-PER", "MISC"), ()]
    # The column beside the predicted tags, which conlleval compares with them.
    assert actual[0].input.lines.text == "# a\na x B_PER B-PER\nb x 0 O\n\n"
    assert capsys.readouterr().err == (
        "train.txt: scheme BIO, 2 types; O is '0'; B-PER is 'B_PER'; without a prefix: MISC\n"
    )
    assert find_tag_set(actual, INIT, "iob2", ()).labels == ("O", "B-PER", "I-PER", "MISC")
    plain = [sentence("B-PER", "O"), sentence("I-PER")]
    assert read_tags("dev.txt", plain) == plain
    assert capsys.readouterr().err == "dev.txt: scheme BIO, 1 type\n"
    assert read_tags("pos.txt", [sentence("NN", "VB")])
    assert capsys.readouterr().err == ""


def test_labels_of_all_files_are_read_together():
    # A file that does not show alone how its tags are written.
    (read,) = read_tags("dev.txt", [sentence("PER-B", "O")], ["PER-B", "PER-I", "O"])
    assert read.label == ("B-PER", "O")
    (read,) = read_tags("dev.txt", [sentence("B_CELL", "O")], ["B_CELL", "T_CELL", "O"])
    assert read.label == ("B_CELL", "O")
    # And one that is written otherwise than the others.
    (read,) = read_tags("dev.txt", [sentence("PER-B", "PER-I", "0")], ["B-PER", "I-PER", "O"])
    assert read.label == ("B-PER", "I-PER", "O")


@pytest.mark.parametrize("labels", [("0", "B_PER", "I_PER", "X"), ("none", "PER-B", "PER-I", "X")])
def test_labels_of_the_config_and_of_a_model_stay_as_they_are_written(labels):
    data = [sentence("B-PER", "I-PER", "X", "O")]
    tag_set = find_tag_set(data, INIT, "iob2", labels)
    assert tag_set == TagSet(labels, "iob2")
    assert tag_set.numbers(("B-PER", "I-PER", "X", "X", "O")).tolist() == [1, 2, 3, 3, 0]
    assert find_tag_set(data, finished(labels, is_finished=False), "iob2", ()).labels == labels
    assert find_tag_set([], finished(labels), "iob2", ()) == tag_set
    with pytest.raises(UserError, match="label 'B-LOC' is not a label of the config"):
        find_tag_set([sentence("B-LOC")], INIT, "iob2", labels)


def test_an_unknown_scheme():
    with pytest.raises(UserError, match="data.scheme is 'iob1'; known are iob2, bioes"):
        find_tag_set([], INIT, "iob1", ())


def test_numbers_of_tags_in_any_scheme():
    tag_set = TagSet(IOB2, "iob2")
    for tags in (
        ("I-PER", "I-PER", "B-PER", "O", "I-LOC"),
        ("B-PER", "I-PER", "B-PER", "O", "B-LOC"),
        ("B-PER", "E-PER", "S-PER", "O", "S-LOC"),
    ):
        assert tag_set.numbers(tags).tolist() == [2, 4, 2, 0, 1]
    assert tag_set.numbers(()).shape == (0,)


def test_tags_that_a_model_does_not_know():
    tag_set = TagSet(IOB2, "iob2")
    tag_set.check([sentence("S-PER", "I-LOC", "O")])
    with pytest.raises(
        UserError,
        match=r"f:3: the tag 'B-MISC' of 'b' is unknown to the model, which has the types of "
        r"entities LOC, PER; fix the data, train",
    ):
        tag_set.check([sentence("O"), sentence("O", "B-MISC", line=3)])
    with pytest.raises(UserError, match=r"f:1: the tag 'JJ' .* which has the tags NN, VB; fix"):
        TagSet(("NN", "VB"), None).check([sentence("NN", "JJ")])


def test_a_test_file_without_a_column_of_tags():
    tag_set = TagSet(IOB2, "iob2")
    part = EvalSet("test", "test.txt", [sentence("O"), sentence("NNP", "VBZ")])
    untagged = tag_set.drop_unknown_tags(part)
    assert [example.label for example in untagged.examples] == [None, None]
    assert [example.input.words for example in untagged.examples] == [("a",), ("a", "b")]
    assert untagged.note == (
        "test.txt: its labels are not used, so it has no metrics: the model has no tags such as "
        "'NNP'"
    )
    tagged = EvalSet("test", "test.txt", [sentence("O", "B-PER")])
    assert tag_set.drop_unknown_tags(tagged) is tagged


@pytest.mark.parametrize(
    ("gold", "expected_gold", "expected"),
    [
        (("I-PER", "B-PER", "O", "I-LOC"), None, ["I-PER", "B-PER", "O", "I-LOC"]),  # IOB1
        (("B-PER", "B-PER", "O", "B-LOC"), None, ["B-PER", "B-PER", "O", "B-LOC"]),
        (("S-PER", "S-PER", "O", "S-LOC"), None, ["S-PER", "S-PER", "O", "S-LOC"]),
        # a file with nothing in it
        (("O", "O", "O", "O"), None, ["B-PER", "B-PER", "O", "B-LOC"]),
    ],
)  # fmt: skip
def test_gold_and_predicted_tags_are_compared_in_the_scheme_of_the_gold_ones(
    gold, expected_gold, expected
):
    predicted = ["B-PER", "B-PER", "O", "B-LOC"]
    actual = TagSet(IOB2, "iob2").comparable([sentence(*gold)], [predicted])
    assert actual == ([expected_gold or gold], [expected])


def test_tags_of_the_same_scheme_are_compared_as_predicted():
    """As seqeval does; entities are read leniently, an accuracy counts tags."""
    gold, predicted = [sentence("B-PER", "I-PER", "O", "B-LOC")], [["I-PER", "I-PER", "O", "I-LOC"]]
    actual = TagSet(IOB2, "iob2").comparable(gold, predicted)
    assert actual == ([gold[0].label], predicted)
    counts = EntityCounts.from_tags(*actual)
    assert (counts.accuracy, counts.overall.f1) == (0.5, 1)
    # Labels as the model writes them, and a type without a prefix.
    labels = ("0", "B_PER", "I_PER", "MISC")
    gold, predicted = [sentence("B-PER", "O", "MISC", "MISC")], [["I_PER", "0", "0", "MISC"]]
    actual = TagSet(labels, "iob2").comparable(gold, predicted)
    assert actual == ([gold[0].label], [["I-PER", "O", "O", "MISC"]])
    # It has prefixes in one of both only.
    gold = [sentence("B-PER", "O", "B-MISC", "I-MISC")]
    assert TagSet(labels, "iob2").comparable(gold, predicted)[0] == [["B-PER", "O", "MISC", "MISC"]]


def test_tags_of_no_scheme_are_compared_as_they_are():
    actual = TagSet(("O", "PER"), None).comparable([sentence("O", "O")], [["O", "PER"]])
    assert actual == ([("O", "O")], [["O", "PER"]])

"""Entities as characters of texts, from the files of annotation tools."""

import json

import pytest

from bert_jax.data.readers.columns import TextOptions
from bert_jax.data.readers.tables import Record
from bert_jax.data.readers.tagged import SentenceParser, TaggedOptions, read_tagged
from bert_jax.errors import UserError

TEXT = "Anna-Lena Kuhn, of Ulm: \u00fcber \U0001f600 Ulm"
WORDS = ("Anna", "-", "Lena", "Kuhn", ",", "of", "Ulm", ":", "\u00fcber", "\U0001f600", "Ulm")
PERSON, FIRST, LAST = (0, 14, "PER"), (19, 22, "LOC"), (31, 34, "LOC")
TAGS = ("B-PER", "I-PER", "I-PER", "I-PER", "O", "O", "B-LOC", "O", "O", "O", "B-LOC")


@pytest.fixture
def sentences(tmp_path):
    """Writes records as JSON lines, or a JSON value, and reads words and tags of each sentence."""

    def read(content, name="a.jsonl", **options):
        path = tmp_path / name
        lines = [content] if name.endswith(".json") else content
        path.write_text("".join(json.dumps(each) + "\n" for each in lines))
        examples = read_tagged(path, TaggedOptions(**options), needs_tags=True)
        return [(each.input.words, each.label) for each in examples]

    return read


def spans(*keys):
    return [dict(zip(keys, entity, strict=True)) for entity in (PERSON, FIRST, LAST)]


LABEL_STUDIO = {
    "id": 7,
    "data": {"text": TEXT, "source": "x"},
    "annotations": [
        {
            "result": [
                {"value": {"start": s, "end": e, "text": TEXT[s:e], "labels": [of_type]}}
                for s, e, of_type in (LAST, PERSON, FIRST)
            ]
            + [{"type": "choices", "value": {"choices": ["good"]}}]
        }
    ],
}


@pytest.mark.parametrize(
    "record",
    [
        {"id": 1, "text": TEXT, "label": [PERSON, FIRST, LAST]},
        {"id": 1, "data": TEXT, "label": [LAST, FIRST, PERSON, LAST]},
        {"text": TEXT, "entities": spans("start_offset", "end_offset", "label"), "relations": []},
        {"text": TEXT, "entities": [PERSON, FIRST, LAST]},
        [TEXT, {"entities": [PERSON, FIRST, LAST]}],
        {"text": TEXT, "ents": spans("start", "end", "label"), "tokens": [{"id": 0, "start": 0}]},
        {"text": TEXT, "spans": spans("start", "end", "label"), "tokens": [{"text": "Anna"}]},
        {"text": TEXT, "label": [dict(each, labels=[each["type"]])
                                 for each in spans("start", "end", "type")]},
        LABEL_STUDIO,
    ],
)  # fmt: skip
def test_forms(sentences, record):
    assert sentences([record]) == [(WORDS, TAGS)]
    assert sentences([record, record], "a.json") == [(WORDS, TAGS)] * 2


def test_other_names_and_none(sentences):
    row = {"body": "a b", "marks": [[2, 3, "X"]]}
    options = {"text_column": "body", "label_column": "marks"}
    assert sentences([row, row | {"marks": []}], **options) == [
        (("a", "b"), ("O", "B-X")),
        (("a", "b"), ("O", "O")),
    ]
    task = {"data": {"q": "x", "body": "a b"}, "annotations": [{"result": []}]}
    assert sentences([task], text_column="data.body") == [(("a", "b"), ("O", "O"))]
    # Blanks at the ends of an entity; one entity beside another.
    assert sentences([{"text": "a b c", "label": [[0, 2, "X"], [2, 5, "X"]]}]) == [
        (("a", "b", "c"), ("B-X", "B-X", "I-X"))
    ]


def test_cut_words(sentences):
    row = {"text": "in Paris and", "label": [[5, 9, "LOC"]]}
    with pytest.raises(UserError) as error:
        sentences([{"text": "a", "label": []}, row])
    assert str(error.value).endswith(
        "a.jsonl:2: the entity 'ris' (LOC, 5 to 8) cuts the word 'Paris'; end it where words end, "
        "or set data.cut_words=widen to take whole words"
    )
    assert sentences([row], cut_words="widen") == [(("in", "Paris", "and"), ("O", "B-LOC", "O"))]
    with pytest.raises(UserError, match="data.cut_words is 'no'; known are error, widen"):
        TaggedOptions(cut_words="no")


def test_annotations_of_several_people(sentences, capsys):
    def task(*made):
        return {"data": {"text": "a b"}, "annotations": [*made]}

    def by(start, **fields):
        value = {"start": start, "end": start + 1, "labels": ["X"]}
        return {"result": [{"value": value}], **fields}

    first = (("a", "b"), ("B-X", "O"))
    assert sentences([task(by(0), by(0))]) == [first]
    assert sentences([task(by(0), by(2, was_cancelled=True))]) == [first]
    assert sentences([task(by(2), by(0, ground_truth=True))]) == [first]
    assert sentences([task(by(0)), task(by(2, was_cancelled=True))]) == [first]
    assert "a.jsonl:2: a person has rejected or skipped the row" in capsys.readouterr().err
    with pytest.raises(UserError, match="1: 2 annotations that differ; keep one, or mark one"):
        sentences([task(by(0), by(2))])


@pytest.mark.parametrize(
    ("entities", "message"),
    [
        ([[0, 9, "X"]], r"1: \[0, 9, 'X'\] is not an entity: it needs its first char.*, of 3, and"),
        ([[2, 2, "X"]], r"1: \[2, 2, 'X'\] is not an entity"),
        ([{"start": "0", "end": 1, "label": "X"}], "1: {'start': '0', .* is not an entity"),
        ([{"start": 0, "end": 1, "labels": ["X", "Y"]}], "1: .* is not an entity: .* one label"),
        ([[0, 1, "X"], [0, 3, "Y"]], r"1: the entity 'a b' \(Y, 0 to 3\) has a word of another"),
        ([[1, 2, "X"]], r"1: the entity '' \(X, 2 to 2\) has no word; remove it"),
        ([{"start": 0, "end": 1, "label": "X", "text": "b"}], "1: the characters 0 to 1 are 'a', "),
        ([[0, 1]], r"1: \[0, 1\] is not an entity: it needs its first character and one past its "),
        ([[0.0, 1.0, "X"]], r"1: \[0.0, 1.0, 'X'\] is not an entity: it needs its first character"),
    ],
)
def test_errors(sentences, entities, message):
    with pytest.raises(UserError, match=f"a.jsonl:{message}"):
        sentences([{"text": "a b", "entities": entities}])


def test_a_text_without_entities_and_entities_without_a_text(sentences):
    with pytest.raises(UserError, match="by its characters, or label: \\[\\]$"):
        sentences([{"text": "a b"}])
    with pytest.raises(UserError, match="a.jsonl:1: 'text' is null; give it a value, or remove th"):
        sentences([{"text": None, "label": []}])


def test_words_and_tags_as_strings(sentences):
    expected = [(("EU", "rejects"), ("B-ORG", "O"))]
    assert sentences([{"words": "EU rejects", "tags": "B-ORG O"}]) == expected
    assert sentences([{"text": "EU rejects", "tags": ["B-ORG", "O"]}]) == expected
    assert sentences([{"sentence": "EU rejects", "labels": "B-ORG O"}]) == expected
    assert sentences([{"tokens": "['EU', 'rejects']", "ner_tags": "['B-ORG', 'O']"}]) == expected
    with pytest.raises(UserError, match="1: 2 words, but 1 tags"):
        sentences([{"text": "EU rejects", "tags": "O"}])


def test_texts_to_predict():
    parse = SentenceParser(TaggedOptions(), TextOptions())

    def predicted(fields):
        example = parse(Record(fields, "f:1"), 0)
        return example.input, example.id, example.label_field, set(example.fields)

    doccano = {"id": 3, "text": TEXT, "label": [PERSON]}
    prodigy = {"text": TEXT, "tokens": [{"text": "Anna"}], "answer": "accept"}
    assert predicted(doccano) == (TEXT, "3", "label", {"id", "label"})
    assert predicted(prodigy) == (TEXT, "0", "", {"tokens", "answer"})
    assert predicted(LABEL_STUDIO) == (TEXT, "7", "spans", {"id", "data", "annotations"})
    task = {"data": {"text": TEXT}, "annotations": []}
    assert predicted(task) == (TEXT, "0", "", {"data", "annotations"})
    assert predicted({"text": "a b", "label": "good"}) == ("a b", "0", "label", {"label"})

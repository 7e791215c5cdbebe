"""Tagged sentences from columns and JSON lines."""

import json

import pytest

from bert_jax.data.readers.tagged import TaggedOptions, read_tagged
from bert_jax.errors import UserError


def write(path, *records):
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    return path


def test_json_lines(tmp_path):
    path = write(
        tmp_path / "a.jsonl",
        {"tokens": ["EU", "rejects"], "ner_tags": ["B-ORG", "O"], "id": 7},
        {"words": ["New York"], "tags": ["B-LOC"]},
        {"words": [], "tags": []},
    )
    found = list(read_tagged(path))
    assert [(sentence.words, sentence.tags, sentence.id) for sentence in found] == [
        (("EU", "rejects"), ("B-ORG", "O"), "7"),
        (("New York",), ("B-LOC",), "1"),
        ((), (), "2"),
    ]
    assert found[1].place == f"{path}:2"


def test_rows_without_an_id_are_numbered(tmp_path):
    path = write(tmp_path / "a.jsonl", *({"words": ["a"], "id": id} for id in (None, "", 7)))
    assert [one.id for one in read_tagged(path)] == ["0", "1", "7"]


def test_json_lines_without_tags(tmp_path):
    path = write(tmp_path / "a.jsonl", {"words": ["EU"]}, {"words": ["EU"], "tags": None})
    assert [sentence.tags for sentence in read_tagged(path)] == [None, None]
    with pytest.raises(UserError, match=r"a.jsonl:1: there is no list of tags \('tags', "):
        list(read_tagged(path, needs_tags=True))


@pytest.mark.parametrize(
    ("record", "message"),
    [
        ({"words": ["a", "b"], "tags": ["O"]}, "a.jsonl:1: 2 words, but 1 tags; fix the line"),
        ({"text": "a b"}, "a.jsonl:1: there is no list 'words' or 'tokens'; give one"),
        ({"words": "a b"}, "a.jsonl:1: 'words' is not a list of strings"),
        ({"tokens": ["a"], "ner_tags": [3]}, "a.jsonl:1: 'ner_tags' is not a list of strings"),
    ],
)
def test_malformed_records(tmp_path, record, message):
    with pytest.raises(UserError, match=message):
        list(read_tagged(write(tmp_path / "a.jsonl", record)))


@pytest.mark.parametrize(
    ("name", "form", "expected"),
    [
        ("eng.testa", "", True),
        ("train.txt.gz", "", True),
        ("train.JSONL.gz", "", False),
        ("-", "", True),
        ("train.jsonl", "conll", True),
        ("train.txt", "jsonl", False),
        ("tfds:conll2003", "", False),
    ],
)
def test_what_a_file_is(name, form, expected):
    assert TaggedOptions(format=form).is_conll(name) == expected


def test_columns_are_read_with_their_options(tmp_path):
    path = tmp_path / "a.tsv"
    path.write_text("#\tx\n1\tBonn\tB-LOC\tO\n")
    options = TaggedOptions(word_column=1, tag_column=2, comments="#")
    (found,) = read_tagged(path, options)
    assert (found.words, found.tags) == (("Bonn",), ("B-LOC",))


def test_an_unknown_format():
    with pytest.raises(UserError, match="format is 'xml'; known are conll, jsonl"):
        list(read_tagged("a.conll", TaggedOptions(format="xml")))

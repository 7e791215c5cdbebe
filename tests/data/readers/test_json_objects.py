"""JSON in every form that files have: lines, an array, an array in an object, rows."""

import json

import pytest

from bert_jax.data.readers.json_objects import parse_object, values
from bert_jax.errors import UserError

RECORDS = [
    {"text": 'a "quoted" ]} text', "label": [[0, 1, "X"]]},
    {"text": "b", "meta": {"data": [{"text": "inner"}]}},
    {"text": "c\\"},
]
ROW = ["a", {"entities": [[0, 1, "X"]]}]


def read(content):
    lines = enumerate(content.splitlines(keepends=True), 1)
    return [(number, json.loads(text)) for number, text in values("a.json", lines)]


@pytest.mark.parametrize("indent", [None, 0, 1, 4])
@pytest.mark.parametrize("before", ["", "\n  \n"])
def test_an_array(indent, before):
    content = before + json.dumps(RECORDS, indent=indent) + "\n\n"
    assert [record for _, record in read(content)] == RECORDS
    inside = {"version": "1", "names": [1], "data": RECORDS, "rest": [{"text": "no"}]}
    assert [record for _, record in read(before + json.dumps(inside, indent=indent))] == RECORDS


def test_lines_in_which_records_begin():
    content = '[\n{"text":\n"a"},\n\n{"text": "b"}, {"text": "c"}\n,\n{"text": "d"}]\n'
    assert [(number, record["text"]) for number, record in read(content)] == [
        *((2, "a"), (5, "b"), (5, "c"), (7, "d"))
    ]
    assert read("[[\n]]") == [(1, [])]
    assert read(json.dumps([ROW, ROW])) == [(1, ROW), (1, ROW)]


def test_lines():
    content = "".join(json.dumps(record) + "\n\n" for record in RECORDS)
    assert read(content) == [(1, RECORDS[0]), (3, RECORDS[1]), (5, RECORDS[2])]
    assert read(json.dumps(ROW) + "\n") == [(1, ROW)]
    # A list in an object of its own line is no array of the file if others follow, or with a text.
    data = {"data": [{"text": "a"}]}
    assert read(f"{json.dumps(data)}\n" * 2) == [(1, data), (2, data)]
    labelled = {"text": "a", "annotations": [{"start": 0}]}
    assert read(json.dumps(labelled)) == [(1, labelled)]
    assert read("") == read(" \n") == []


def test_a_first_line_that_is_cut_off_is_a_line():
    cut, whole = '{"text": "a", "label"\n', '{"text": "b"}\n'
    for content in (cut, cut + whole, cut + whole * 2):
        lines = enumerate(content.splitlines(keepends=True), 1)
        assert list(values("a.jsonl", lines)) == [*enumerate(content.splitlines(keepends=True), 1)]
    # The same beginning, of an object over lines whose array has one element.
    assert read('{"version": 1, "data": [\n{"text": "b"}\n]}\n') == [(2, {"text": "b"})]


def test_no_line_is_read_too_early():
    lines = iter([(1, '{"text": "a"}\n'), (2, '{"text": "b"}\n'), (3, "}")])
    records = values("-", lines)
    next(records)
    assert next(lines)[0] == 2


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ('[{"text": "a"},\n{"text": "b"}\n', "a.json:2: the array does not end; copy or downl"),
        ('[{"text": "a"}]\n]\n', "a.json:1: text follows the array; remove it"),
        ('{"a":\n{"b": 1}}\n', "a.json:2: the file is one JSON object, without an array of rec"),
    ],
)
def test_errors(content, message):
    with pytest.raises(UserError, match=message):
        read(content)


def test_rows():
    assert parse_object('["a", "b"]', "f:1") == {"sentence1": "a", "sentence2": "b"}
    assert parse_object('["a", "b", 1]', "f:1") == {"0": "a", "1": "b", "2": 1}
    assert parse_object(json.dumps(ROW), "f:1") == {"text": "a", "entities": [[0, 1, "X"]]}
    for line in ("[1]", "[]", "3", "null"):
        with pytest.raises(UserError, match="f:1: not a JSON object but "):
            parse_object(line, "f:1")

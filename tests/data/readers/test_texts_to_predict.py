"""Texts to predict, where labels are columns like any other, by hand."""

import gzip

import pytest

from bert_jax.data.readers.columns import TextOptions
from bert_jax.data.readers.texts import open_texts
from bert_jax.errors import UserError


@pytest.fixture
def rows(tmp_path):
    """Writes a file and reads its examples as (text, other fields, line)."""

    def read(name, content, text="", pair="", **options):
        path = tmp_path / name
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        options = TextOptions(text_column=text, pair_column=pair, **options)
        with open_texts(path, options) as found:
            return [(row.input, row.fields, int(row.location.rpartition(":")[2])) for row in found]

    return read


def test_plain_text(rows):
    expected = [("the sun", {}, 1), ("", {}, 2), ('{"a": 1}\tb ', {}, 3), ("end", {}, 4)]
    content = '\ufeffthe sun\r\n\n{"a": 1}\tb \nend'
    assert rows("a.txt", content) == rows("a", content) == expected
    assert rows("text.gz", gzip.compress(content.encode())) == expected


def test_objects_have_their_own_keys(rows):
    content = """\
{"id": 7, "text": "the sun", "tags": ["x", null]}

{"text": "a", "text_pair": "b", "id": "é"}
{"text": "", "text_pair": null}
{"review": "half \\ud83d\\ude00", "x": 1}
"""
    expected = [
        ("the sun", {"id": 7, "tags": ["x", None]}, 1),
        (("a", "b"), {"id": "é"}, 3),
        ("", {"text_pair": None}, 4),
        ("half 😀", {"x": 1}, 5),
    ]
    assert rows("a.ndjson", content) == rows("a.txt", content, format="jsonl") == expected
    assert rows("a.jsonl", '{"text"\n', format="text") == [('{"text"', {}, 1)]


def test_names_of_columns(rows):
    line = '{"premise": "a", "hypothesis": "b", "text": "other", "text_pair": "c"}\n'
    pair = (("a", "b"), {"text": "other", "text_pair": "c"}, 1)
    assert rows("a.jsonl", line, "premise", "hypothesis") == [pair]
    single = ("a", {"hypothesis": "b", "text": "other", "text_pair": "c"}, 1)
    assert rows("a.jsonl", line, "premise") == [single]
    # Without names: a usual pair, here the first one of the list.
    assert rows("a.jsonl", line) == [(("other", "c"), {"premise": "a", "hypothesis": "b"}, 1)]
    table = 'premise\thypothesis\tid\r\na\tb\t1\r\n\r\nsay "x\t\t2\r\n'
    assert rows("a.tsv", table, "premise", "hypothesis") == [
        (("a", "b"), {"id": "1"}, 2),
        (('say "x', ""), {"id": "2"}, 4),
    ]
    assert rows("a.tsv", "1\tthe sun\n", "1", header=False) == [("the sun", {"0": "1"}, 1)]
    assert rows("a.tsv", "text\n") == []


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.jsonl", '{"text": "a"}\n{"text": \n', "a.jsonl:2: not valid JSON: Expecting value, co"),
        ("a.jsonl", "[" * 100_000, "a.jsonl:1: not valid JSON: maximum recursion depth exceeded"),
        ("a.jsonl", "\n[1]\n", "a.jsonl:2: not a JSON object but list; fix the line"),
        ("a.jsonl", '{"texts": 1, "id": 2}', "a.jsonl:1: no column has a usual name of a text, on"),
        ("a.jsonl", "{}", "a.jsonl:1: no column has a usual name of a text, only nothing"),
        ("a.jsonl", '{"text": 5}', "a.jsonl:1: 'text' is not a string but int"),
        ("a.jsonl", '{"text": null}', "a.jsonl:1: no column has a usual name of a text, on"),
        ("a.jsonl", '{"text": "a", "text_pair": 1}', "a.jsonl:1: 'text_pair' is not a string but"),
        ("a.jsonl", '{"text": "a", "b": "\\ud83d"}', "a.jsonl:1: half of a surrogate pair"),
        ("a.json", '[{"text": "a"}]', "a.json: a file of this ending is none of jsonl, tsv"),
        ("a.tsv", "", "a.tsv:1: the file is empty; a table begins with its columns"),
        ("a.csv", 'text\n"a\nb"\nc,d\n', "a.csv:4: 2 fields, but the header has 1"),
        ("a.csv", 'text\na\n"b\nc\n', "a.csv:3: not valid CSV: unexpected end of data; fix it"),
        ("a.csv", 'text\n"b"c\n', "a.csv:2: not valid CSV: ',' expected after '\"'; fix it"),
    ],
)
def test_rows_that_are_malformed(rows, name, content, message):
    with pytest.raises(UserError, match=message):
        rows(name, content)


def test_requested_columns_must_be_there(rows):
    with pytest.raises(UserError, match=r"a.jsonl:2: there is no column 'b', only 'text'; set"):
        rows("a.jsonl", '{"text": "a", "b": "c"}\n{"text": "a", "b": null}', "text", "b")
    with pytest.raises(UserError, match="a.csv:1: there is no column 'b', only 'text'; set data."):
        rows("a.csv", "text\n", "text", "b")


def test_ids_and_labels_are_known(tmp_path):
    path = tmp_path / "a.tsv"
    path.write_text("idx\tsentence\tlabel\n7\tthe sun\t1\n9\t\tanything\n")
    with open_texts(path) as found:
        assert [(row.id, row.input, row.label, row.label_field, row.record) for row in found] == [
            ("7", "the sun", None, "label", {"idx": "7", "sentence": "the sun", "label": "1"}),
            ("9", "", None, "label", {"idx": "9", "sentence": "", "label": "anything"}),
        ]


def test_files_of_glue(tmp_path):
    """QQP's own training file has broken rows, which are skipped there; here none may be lost."""
    path = tmp_path / "test.tsv"
    path.write_text('id\tquestion1\tquestion2\n0\tWhy "so?\tWhy?\n1\ttorn\n')
    with open_texts(path, TextOptions(format="glue:qqp")) as found:
        rows = iter(found)
        row = next(rows)
        assert (row.id, row.input, row.fields) == ("0", ('Why "so?', "Why?"), {"id": "0"})
        with pytest.raises(UserError, match="test.tsv:3: 2 fields, but the header has 3; fix"):
            next(rows)


def test_the_number_of_rows_is_estimated_from_the_bytes(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_text('{"text": "sun"}\n' * 100)
    with open_texts(path) as rows:
        assert rows.estimated_total() is None
        assert [rows.estimated_total() for _ in rows] == [100] * 100
        assert rows.count == 100

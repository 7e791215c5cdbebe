"""Examples to predict in every format, by hand."""

import gzip
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bert_jax.data.readers.columns import TextOptions
from bert_jax.data.readers.texts import open_texts
from bert_jax.errors import UserError


@pytest.fixture
def rows(tmp_path):
    """Writes a file and reads its examples as (text, other, line)."""

    def read(name, content, text="", pair="", form=""):
        path = tmp_path / name
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        options = TextOptions(format=form, text_column=text, pair_column=pair)
        with open_texts(path, options) as found:
            return [
                (row.input, row.fields, int(row.location.removeprefix(f"{path}:"))) for row in found
            ]

    return read


def test_plain_text(rows):
    expected = [("the sun", {}, 1), ("", {}, 2), ('{"a": 1}\tb ', {}, 3), ("end", {}, 4)]
    content = '\ufeffthe sun\r\n\n{"a": 1}\tb \nend'
    assert rows("a.txt", content) == expected
    assert rows("a", content) == expected
    assert rows("text.gz", gzip.compress(content.encode())) == expected


def test_objects(rows):
    content = """\
{"id": 7, "text": "the sun", "tags": ["x", null]}

{"text": "a", "text_pair": "b", "id": "é"}
{"text": "", "text_pair": null}
{"text": "half \\ud83d\\ude00"}
"""
    assert rows("a.jsonl", content) == [
        ("the sun", {"id": 7, "tags": ["x", None]}, 1),
        (("a", "b"), {"id": "é"}, 3),
        ("", {"text_pair": None}, 4),
        ("half 😀", {}, 5),
    ]


def test_names_of_columns(rows):
    line = '{"premise": "a", "hypothesis": "b", "text": "other", "text_pair": "c"}\n'
    assert rows("a.jsonl", line, "premise", "hypothesis") == [
        (("a", "b"), {"text": "other", "text_pair": "c"}, 1)
    ]
    assert rows("a.jsonl", line, "premise") == [
        ("a", {"hypothesis": "b", "text": "other", "text_pair": "c"}, 1)
    ]
    # Without being told: a usual pair, here the first one of the list.
    assert rows("a.jsonl", line) == [(("other", "c"), {"premise": "a", "hypothesis": "b"}, 1)]
    table = "premise\thypothesis\tid\na\tb\t1\n"
    assert rows("a.tsv", table, "premise", "hypothesis") == [(("a", "b"), {"id": "1"}, 2)]
    assert rows("a.tsv", table, "premise") == [("a", {"hypothesis": "b", "id": "1"}, 2)]


def test_tabs(rows):
    content = 'id\ttext\r\n1\tsay "sun\r\n\r\n2\t\r\n'
    assert rows("a.tsv", content) == [('say "sun', {"id": "1"}, 2), ("", {"id": "2"}, 4)]
    assert rows("a.TSV.gz", gzip.compress(content.encode()))[0][0] == 'say "sun'
    assert rows("a.tsv", "text\ttext_pair\na\tb\n") == [(("a", "b"), {}, 2)]
    assert rows("a.tsv", "text\n") == []


def test_quotation_marks_between_tabs(tmp_path):
    path = tmp_path / "a.tsv"
    path.write_text('text\tid\n"say ""sun"""\t"1"\n')
    for quotes, text, id in [("none", '"say ""sun"""', '"1"'), ("auto", 'say "sun"', "1")]:
        with open_texts(path, TextOptions(quotes=quotes)) as rows:
            assert [(row.input, row.fields) for row in rows] == [(text, {"id": id})]


def test_commas(rows):
    content = 'id,text\n1,"a, b"\n2,"two\nlines ""here"""\n\n3,c\n'
    assert rows("a.csv", content) == [
        ("a, b", {"id": "1"}, 2),
        ('two\nlines "here"', {"id": "2"}, 3),
        ("c", {"id": "3"}, 6),
    ]
    long = "sun " * 100_000
    assert rows("a.csv", f"text\n{long}\n") == [(long, {}, 2)]


def test_a_format_that_the_name_does_not_tell(rows):
    assert rows("a.txt", '{"text": "sun"}\n', form="jsonl") == [("sun", {}, 1)]
    assert rows("a.jsonl", '{"text"\n', form="text") == [('{"text"', {}, 1)]
    with pytest.raises(UserError, match="data.format is 'xml'; known are jsonl, tsv, csv"):
        rows("a.txt", "", form="xml")


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.jsonl", '{"text": "a"}\n{"text": \n', "a.jsonl:2: not valid JSON: Expecting value, co"),
        ("a.jsonl", "[" * 100_000, "a.jsonl:1: not valid JSON: maximum recursion depth exceeded"),
        ("a.jsonl", "\n[1]\n", "a.jsonl:2: not a JSON object but list; fix the line"),
        (
            "a.jsonl",
            '{"texts": 1, "id": 2}',
            "a.jsonl:1: no column has a usual name of a text, only 'texts', 'id'; set",
        ),
        ("a.jsonl", "{}", "a.jsonl:1: no column has a usual name of a text, only nothing"),
        ("a.jsonl", '{"text": 5}', "a.jsonl:1: 'text' is not a string but int"),
        ("a.jsonl", '{"text": null}', "a.jsonl:1: no column has a usual name of a text, on"),
        ("a.jsonl", '{"text": "a", "text_pair": 1}', "a.jsonl:1: 'text_pair' is not a string but"),
        ("a.jsonl", '{"text": "a", "b": "\\ud83d"}', "a.jsonl:1: half of a surrogate pair"),
        ("a.tsv", "a\tb\n", "a.tsv:1: no column has a usual name of a text, only 'a', 'b'; set"),
        ("a.tsv", "", "a.tsv:1: the file is empty; a table begins with its columns"),
        ("a.tsv", "text\tb\n1\t2\n1\n", "a.tsv:3: 1 fields, but the header has 2; fix the line"),
        ("a.csv", 'text\n"a\nb"\nc,d\n', "a.csv:4: 2 fields, but the header has 1"),
        ("a.csv", "text,id,id\n", "a.csv:1: two columns have the name 'id'; rename one"),
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
    with pytest.raises(
        UserError, match="a.csv:1: there is no column 'b', only 'text'; set data.pa"
    ):
        rows("a.csv", "text\n", "text", "b")
    with pytest.raises(UserError, match=r"data.pair_column is"):
        rows("a.csv", "text\n", "", "b")


def test_each_object_has_its_own_keys(rows):
    content = '{"text": "a"}\n{"sentence1": "b", "sentence2": "c"}\n{"review": "d", "x": 1}\n'
    assert rows("a.jsonl", content) == [("a", {}, 1), (("b", "c"), {}, 2), ("d", {"x": 1}, 3)]


def test_ids_and_right_answers_are_known(tmp_path):
    path = tmp_path / "a.tsv"
    path.write_text("idx\tsentence\tlabel\n7\tthe sun\t1\n9\t\tanything\n")
    with open_texts(path) as found:
        assert [(row.id, row.input, row.label_field) for row in found] == [
            ("7", "the sun", "label"),
            ("9", "", "label"),
        ]
    (tmp_path / "a.txt").write_text("a\nb\n")
    with open_texts(tmp_path / "a.txt") as found:
        assert [(row.id, row.label_field) for row in found] == [("0", ""), ("1", "")]


def test_a_table_without_names(tmp_path):
    path = tmp_path / "a.tsv"
    path.write_text("1\tthe sun\n0\ta sea\n")
    with open_texts(path, TextOptions(header=False, text_column="1")) as found:
        assert [(row.input, row.fields) for row in found] == [
            ("the sun", {"0": "1"}),
            ("a sea", {"0": "0"}),
        ]


def test_files_of_glue(tmp_path):
    """QQP's own training file has torn rows, which are passed over there; here none may be lost."""
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
        estimates = [rows.estimated_total() for _ in rows]
    assert estimates == [100] * 100
    assert rows.count == 100


@given(texts=st.lists(st.text(st.characters(exclude_categories=["Cs"]))))
def test_any_text_survives_json_lines(tmp_path_factory, texts):
    path = tmp_path_factory.mktemp("rows") / "a.jsonl"
    lines = [json.dumps({"text": text, "id": text}, ensure_ascii=False) for text in texts]
    path.write_bytes("".join(line + "\n" for line in lines).encode())
    with open_texts(path) as rows:
        assert [(row.input, row.fields) for row in rows] == [(text, {"id": text}) for text in texts]


def test_what_has_no_lines_is_not_read_as_text(tmp_path):
    path = tmp_path / "in.json"
    path.write_text('[{"text": "a"}]')
    message = "in.json: a file of this ending is none of jsonl, tsv"
    with pytest.raises(UserError, match=message), open_texts(path) as rows:
        list(rows)


def test_ndjson_is_jsonl(tmp_path):
    path = tmp_path / "in.ndjson"
    path.write_text('{"text": "a", "id": 7}\n')
    with open_texts(path) as rows:
        assert [(row.input, row.fields) for row in rows] == [("a", {"id": 7})]

"""Labelled texts, file by file, by eye."""

import gzip
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bert_jax.data.readers.columns import TextOptions
from bert_jax.data.readers.texts import read_texts
from bert_jax.errors import UserError


def both(example):
    """The text and its pair, or None."""
    text = example.input
    return (text, None) if isinstance(text, str) else text


@pytest.fixture
def texts(tmp_path):
    """Writes a file and reads it as (text, pair, label, id, line)."""

    def read(name, content, regression=False, needs_labels=False, **options):
        path = tmp_path / name
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        found = read_texts(
            path, TextOptions(**options), regression=regression, needs_labels=needs_labels
        )
        return [
            (*both(row), row.label, row.id, int(row.location.removeprefix(f"{path}:")))
            for row in found
        ]

    return read


NEWCOMER = '\ufeffid\ttext\tlabel\r\n7\t"He said ""hi"", then left"\tgood\r\n8\t5" disk\tbad\r\n'


def test_the_table_of_a_newcomer(texts):
    """Windows line ends, quotation marks, a byte order mark, usual names: nothing to set."""
    expected = [
        ('He said "hi", then left', None, "good", "7", 2),
        ('5" disk', None, "bad", "8", 3),
    ]
    assert texts("mine.tsv", NEWCOMER) == expected
    assert texts("mine.tsv.gz", gzip.compress(NEWCOMER.encode())) == expected
    assert texts("mine.txt", NEWCOMER, format="tsv", needs_labels=True) == expected
    assert texts("mine.csv", 'label,Review\r\ngood,"a, b"\r\n') == [("a, b", None, "good", "0", 2)]


def test_columns_of_objects_inside_objects(texts):
    content = '{"doc": {"text": "a"}, "meta": {"label": 1, "id": "x"}}\n'
    names = {"text_column": "doc.text", "label_column": "meta.label", "id_column": "meta.id"}
    assert texts("a.jsonl", content, **names) == [("a", None, "1", "x", 1)]
    with pytest.raises(UserError, match="a.jsonl:1: there is no column 'doc.body', only"):
        texts("a.jsonl", content, **names | {"text_column": "doc.body"})


def test_usual_names(texts):
    for header, expected in {
        "Sentence1\tSentence2\tLabel": ("a", "b", "c", "0", 2),
        "premise\thypothesis\tgold_label": ("a", "b", "c", "0", 2),
        "score\tquestion\tsentence": ("b", "c", "a", "0", 2),
        "class\ttext\ttext_pair": ("b", "c", "a", "0", 2),
        "idx\tsentence\tsentiment": ("b", None, "c", "a", 2),
        "text\tscore\tlabel": ("a", None, "c", "0", 2),
        "text\tother\trest": ("a", None, None, "0", 2),
    }.items():
        assert texts("a.tsv", f"{header}\na\tb\tc\n") == [expected]
    scores = "text\tlabel\tscore\na\t1\t2.5\n"
    assert texts("a.tsv", scores, regression=True) == [("a", None, 2.5, "0", 2)]


def test_columns_that_are_named_or_numbered(texts):
    table = "no\ta\tb\tc\tclass\n5\tsun\tmoon\tx\tnoun\n"
    for columns, expected in [
        (("a", "", "c"), ("sun", None, "x", "0", 2)),
        (("a", "b", "c"), ("sun", "moon", "x", "0", 2)),
        (("1", "2", "3"), ("sun", "moon", "x", "0", 2)),
        (("b", "", ""), ("moon", None, "noun", "0", 2)),
        (("b", "", "gold"), ("moon", None, None, "0", 2)),
    ]:
        keys = dict(zip(("text_column", "pair_column", "label_column"), columns, strict=True))
        assert texts("a.tsv", table, **keys) == [expected]
    numbered = {"header": False, "text_column": "1", "label_column": "0", "id_column": "2"}
    assert texts("a.csv", "x,sun,i1\ny,moon,i2\n", **numbered) == [
        ("sun", None, "x", "i1", 1),
        ("moon", None, "y", "i2", 2),
    ]
    # A name goes before a number.
    assert texts("a.csv", "1,0\nsun,moon\n", text_column="0") == [("moon", None, None, "0", 2)]


def test_other_formats(texts):
    assert texts("TREC.all", "5 How far ?\n4 What , now ?\n", format="label_text") == [
        ("How far ?", None, "5", "0", 1),
        ("What , now ?", None, "4", "1", 2),
    ]
    assert texts("a.txt", "the sun\n", format="text") == [("the sun", None, None, "0", 1)]
    lines = """\
{"text": "sun", "label": 1, "id": 17}
{"label": true, "text": "moon", "id": "b", "other": [1]}
"""
    assert texts("a.jsonl", lines) == [
        ("sun", None, "1", "17", 1),
        ("moon", None, "true", "b", 2),
    ]


def test_several_labels(texts):
    table = "text\tlabels\na\tjoy, anger\nb\t\nc\tjoy,joy,\n"
    assert [row[2] for row in texts("a.tsv", table, label_separator=",")] == [
        ("joy", "anger"),
        (),
        ("joy",),
    ]
    lines = '{"text": "a", "label": ["x,y", 2]}\n{"text": "b", "label": []}\n'
    assert [row[2] for row in texts("a.jsonl", lines)] == [("x,y", "2"), ()]


def test_files_without_labels(texts):
    for name, content in {
        "a.tsv": "text\tlabel\na\t\nb\t \n",
        "a.jsonl": '{"text": "a"}\n{"text": "b", "label": null}\n',
        "a.csv": "text\na\nb\n",
    }.items():
        assert [row[:3] for row in texts(name, content)] == [("a", None, None), ("b", None, None)]
        with pytest.raises(UserError, match=rf"{name}:\d: .*label"):
            texts(name, content, needs_labels=True)
    assert texts("a.tsv", "") == []
    assert texts("a.tsv", "text\tlabel\n", needs_labels=True) == []


def test_empty_texts_are_kept_where_requested(texts, capsys):
    table = "text\tlabel\na\tx\n \ty\nb\tx\n\tx\n"
    with pytest.raises(UserError, match="a.tsv:3: the text is empty; give it one, remove the row"):
        texts("a.tsv", table)
    rows = texts("a.tsv", table, empty="keep")
    assert [(row[0], row[3]) for row in rows] == [("a", "0"), (" ", "1"), ("b", "2"), ("", "3")]
    assert capsys.readouterr().err.startswith("2 empty texts kept; the first: ")


NUMBERS = {"regression": True}
BY_NUMBER = {"text_column": "0", "label_column": "1"}
TEXT_A = '{"text": "a"}\n'


@pytest.mark.parametrize(
    ("content", "options", "message"),
    [
        ("text\tlabel\na\tx\nb\n", {}, "3: 1 fields, but the header has 2; fix the line"),
        ("text\tlabel\na\tx\nb\t\n", {}, "3: the label ('label') is empty; give the row one, or "),
        ("text\tlabel\na\t\nb\tx\n", {}, "3: 'label' is one label, but no label in the rows bef"),
        ("text\tlabel\na\t1\nb\tx\n", NUMBERS, "3: 'label' is 'x', which is not a number"),
        ("text\tlabel\na\tnan\n", NUMBERS, "2: 'label' is 'nan', which is not a number"),
        ('{"text": "a", "label": true}', NUMBERS, "1: 'label' is True, which is not a number"),
        (f'{{"text": "a", "label": {"9" * 400}}}', NUMBERS, "1: 'label' is 9999"),
        (b"text\tlabel\na\tx\n\xe9\ty\n", {}, "3: byte 1 of the line (0xe9) is not UTF-8"),
        ("a\tb\nc\td\n", {}, "1: no column has a usual name of a text, only 'a', 'b'; set"),
        ("a\tb\nc\td\n", {}, "data.label_column); if this line is not a header but a row, "),
        ("a\tb\n", {"header": False}, "data.label_column) to numbers from 0, as the file has n"),
        ("a\tb\n", {"text_column": "c"}, "1: there is no column 'c', only 'a', 'b'; set"),
        ("a\tb\n", {"text_column": "2"}, "set data.text_column to one of these, or to its numb"),
        ("a\n", {"text_column": "a", "pair_column": "b"}, "no column 'b', only 'a'; set data.pai"),
        ("a\n", {"text_column": "a", "id_column": "b"}, "'a'; set data.id_column to one "),
        ("a\n", {"pair_column": "a"}, "data.pair_column is 'a'; set data.text_column, too"),
        ("text\tx\na\tb\n", {"label_column": "y", "needs_labels": True},
         "1: there is no column 'y' among 'text', 'x', but labels are required; set data.l"),
        ('{"text": ["a"]}', {}, "1: 'text' is not a string but list; fix the row"),
        ('{"text": "a", "label": {}}', {}, "1: 'label' is not a label but dict; give "),
        ('{"text": "a", "id": []}', {}, "1: the id ('id') is []; give the row one"),
        ('{"text": "a", "id": 1}\n{"text": "b"}', {}, "2: the keys are 'text', but the first ob"),
        (TEXT_A + '{"text": "b", "text_pair": "c"}', {},
         "2: the keys are 'text', 'text_pair', but the first object has another text"),
        (TEXT_A + '{"text": "b", "label": "c"}', {}, "2: the keys are 'text', 'label', but the f"),
        ('{"text": "a", "label": "c"}\n{"text": "b"}', {}, "2: the label ('label') is empty; give"),
        ('{"text": "a", "label": "c"}\n{"text": "b", "label": ["c"]}', {},
         "2: 'label' is a list of labels, but one label in the rows before"),
        ("sun\tnoun\nrun\tverb\nmoon\tnoun\n", BY_NUMBER,
         "3: the first line of the file is taken for its header, but has the label 'noun'"),
        ("sun\t0.5\nrun\t0.7\n", BY_NUMBER | NUMBERS,
         "2: the first line of the file is taken for its header, but has the label '0.5'"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_said_with_its_location(texts, content, options, message):
    name = "a.jsonl" if content[:1] == "{" else "a.tsv"
    with pytest.raises(UserError) as error:
        texts(name, content, **options)
    assert (f"{name}:{message}" if message[0].isdigit() else message) in str(error.value)


def test_options_that_are_none():
    for options, message in [
        ({"format": "xml"}, "data.format is 'xml'; known are jsonl, tsv"),
        ({"format": "glue:x"}, "data.format is 'glue:x'; the tasks of GLUE are cola, sst2"),
        ({"empty": "drop"}, "data.empty is 'drop'; known are error, keep"),
    ]:
        with pytest.raises(UserError, match=message):
            TextOptions(**options)


def test_a_text_of_a_million_characters(texts):
    text = "sun " * 250_000
    for name, separator in {"a.tsv": "\t", "a.csv": ","}.items():
        content = f"text{separator}label\n{text}{separator}x\n"
        assert texts(name, content) == [(text, None, "x", "0", 2)]


WORDS = st.text(st.characters(exclude_categories=["Cs"])).filter(str.strip)


@given(rows=st.lists(st.tuples(WORDS, WORDS, st.sampled_from(["yes", "no"])), min_size=1))
def test_any_text_survives(tmp_path_factory, rows):
    path = tmp_path_factory.mktemp("texts") / "a.jsonl"
    keys = ("sentence1", "sentence2", "label")
    lines = [json.dumps(dict(zip(keys, row, strict=True)), ensure_ascii=False) for row in rows]
    path.write_bytes("".join(line + "\n" for line in lines).encode())
    assert [(*row.input, row.label) for row in read_texts(path)] == rows

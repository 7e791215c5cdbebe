"""Texts and pairs of texts: labelled, and to predict, where labels are columns like any other."""

import gzip
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bert_jax.data.readers.columns import TextOptions
from bert_jax.data.readers.texts import open_texts, read_texts
from bert_jax.errors import UserError


@pytest.fixture
def write(tmp_path):
    def write(name, content):
        path = tmp_path / name
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return path

    return write


@pytest.fixture
def labelled(write):
    """Writes a file and reads it as (text or pair, label, id, line)."""

    def read(name, content, regression=False, needs_labels=False, one_class=False, **options):
        examples = read_texts(
            write(name, content),
            TextOptions(**options),
            regression=regression,
            needs_labels=needs_labels,
            one_class=one_class,
        )
        return [
            (each.input, each.label, each.id, int(each.location.rpartition(":")[2]))
            for each in examples
        ]

    return read


@pytest.fixture
def to_predict(write):
    """Writes a file and reads it as (text or pair, other fields, line)."""

    def read(name, content, text="", pair="", **options):
        options = TextOptions(text_column=text, pair_column=pair, **options)
        with open_texts(write(name, content), options) as examples:
            return [
                (each.input, each.fields, int(each.location.rpartition(":")[2]))
                for each in examples
            ]

    return read


TABLE = '\ufeffid\ttext\tlabel\r\n7\t"He said ""hi"", then left"\tgood\r\n8\t5" disk\tbad\r\n'


def test_a_table_without_options(labelled):
    """Windows line ends, quotation marks, a byte order mark, usual names."""
    expected = [('He said "hi", then left', "good", "7", 2), ('5" disk', "bad", "8", 3)]
    assert labelled("mine.tsv", TABLE) == expected
    assert labelled("mine.tsv.gz", gzip.compress(TABLE.encode())) == expected
    assert labelled("mine.txt", TABLE, format="tsv", needs_labels=True) == expected
    assert labelled("mine.csv", 'label,Review\r\ngood,"a, b"\r\n') == [("a, b", "good", "0", 2)]


def test_usual_names(labelled):
    for header, expected in {
        "Sentence1\tSentence2\tLabel": (("a", "b"), "c", "0", 2),
        "premise\thypothesis\tgold_label": (("a", "b"), "c", "0", 2),
        "score\tquestion\tsentence": (("b", "c"), "a", "0", 2),
        "class\ttext\ttext_pair": (("b", "c"), "a", "0", 2),
        "idx\tsentence\tsentiment": ("b", "c", "a", 2),
        "text\tscore\tlabel": ("a", "c", "0", 2),
        "text\tother\trest": ("a", None, "0", 2),
        "Text\ttext\tlabel": ("a", "c", "0", 2),
    }.items():
        assert labelled("a.tsv", f"{header}\na\tb\tc\n") == [expected]
    scores = "text\tlabel\tscore\na\t1\t2.5\n"
    assert labelled("a.tsv", scores, regression=True) == [("a", 2.5, "0", 2)]


def test_columns_that_are_named_or_numbered(labelled):
    table = "no\ta\tb\tc\tclass\n5\tsun\tmoon\tx\tnoun\n"
    for columns, expected in [
        (("a", "", "c"), ("sun", "x", "0", 2)),
        (("a", "b", "c"), (("sun", "moon"), "x", "0", 2)),
        (("1", "2", "3"), (("sun", "moon"), "x", "0", 2)),
        (("b", "", ""), ("moon", "noun", "0", 2)),
        (("b", "", "gold"), ("moon", None, "0", 2)),
    ]:
        keys = dict(zip(("text_column", "pair_column", "label_column"), columns, strict=True))
        assert labelled("a.tsv", table, **keys) == [expected]
    numbered = {"header": False, "text_column": "1", "label_column": "0", "id_column": "2"}
    assert labelled("a.csv", "x,sun,i1\n", **numbered) == [("sun", "x", "i1", 1)]
    # A name goes before a number.
    assert labelled("a.csv", "1,0\nsun,moon\n", text_column="0") == [("moon", None, "0", 2)]
    content = '{"doc": {"text": "a"}, "meta": {"label": 1, "id": "x"}}\n'
    names = {"text_column": "doc.text", "label_column": "meta.label", "id_column": "meta.id"}
    assert labelled("a.jsonl", content, **names) == [("a", "1", "x", 1)]


def test_other_formats(labelled):
    assert labelled("TREC.all", "5 How far ?\n4 What , now ?\n", format="label_text") == [
        ("How far ?", "5", "0", 1),
        ("What , now ?", "4", "1", 2),
    ]
    assert labelled("a.txt", "the sun\n", format="text") == [("the sun", None, "0", 1)]
    lines = """\
{"text": "sun", "label": 1, "id": 17}
{"label": true, "text": "moon", "id": "b", "other": [1]}
"""
    assert labelled("a.jsonl", lines) == [("sun", "1", "17", 1), ("moon", "true", "b", 2)]


def test_several_labels_of_fasttext(labelled):
    one = "__label__pos so good\n__label__neg sad\n"
    several = one + "__label__neg __label__long very bad\n"
    assert labelled("a.txt", one, format="label_text") == [
        ("so good", "__label__pos", "0", 1),
        ("sad", "__label__neg", "1", 2),
    ]
    assert labelled("a.txt", several, format="label_text") == [
        ("so good", ("__label__pos",), "0", 1),
        ("sad", ("__label__neg",), "1", 2),
        ("very bad", ("__label__neg", "__label__long"), "2", 3),
    ]
    message = "a.txt:3: 'label' is a list of labels, but one label in the rows before"
    with pytest.raises(UserError, match=message):
        labelled("a.txt", several, format="label_text", one_class=True)


def test_several_labels(labelled):
    table = "text\tlabels\na\tjoy, anger\nb\t\nc\tjoy,joy,\n"
    labels = [label for _, label, _, _ in labelled("a.tsv", table, label_separator=",")]
    assert labels == [("joy", "anger"), (), ("joy",)]
    lines = '{"text": "a", "label": ["x,y", 2]}\n{"text": "b", "label": []}\n'
    assert [label for _, label, _, _ in labelled("a.jsonl", lines)] == [("x,y", "2"), ()]


def test_files_without_labels(labelled):
    for name, content in {
        "a.tsv": "text\tlabel\na\t\nb\t \n",
        "a.jsonl": '{"text": "a"}\n{"text": "b", "label": null}\n',
        "a.csv": "text\na\nb\n",
    }.items():
        assert [row[:2] for row in labelled(name, content)] == [("a", None), ("b", None)]
        with pytest.raises(UserError, match=rf"{name}:\d: .*label"):
            labelled(name, content, needs_labels=True)
    assert labelled("a.tsv", "") == []
    assert labelled("a.tsv", "text\tlabel\n", needs_labels=True) == []


def test_empty_texts_are_kept_where_requested(labelled, capsys):
    table = "text\tlabel\na\tx\n \ty\nb\tx\n\tx\n"
    with pytest.raises(UserError, match="a.tsv:3: the text is empty; give it one, remove the row"):
        labelled("a.tsv", table)
    rows = labelled("a.tsv", table, empty="keep")
    assert [(text, id) for text, _, id, _ in rows] == [
        ("a", "0"),
        (" ", "1"),
        ("b", "2"),
        ("", "3"),
    ]
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
        ("a\n", {"pair_column": "a"}, "data.pair_column is 'a'; set data.text_column as"),
        ("text\tx\na\tb\n", {"label_column": "y", "needs_labels": True},
         "1: there is no column 'y' among 'text', 'x', but labels are required; set data.l"),
        ('{"text": "a"}', {"label_columns": ("x.y", "x.z"), "needs_labels": True},
         "1: there is no key 'x.y' among 'text', but labels are required; set data.label_column"),
        ('{"doc": {"text": "a"}}', {"text_column": "doc.body"}, "1: there is no key 'doc.body'"),
        ('{"text": "a", "label": null}', {"needs_labels": True},
         "1: 'label' is null; give it a value, or remove the row"),
        ('{"text": ["a"]}', {}, "1: 'text' is a list, but not of two texts, which are a pair"),
        ('{"text": "a", "label": {}}', {}, "1: 'label' is not a label but dict; give "),
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
        ("", {"format": "xml"}, "data.format is 'xml'; known are jsonl, tsv"),
        ("", {"format": "glue:x"}, "data.format is 'glue:x'; the tasks of GLUE are cola, sst2"),
        ("", {"empty": "drop"}, "data.empty is 'drop'; known are error, keep"),
    ],
)  # fmt: skip
def test_errors(labelled, content, options, message):
    name = "a.jsonl" if content[:1] == "{" else "a.tsv"
    with pytest.raises(UserError) as error:
        labelled(name, content, **options)
    assert (f"{name}:{message}" if message[0].isdigit() else message) in str(error.value)


WORDS = st.text(st.characters(exclude_categories=["Cs"])).filter(str.strip)


@given(rows=st.lists(st.tuples(WORDS, WORDS, st.sampled_from(["yes", "no"])), min_size=1))
def test_any_text_survives(tmp_path_factory, rows):
    path = tmp_path_factory.mktemp("texts") / "a.jsonl"
    keys = ("sentence1", "sentence2", "label")
    lines = [json.dumps(dict(zip(keys, row, strict=True)), ensure_ascii=False) for row in rows]
    path.write_bytes("".join(line + "\n" for line in lines).encode())
    assert [(*row.input, row.label) for row in read_texts(path)] == rows


def test_plain_text_to_predict(to_predict):
    expected = [("the sun", {}, 1), ("", {}, 2), ('{"a": 1}\tb ', {}, 3), ("end", {}, 4)]
    content = '\ufeffthe sun\r\n\n{"a": 1}\tb \nend'
    assert to_predict("a.txt", content) == to_predict("a", content) == expected
    assert to_predict("text.gz", gzip.compress(content.encode())) == expected
    assert to_predict("a.jsonl", '{"text"\n', format="text") == [('{"text"', {}, 1)]


def test_objects_to_predict_have_their_own_keys(to_predict):
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
    assert to_predict("a.ndjson", content) == expected
    assert to_predict("a.txt", content, format="jsonl") == expected


def test_columns_to_predict(to_predict):
    line = '{"premise": "a", "hypothesis": "b", "text": "other", "text_pair": "c"}\n'
    pair = (("a", "b"), {"text": "other", "text_pair": "c"}, 1)
    assert to_predict("a.jsonl", line, "premise", "hypothesis") == [pair]
    single = ("a", {"hypothesis": "b", "text": "other", "text_pair": "c"}, 1)
    assert to_predict("a.jsonl", line, "premise") == [single]
    # Without names: the first usual pair.
    usual = (("other", "c"), {"premise": "a", "hypothesis": "b"}, 1)
    assert to_predict("a.jsonl", line) == [usual]
    table = 'premise\thypothesis\tid\r\na\tb\t1\r\n\r\nsay "x\t\t2\r\n'
    assert to_predict("a.tsv", table, "premise", "hypothesis") == [
        (("a", "b"), {"id": "1"}, 2),
        (('say "x', ""), {"id": "2"}, 4),
    ]
    assert to_predict("a.tsv", "text\n") == []


@pytest.mark.parametrize(
    ("name", "content", "columns", "message"),
    [
        (
            "a.jsonl",
            '{"text": "a"}\n{"text": \n',
            (),
            "2: not valid JSON: Expecting value, column 11",
        ),
        (
            "a.jsonl",
            "[" * 100_000 + "]" * 100_000,
            (),
            "1: not valid JSON: maximum recursion depth exceeded",
        ),
        ("a.jsonl", "\n[1]\n", (), "2: not a JSON object but list; fix the line"),
        (
            "a.jsonl",
            '{"id": 1}',
            (),
            "1: there is no key 'text' or another usual name of a text, only 'id'; set data.text_"
            r"column .and data.pair_column, data.label_column.$",
        ),
        (
            "a.jsonl",
            '{"text": null, "comment": "a"}',
            (),
            "1: 'text' is null; give it a value, or remove the row$",
        ),
        ("a.jsonl", '{"text": "a", "text_pair": 1}', (), "1: 'text_pair' is not a string but"),
        ("a.jsonl", '{"text": "a", "b": "\\ud83d"}', (), "1: half of a surrogate pair"),
        (
            "a.jsonl",
            '{"text": "a", "b": null}',
            ("text", "b"),
            "1: 'b' is null; give it a value, or remove the row$",
        ),
        ("a.json", '[{"text": "a"}', (), "1: the array does not end; copy or download"),
        ("a.json", '[{"text": "a"}]\n{', (), "1: text follows the array; remove it"),
        ("a.parquet", "", (), " a file of this ending is none of jsonl, tsv"),
        ("a.tsv", "", (), "1: the file is empty; a table begins with its columns"),
        ("a.csv", "text\n", ("text", "b"), "1: there is no column 'b', only 'text'; set data."),
        ("a.csv", 'text\n"a\nb"\nc,d\n', (), "4: 2 fields, but the header has 1"),
        ("a.csv", 'text\na\n"b\nc\n', (), "3: not valid CSV: unexpected end of data; fix it"),
        ("a.csv", 'text\n"b"c\n', (), "2: not valid CSV: ',' expected after '\"'; fix it"),
    ],
)
def test_errors_in_prediction(to_predict, name, content, columns, message):
    with pytest.raises(UserError, match=f"{name}:{message}"):
        to_predict(name, content, *columns)


def test_pairs_as_lists(labelled, to_predict):
    rows = '{"text": ["a", "b"], "label": "x"}\n{"text": ["c", "d"], "label": "y"}\n'
    expected = [(("a", "b"), "x", "0", 1), (("c", "d"), "y", "1", 2)]
    assert labelled("a.jsonl", rows) == expected
    assert labelled("a.jsonl", rows.replace("text", "texts")) == expected
    assert to_predict("a.jsonl", '["a", "b"]\n["c", "d"]\n') == [
        (("a", "b"), {}, 1),
        (("c", "d"), {}, 2),
    ]
    array = '[{"text": "a",\n"label": "x"},\n{"text": "c", "label": "y"}]'
    assert labelled("a.json", array) == [("a", "x", "0", 1), ("c", "y", "1", 3)]


def test_decimal_commas(labelled):
    content = "text;score\na;1,5\nb;-,25\nc;2\n"
    numbers = labelled("a.csv", content, regression=True, decimal_comma=True)
    assert [label for _, label, *_ in numbers] == [1.5, -0.25, 2.0]
    with pytest.raises(UserError, match=r"a.csv:2: 'score' is '1,5', .*set data.decimal_comma=tru"):
        labelled("a.csv", content, regression=True)


def test_a_backslash_before_a_quotation_mark(labelled):
    content = 'text,label\n"a",x\n"say \\"b, c\\" now",y\n'
    rule = "write each quotation mark in a cell twice, not behind a backslash, or set data.quotes="
    with pytest.raises(UserError, match=f"a.csv:3: not valid CSV: .*; {rule}none"):
        labelled("a.csv", content)


def test_examples_to_predict(write):
    path = write("a.tsv", "idx\tsentence\tlabel\n7\tthe sun\t1\n9\t\tanything\n")
    with open_texts(path) as examples:
        assert [
            (row.id, row.input, row.label, row.label_field, row.record) for row in examples
        ] == [
            ("7", "the sun", None, "label", {"idx": "7", "sentence": "the sun", "label": "1"}),
            ("9", "", None, "label", {"idx": "9", "sentence": "", "label": "anything"}),
        ]
    with open_texts(write("a.jsonl", '{"text": "sun"}\n' * 100)) as rows:
        assert rows.estimated_total() is None
        assert [rows.estimated_total() for _ in rows] == [100] * 100
        assert rows.count == 100

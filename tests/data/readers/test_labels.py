"""Labels of every form, cell by cell."""

import csv
import json
import re

import pytest

from bert_jax.data.readers.columns import TextOptions
from bert_jax.data.readers.labels import parse_list, parse_vector
from bert_jax.data.readers.texts import read_texts
from bert_jax.errors import UserError

ABC = ("a", "b", "c")


@pytest.mark.parametrize(
    ("cell", "parts"),
    [
        ("['joy', 'fear']", ("joy", "fear")),  # Python
        ("('joy',)", ("joy",)),
        ("{'joy'}", ("joy",)),
        ("[]", ()),
        ("()", ()),
        ("set()", ()),
        ("frozenset({'joy'})", ("joy",)),
        ("[\"it's\", 'say \"no\"', 'a\\'b\"']", ("it's", 'say "no"', "a'b\"")),
        ("[True, False]", ("true", "false")),
        ("[np.str_('joy'), np.int64(0), np.True_]", ("joy", "0", "true")),
        ("[\"it's\\xa0\", '\\u00e9']", ("it's\xa0", "é")),
        ('["joy","a\\/b"]', ("joy", "a/b")),  # JSON
        ('["\\u00e9", "\\ud83d\\ude00"]', ("é", "😀")),
        ("['\u65e5\\n\\\\n', '\\d']", ("\u65e5\n\\n", "\\d")),
        ("[0, 1.0, true]", ("0", "1.0", "true")),
        ("['joy' 'fear']", ("joy", "fear")),  # NumPy
        ("['a, b' 'c'\n 'd']", ("a, b", "c", "d")),
        ("[0 1 0]", ("0", "1", "0")),
        ("[0. 1.]", ("0.0", "1.0")),
        ("[ True False]", ("true", "false")),
        ("array([0, 1, 0])", ("0", "1", "0")),
        ("array(['joy', 'fear'], dtype='<U4')", ("joy", "fear")),
        ("tensor([0., 1.], device='cuda:0')", ("0.0", "1.0")),
    ],
)
def test_lists_in_cells(cell, parts):
    assert parse_list(cell) == parts


@pytest.mark.parametrize(
    ("cell", "reason"),
    [
        ("[joy]", "'joy' is neither quoted nor a number"),
        ("['joy', fear]", "'fear' is neither quoted nor a number"),
        ("['joy', 'fear'", "it does not end like one"),
        ("['joy, 'fear']", "\"'joy, 'fear'\" is neither quoted nor a number"),
        ("['joy''fear']", "\"'joy''fear'\" is neither quoted nor a number"),
        ("['joy', 'fear' 'shame']", "only some of its parts have commas between them"),
        ("['joy',, 'fear']", "\", 'fear'\" is neither quoted nor a number"),
        ("[0 1 ... 0]", "'...' is neither quoted nor a number"),
        ("[[0, 1], [1, 0]]", "'[0, 1], [1, 0]' is neither quoted nor a number"),
        ("{'joy': 1}", "\"'joy': 1\" is neither quoted nor a number"),
        ("[None]", "'None' is neither quoted nor a number"),
        ("['\\x']", "'\\x' has an invalid escape sequence"),
        ('["\\ud83d"]', '"\\ud83d" has an invalid escape sequence'),
    ],
)
def test_malformed_lists(cell, reason):
    with pytest.raises(ValueError, match=f"^{re.escape(reason)}$"):
        parse_list(cell)


def test_other_cells():
    for cell in ("joy", "(other)", "(c) x", "fear [1]", "[1] fear", "a, b", "{joy}", "0.5", ""):
        assert parse_list(cell) is None
        assert parse_vector(cell) is None
    assert parse_vector("0 1 0") == parse_vector("0,1,0") == parse_vector("0 | 1 | 0")
    assert parse_vector("0.0;1.0") == ("0.0", "1.0")
    assert parse_vector("True False") == ("true", "false")
    for cell in ("0", "0 2", "01", "true or false"):
        assert parse_vector(cell) is None


@pytest.fixture
def labels(tmp_path):
    """Writes labels as the column of a CSV file, and as JSON lines if they are not all strings."""

    def read(values, one_class=False, regression=False, **options):
        path = tmp_path / "a.csv"
        if all(isinstance(value, str) for value in values):
            with path.open("w", newline="") as file:
                csv.writer(file).writerows([("text", "label"), *(("t", value) for value in values)])
        else:
            path = tmp_path / "a.jsonl"
            path.write_text("".join(f'{{"text": "t", "label": {json.dumps(v)}}}\n' for v in values))
        options = TextOptions(**options)
        examples = read_texts(path, options, one_class=one_class, regression=regression)
        return [example.label for example in examples]

    return read


@pytest.mark.parametrize(
    ("values", "options", "expected"),
    [
        # Names of classes.
        (["['x', 'y']", "[]"], {}, [("x", "y"), ()]),
        ([["x", "x"], []], {}, [("x",), ()]),
        (["27", "2,10", "0,1"], {"label_separator": ","}, [("27",), ("2", "10"), ("0", "1")]),
        (["['x']", "y;z"], {"label_separator": ";"}, [("x",), ("y", "z")]),
        # Vectors: a number twice, or all of one length.
        (["[0, 1, 0]", "[1, 1, 0]"], {}, [("LABEL_1",), ("LABEL_0", "LABEL_1")]),
        (["[0, 1, 0]", "[0, 0, 0]"], {"labels": ABC}, [("b",), ()]),
        (["[0. 1.]", "[1. 0.]"], {}, [("LABEL_1",), ("LABEL_0",)]),
        (["0 1 1", "1 0 0"], {"labels": ABC}, [("b", "c"), ("a",)]),
        (["0;1;1", "1;0;0"], {"label_separator": ";", "labels": ABC}, [("b", "c"), ("a",)]),
        ([[True, False, True]], {"labels": ABC}, [("a", "c")]),
        ([[0.0, 1.0, 1.0]], {"labels": (5, 6, 7)}, [("6", "7")]),
        # Numbers of classes.
        (["[5, 3]", "[0]"], {}, [("5", "3"), ("0",)]),
        (["[0, 1]", "[2]"], {"labels": ABC}, [("a", "b"), ("c",)]),
        (["[0, 1]", "[1, 0]"], {"labels": ABC}, [("a", "b"), ("b", "a")]),
        ([[0, 2], [1]], {"labels": ABC}, [("a", "c"), ("b",)]),
        (["0", "2", "1.0"], {"labels": ABC}, ["a", "c", "b"]),
        ([0, 2], {"labels": ABC}, ["a", "c"]),
        (["a", "2"], {"labels": ABC}, ["a", "c"]),
        # Where a name is a number, labels are names.
        (["1", "2"], {"labels": ("1", "2", "3")}, ["1", "2"]),
        (["1", "2"], {"labels": ("1", "2", "more")}, ["1", "2"]),
        # Other numbers stay, and are unknown to the task.
        (["-1", "3"], {"labels": ABC}, ["-1", "3"]),
        # One class, alone in a list or not, also if it looks like a list.
        (["[joy]", "['x']", "y"], {"one_class": True}, ["[joy]", "x", "y"]),
        (["[0]", "[1.0]", "1"], {"one_class": True, "labels": ABC}, ["a", "b", "b"]),
        ([["x"], "y"], {"one_class": True}, ["x", "y"]),
        (["0 1", "2,10", "(other)"], {"one_class": True}, ["0 1", "2,10", "(other)"]),
        (["['x', 'y']", "[]"], {"one_class": True}, [("x", "y"), ()]),  # the task refuses it
        (["(other)", "x"], {}, ["(other)", "x"]),
        (["None", "NA", "null"], {}, ["None", "NA", "null"]),
    ],
)
def test_labels_of_a_column(labels, values, options, expected):
    assert labels(values, **options) == expected


@pytest.mark.parametrize(
    ("values", "options", "message"),
    [
        (["x", "[joy]"], {}, "a.csv:3: 'label' is '[joy]', which looks like a list, but 'joy' is"),
        (["x", "['x']"], {}, "a.csv:3: 'label' is a list of labels, but one label in the rows bef"),
        (["['x']", ""], {}, "a.csv:3: the label ('label') is empty"),
        (["3", "2,10"], {}, "a.csv:3: 'label' is '2,10', which looks like a list, but it has no "),
        (["[0, 1, 0]", "[0, 1]"], {}, "a.csv:3: a vector of 2 numbers, but the first row has 3"),
        (["[]", "[0, 1, 0]"], {}, "a.csv:3: a vector of 3 numbers, but the first row has 0; fix"),
        (["[0, 1, 0]", "[0, 2]"], {}, "a.csv:3: '2' in a list is neither 0 nor 1, as in the other"),
        (["[0, 1, 0]"], {"labels": ("a", "b")}, "a.csv:2: a vector of 3 numbers, but 2 labels are"),
        (["[0.2, 0.8]"], {}, "a.csv:2: 'label' has 0.2 in a list, which is neither the number of"),
        (["[nan]"], {}, "a.csv:2: the label ('label') is 'nan', which means a missing value"),
        (["x", "<NA>"], {}, "a.csv:3: the label ('label') is '<NA>', which means a missing value"),
        (["x", "#N/A"], {}, "a missing value; give the row a label, or remove it"),
        (
            [float("nan")],
            {},
            "a.jsonl:1: the label ('label') is 'nan', which means a missing value",
        ),
        ([["x"], None], {}, "a.jsonl:2: the label ('label') is empty"),
        ([["x", None]], {}, "a.jsonl:1: 'label' is not a label but NoneType"),
        (["[1.5]"], {"regression": True}, "a.csv:2: 'label' is '[1.5]', which is not a number"),
        (["1e39"], {"regression": True}, "a.csv:2: 'label' is '1e39', which is not a number, or "),
        ([10**400], {"regression": True}, "a.jsonl:1: 'label' is 1000000000"),
        ([[0.5]], {"regression": True}, "a.jsonl:1: 'label' is [0.5], which is not a number"),
    ],
)
def test_errors(labels, values, options, message):
    with pytest.raises(UserError) as error:
        labels(values, **options)
    assert message in str(error.value)


def test_columns_of_labels_in_an_object(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_text(
        '{"text": "t", "is": {"rude": 1, "spam": 0}}\n'
        '{"text": "t", "is": {"rude": false, "spam": true}}\n'
    )
    options = TextOptions(label_columns=("is.rude", "is.spam"))
    assert [each.label for each in read_texts(path, options)] == [("is.rude",), ("is.spam",)]
    options = TextOptions(label_columns=("is.rude", "is.bad"))
    with pytest.raises(UserError, match="a.jsonl:1: there is no key 'is.bad', only 'text', 'is'"):
        list(read_texts(path, options))


def read_columns(path, rows, **options):
    lines = (f"t,{row}\n" for row in rows.splitlines())
    path.write_text(f"text,rude,spam\n{''.join(lines)}")
    options = TextOptions(**{"label_columns": ("rude", "spam"), **options})
    return [example.label for example in read_texts(path, options)]


@pytest.mark.parametrize(
    ("rows", "options", "expected"),
    [
        ("1,0\n0.0,1.0\nTrue,FALSE\n0,0\n", {}, [("rude",), ("spam",), ("rude",), ()]),
        ("1,0\n1,1\n", {"labels": ("r", "s")}, [("r",), ("r", "s")]),
        ("1,0\n1,1\n", {"label_columns": (2, 1)}, [("rude",), ("spam", "rude")]),
        (",\n,\n", {}, [None, None]),
        ("1,0\n", {"label_columns": ("x", "y")}, [None]),
    ],
)
def test_a_column_for_each_label(tmp_path, rows, options, expected):
    assert read_columns(tmp_path / "a.csv", rows, **options) == expected


@pytest.mark.parametrize(
    ("rows", "options", "message"),
    [
        ("1,0\n", {"label_columns": ("rude", "x")}, "a.csv:1: there is no column 'x', only 'text'"),
        ("1,0\n-1,0\n", {}, "a.csv:3: 'rude' is '-1', but the column of a label is 0 or 1; fix"),
        ("1,0\n,0\n", {}, "a.csv:3: 'rude' is '', but the column of a label is 0 or 1"),
        ("1,0\n,\n", {}, r"a.csv:3: the label \('rude', 'spam'\) is empty; give the row one"),
        ("1,0\n", {"labels": ABC}, "a.csv:2: a vector of 2 numbers, but 3 labels are named"),
        ("1,0\n", {"label_column": "rude"}, "leave out one of it and data.label_column"),
    ],
)
def test_errors_in_columns_of_labels(tmp_path, rows, options, message):
    with pytest.raises(UserError, match=message):
        read_columns(tmp_path / "a.csv", rows, **options)

"""Records of tables, field by field."""

import csv
import io

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bert_jax.data.readers.columns import TextOptions
from bert_jax.data.readers.tables import FileOptions, Record, format_of, open_records
from bert_jax.errors import UserError


@pytest.fixture
def table(tmp_path):
    """Writes a file and reads its columns and the values of its records by line."""

    def read(name, content, headless=(), skip_broken=False, **options):
        path = tmp_path / name
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        with open_records(
            path, FileOptions(**options), headless=headless, skip_broken=skip_broken
        ) as opened:
            records = list(opened.records)
            broken = [int(each.removeprefix(f"{path}:")) for each in opened.broken]
            rows = {int(r.location.removeprefix(f"{path}:")): [*r.fields.values()] for r in records}
            return opened.columns, rows, broken

    return read


def test_records_have_the_fields_of_the_header(tmp_path):
    path = tmp_path / "a.tsv"
    path.write_text("text\tlabel\nthe sun\t1\n")
    with open_records(path) as table:
        assert list(table.records) == [
            Record({"text": "the sun", "label": "1"}, f"{path}:2", table.columns)
        ]
        assert (table.columns, table.location) == (("text", "label"), f"{path}:1")
        assert table.fraction() == 1.0


def test_without_header_columns_are_numbers(table):
    for name, content in {"a.tsv": "x\ty\n\nz\tx\n", "a.csv": "x,y\n\nz,x\n"}.items():
        assert table(name, content, header=False) == (
            ("0", "1"),
            {1: ["x", "y"], 3: ["z", "x"]},
            [],
        )
    assert table("a.tsv", "x\tx\n", header=False) == (("0", "1"), {1: ["x", "x"]}, [])
    assert table("a.tsv", "", header=False) == ((), {}, [])
    with pytest.raises(UserError, match="a.tsv:2: 1 fields, but the first row has 2; fix the lin"):
        table("a.tsv", "x\ty\nz\n", header=False)


@pytest.mark.parametrize("line", ["sep=;\n", "SEP=;\r\n", '\ufeff"sep=;"\n', "\nsep=;\n"])
def test_a_line_that_names_the_separator(table, line):
    first = line.count("\n")
    expected = ("text", "label,x"), {first + 2: ["a,b", "pos"]}, []
    assert table("a.csv", line + "text;label,x\na,b;pos\n") == expected
    assert table("a.csv", "sep=|\na,b|c\n1|2\n") == (("a,b", "c"), {3: ["1", "2"]}, [])


def test_columns_without_names(table):
    """As of spreadsheets: Excel leaves out the last separators of some rows."""
    content = "text;label;;\na;pos;;\nb;neg\nc;pos;;;\nd;neg;note;\n"
    assert table("a.csv", content) == (
        ("text", "label", "2", "3"),
        {2: ["a", "pos", "", ""], 3: ["b", "neg", "", ""], 4: ["c", "pos", "", ""],
         5: ["d", "neg", "note", ""]},
        [],
    )  # fmt: skip
    assert table("a.csv", "text,label\na,pos,,\n") == (("text", "label"), {2: ["a", "pos"]}, [])
    assert table("a.csv", ",text\n5,a\n") == (("", "text"), {2: ["5", "a"]}, [])  # pandas' index
    for row in ("a", "a;pos;;;note"):
        with pytest.raises(UserError, match=f"a.csv:2: {row.count(';') + 1} fields, but the heade"):
            table("a.csv", f"text;label;;\n{row}\n")


def test_a_header_that_may_be_there(table):
    columns = ("source", "label")
    assert table("a.tsv", "gj04\t1\n", headless=columns) == (columns, {1: ["gj04", "1"]}, [])
    assert table("a.tsv", "label\tx\n0\t1\n", headless=columns) == (
        ("label", "x"),
        {2: ["0", "1"]},
        [],
    )


def test_quotation_marks(table):
    content = '"a"\t"say ""sun"""\tsay "sun"\t"half\t"two" "three"\t"\t""\r\n'
    read = {
        "auto": ["a", 'say "sun"', 'say "sun"', '"half', '"two" "three"', '"', ""],
        "none": ['"a"', '"say ""sun"""', 'say "sun"', '"half', '"two" "three"', '"', '""'],
    }
    for quotes, fields in read.items():
        assert list(table("a.tsv", content, header=False, quotes=quotes)[1].values()) == [fields]
    tabs = '1\t"a\tb\nc"\n2\td\n'
    assert table("a.tsv", tabs, header=False, quotes="csv")[1] == {
        1: ["1", "a\tb\nc"],
        3: ["2", "d"],
    }
    message = "a.tsv:1: 3 fields, but the header has 2; fix the line; if quotation marks hold tabs"
    with pytest.raises(UserError, match=message.replace("a.tsv:1", "a.tsv:2")):
        table("a.tsv", "x\ty\n" + tabs)
    assert table("a.csv", 'a"b,"c"\n', header=False, quotes="none")[1] == {1: ['a"b', '"c"']}


def test_semicolons_where_the_header_has_no_comma(table):
    expected = (("text", "label"), {2: ["a, b", "1"], 3: ["c;d", "0"]}, [])
    assert table("a.csv", 'text;label\na, b;1\n"c;d";0\n') == expected
    assert table("a.csv", '"text";"label"\r\n"a, b";1\r\n"c;d";0\r\n'.encode("utf-16")) == expected
    assert table("a.csv", "text\tlabel\na, b\t1\nc;d\t0\n") == expected
    assert table("a.csv", 'text,label\n"a, b",1\nc;d,0\n') == expected
    assert table("a.csv", '"the;text",label\nc,0\n')[0] == ("the;text", "label")
    assert table("a.csv", '"the,text";label\nc;0\n')[0] == ("the,text", "label")
    assert table("a.csv", "\n\ntext;label\nc;0\n") == (("text", "label"), {4: ["c", "0"]}, [])
    assert table("a.csv", "c;0\n", header=False) == (("0", "1"), {1: ["c", "0"]}, [])
    assert table("a.csv", "text\na;b\n")[1] == {2: ["a;b"]}


def test_keys_of_objects_inside_objects(tmp_path):
    lines = '{"doc": {"text": "a", "by": {"id": 7}}}\n{"doc": 3, "doc.text": "b", "doc.by.id": 8}\n'
    (tmp_path / "a.jsonl").write_text(lines)
    names = {"text_column": "doc.text", "pair_column": "other.x", "id_column": "doc.by.id"}
    with open_records(tmp_path / "a.jsonl", TextOptions(**names)) as opened:
        assert [list(record.fields.values()) for record in opened.records] == [
            [{"text": "a", "by": {"id": 7}}, "a", 7],
            [3, "b", 8],
        ]


def test_rows_that_are_passed_over(table):
    content = "a\tb\n1\t2\n3\n4\t5\n6\t7\t8\n"
    assert table("a.tsv", content, skip_broken=True) == (
        ("a", "b"),
        {2: ["1", "2"], 4: ["4", "5"]},
        [3, 5],
    )


def test_a_label_a_blank_and_a_text(table):
    content = "DESC:manner How  did it ?\r\n\n5 \n"
    expected = {1: ["DESC:manner", "How  did it ?"], 3: ["5", ""]}
    assert table("TREC.all", content, format="label_text") == (("label", "text"), expected, [])
    message = "TREC.all:2: 'alone' is one word, but a line is a label, a blank and a text"
    with pytest.raises(UserError, match=message):
        table("TREC.all", "1 a\nalone\n", format="label_text")


def test_labels_of_fasttext(table):
    content = (
        "__label__a the film\n\n__label__a __label__b-c  so  good , really\r\n"
        "__label__7 , a . d . press , of\n__label__a , __label__b , good\n"
        "good __label__a\n__label__a __label__b\n__label__c ,5 x\n"
    )
    expected = {
        1: ["__label__a", "the film"],
        3: [["__label__a", "__label__b-c"], "so  good , really"],
        4: ["__label__7", "a . d . press , of"],
        5: [["__label__a", "__label__b"], "good"],
        6: ["__label__a", "good"],
        7: [["__label__a", "__label__b"], ""],
        8: ["__label__c", ",5 x"],
    }
    assert table("a.txt", content, format="label_text") == (("label", "text"), expected, [])
    with pytest.raises(UserError, match="a.txt:2: the line has no __label__NAME; give every line"):
        table("a.txt", "__label__a the film\nso good\n", format="label_text")
    with pytest.raises(UserError, match="a.txt:2: the line has a __label__NAME, those before have"):
        table("a.txt", "so good\n__label__a the film\n", format="label_text")


def test_endings_and_options_that_say_nothing(table, tmp_path):
    assert [format_of(name) for name in ("a.TSV.gz", "b.v1.csv", "c.ndjson.zst", "d.txt", "-")] == [
        *("tsv", "csv", "jsonl"),
        *("", ""),
    ]
    with pytest.raises(UserError, match="a.txt: its ending names no format; set data.form"):
        table("a.txt", "a\tb\n")
    message = "cannot be read: Is a directory; give a file"
    with pytest.raises(UserError, match=message), open_records(tmp_path):
        pass
    with pytest.raises(UserError, match="data.format is 'xml'; known are jsonl, tsv, csv"):
        FileOptions("xml")
    with pytest.raises(UserError, match="data.quotes is 'all'; known are auto, none, csv"):
        FileOptions(quotes="all")


CLASSES = "good,pos\nbad,neg\n" * 3


@pytest.mark.parametrize(
    ("content", "messages"),
    [
        (  # two quotation marks make one row of lines 8 to 10
            f'text,label\n{CLASSES}a "b,pos\n"c d,neg\ne f,pos\ng h",neg\n',
            [":9: a quotation mark makes one row of 3 lines that look like rows; ", "10 lines → 8"],
        ),
        (  # at the beginning: compared with the rows after it
            f'text,label\n"a,pos\nb",neg\n{CLASSES}"c,pos\nd",pos\n',
            [
                ":2: a quotation mark makes one row of 2 lines that look like rows (and 1 mo",
                "10 line",
            ],
        ),
        (
            'id,text,score\n1,a,0.5\n2,"b,2.5\n3,c,0\n4,d",1.5\n',
            [":3: a quotation mark makes one row of 3 lines that look lik", "4 lines → 2 rows"],
        ),
        # Texts of several lines, also with a comma in each.
        (f'text,label\n{CLASSES}"Hi,\n\nall",pos\n', ["9 lines → 7 rows"]),
        (f'text,label\n{CLASSES}"Hi, all\nNo, me\nbye",pos\n', ["9 lines → 7 rows"]),
        ('text\n"a\nb"\n', ["2 lines → 1 rows"]),
        (
            "text,label\na,pos\ntext,label\n\n\ufefftext,label\nb,neg\n",
            [":3: the line repeats the header and is skipped (and 1 more); remo", "4 lines → 2"],
        ),
        (f"text,label\n{CLASSES}", []),
        ("text\ntext\n", []),
    ],
)
def test_a_table_that_changes_its_shape(tmp_path, capsys, content, messages):
    path = tmp_path / "a.csv"
    path.write_text(content)
    with open_records(path) as opened:
        list(opened.records)
    said = capsys.readouterr().err.splitlines()
    assert len(said) == len(messages)
    assert all(message in line for line, message in zip(said, messages, strict=True)), said


def test_a_table_of_many_columns(table):
    names = ",".join(f"c{number}" for number in range(40_000))
    columns, rows, _ = table("a.csv", f"{names}\n{'1,' * 39_999}1\n")
    assert (len(columns), len(rows[2])) == (40_000, 40_000)
    with pytest.raises(UserError, match="a.csv:1: two columns have the name 'c7'; rename one"):
        table("a.csv", f"{names},c7\n")


FIELD = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\n\r\0"))


@given(rows=st.lists(st.tuples(FIELD, FIELD), min_size=1), quoted=st.booleans())
def test_what_a_spreadsheet_writes_between_tabs_is_read(tmp_path_factory, rows, quoted):
    path = tmp_path_factory.mktemp("tables") / "a.tsv"
    text = io.StringIO()
    style = csv.QUOTE_ALL if quoted else csv.QUOTE_MINIMAL
    csv.writer(text, delimiter="\t", quoting=style, lineterminator="\r\n").writerows(rows)
    path.write_bytes(text.getvalue().encode("utf-8-sig"))
    no_tabs = not any("\t" in field for row in rows for field in row)
    for quotes in ("csv", "auto") if no_tabs else ("csv",):
        with open_records(path, FileOptions(header=False, quotes=quotes)) as table:
            assert [tuple(record.fields.values()) for record in table.records] == rows

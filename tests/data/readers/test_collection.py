"""Collections, queries and judgements in every format."""

import gzip
import json

import pytest

from bert_jax import cli
from bert_jax.cli.common import fields_from
from bert_jax.data.examples import Document
from bert_jax.data.readers.collection import (
    CollectionOptions,
    open_collection,
    read_queries,
)
from bert_jax.data.readers.judgements import read_judgements
from bert_jax.errors import UserError


def lines(*objects) -> str:
    return "".join(json.dumps(fields, ensure_ascii=False) + "\n" for fields in objects)


@pytest.fixture
def collection(tmp_path):
    """Writes a file and reads (id, title, text) of its documents."""

    def read(name, content, **options):
        (tmp_path / name).write_text(content)
        with open_collection(tmp_path / name, CollectionOptions(**options)) as documents:
            return [(each.id, each.title, each.text) for each in documents]

    return read


TWO = [("7", "", "a b"), ("9", "", "c")]
PSGS = 'id\ttext\ttitle\n1\t"He said ""a""."\tAaron\n2\tb\t"C"\n'


@pytest.mark.parametrize(
    ("name", "content", "options", "expected"),
    [
        ("a.jsonl", lines({"_id": "7", "text": "a b"}, {"_id": 9, "text": "c"}), {}, TWO),
        ("a.jsonl", lines({"docid": 7, "contents": "a b"}, {"docid": 9, "contents": "c"}), {}, TWO),
        ("a.jsonl", lines({"text": "a"}, {"text": "b"}), {}, [("0", "", "a"), ("1", "", "b")]),
        ("a.jsonl", lines({"id": 1, "title": "T", "text": ""}), {}, [("1", "T", "")]),
        ("a.jsonl", lines({"id": 1, "title": None, "text": "x"}), {}, [("1", "", "x")]),
        ("psgs_w100.tsv", PSGS, {}, [("1", "Aaron", 'He said "a".'), ("2", "C", "b")]),
        ("collection.tsv", "7\ta b\n9\tc\n", {}, TWO),
        ("a.csv", "text,pid\na b,7\nc,9\n", {}, TWO),
        ("a.csv", "text,docno\na b,7\nc,9\n", {}, TWO),
        (
            "msmarco-docs.tsv",
            "D1\thttp://a\tTitle\tBody.\n",
            {"header": False, "id_column": "0", "title_column": "2", "text_column": "3"},
            [("D1", "Title", "Body.")],
        ),
        ("a.txt", "one\ntwo\n", {}, [("0", "", "one"), ("1", "", "two")]),
        ("a.txt", "one\n\ntwo\n", {"empty": "skip"}, [("0", "", "one"), ("2", "", "two")]),
        ("a.jsonl", lines({"k": 7, "doc": {"body": "a b"}}), {
            "id_column": "k", "text_column": "doc.body"}, [("7", "", "a b")]),
    ],
)  # fmt: skip
def test_documents(collection, name, content, options, expected):
    assert collection(name, content, **options) == expected


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        (
            "a.jsonl",
            lines({"id": 1, "text": "a"}, {"id": 2, "text": "b"}, {"id": "1", "text": "c"}),
            r"a.jsonl:3: the id '1' was already used at \S+a.jsonl:1; give each document its own",
        ),
        ("a.jsonl", lines({"id": 1, "text": "a"}, {"text": "b"}), "2: the document has no id; giv"),
        ("a.jsonl", lines({"text": "a"}, {"id": 1, "text": "b"}), "2: the document has an id, but"),
        ("a.jsonl", lines({"id": [1], "text": "a"}), r"1: the id is \[1\]; give a text or a whole"),
        ("a.jsonl", lines({"id": "", "text": "a"}), "1: the id is ''; give a text or a whole numb"),
        ("a.jsonl", lines({"id": 1, "txt": "a"}), "1: there is no key 'text' or another usual nam"),
        (
            "a.jsonl",
            lines({"id": 1, "text": None}),
            "1: 'text' is null; give it a value, or remove",
        ),
        ("a.jsonl", lines({"id": 1, "text": 2}), "1: 'text' is not a string but int; fix the row"),
        ("a.tsv", "7\ta\n8\t \n", "2: the document '8' is empty; .* leave it out with data.empty"),
        (
            "a.tsv",
            "id\tdescription\n7\ta\n",
            "a.tsv:1: no column has a usual name of a text .* onl",
        ),
        ("a.tsv", "docno\tabstract\n7\ta\n", "1: no column has .* only 'docno', 'abstract'"),
        ("a.tsv", "7\tx\ta\n", "1: no column has a usual name of a text .* only '7', 'x', 'a'"),
    ],
)
def test_refused_documents(collection, name, content, message):
    with pytest.raises(UserError, match=message):
        collection(name, content)
    with pytest.raises(UserError, match="^data.empty is 'drop'; known are error, skip"):
        CollectionOptions(empty="drop")


def test_the_flags_of_the_command_line():
    words = "--input a --output b --no-header --quotes none --empty skip --id-column 0"
    flags = cli.parse(["index", *words.split()])
    expected = CollectionOptions(header=False, quotes="none", empty="skip", id_column="0")
    assert fields_from(CollectionOptions, flags) == expected


def test_empty_documents_are_counted(collection, capsys):
    assert collection("a.tsv", "7\ta b\n8\t \n9\tc\n", empty="skip") == TWO
    assert capsys.readouterr().err.endswith("a.tsv:2\n")


def test_columns_beside_documents_without_ids(collection, tmp_path, capsys):
    rows = lines(
        {"uuid": "x7", "text": "a", "title": "", "url": "u"},
        {"uuid": "x9", "text": "b", "title": "", "url": "v"},
    )
    assert collection("a.jsonl", rows) == [("0", "", "a"), ("1", "", "b")]
    assert capsys.readouterr().err == (
        f"{tmp_path}/a.jsonl:1: no document has an id, only the number of its record, from 0; if "
        "a column has ids, name it as data.id_column (--id-column): url, uuid\n"
    )
    assert collection("a.jsonl", rows, id_column="uuid") == [("x7", "", "a"), ("x9", "", "b")]
    collection("a.jsonl", lines({"text": "a", "title": ""}))
    assert capsys.readouterr().err == ""


@pytest.fixture
def beir(tmp_path):
    """A BEIR folder with a compressed corpus."""
    folder = tmp_path / "beir"
    (folder / "qrels").mkdir(parents=True)
    corpus = lines({"_id": "d1", "title": "T", "text": "x"}, {"_id": "d2", "text": "y"})
    (folder / "corpus.jsonl.gz").write_bytes(gzip.compress(corpus.encode()))
    (folder / "queries.jsonl").write_text(
        lines({"_id": "q1", "text": "é?"}, {"_id": "q2", "text": "?"})
    )
    header = "query-id\tcorpus-id\tscore\n"
    (folder / "qrels/test.tsv").write_text(header + "q1\td2\t2\nq1\td1\t0\nq2\td1\t1\n")
    return folder


def test_a_beir_folder(beir):
    with open_collection(beir) as documents:
        assert list(documents) == [Document("d1", "x", "T"), Document("d2", "y")]
        assert documents.count == 2
    assert read_queries(beir) == {"q1": "é?", "q2": "?"}
    assert read_judgements(beir) == {"q1": {"d2": 2, "d1": 0}, "q2": {"d1": 1}}
    with pytest.raises(UserError, match="beir has no qrels/train.tsv or qrels.tsv; give a folder"):
        read_judgements(beir, "train")
    with pytest.raises(
        UserError, match="beir has no qrels/dev.tsv or qrels/validation.tsv or qrels.tsv; give a"
    ):
        read_judgements(beir, "validation")


SQUAD = {
    "data": [
        {
            "title": "New_York",
            "paragraphs": [
                {"context": "p", "qas": [{"id": "a", "question": "q?", "answers": []}]},
                {"context": "r", "qas": []},
            ],
        },
        {
            "title": "B",
            "paragraphs": [
                {
                    "context": "r",
                    "qas": [{"id": "b", "question": "s?", "answers": [{"text": "r"}]}],
                },
                {"context": "t", "qas": []},
            ],
        },
    ]
}


def test_squad_as_a_collection(collection, tmp_path):
    expected = [("0-0", "New York", "p"), ("0-1", "New York", "r"), ("1-1", "B", "t")]
    assert collection("dev.json", json.dumps(SQUAD)) == expected
    assert read_queries(tmp_path / "dev.json") == {"a": "q?", "b": "s?"}
    assert read_judgements(tmp_path / "dev.json") == {"a": {"0-0": 0}, "b": {"0-1": 1}}


@pytest.mark.parametrize(
    "header", ["query-id\tcorpus-id\tscore", "query_id corpus_id score", "qid\t0\tdocid\trel"]
)
def test_headers_of_judgements(tmp_path, header):
    row = "q\td 1\t2\n" if header.count("\t") == 2 else "q 0 d 2\n"
    (tmp_path / "qrels").write_text(f"{header}\n{row}")
    assert [*read_judgements(tmp_path / "qrels")] == ["q"]


def test_queries_of_msmarco_and_judgements_of_trec(tmp_path):
    (tmp_path / "queries.tsv").write_text("3\twhat is a\n1\twhy\n")
    assert read_queries(tmp_path / "queries.tsv") == {"3": "what is a", "1": "why"}
    (tmp_path / "qrels").write_text("1 0 d2 2\n1\tQ0\td1\t-1\n\n3 0 d2 1\n3 0 d2 1\n")
    assert read_judgements(tmp_path / "qrels") == {"1": {"d2": 2, "d1": -1}, "3": {"d2": 1}}


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("1 0 d2\t2\n1 d 1 1 1\n", "qrels:2: 5 columns; a judgement is query, document, grade or"),
        ("\n", "qrels has no judgements; give another file"),
        ("1 0 d2 x\n", "qrels:1: the grade is 'x'; give a whole number, or, in a header, qu"),
        (
            "1,d,1\n",
            "qrels:1: 1 columns; .* query, 0, document, grade, with tabs or blanks b",
        ),
        ("1 0 d 2\n1 0 d 0\n", "qrels:2: query '1' and document 'd' already have the grade 2; k"),
    ],
)
def test_refused_judgements(tmp_path, content, message):
    (tmp_path / "qrels").write_text(content)
    with pytest.raises(UserError, match=message):
        read_judgements(tmp_path / "qrels")

"""Tables without a header, JSON of SQuAD, plain text."""

import json

import pytest

from bert_jax.errors import UserError
from tests.data.readers.candidate_files import CORPUS, IDS, QUERIES


def test_tables_without_a_header(ranking):
    triple = ("q ?", ("p", "n"), (1, 0))
    assert ranking(("a.tsv", "q ?\tp\tn\n"), header=False) == [(*triple, (), "0")]
    assert ranking(("a.tsv", "q\tá\n"), header=False) == [("q", ("á",), (1,), (), "0")]
    assert ranking(("a.tsv", "9.5\t-1\tq ?\tp\tn\n")) == [(*triple, (9.5, -1), "0")]


@pytest.mark.parametrize(
    "line", ["1185869\t0\t16", "q1\td1\t1", "1185869\t0", "9.5\t-1\t1185869\t0\t16"]
)
def test_ids_are_no_texts(ranking, line):
    """MS MARCO's triples of ids, judgements without a header, pairs and a teacher's scores."""
    message = "a.tsv: the first line, .* has ids in place of texts; name the files with the texts a"
    with pytest.raises(UserError, match=message):
        ranking(("a.tsv", line + "\n"))


def test_texts_of_a_word_are_read_by_number(ranking):
    names = {"query_column": "0", "document_column": "1", "label_column": "2"}
    assert ranking(("a.tsv", "cat\tanimal\t1\n"), **names) == [("cat", ("animal",), (1,), (), "0")]


def test_judgements_without_a_header_are_no_triplets(ranking):
    """The grade would be the negative, where documents have ids such as 1, 2, 3."""
    files = CORPUS, QUERIES, ("ids.tsv", "7\t3\t4\n")
    message = "ids.tsv: the third column of the first line, '7', '3', '4', may be a grade or the id"
    with pytest.raises(UserError, match=message + " .*; set data.format=judgements if it is a gr"):
        ranking(*files, **IDS)
    assert ranking(*files, **IDS, format="judgements") == [("q", ("T p",), (4,), (), "7")]


@pytest.mark.parametrize(("line", "named"), [("7\t33", "queries"), ("7\t33\t44", "corpus")])
def test_ids_of_one_kind_alone_are_named(ranking, line, named):
    """`queries` is for the ids of queries, and `corpus` for those of documents."""
    with pytest.raises(UserError, match="has ids in place of texts; name the files with the texts"):
        ranking(CORPUS, QUERIES, ("ids.tsv", line + "\n"), **{named: IDS[named]})


def test_squad(ranking):
    qas = [{"id": "a", "question": "q?", "answers": [{"text": "p", "answer_start": 0}]}]
    qas += [{"id": "b", "question": "r?", "answers": [], "is_impossible": True}]
    squad = {"data": [{"title": "New_York", "paragraphs": [{"context": "p", "qas": qas}]}]}
    assert ranking(("dev.json", json.dumps(squad))) == [
        ("q?", ("New York p",), (1,), (), "a"),
        ("r?", ("New York p",), (0,), (), "b"),
    ]


def test_a_text_is_its_own_positive(ranking):
    assert ranking(("a.txt", "x\n\ny\n"), format="text") == [
        ("x", ("x",), (1,), (), "0"),
        ("y", ("y",), (1,), (), "1"),
    ]

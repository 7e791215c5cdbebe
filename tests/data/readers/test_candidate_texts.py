"""Ids in place of texts; judgements."""

import re

import pytest

from bert_jax.data.readers.candidate_columns import RankingOptions
from bert_jax.data.readers.ranking import read_candidates
from bert_jax.errors import UserError
from tests.data.readers.candidate_files import CORPUS, IDS, QUERIES, lines

HEADER = "query-id\tcorpus-id\tscore\n"
BEIR_QUERIES = ("beir/queries.jsonl", lines({"_id": "7", "text": "q"}, {"_id": "8", "text": "r"}))
BEIR_CORPUS = ("beir/corpus.jsonl", CORPUS[1])


def test_ids_in_place_of_texts(ranking):
    expected = [("q", ("T p", "n"), (1, 0))]
    numbers = {"query_column": "0", "positive_column": "1", "negative_column": "2"}
    (only,) = ranking(CORPUS, QUERIES, ("ids.tsv", "7\t3\t4\n"), **IDS, **numbers)
    assert only[:3] == expected[0]
    for file in [
        ("ids.tsv", "9.5\t-1\t7\t3\t4\n"),
        ("a.jsonl", lines({"query_id": "7", "positive": "3", "negative": [4]})),
    ]:
        assert [each[:3] for each in ranking(CORPUS, QUERIES, file, **IDS)] == expected
    tevatron = lines({"query": "q", "positive_document_ids": ["3"], "negative_document_ids": ["4"]})
    (only,) = ranking(CORPUS, ("a.jsonl", tevatron), corpus="corpus.jsonl")
    assert only[:3] == expected[0]
    alone = (QUERIES, ("a.jsonl", lines({"query_id": "7", "positive": "3", "negative": ["4"]})))
    with pytest.raises(
        UserError, match="a.jsonl:1: the documents, as '3', are ids; name the file w"
    ):
        ranking(*alone, queries="queries.tsv")
    (only,) = ranking(*alone, queries="queries.tsv", positive_column="positive")
    assert only[:2] == ("q", ("3", "4"))
    with pytest.raises(UserError, match="'positive_document_ids' has ids of documents; name the"):
        ranking(("a.jsonl", tevatron))
    with pytest.raises(
        UserError, match="ids.tsv:2: the document '5' is not in .*corpus.jsonl; giv"
    ):
        ranking(CORPUS, QUERIES, ("ids.tsv", "7\t3\n7\t5\n"), **IDS)
    with pytest.raises(UserError, match="ids.tsv:1: the query '9' is not in .*queries.tsv; give"):
        ranking(CORPUS, QUERIES, ("ids.tsv", "9\t3\n"), **IDS)


def test_a_beir_folder(ranking, tmp_path, capsys):
    files = (
        BEIR_CORPUS,
        BEIR_QUERIES,
        ("beir/qrels/dev.tsv", HEADER + "7\t4\t0\n7\t3\t2\n7\t5\t1\n"),
    )
    expected = [("q", ("T p", "n"), (2, 0), (), "7")]
    assert ranking(*files) == expected
    assert "unknown ids left out: 1; the first: " in (text := capsys.readouterr().err)
    assert "dev.tsv: the document '5' is not in" in text
    assert "1 of 2 queries have no judgements in" in text
    folder = read_candidates(tmp_path / "beir", RankingOptions(), "validation")
    assert [each.input.query for each in folder] == ["q"]
    with pytest.raises(UserError, match="beir has no qrels/train.tsv or qrels.tsv"):
        list(read_candidates(tmp_path / "beir", RankingOptions(), "train"))
    with pytest.raises(UserError, match="test.tsv: the document '9' is not in .* give the files"):
        ranking(BEIR_CORPUS, BEIR_QUERIES, ("beir/qrels/test.tsv", HEADER + "7\t9\t1\n"))


def test_judgements_with_another_header(ranking):
    judged = "query_id\tcorpus_id\tscore\n7\t3\t1\n"
    read = ranking(BEIR_CORPUS, BEIR_QUERIES, ("beir/qrels/test.tsv", judged))
    assert read == [("q", ("T p",), (1,), (), "7")]


def test_empty_judgements(ranking):
    files = BEIR_CORPUS, BEIR_QUERIES
    with pytest.raises(UserError, match="qrels/test.tsv has no judgements; give another file"):
        ranking(*files, ("beir/qrels/test.tsv", HEADER))
    with pytest.raises(UserError, match="qrels/test.tsv: no grade is above 0; give other judgemen"):
        ranking(*files, ("beir/qrels/test.tsv", HEADER + "7\t4\t0\n"), require_positive=True)


def test_queries_without_a_positive(ranking, capsys):
    pairs = ("a.tsv", "q ?\tx\t0\nr ?\ty\t1\n")
    assert [each[0] for each in ranking(pairs)] == ["q ?", "r ?"]
    assert [each[0] for each in ranking(pairs, require_positive=True)] == ["r ?"]
    assert re.fullmatch(r"queries .* left out: 1; .*a.tsv:1\n", capsys.readouterr().err)
    judged = ("beir/qrels/test.tsv", HEADER + "7\t4\t0\n8\t3\t1\n")
    read = ranking(BEIR_CORPUS, BEIR_QUERIES, judged, require_positive=True)
    assert [each[0] for each in read] == ["r"]

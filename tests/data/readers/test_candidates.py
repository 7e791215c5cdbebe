"""Records of queries with positives, negatives and scores, by the names of their fields."""

import json

import pytest

from bert_jax.data.readers.candidate_columns import RankingOptions
from bert_jax.data.readers.ranking import read_candidates
from bert_jax.errors import UserError
from tests.data.readers.candidate_files import lines

NONE = ()
NEGATIVE = [{"title": "", "text": "n", "score": "8.5", "has_answer": False}]
PASSAGES = [{"docid": "1", "title": "T", "text": "p"}], [{"docid": "2", "title": "", "text": "n"}]


@pytest.mark.parametrize(
    ("record", "expected"),
    [
        # sentence-transformers' pairs, triplets, tuples; with margins, with scores
        ({"anchor": "q", "positive": "p"}, (["p"], [1], NONE)),
        ({"question": "q", "answer": "p"}, (["p"], [1], NONE)),
        ({"query": "q", "positive": "p", "negative": "n"}, (["p", "n"], [1, 0], NONE)),
        ({"query": "q", "answer": "p", "negative": "n"}, (["p", "n"], [1, 0], NONE)),
        ({"query": "q", "negatives": ["n"]}, (["n"], [0], NONE)),
        (
            {"query": "q", "positive": "p", "negative_1": "n", "negative_2": "m"},
            (["p", "n", "m"], [1, 0, 0], NONE),
        ),
        (
            {"query": "q", "positive": "p", "negative": "n", "label": 2.5},
            (["p", "n"], [1, 0], (0, -2.5)),
        ),
        (
            {"query": "q", "positive": "p", "negative": "n", "score": [3, -1]},
            (["p", "n"], [1, 0], (3, -1)),
        ),
        ({"query": "q", "positive": "p", "label": 0}, (["p"], [0], NONE)),
        ({"query": "q", "document": "p", "score": 0.25}, (["p"], [0.25], NONE)),
        (
            {"query": "q", "documents": ["n", "p"], "labels": [0, 1]},
            (["p", "n"], [1, 0], NONE),
        ),
        # graded, with a teacher's scores
        (
            {"query": "q", "documents": ["n", "p", "r"], "labels": [0, 1, 2], "scores": [1, 2, 3]},
            (["r", "p", "n"], [2, 1, 0], (3, 2, 1)),
        ),
        # a teacher's scores alone
        (
            {"query": "q", "documents": ["n", "p"], "scores": [1, 2]},
            (["n", "p"], [0, 0], (1, 2)),
        ),
        # FlagEmbedding's
        (
            {
                "query": "q",
                "pos": ["p"],
                "neg": ["n", "m"],
                "pos_scores": [2],
                "neg_scores": [1, 0],
            },
            (["p", "n", "m"], [1, 0, 0], (2, 1, 0)),
        ),
        # Tevatron's
        (
            {"query": "q", "positive_passages": PASSAGES[0], "negative_passages": PASSAGES[1]},
            (["T p", "n"], [1, 0], NONE),
        ),
        # DPR's
        (
            {
                "question": "q",
                "answers": ["a"],
                "positive_ctxs": PASSAGES[0],
                "negative_ctxs": [{"title": "U", "text": "m"}],
                "hard_negative_ctxs": PASSAGES[1],
            },
            (["T p", "n", "U m"], [1, 0, 0], NONE),
        ),
        # Hugging Face's SQuAD
        (
            {"question": "q", "title": "T", "context": "p", "answers": {"text": ["p"]}},
            (["T p"], [1], NONE),
        ),
        ({"question": "q", "context": "p", "answers": {"text": []}}, (["p"], [0], NONE)),
        # DPR's results; as of MS MARCO; graded objects with the scores of a search
        (
            {"question": "q", "ctxs": [*NEGATIVE, {"text": "p", "has_answer": True}]},
            (["p", "n"], [1, 0], NONE),
        ),
        (
            {
                "query": "q",
                "passages": [
                    {"passage_text": "n", "is_selected": 0},
                    {"passage_text": "p", "is_selected": 1, "url": "u"},
                ],
            },
            (["p", "n"], [1, 0], NONE),
        ),
        (
            {
                "query": "q",
                "passages": {"is_selected": [0, 1], "passage_text": ["n", "p"], "url": ["u", "v"]},
                "answers": ["a"],
            },
            (["p", "n"], [1, 0], NONE),
        ),
        (
            {
                "query": "q",
                "documents": [
                    {"text": "n", "label": 0, "score": 9.5},
                    {"text": "p", "label": 2, "score": 1},
                ],
            },
            (["p", "n"], [2, 0], NONE),
        ),
        ({"query": "q", "document": {"text": "n", "label": 0}}, (["n"], [0], NONE)),
        ({"query": "q", "passages": ["p"], "label": True}, (["p"], [1], NONE)),
        # labels beside negatives
        (
            {"question": "q", "ctxs": NEGATIVE, "hard_negatives": ["m"]},
            (["n", "m"], [0, 0], NONE),
        ),
        (
            {"query": "q", "document": "p", "label": 0, "negative": "n"},
            (["p", "n"], [0, 0], NONE),
        ),
        (
            {"query": "q", "documents": ["a", "p"], "labels": [0, 2], "negatives": ["n"]},
            (["p", "a", "n"], [2, 0, 0], NONE),
        ),
        (
            {"query": "q", "documents": ["a", "b"], "negatives": ["n"], "scores": [1, 3, 2]},
            (["a", "b", "n"], [0, 0, 0], (1, 3, 2)),
        ),
        (
            {"question": "q", "answer": "p", "negative_1": "n", "score": 2.5},
            (["p", "n"], [1, 0], (0, -2.5)),
        ),
        ({"query": "q", "answer": "p"}, (["p"], [1], NONE)),
    ],
)
def test_a_json_object(ranking, record, expected):
    documents, grades, scores = expected
    both = [("q", tuple(documents), tuple(grades), tuple(scores), "7")]
    assert ranking(("a.jsonl", lines(record | {"query_id": 7}))) == both
    assert ranking(("a.json", json.dumps([record | {"query_id": 7}]))) == both


def test_scores_of_documents_that_need_not_be_positives(ranking):
    one = ("a.jsonl", lines({"anchor": "q", "positive": "p", "score": 0.5}))
    names = {"document_column": "positive"}
    assert ranking(one, **names) == [("q", ("p",), (0.5,), (), "0")]
    assert ranking(one, score_column="score", **names) == [("q", ("p",), (0,), (0.5,), "0")]
    assert ranking(one, score_column="score") == [("q", ("p",), (1,), (0.5,), "0")]
    several = ("a.jsonl", lines({"anchor": "q", "positive": ["p", "n"], "scores": [3, 1]}))
    assert ranking(several, **names) == [("q", ("p", "n"), (0, 0), (3, 1), "0")]


def test_titles(ranking):
    file = ("a.jsonl", lines({"query": "q", "pos": PASSAGES[0], "neg": PASSAGES[1]}))
    assert ranking(file, titles="pair")[0][1] == (("T", "p"), "n")
    assert ranking(file, titles="omit")[0][1] == ("p", "n")


@pytest.mark.parametrize(
    "document", [{"positive": "p"}, {"text": "p"}, {"ctxs": {"text": "p", "label": 1}}]
)
def test_the_title_of_the_only_document(ranking, document):
    file = ("a.jsonl", lines({"query": "q", "title": "T", "h": "H"} | document))
    assert ranking(file)[0][1] == ("T p",)
    assert ranking(file, title_column="h", titles="pair")[0][1] == (("H", "p"),)
    assert ranking(file, titles="omit")[0][1] == ("p",)


@pytest.mark.parametrize(
    "documents",
    [{"positive": "p", "negative": "n"}, {"pos": ["p"]}, {"passages": ["p"], "labels": [1]}],
)
def test_a_title_beside_several_documents(ranking, tmp_path, documents):
    file = ("a.jsonl", lines({"query": "q", "title": "T"} | documents))
    message = "a.jsonl:1: 'title' is not the title of the only document; give each document as an o"
    with pytest.raises(UserError, match=message):
        ranking(file)
    assert ranking(file, titles="omit")[0][1][0] == "p"
    (ranked,) = read_candidates(tmp_path / "a.jsonl", RankingOptions(), for_training=False)
    assert ranked.input.documents[0] == "p"
    with pytest.raises(UserError, match=message):
        list(
            read_candidates(
                tmp_path / "a.jsonl", RankingOptions(title_column="title"), for_training=False
            )
        )


@pytest.mark.parametrize("kind", ["query", "positive", "document", "label", "title", "id"])
def test_a_named_column_that_does_not_exist(ranking, kind):
    file = ("a.jsonl", lines({"query": "q", "positive": "p", "negative": "n"}))
    with pytest.raises(UserError, match="a.jsonl:1: there is no key 'nope', only 'query', 'posit"):
        ranking(file, **{f"{kind}_column": "nope"})


def test_empty_documents(ranking, capsys):
    file = ("a.jsonl", lines({"query": "q", "pos": ["p"], "neg": [" ", "n"], "scores": [3, 2, 1]}))
    with pytest.raises(UserError, match="a.jsonl:1: a document is empty; .* with data.empty=skip"):
        ranking(file)
    assert ranking(file, empty="skip") == [("q", ("p", "n"), (1, 0), (3, 1), "0")]
    assert capsys.readouterr().err.startswith("empty documents left out: 1; the first: ")


@pytest.mark.parametrize(
    ("record", "message"),
    [
        ({"q": "x", "positive": "p"}, "1: there is no key 'query' or another usual name of a que"),
        (
            {"query": "x"},
            "1: there is no key 'documents' or another usual name of a document, only 'query'; set",
        ),
        ({"query": " ", "positive": "p"}, "1: the query is empty; fix the row, or remove it"),
        ({"query": "x", "pos": [1]}, "1: 'pos' is not a string but int; fix the row"),
        ({"query": "x", "pos": ["p", ["q"]]}, "1: 'pos' is not a string but list; fix the row"),
        ({"query": "x", "pos": [{"title": "t"}]}, "1: pos: 'text' is not a string but missing"),
        ({"query": "x", "pos": ["p"], "neg": ["n"], "scores": [1, 2, 3]}, "1: 3 scores of 2 docum"),
        ({"query": "x", "documents": ["p"], "labels": [1, 0]}, "1: 2 labels of 1 documents; give"),
        (
            {"query": "x", "documents": ["p"], "labels": ["a"]},
            "1: 'labels' has 'a', which is not a",
        ),
        (
            {"query": "x", "documents": ["p", "r"], "labels": [1, 0, 0], "negatives": ["n"]},
            "1: 3 labels of 2 documents; give one each",
        ),
        (
            {"query": "x", "document": "p", "label": 0, "negative": "n", "score": 2},
            "1: 1 scores of 2 documents; give one each",
        ),
        (
            {"query": "x", "documents": ["p", "r"], "negatives": ["n"]},
            "1: 'documents' is a list of documents without labels or scores; name their labels",
        ),
        (
            {"query": "x", "passages": {"is_selected": [1], "passage_text": ["p", "n"]}},
            "1: passages: 'passage_text' is not a string but list; fix the row",
        ),
        ({"query": "x", "pos": ["p"], "pos_scores": [float("nan")]}, "1: .pos_scores. has nan, w"),
    ],
)
def test_refused_records(ranking, record, message):
    with pytest.raises(UserError, match=message):
        ranking(("a.jsonl", lines(record)))


def test_a_list_without_labels(ranking, tmp_path):
    """It is ranked, but not trained on as if each document were a positive."""
    for key, names in [("ctxs", {}), ("found", {"document_column": "found"})]:
        file = ("a.jsonl", lines({"query": "q", key: ["n", {"text": "p", "score": 2}]}))
        message = f"a.jsonl:1: '{key}' is a list of documents without labels or scores; name their"
        with pytest.raises(UserError, match=message):
            ranking(file, **names)
        read = read_candidates(tmp_path / "a.jsonl", RankingOptions(**names), for_training=False)
        assert [each.label.grades for each in read] == [(0, 0)]
        assert ranking(file, positive_column=key)[0][1:3] == (("n", "p"), (1, 1))


TRIPLET = {"query": "q", "positive": "p", "negative": "n"}


@pytest.mark.parametrize(
    ("record", "column"),
    [
        (TRIPLET | {"hard_neg": "m"}, "hard_neg"),
        (TRIPLET | {"negative_passage": "m"}, "negative_passage"),
        (TRIPLET | {"positive_score": 2, "negative_score": 1}, "positive_score"),
        (TRIPLET | {"bm25Score": [2, 1]}, "bm25Score"),
        (TRIPLET | {"scores": [2, 1], "label": 1}, "label"),
        (TRIPLET | {"ctxs": NEGATIVE}, "ctxs"),
        ({"query": "q", "positive": "p", "passages": ["n"]}, "passages"),
        ({"query": "q", "documents": ["p"], "labels": [1], "ctxs": NEGATIVE}, "ctxs"),
    ],
)
def test_columns_that_are_not_read(ranking, record, column):
    file = ("a.jsonl", lines(record))
    with pytest.raises(UserError, match=f"a.jsonl:1: column '{column}' .* not read; rename or"):
        ranking(file)


def test_documents_that_are_not_read_are_not_ranked_either(tmp_path):
    (tmp_path / "a.jsonl").write_text(lines(TRIPLET | {"documents": ["r"], "bm25_score": 1}))
    with pytest.raises(UserError, match="a.jsonl:1: column 'documents' .* not read; rename or"):
        list(read_candidates(tmp_path / "a.jsonl", RankingOptions(), for_training=False))


def test_columns_that_may_stay_unread(ranking):
    rest = {"pos_id": [1], "document_ids": [2], "position": 3, "type": "t", "hard_neg": 0}
    file = ("a.jsonl", lines(TRIPLET | rest))
    assert ranking(file, positive_column="positive") == [("q", ("p", "n"), (1, 0), (), "0")]
    del rest["hard_neg"]
    assert ranking(("a.jsonl", lines(TRIPLET | rest))) == [("q", ("p", "n"), (1, 0), (), "0")]


def test_hard_negatives_and_a_teacher_in_the_singular(ranking):
    record = {"query": "q", "positive": "p", "hard_negative": "n", "teacher_score": [3, 1]}
    assert ranking(("a.jsonl", lines(record))) == [("q", ("p", "n"), (1, 0), (3, 1), "0")]


@pytest.mark.parametrize(
    ("scores", "message"),
    [
        ({"neg_scores": [1, 2]}, "1: 2 scores of 3 documents; give one each"),
        (
            {"pos_scores": [5], "neg_scores": [1]},
            "1: 'neg_scores' has 1 scores of 2 documents; give",
        ),
        ({"pos_scores": [5, 1], "neg_scores": [1]}, "1: 'pos_scores' has 2 scores of 1 documents"),
    ],
)
def test_scores_of_a_side_are_no_margins(ranking, scores, message):
    record = {"query": "q", "pos": ["p"], "neg": ["n", "m"]}
    with pytest.raises(UserError, match=message):
        ranking(("a.jsonl", lines(record | scores)))
    margins = [("q", ("p", "n", "m"), (1, 0, 0), (0, -1, -2), "0")]
    assert ranking(("a.jsonl", lines(record | {"scores": [1, 2]}))) == margins


def test_some_documents_of_a_list_have_labels(ranking):
    file = ("a.jsonl", lines({"query": "q", "ctxs": [*NEGATIVE, {"text": "p"}]}))
    with pytest.raises(UserError, match="a.jsonl:1: 1 labels of 2 documents; give one each"):
        ranking(file)


def test_refused_options():
    with pytest.raises(UserError, match="^data.titles is 'both'; known are join, pair, omit"):
        RankingOptions(titles="both")
    with pytest.raises(UserError, match="^data.empty is 'keep'; known are error, skip"):
        RankingOptions(empty="keep")
    with pytest.raises(UserError, match="^data.format is 'xml'; known are json, judgements, jsonl"):
        RankingOptions(format="xml")

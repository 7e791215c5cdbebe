"""Answers to the questions of a file: SQuAD's JSON and JSON lines."""

import dataclasses
import json

import pytest

from bert_jax.data.examples import Example, Question
from bert_jax.errors import UserError
from bert_jax.tasks.question_answering.predict import PREDICT
from bert_jax.tasks.question_answering.spans import AnswerSpan, SpanPrediction

PASSAGES = ["the cat sat on the mat . the dog ran to the tree .", "a bird sang . " * 12]
QUESTIONS = [("q1", "the cat", 0), ("q2", "it was", 0), ("q3", "a bird", 1), ("é", "", 1)]


@pytest.fixture
def model(make_model):
    return make_model("question_answering")


@pytest.fixture
def squad():
    """The questions in SQuAD's form."""
    paragraphs = [
        {
            "context": passage,
            "qas": [
                {"id": id, "question": question}
                for id, question, about in QUESTIONS
                if about == number
            ],
        }
        for number, passage in enumerate(PASSAGES)
    ]
    return json.dumps({"version": "1.1", "data": [{"title": "t", "paragraphs": paragraphs}]})


@pytest.fixture
def rows():
    """The questions as JSON lines."""
    return "".join(
        json.dumps({"id": id, "question": question, "context": PASSAGES[about], "x": 1}) + "\n"
        for id, question, about in QUESTIONS
    )


def spans_of(text, start, *logits):
    return AnswerSpan(text, start, start + len(text), *logits)


@pytest.mark.parametrize("threshold", [None, 0.5])
def test_the_official_files_by_hand(tmp_path, threshold):
    queries = [Example(Question("who ?", "the cat"), id=id) for id in ("q1", "é")]
    spans = [
        SpanPrediction((spans_of("cat", 4, 2.0, 1.0),), spans_of("", 0, 1.0, 2.0)),
        SpanPrediction((spans_of("the", 0, 0.0, 0.0),), spans_of("", 0, 1.0, 0.0)),
    ]
    PREDICT.write(
        tmp_path / "a.json",
        queries,
        [dataclasses.replace(span, null_threshold=threshold) for span in spans],
    )
    answers, best = tmp_path / "a.json", tmp_path / "nbest_a.json"
    odds = tmp_path / "null_odds_a.json"
    if threshold is None:
        assert answers.read_text() == '{\n "q1": "cat",\n "é": "the"\n}\n'
        assert best.read_text().startswith(
            '{\n "q1": [\n  {\n   "text": "cat",\n   "probability": 1.0,\n   "start_logit": 2.0,\n'
        )
        assert not odds.exists()
    else:
        assert answers.read_text() == '{\n "q1": "cat",\n "é": ""\n}\n'
        assert [span["probability"] for span in json.loads(best.read_text())["q1"]] == [0.5, 0.5]
        assert odds.read_text() == '{\n "q1": 0.0,\n "é": 1.0\n}\n'


@pytest.mark.slow
def test_the_official_files(predict_file, model, squad, rows, listing):
    expected = {id: model.answer(text, PASSAGES[about]).text for id, text, about in QUESTIONS}
    for content, name in [(squad, "in.json"), (rows, "in.jsonl")]:
        assert json.loads(predict_file(model, content, name, "a.json")) == expected
        assert "nbest_a.json" in listing()


def test_kept_columns(predict_file, model, squad, rows):
    kept = {"keep_columns": ("id", "context")}
    for content, name in [(squad, "in.json"), (rows, "in.jsonl")]:
        first = json.loads(predict_file(model, content, name, **kept).splitlines()[0])
        assert list(first)[:3] == ["id", "context", "answer"]
        assert (first["id"], first["context"]) == ("q1", PASSAGES[0])
    with pytest.raises(
        UserError, match="the output format squad has no other columns; leave keep_"
    ):
        predict_file(model, rows, "in.jsonl", "a.json", **kept)


def test_records(predict_file, model, squad, rows):
    actual = [json.loads(line) for line in predict_file(model, rows).splitlines()]
    for record, (id, question, about) in zip(actual, QUESTIONS, strict=True):
        names = ["id", "question", "context", "x", "answer", "start", "end", "score"]
        assert list(record) == names
        assert (record["id"], record["x"]) == (id, 1)
        assert PASSAGES[about][record["start"] : record["end"]] == record["answer"]
        assert record["answer"] == model.answer(question, PASSAGES[about]).text
    same = [json.loads(line) for line in predict_file(model, squad, "in.json").splitlines()]
    assert same == [{key: record[key] for key in record if key != "x"} for record in actual]


def test_several_answers_and_none(predict_file, model, rows):
    first = json.loads(predict_file(model, rows, top_k=3).splitlines()[0])
    assert len(first["n_best"]) == 3
    assert first["n_best"][0]["answer"] == first["answer"]
    assert sum(span["score"] for span in first["n_best"]) < 1
    first = json.loads(predict_file(model, rows, null_threshold=-1e6).splitlines()[0])
    assert (first["answer"], first["start"], first["end"]) == ("", 0, 0)
    assert "no_answer_score" in first


def test_right_answers_are_kept_and_not_read(predict_file, model):
    rows = [
        {"question": "a", "passage": "the sun", "answer": "no such text"},
        {"question": "a", "passage": "", "answers": 7},
    ]
    actual = predict_file(model, "".join(json.dumps(row) + "\n" for row in rows)).splitlines()
    first, second = map(json.loads, actual)
    assert (first["expected"], first["id"]) == ("no such text", "0")
    assert (second["answers"], second["answer"], second["id"]) == (7, "", "1")


def test_columns_by_name(predict_file, model):
    content = "ask,about,name\nthe cat,the cat sat,7\n"
    names = {"question_column": "ask", "passage_column": "about", "id_column": "name"}
    assert json.loads(predict_file(model, content, "in.csv", **names))["name"] == "7"
    assert list(json.loads(predict_file(model, content, "in.csv", "out.json", **names))) == ["7"]


def test_ids_that_come_twice(predict_file, model, rows, listing):
    with pytest.raises(
        UserError, match=r"in.jsonl:5: the id 'q1' was already used at .*in.jsonl:1; give each"
    ):
        predict_file(model, rows + rows, output="out.json")
    assert listing() == {"in.jsonl"}
    # Lines stay apart without ids.
    assert len(predict_file(model, rows + rows).splitlines()) == 8


def test_no_questions(predict_file, model, listing):
    assert predict_file(model, '{"data": []}', "in.json", "out.json") == "{}\n"
    assert listing() == {"in.json", "out.json", "nbest_out.json", "bert_jax.json"}

"""Answers from a collection: found, re-ranked and read; the verb, its files and metrics."""

import dataclasses
import json

import jax
import pytest

import bert_jax
from bert_jax.checkpoints.config_file import ModelDescription
from bert_jax.cli import main
from bert_jax.data.examples import Candidates, Document, Question
from bert_jax.data.readers.candidate_columns import RankingOptions
from bert_jax.data.readers.open_questions import read_passages
from bert_jax.errors import UserError
from bert_jax.families.dpr import READER
from bert_jax.inference.engine import predict_examples
from bert_jax.inference.index_options import IndexOptions
from bert_jax.models.execution import Execution
from bert_jax.tasks.base.predictor import BatchOptions
from bert_jax.tasks.question_answering.predict import AnswerPredictOptions, SpanPredictor
from bert_jax.tasks.reader.predict import ReaderPredictor
from tests.random_params import random_params

TEXTS = [
    "the cat sat on the mat . it was warm",
    "the dog ran up a tree and sat",
    "the sun was warm and the sea was long",
    "a sea",
    "the boys walked to the sea .",
    "the mat was warm",
    "one found a shell by the sea",
    "a tree",
    "the dog sat down . the cat ran",
    "it was long and warm",
]
DOCUMENTS = [
    Document(f"d{number}", f" {text}", "the song" * (number % 3 == 0))
    for number, text in enumerate(TEXTS)
]
QUESTIONS = ["the cat", "was it warm", "a long sea"]


@pytest.fixture(scope="module")
def index(make_model):
    return make_model("encoder").index(DOCUMENTS, options=IndexOptions(passages=4))


@pytest.fixture(scope="module")
def reader(make_model):
    model = make_model("question_answering")
    description = ModelDescription(model.config, "reader", family=READER)
    module = description.make_module(Execution())
    params = jax.device_put(random_params(module))
    return dataclasses.replace(model, module=module, params=params, description=description)


def of_document(answer):
    """The characters that an answer names."""
    (text,) = [document.text for document in DOCUMENTS if document.id == answer.document]
    return text[answer.start : answer.end]


@pytest.mark.slow
def test_the_best_span_of_the_most_relevant_passage(index, reader):
    answers = bert_jax.OpenQA(index, reader).answer(QUESTIONS, top_k=6)
    for question, answer, hits in zip(QUESTIONS, answers, index.search(QUESTIONS, 6), strict=True):
        assert of_document(answer) == answer.text != ""
        texts = [(hit.title, hit.text) if hit.title else hit.text for hit in hits]
        alone = [
            next(predict_examples(ReaderPredictor(reader, BatchOptions()), [each]))
            for each in (Candidates(question, (text,)) for text in texts)
        ]
        best = max(range(6), key=lambda number: alone[number].relevance)
        assert answer.passage.hit == hits[best]
        assert (answer.text, answer.start) == (
            alone[best].span.text,
            hits[best].start + alone[best].span.start,
        )
        assert answer.score == pytest.approx(alone[best].score, abs=1e-5)
        assert answer.relevance == pytest.approx(alone[best].relevance, abs=1e-5)


@pytest.mark.parametrize("threshold", [None, 100.0, -100.0])
def test_the_best_span_of_all_passages(index, make_model, threshold):
    """Minus the score of no answer, if the model has a threshold for that; -100 is always below."""
    reader = make_model("question_answering")
    if threshold is not None:
        reader.description.other["null_score_diff_threshold"] = threshold
    try:
        answer = bert_jax.OpenQA(index, reader).answer(QUESTIONS[0], top_k=5)
        scores = {}
        for hit in index.search(QUESTIONS[:1], 5)[0]:
            (prediction,) = spans(reader, QUESTIONS[0], hit.text)
            null = prediction.null.score if threshold is not None else 0.0
            scores[hit.id] = prediction.best[0].score - null
    finally:
        reader.description.other.pop("null_score_diff_threshold", None)
    assert answer.passage.hit.id == max(scores, key=scores.__getitem__)
    assert answer.score == pytest.approx(max(scores.values()), abs=1e-5)
    assert answer.relevance is None
    if threshold is None:
        assert answer.no_answer_score is None
    else:
        assert answer.no_answer_score == -answer.score
    if threshold == -100:
        assert (answer.text, answer.document, answer.start, answer.end) == ("", "", 0, 0)
    else:
        assert of_document(answer) == answer.text != ""


def test_a_threshold_is_a_number(index, make_model):
    with pytest.raises(UserError, match="null_threshold is nan; it must be a number"):
        bert_jax.OpenQA(index, make_model("question_answering"), null_threshold=float("nan"))


def spans(reader, question, text):
    predictor = SpanPredictor(reader, AnswerPredictOptions())
    return list(predict_examples(predictor, [Question(question, text)]))


@pytest.mark.parametrize("head", ["classification", "encoder"])
@pytest.mark.slow
def test_passages_are_ranked_again(index, reader, make_model, head):
    """With their titles as in the index; an encoder has another vector of title and text."""
    reranker = make_model(head, num_labels=1)
    ranked = bert_jax.OpenQA(index, reader, reranker).retrieve(QUESTIONS, top_k=5)
    for question, passages, hits in zip(QUESTIONS, ranked, index.search(QUESTIONS, 5), strict=True):
        texts = [f"{hit.title} {hit.text}" if hit.title else hit.text for hit in hits]
        expected = reranker.rank(question, texts)
        assert [each.hit for each in passages] == [hits[each.index] for each in expected]
        scores = [each.score for each in expected]
        assert [each.rank_score for each in passages] == pytest.approx(scores, abs=1e-5)
    assert any(each.hit.title for passages in ranked for each in passages)


def test_what_cannot_be_answered(index, reader, model):
    whole = model.index(["a tree"], ["t"])
    answer = bert_jax.OpenQA(whole, reader).answer("what")
    assert (answer.document, answer.passage.hit.document) == ("t", "")
    whole.delete(["t"])
    assert bert_jax.OpenQA(whole, reader).answer("what") is None
    assert bert_jax.OpenQA(whole, reader, reader).answer(["what", "the"]) == [None, None]
    with pytest.raises(UserError, match="example 0: the query is empty; give it a text, or"):
        bert_jax.OpenQA(index, reader).answer("")
    with pytest.raises(UserError, match="null_threshold is 0.5; it is for a reader of the task"):
        bert_jax.OpenQA(index, reader, null_threshold=0.5)
    with pytest.raises(UserError, match="the questions are one dict, {'question': 'the'}; give a"):
        bert_jax.OpenQA(index, reader).answer({"question": "the"})
    with pytest.raises(UserError, match="there is no reader to answer with; give one"):
        bert_jax.OpenQA(index, None).answer("the cat")
    with pytest.raises(UserError, match="has no texts; make an index that stores them"):
        bert_jax.OpenQA(model.index(["a"], options=IndexOptions(store_texts=False)), reader).answer(
            "the cat"
        )
    message = "does not answer questions; give the directory of a model that does, with the head re"
    with pytest.raises(UserError, match=message):
        bert_jax.OpenQA(index, model)
    with pytest.raises(UserError, match="reader is 'runs/squad'; give the model: bert_jax.load"):
        bert_jax.OpenQA(index, "runs/squad")


@pytest.mark.slow
def test_the_verb_writes_passages_answers_and_metrics(make_model, tmp_path, capsys):
    make_model("encoder").save(tmp_path / "encoder")
    make_model("question_answering").save(tmp_path / "qa")
    encoder = bert_jax.load(tmp_path / "encoder")
    index = encoder.index(DOCUMENTS, path=tmp_path / "index", options=IndexOptions(passages=4))
    rows = [
        {"id": "x", "question": QUESTIONS[0], "answers": ["Cat", "the shell"]},
        {"id": "y", "question": QUESTIONS[1], "answers": []},
        {"id": "z", "question": QUESTIONS[2], "answers": ["nowhere"]},
    ]
    questions, output = tmp_path / "questions.jsonl", tmp_path / "out.jsonl"
    questions.write_text("".join(json.dumps(row) + "\n" for row in rows))
    arguments = ["answer", "--index", index.directory, "--questions", questions]
    arguments = [*map(str, arguments), "--top-k", "6", "--output"]
    content = questions.read_bytes()
    assert main([*arguments, str(questions)]) == 2
    message = "questions.jsonl is input and output; give another output\n"
    assert capsys.readouterr().err.endswith(message)
    assert questions.read_bytes() == content
    arguments.append(str(output))
    assert main(arguments) == 0
    metrics = json.loads(capsys.readouterr().out.splitlines()[-1])
    found = [json.loads(line) for line in output.read_text().splitlines()]
    assert [{key: row[key] for key in ("id", "question", "answers")} for row in found] == rows
    hits = index.search(QUESTIONS[:1], 6)[0]
    has = ["cat" in hit.text.split() for hit in hits]
    assert [passage["has_answer"] for passage in found[0]["passages"]] == has
    assert [passage["start"] for passage in found[0]["passages"]] == [hit.start for hit in hits]
    # The file is one to train a reader on.
    first, *_ = read_passages(output, RankingOptions(titles="pair"))
    assert (first.input.query, first.label) == (QUESTIONS[0], ("Cat", "the shell"))
    texts = [(hit.title, hit.text) if hit.title else hit.text for hit in hits]
    assert first.input.documents == tuple(texts)
    assert metrics == {f"accuracy@{k}": 50 * any(has[:k]) for k in (1, 5, 6)}

    assert main([*arguments, "--reader", str(tmp_path / "qa")]) == 0
    metrics = json.loads(capsys.readouterr().out.splitlines()[-1])
    read = [json.loads(line) for line in output.read_text().splitlines()]
    answers = bert_jax.OpenQA(index, bert_jax.load(tmp_path / "qa")).answer(QUESTIONS, 6)
    for row, answer in zip(read, answers, strict=True):
        assert (row["answer"], row["document"]) == (answer.text, answer.document)
        assert (row["start"], row["passage"]["id"]) == (answer.start, answer.passage.hit.id)
    assert metrics.keys() == {"accuracy@1", "accuracy@5", "accuracy@6", "exact_match", "f1"}

"""Question answering, end to end: files in, a model directory and SQuAD's files out."""

import dataclasses
import json
import random

import jax
import numpy as np
import pytest

import bert_jax
from bert_jax.data.examples import Example, GoldAnswer, Question
from bert_jax.errors import UserError
from bert_jax.metrics.squad import score_v1, score_v2
from bert_jax.models.head import with_fields
from bert_jax.models.heads.question_answering import (
    QuestionAnsweringOptions,
    QuestionAnsweringOutput,
)
from bert_jax.tasks.base.labelled_options import labelled_options
from bert_jax.tasks.base.splits import EvalSet, Splits
from bert_jax.tasks.question_answering.options import SpanOptions
from bert_jax.tasks.question_answering.predict import AnswerOptions
from bert_jax.tasks.question_answering.spans import AnswerSpan, SpanPrediction
from bert_jax.tasks.question_answering.task import QuestionAnsweringTask

THINGS = ["mat", "tree", "song", "sun", "sea", "shell"]


def rows(count, *, impossible=0.0, seed=0):
    """Questions for the thing that a passage speaks of; in some there is none."""
    draw = random.Random(seed)
    actual = []
    for number in range(count):
        has_answer = draw.random() >= impossible
        thing = draw.choice(THINGS)
        words = draw.choices(["cat", "dog", "bird", "ran", "sat", "was", "."], k=draw.randint(4, 9))
        if has_answer:
            words.insert(draw.randrange(len(words)), f"the {thing}")
        passage = " ".join(words)
        answers = [{"text": thing, "answer_start": passage.index(thing)}] if has_answer else []
        actual.append(
            {"id": f"q{number}", "question": "it ?", "context": passage, "answers": answers}
        )
    return actual


def texts(actual):
    """The accepted answers by id."""
    return {row["id"]: [answer["text"] for answer in row["answers"]] for row in actual}


def read(path):
    return json.loads(path.read_text())


@pytest.mark.slow
@pytest.mark.parametrize("qa_head", ["independent", "joint"])
def test_answers_are_learned(train, write_rows, qa_head):
    result, workdir = train(
        "question_answering",
        model__qa_head=qa_head,
        data__train=write_rows("train.jsonl", rows(300)),
        data__validation=write_rows("dev.jsonl", rows(40, seed=1)),
        data__test=write_rows("test.jsonl", [{**row, "answers": None} for row in rows(9, seed=2)]),
        train__epochs=4.0,
    )
    assert result["exact_match"] > 90
    assert "null_threshold" not in result
    predictions = workdir / "predictions"
    # The official metrics of the official files.
    gold = texts(rows(40, seed=1))
    predict_file = read(predictions / "validation.json")
    assert score_v1(gold, predict_file) == {key: result[key] for key in ("exact_match", "f1")}
    best = read(predictions / "nbest_validation.json")
    assert {key: candidates[0]["text"] for key, candidates in best.items()} == predict_file
    assert sum(entry["probability"] for entry in best["q0"]) == pytest.approx(1)
    assert not (predictions / "null_odds_validation.json").exists()
    lines = (predictions / "test.jsonl").read_text().splitlines()
    assert [json.loads(line)["id"] for line in lines] == [f"q{number}" for number in range(9)]
    shown = {"id", "question", "passage"}
    assert set(json.loads(lines[0])) == shown | {"answer", "start", "end", "score"}
    # The model directory answers as the task did.
    model = bert_jax.load(workdir / "model")
    assert model.description.head == "question_answering"
    assert model.config.head_options(QuestionAnsweringOptions).qa_head == qa_head
    queries = rows(40, seed=1)
    actual = model.answer(
        [row["question"] for row in queries],
        [row["context"] for row in queries],
        options=AnswerOptions(max_length=32),
    )
    assert [answer.text for answer in actual] == list(predict_file.values())


@pytest.mark.slow
@pytest.mark.parametrize("qa_head", ["independent", "joint"])
def test_the_threshold_is_tuned_and_stored(train, experiment, write_rows, qa_head):
    result, workdir = train(
        "question_answering",
        model__qa_head=qa_head,
        data__train=write_rows("train.jsonl", rows(300, impossible=0.4)),
        data__validation=write_rows("dev.jsonl", rows(60, impossible=0.4, seed=1)),
        train__epochs=4.0,
    )
    assert result["f1"] > 85
    assert result["f1"] == result["best_f1"] > result["f1_no_answer"]
    assert result["has_answer_f1"] > 75
    assert result["no_answer_f1"] > 75
    predictions = workdir / "predictions"
    gold = texts(rows(60, impossible=0.4, seed=1))
    predict_file = read(predictions / "validation.json")
    assert score_v2(gold, predict_file)["f1"] == pytest.approx(result["f1"])
    odds = read(predictions / "null_odds_validation.json")
    threshold = result["null_threshold"]
    assert {key for key, odd in odds.items() if odd > threshold} == {
        key for key, text in predict_file.items() if text == ""
    }
    assert read(workdir / "model" / "config.json")["null_score_diff_threshold"] == threshold
    model = bert_jax.load(workdir / "model")
    queries = rows(60, impossible=0.4, seed=1)
    actual = model.answer("it ?", [row["context"] for row in queries])
    assert [answer.text for answer in actual] == list(predict_file.values())
    # The finished model keeps its threshold, whatever it is evaluated on.
    other = write_rows("other.jsonl", rows(30, impossible=1.0, seed=3))
    evaluation = experiment("question_answering", base="", data__validation=other)
    again = evaluation.evaluate(model=workdir / "model")
    assert again["null_threshold"] == threshold
    assert again["no_answer_f1"] == again["f1"]
    assert "has_answer_f1" not in again


@pytest.fixture
def make_task(experiment):
    """Builds a task on questions."""

    def make(questions, *, is_finished=False, threshold=None, qa_head="independent"):
        train = [] if is_finished else questions
        parts = [EvalSet("validation", "dev.jsonl", questions)]
        sections = experiment("question_answering", train__global_batch_size=4).sections
        base = sections.model_init()
        other = {} if threshold is None else {"null_score_diff_threshold": threshold}
        description = dataclasses.replace(
            base.description,
            config=with_fields(base.description.config, {"qa_head": qa_head}),
            head="question_answering",
            other=other,
        )
        return QuestionAnsweringTask(
            splits=Splits(train, train, parts, []),
            tokenizer=base.tokenizer,
            description=description,
            execution=base.execution,
            options=labelled_options(sections.task, "f1"),
            span_options=SpanOptions(window_step=8),
        )

    return make


PASSAGE = "the cat sat on the mat . it was warm . the dog ran to the sea and the bird sang . "


def questions(*answers, passage=PASSAGE):
    return [
        Example(
            Question("it ?", passage),
            tuple(GoldAnswer(*gold) for gold in golds),
            str(number),
            "a:1",
        )
        for number, golds in enumerate(answers)
    ]


def test_batches_by_hand(make_task):
    # [CLS] it [UNK] [SEP] the cat sat on the mat . it was warm . [SEP], and longer ones.
    short = questions([("cat", 4)], [("mat .", 19)], passage=PASSAGE[:39])
    task = make_task(short + questions([("dog", 43)])[:1])
    # Windows: one, one, and of 22 tokens in 27, one.
    assert task.examples_per_epoch == 3
    (batch,) = task.train_batches(0, 1, host=0, hosts=1)
    assert batch["input_ids"].shape == (4, 32)
    actual = sorted(
        zip(
            batch["start_positions"].tolist(),
            batch["end_positions"].tolist(),
            batch["weights"].tolist(),
            batch["attention_mask"].sum(axis=1).tolist(),
            strict=True,
        )
    )
    assert actual == [(0, 0, 0.0, 0), (5, 5, 1.0, 16), (9, 10, 1.0, 16), (16, 16, 1.0, 27)]


def test_batches_for_the_joint_head_by_hand(make_task):
    short = questions([("cat", 4)], [], passage=PASSAGE[:39])
    task = make_task(short + questions([("dog", 43)])[:1], qa_head="joint")
    (batch,) = task.train_batches(0, 1, host=0, hosts=1)
    actual = sorted(
        zip(
            batch["start_positions"].tolist(),
            batch["passages"].tolist(),
            batch["without_answer"].tolist(),
            strict=True,
        )
    )
    # A row of padding alone has no passage; that of a question without an answer is the passage.
    assert actual == [(0, [0, 0], 0.0), (0, [4, 15], 1.0), (5, [4, 15], 0.0), (16, [4, 26], 0.0)]


@pytest.mark.slow
def test_the_joint_loss_is_the_same_in_packed_rows(make_task):
    queries = questions([("cat", 4)], [], [("warm", 32)], passage=PASSAGE[:39])
    task = make_task(queries, qa_head="joint", threshold=0.0)
    params = jax.jit(task.module.init)(jax.random.key(0), np.zeros((1, 4), np.int32))["params"]
    (batch,) = task.train_batches(0, 1, host=0, hosts=1)
    packed = task.pack_rows(batch, 1)
    assert packed["pack_indices"].shape[1] < 4
    loss, of_packed = (
        float(jax.jit(task.loss_sums)(params, each)[""]["loss"]) for each in (batch, packed)
    )
    assert of_packed == pytest.approx(loss, rel=1e-5)
    # Of version 1.1, nothing is learned about having an answer.
    task = make_task(queries, qa_head="joint")
    without, gradient = jax.jit(
        jax.value_and_grad(lambda params: task.loss_sums(params, batch)[""]["loss"])
    )(params)
    used = {name: np.abs(part["kernel"]).max() > 0 for name, part in gradient["qa_joint"].items()}
    assert used == dict.fromkeys(["start", "end_hidden", "end"], True) | dict.fromkeys(
        ["no_answer_hidden", "no_answer"], False
    )
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(gradient))
    # Untrained, an answer has a chance of about 1/2: three rows, each 0.5 · log 2 more.
    assert loss - float(without) == pytest.approx(1.5 * np.log(2), rel=0.05)


@pytest.mark.slow
def test_the_loss_is_the_mean_of_both_and_blind_to_padding(make_task):
    task = make_task(questions([("cat", 4)], [("bird sang", 70)], [("warm", 32)]))
    params = jax.jit(task.module.init)(jax.random.key(0), np.zeros((1, 4), np.int32))["params"]
    (batch,) = task.train_batches(0, 1, host=0, hosts=1)

    @jax.jit
    @jax.value_and_grad
    def step(params, batch):
        return task.loss_sums(params, batch)[""]["loss"]

    loss, gradient = step(params, batch)
    start, end = jax.jit(task.module.apply)(
        {"params": params}, batch["input_ids"], batch["token_type_ids"], batch["attention_mask"]
    )
    expected = 0.0
    for row, real in enumerate(batch["attention_mask"].sum(axis=1)):
        for logits, position in ((start, batch["start_positions"]), (end, batch["end_positions"])):
            if real:
                scores = np.array(logits[row, :real], np.float64)
                expected -= np.log(np.exp(scores[position[row]]) / np.exp(scores).sum()) / 2
    assert loss == pytest.approx(expected, rel=1e-5)
    assert task.loss_weights(batch)[""] == 3
    # Finite though a row is padding alone.
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(gradient))
    longest = int(batch["attention_mask"].sum(axis=1).max())
    shorter = {
        key: value[:, :longest] if value.ndim == 2 else value for key, value in batch.items()
    }
    assert shorter["input_ids"].shape == (4, 27)
    sums = jax.jit(task.loss_sums)(params, shorter)[""]
    assert sums["loss"] == pytest.approx(expected, rel=1e-5)
    assert sums["accuracy"] <= 3


def test_padding_cannot_be_an_answer(make_task, monkeypatch):
    task = make_task(questions([("cat", 4)]))
    logits = np.array([[0.0, 0.0, 50.0], [0.0, 0.0, 50.0]])
    monkeypatch.setattr(task, "forward", lambda *_: QuestionAnsweringOutput(logits, logits))
    batch = {
        "attention_mask": np.array([[1, 1, 0], [1, 1, 1]]),
        "start_positions": np.array([0, 2]),
        "end_positions": np.array([0, 2]),
        "weights": np.ones(2, np.float32),
    }
    # Of two tokens with equal scores either has probability 1/2, and the first one counts as best.
    sums = task.loss_sums({}, batch)[""]
    assert sums["loss"] == pytest.approx(np.log(2))
    assert sums["accuracy"] == 2


def spans_of(text, score, null):
    best, none = AnswerSpan(text, 0, 1, score, 0.0), AnswerSpan("", 0, 0, null, 0.0)
    return SpanPrediction((best,), none)


def test_metrics_by_hand(make_task):
    queries = questions([("cat", 4)], [("the mat", 15)], [], [])
    # Odds of no answer: -3, -1, 2, -2.
    actual = [
        spans_of("the cat", 3.0, 0.0),
        spans_of("mat warm", 2.0, 1.0),
        spans_of("sea", 1.0, 3.0),
        spans_of("sun", 4.0, 2.0),
    ]
    task = make_task(queries, threshold=0.0)
    # In the order of the odds: "cat" is right (1), "sun" was to be left out (-1), "mat warm" has
    # half of its words right, so F1 is 2/3; then "sea" (-1). Best after the first: 3 of 4.
    evaluator = task.evaluator
    tuned = evaluator.calibrated(queries, actual)
    assert tuned.metrics(queries, actual) == {
        "exact_match": 75.0,
        "f1": 75.0,
        "has_answer_exact_match": 50.0,
        "has_answer_f1": 50.0,
        "no_answer_f1": 100.0,
        "best_f1": 75.0,
        "best_f1_threshold": -3.0,
        "null_threshold": -2.5,  # between the first and the second
    }
    assert tuned.description.other == {"null_score_diff_threshold": -2.5}
    assert task.description.other == {"null_score_diff_threshold": 0.0}
    fixed = make_task(queries, threshold=0.0, is_finished=True)
    assert fixed.evaluator.calibrated(queries, actual) is fixed.evaluator
    metrics = fixed.evaluator.metrics(queries, actual)
    assert metrics["null_threshold"] == 0.0
    assert metrics["f1"] == pytest.approx(100 * (1 + 2 / 3 + 1 + 0) / 4)
    # 1.1 knows no thresholds.
    first = make_task(queries[:2])
    tuned = first.evaluator.calibrated(queries[:2], actual[:2])
    assert not tuned.description.other
    assert tuned.metrics(queries[:2], actual[:2]) == {
        "exact_match": 50.0,
        "f1": pytest.approx(100 * (1 + 2 / 3) / 2),
    }


def test_where_no_answer_is_always_best(make_task):
    queries = questions([], [])
    task = make_task(queries, threshold=0.0)
    actual = [spans_of("sea", 3.0, 0.0), spans_of("sun", 9.0, 0.0)]
    metrics = task.evaluator.calibrated(queries, actual).metrics(queries, actual)
    assert metrics["f1"] == metrics["best_f1"] == 100.0
    assert metrics["null_threshold"] < -9.0
    assert task.evaluator.baselines() == {"f1_no_answer": 100.0}


@pytest.mark.slow
def test_the_number_of_outputs_is_two_for_any_initial_model(
    base_model, experiment, write_rows, tmp_path
):
    base = bert_jax.load(base_model, task="classification", labels=("a", "b", "c"))
    base.save(tmp_path / "classifier")
    file = write_rows("a.jsonl", rows(3))
    keys = {"data__train": file, "data__validation": file}
    description = experiment("question_answering", tmp_path / "classifier", **keys).task.description
    assert (description.config.num_labels, description.labels) == (2, ())
    model = bert_jax.load(tmp_path / "classifier", task="question_answering")
    assert model.config.num_labels == 2
    model.save(tmp_path / "answers")
    # Hugging Face makes as many outputs as there are names here, two if there are none.
    assert "id2label" not in read(tmp_path / "answers" / "config.json")
    assert bert_jax.load(tmp_path / "answers").report.complete


def test_the_version_of_the_file_does_not_depend_on_the_drawn_examples(experiment, write_rows):
    train = write_rows("train.jsonl", rows(9, impossible=0.3, seed=2))
    keys = {"data__train": train, "data__validation": write_rows("dev.jsonl", rows(3))}
    task = experiment("question_answering", **keys, data__limit=1).task
    assert [bool(question.label) for question in task.splits.train] == [True]
    assert task.description.other == {"null_score_diff_threshold": 0.0}


@pytest.mark.parametrize(
    ("file_rows", "keys", "message"),
    [
        (
            [{"question": "a", "passage": "b", "answers": []}],
            {"data__version": "1.1", "data__validation": "a.jsonl"},
            "a.jsonl:1: the passage has no answer, which SQuAD 1.1 does not allow; set",
        ),
        (
            [],
            {"data__version": "1.1", "data__validation": "impossible.jsonl"},
            "impossible.jsonl:1: the passage has no answer, which SQuAD 1.1 does not",
        ),
        (
            [{"question": "a", "passage": "b"}],
            {"data__validation": "a.jsonl"},
            "a.jsonl:1: the question has no answers to train on",
        ),
        ([{"id": 1, "question": "a", "passage": "b"}] * 2, {}, "a.jsonl:2: the id '1' was alread"),
        (
            [{"question": "a", "passage": "b", "answers": "c"}] * 9,
            {"data__validation_fraction": 0.5},
            "no training question has an answer that its passage has; give another file",
        ),
        ([], {"data__version": "3"}, "data.version is '3'; known are 1.1, 2.0"),
        ([], {"data__length": 33}, "33; this model takes 3 to 32"),
        ([], {"data__window_step": 0}, "window_step is 0; it must be at least 1"),
    ],
)
def test_bad_input(train, write_rows, tmp_path, monkeypatch, file_rows, keys, message):
    monkeypatch.chdir(tmp_path)
    write_rows("a.jsonl", file_rows or rows(9))
    write_rows("impossible.jsonl", rows(9, impossible=1.0))
    with pytest.raises(UserError, match=message):
        train("question_answering", data__train="a.jsonl", **keys)

"""Training of cross-encoders: batches and losses by hand, what is learned, the written model."""

import dataclasses
import json
import random

import jax
import numpy as np
import pytest

import bert_jax
from bert_jax import cli
from bert_jax.errors import UserError
from bert_jax.tasks.ranking.objectives import LOSSES, binary_cross_entropy

NOUNS = {"animal": ["cat", "dog", "bird"], "thing": ["mat", "tree", "sea", "song", "shell"]}


def queries(count, seed=0):
    """Queries for an animal; the documents about one are relevant."""
    draw = random.Random(seed)
    for number in range(count):
        relevant = [f"a {draw.choice(NOUNS['animal'])} was {draw.choice(['warm', 'low'])} ."]
        others = [f"a {noun} was long ." for noun in draw.sample(NOUNS["thing"], 3)]
        scores = [4.0] * len(relevant) + [-4.0] * len(others)
        yield {
            "query_id": f"q{number}",
            "query": "it was",
            "positives": relevant,
            "negatives": others,
            "scores": scores,
        }


@pytest.fixture
def task(experiment, write_rows):
    rows = [
        {"query": "the cat", "documents": ["sat", "it ran .", "up"], "labels": [1, 0, 2]},
        {"query": "it", "documents": ["was low", "the sea"], "labels": [1, 0]},
    ]
    rows = [row | {"scores": list(range(len(row["labels"])))} for row in rows]
    file = write_rows("train.jsonl", rows)
    keys = {"data__train": file, "data__validation": file, "data__length": 16}

    def make(loss):
        keys["data__loss"] = loss
        return experiment("ranking", **keys, train__global_batch_size=4).task

    return make


def text_of(task, ids, mask):
    return " ".join(map(task.tokenizer.id_to_token, ids[mask > 0]))


def batch_of(task):
    """The only batch; its rows by their texts, without padding, in the order of the documents."""
    (batch,) = task.train_batches(0, 1, host=0, hosts=1)
    tokens = zip(batch["input_ids"], batch["attention_mask"], strict=True)
    texts = [[text_of(task, *row) for row in zip(*rows, strict=True)] for rows in tokens]
    return batch, texts


def test_the_files_keep_the_length(task, tmp_path):
    made = task("list_net")
    made.tokenizer.save(tmp_path)
    files = json.loads((tmp_path / "tokenizer_config.json").read_text())
    assert files["model_max_length"] == 16


def test_a_batch_by_hand(task):
    batch, texts = batch_of(task("list_net"))
    order = texts.index(["[CLS] it [SEP] was low [SEP]", "[CLS] it [SEP] the sea [SEP]", ""])
    assert texts[1 - order] == [
        f"[CLS] the cat [SEP] {text} [SEP]" for text in ("up", "sat", "it ran .")
    ]
    assert texts[2:] == [["", "", ""]] * 2
    assert batch["labels"][[1 - order, order]].tolist() == [[2, 1, 0], [1, 0, 0]]
    exists = [[True, True, True], [True, True, False], [False] * 3, [False] * 3]
    assert batch["exists"][[1 - order, order, 2, 3]].tolist() == exists
    assert batch["weights"].tolist() == [1, 1, 0, 0]


def test_examples_are_documents_positives_or_queries(task):
    """Binary cross-entropy takes pairs; the others a positive with negatives, or the list."""
    shapes = {loss: batch_of(task(loss))[0]["labels"].shape for loss in LOSSES}
    assert task("binary_cross_entropy").examples_per_epoch == 5
    assert task("cross_entropy").examples_per_epoch == task("margin_mse").examples_per_epoch == 3
    assert task("list_mle").examples_per_epoch == 2
    assert shapes["binary_cross_entropy"] == (4, 1)
    assert shapes["cross_entropy"] == shapes["margin_mse"] == (4, 2)
    assert shapes["lambda_loss"] == (4, 3)


def test_what_is_not_read_is_reported(experiment, write_rows):
    rows = [{"query": "a", "positives": ["b"], "negatives": ["c", "d", "e"]}] * 19
    file = write_rows("train.jsonl", [*rows, {"query": "f", "positives": ["b"]}])
    keys = {"data__train": file, "data__validation": write_rows("validation.jsonl", rows)}
    made = experiment("ranking", **keys, data__loss="cross_entropy", data__negatives=2).task
    assert made.reading_report() == (
        "1 queries do not have a positive and a negative document: left out",
        "19 documents are not read, of queries with more than 2 beside a positive: raise "
        "data.negatives",
    )
    assert made.examples_per_epoch == 19
    made = experiment("ranking", **keys, data__loss="list_net").task
    assert made.reading_report() == ("1 queries do not have two documents: left out",)
    assert made.examples_per_epoch == 19


def test_metrics_of_grades_between_0_and_1(experiment, write_rows):
    rows = [{"query": "it", "documents": ["a", "b", "c"], "labels": [0.4, 0.0, 1.5]}] * 20
    made = experiment("ranking", data__train=write_rows("train.jsonl", rows)).task.evaluator
    metrics = made.metrics(made.splits.validation[0].examples[:1], [np.array([0.0, 2.0, 1.0])])
    ideal = 1.5 + 0.4 / np.log2(3)  # the documents are in the order of their grades
    assert metrics["ndcg@10"] == pytest.approx((0.4 + 1.5 / 2) / ideal)
    assert metrics["map"] == pytest.approx((1 + 2 / 3) / 2)


def test_the_first_metric_chooses_the_checkpoint(experiment, write_rows):
    file = write_rows("train.jsonl", [{"query": "it", "positives": ["a"], "negatives": ["b"]}] * 20)
    made = experiment("ranking", data__train=file, data__metrics=("map", "mrr")).task.evaluator
    made.check()
    assert made.best_metric == ("map", True)


def test_lists_of_positives_alone_do_not_count(experiment, write_rows, capsys):
    rows = [{"query": "it", "documents": ["a", "b"], "labels": [1, grade]} for grade in (0, 1, 1)]
    file = write_rows("train.jsonl", rows)
    made = experiment("ranking", data__train=file, data__validation=file).task.evaluator
    made.check()
    assert "validation: 2 of 3 queries have relevant documents alone" in capsys.readouterr().err
    scores = [np.array([0.0, 1.0])] * 3
    assert made.metrics(made.splits.validation[0].examples, scores)["map"] == 1 / 2


def test_losses_by_hand(task):
    """Scores 0 and log 3 of a positive and a negative; the third document is padding."""
    outputs = np.array([[[0.0], [np.log(3)], [50.0]]], np.float32)
    batch = {
        "labels": np.array([[1.0, 0.0, 0.0]]),
        "exists": np.array([[True, True, False]]),
        "weights": np.ones(1, np.float32),
        "scores": np.array([[2.0, 5.0, 0.0]]),
    }

    def loss(name, batch=batch, outputs=outputs):
        made = task(name)

        @jax.jit
        def mean(outputs, batch):
            return made.loss({}, outputs, batch)[""]["loss"] / made.loss_weights(batch)[""]

        return float(mean(outputs, batch))

    assert loss("cross_entropy") == pytest.approx(np.log(4))
    assert loss("margin_mse") == pytest.approx((-np.log(3) + 3) ** 2)
    assert loss("rank_net") == pytest.approx(2)
    pair = {name: array[..., 1:2] if array.ndim > 1 else array for name, array in batch.items()}
    assert loss("binary_cross_entropy", pair, outputs[:, 1:2]) == pytest.approx(np.log(4))
    # Grades above 1 count as 1; the weight multiplies the loss of relevant documents.
    losses = jax.jit(binary_cross_entropy)(np.zeros(3), np.array([3.0, 0.5, -1.0]), 4.0)
    assert losses.tolist() == pytest.approx([4 * np.log(2), 2.5 * np.log(2), np.log(2)])


# Of pairs, of a positive with negatives, and of lists; the others are computed by hand elsewhere.
@pytest.mark.slow
@pytest.mark.parametrize("loss", ["binary_cross_entropy", "margin_mse", "lambda_loss"])
def test_relevant_documents_come_first(train, write_rows, read_rows, loss):
    file = write_rows("train.jsonl", queries(60))
    result, workdir = train(
        "ranking",
        data__train=file,
        data__loss=loss,
        data__length=24,
        train__epochs=6.0,
        train__global_batch_size=16,
    )
    assert result["ndcg@10"] > 0.95 > result["ndcg@10_overlap"]
    model = bert_jax.load(workdir / "model")
    assert model.tokenizer.model_max_length == 24
    documents = ["a sea was low .", "a dog was low .", "a song was long ."]
    matches = model.rank("it was", documents)
    assert matches[0].index == 1
    is_probability = loss == "binary_cross_entropy"
    assert all(0 < match.score < 1 for match in matches) == is_probability
    section = json.loads((workdir / "model" / "config.json").read_text())["sentence_transformers"]
    name = "activation.Sigmoid" if is_probability else "linear.Identity"
    assert section == {"activation_fn": f"torch.nn.modules.{name}"}

    lines = read_rows(workdir / "predictions" / "validation.jsonl")
    assert set(lines[0]) == {"id", "expected", "query", "documents", "scores"}
    first = (workdir / "predictions" / "validation.run").read_text().splitlines()[0].split()
    assert first[:4] == [lines[0]["id"], "Q0", str(int(np.argmax(lines[0]["scores"]))), "1"]

    peers = pytest.importorskip("sentence_transformers")
    peer = peers.CrossEncoder(str(workdir / "model"))
    scores = peer.predict([("it was", text) for text in documents])
    for match in matches:
        assert match.score == pytest.approx(float(scores[match.index]), abs=1e-5)


def test_a_cross_encoder_that_is_trained_further_keeps_its_head(
    make_model, experiment, write_rows, tmp_path
):
    model = make_model("classification", num_labels=1)
    described = dataclasses.replace(model.description, other={"note": 1})
    dataclasses.replace(model, description=described).save(tmp_path / "model")
    file = write_rows("train.jsonl", queries(8))
    made = experiment("ranking", tmp_path / "model", data__train=file).task.description
    assert made.labels == bert_jax.load(tmp_path / "model").description.labels
    assert set(made.other) == {"note", "sentence_transformers"}


def test_refused_training(experiment, write_rows):
    rows = [{"query": "a", "positives": ["b"], "negatives": ["c"]}] * 20
    file = write_rows("train.jsonl", rows)
    made = experiment("ranking", data__train=file, data__loss="margin_mse").task
    with pytest.raises(UserError, match="train.jsonl:1: the query has no scores of a teacher"):
        _ = made.rows
    alone = write_rows("alone.jsonl", [{"query": "a", "positive": "b"}] * 20)
    with pytest.raises(UserError, match="alone.jsonl has relevant documents alone; give lists"):
        _ = experiment("ranking", data__train=file, data__validation=alone).task
    for key, value, problem in (
        ("loss", "mse", "data.loss is 'mse'; known are binary_cross_entropy"),
        ("negatives", 0, "data.negatives is 0; it must be at least 1"),
        ("positive_weight", 0.0, "data.positive_weight is 0.0; it must be above 0"),
        ("metrics", ("ndgc@10",), "data.metrics is 'ndgc@10'"),
    ):
        with pytest.raises(UserError, match=problem):
            _ = experiment("ranking", data__train=file, **{f"data__{key}": value}).task


@pytest.mark.slow
def test_an_encoder_learns_the_margins_of_our_own_cross_encoder(train, write_rows, tmp_path):
    """One command makes the file of Margin-MSE, with the logits of the teacher."""
    file = write_rows("train.jsonl", queries(60))
    _, teacher = train("ranking", data__train=file, train__epochs=6.0)
    scored = tmp_path / "scored.jsonl"
    arguments = ["rerank", "--model", teacher / "model", "--input", file, "--output", scored]
    assert cli.main([*map(str, arguments), "--raw-scores"]) == 0
    keys = {"data__loss": "margin_mse", "train__epochs": 10.0, "data__negatives": 3}
    keys |= {"data__similarity": "dot", "data__normalize": False}
    result, student = train("retrieval", "student", data__train=scored, **keys)
    assert result["ndcg@10"] > 0.95
    documents = ["a sea was low .", "a dog was low .", "a song was long ."]
    assert bert_jax.load(student / "model").rank("it was", documents)[0].index == 1

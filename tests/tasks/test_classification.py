"""Classification, end to end: files in, a model directory and predictions out."""

import json
import re

import numpy as np
import pytest

import bert_jax
from bert_jax.checkpoints import model_directory
from bert_jax.checkpoints.config_file import ModelDescription
from bert_jax.errors import UserError
from bert_jax.experiment import workdir as run_directory
from bert_jax.experiment.export import export
from bert_jax.inference.evaluation import evaluate
from bert_jax.models.execution import Execution
from bert_jax.sharding.mesh import one_device_mesh
from bert_jax.tasks.base.task import EvalResult
from bert_jax.tasks.classification import task as classification
from tests.random_params import random_params


@pytest.mark.slow
def test_labels_are_learned_and_written_into_the_model(
    train, experiment, sentences, write_table, read_rows, tmp_path
):
    # 144 of them are learned: all batches of 8 are full, so they have one shape.
    table = write_table("train.tsv", [("text", "label"), *sentences(160)])
    test = write_table("unlabelled.tsv", [("text",), ("a cat was low .",), ("a mat was low .",)])
    labelled = write_table("labelled.tsv", [("text", "label"), *sentences(20, seed=1)])
    result, workdir = train(
        "classification", data__train=table, data__test=(str(test), str(labelled)),
        train__epochs=3.0, train__eval_every=100, optimizer__learning_rate=1e-2,
    )  # fmt: skip
    assert result["accuracy"] > 0.9 > result["accuracy_majority"]
    summary = json.loads((workdir / "data_summary.json").read_text())
    assert (summary["train"], summary["validation"], summary["test"]) == (
        144, {"validation": 16}, {"unlabelled": 2, "labelled": 20},
    )  # fmt: skip
    assert summary["positive_class"] == "thing"
    stored = json.loads((workdir / "result.json").read_text())
    assert 18 <= stored.pop("exported_step") <= 54  # of 18 steps an epoch
    # There is no warning that the training has learned nothing.
    assert stored == result | {"warnings": summary["warnings"]}

    model = bert_jax.load(workdir)  # the model of the run, and below, too
    assert model.description.labels == ("animal", "thing")
    assert model.description.problem_type == "single_label_classification"
    actual = model.classify(["the dog was long .", "the sea was long ."])
    assert [answer.label for answer in actual] == ["animal", "thing"]
    assert sum(actual[0].probabilities.values()) == pytest.approx(1)
    assert actual[0].score == max(actual[0].probabilities.values())

    # Validation examples are evaluated and shown; those without labels are predicted.
    validation = read_rows(workdir / "predictions" / "validation.jsonl")
    assert len(validation) == 16
    right = [line["label"] == line["expected"] for line in validation]
    assert sum(right) / 16 == result["accuracy"]
    report = (workdir / "predictions" / "validation.report.txt").read_text()
    assert "animal" in report
    assert (workdir / "predictions" / "validation.confusion.png").is_file()
    assert (workdir / "curves.png").is_file()
    predicted = read_rows(workdir / "predictions" / "labelled.jsonl")
    right = [line["label"] == line["expected"] for line in predicted]
    assert sum(right) / 20 == result["test_labelled_accuracy"]
    assert not [name for name in result if "unlabelled" in name]
    logged = read_rows(workdir / "metrics.jsonl")[-1]
    assert "accuracy" in logged
    assert "test_labelled_accuracy" not in logged
    predicted = read_rows(workdir / "predictions" / "unlabelled.jsonl")
    assert [line["id"] for line in predicted] == ["0", "1"]
    assert [line["label"] for line in predicted] == ["animal", "thing"]
    assert set(predicted[0]) == {"id", "text", "label", "score", "probabilities"}

    # No model is exported into the directory of a run.
    before = (workdir / "config.json").read_bytes()
    with pytest.raises(UserError, match="run/config.json was not written by bert_jax"):
        export(workdir, workdir)
    assert (workdir / "config.json").read_bytes() == before

    # The same model, evaluated on the same examples in another way.
    same = experiment("classification", base="", data__train=table)
    again = same.evaluate(model=workdir, output=tmp_path / "again")
    assert again["accuracy"] == result["accuracy"]
    assert again["loss"] == pytest.approx(result["loss"], rel=1e-5)
    assert (tmp_path / "again" / "bert_jax.json").is_file()
    with pytest.raises(UserError, match="run holds other files and no bert_jax.json; give another"):
        same.evaluate(model=workdir, output=workdir)


@pytest.mark.slow
def test_several_labels_at_once(train, write_table, sentences):
    rows = [
        (text, ",".join([label, *(["long"] if "long" in text else [])]))
        for text, label in sentences(240)
    ]
    table = write_table("train.tsv", [("text", "labels"), *rows])
    result, workdir = train(
        "classification", data__train=table, data__label_separator=",",
        train__epochs=20.0, optimizer__learning_rate=3e-3,
    )  # fmt: skip
    assert result["micro_f1"] > result["micro_f1_majority"]
    model = bert_jax.load(workdir / "model")
    assert model.description.problem_type == "multi_label_classification"
    actual = model.classify(["the bird was long .", "the sea was low .", "the mat was long ."])
    assert [answer.label for answer in actual] == [
        ("animal", "long"),
        ("thing",),
        ("long", "thing"),
    ]
    assert list(actual[0].probabilities) == ["animal", "long", "thing"]


@pytest.mark.slow
def test_a_number(train, write_table, capsys):
    words = ["low", "warm", "long"]
    rows = [(f"the {'cat' if n % 2 else 'sea'} was {words[n % 3]} .", n % 3) for n in range(120)]
    table = write_table("train.tsv", [("sentence", "score"), *rows])
    result, workdir = train(
        "classification", data__train=table, data__problem_type="regression",
        train__epochs=12.0, optimizer__learning_rate=1e-2,
    )  # fmt: skip
    assert result["pearson"] > 0.8
    worst = workdir / "predictions" / "validation.mistakes.tsv"
    assert f"{worst}: mistakes, the worst first\n" in capsys.readouterr().err
    far = [float(line.split("\t")[4]) for line in worst.read_text().splitlines()[1:]]
    assert far == sorted(far, reverse=True)
    low, long = bert_jax.load(workdir / "model").classify(["a cat was low .", "a cat was long ."])
    assert isinstance(low, float)
    assert low < long


@pytest.mark.slow
def test_the_format_of_a_benchmark(train, write_table, read_rows, sentences):
    header = ("index", "sentence1", "sentence2", "label")

    def rows(count, seed):
        return [
            (number, text, "it was .", "entailment" if label == "animal" else "not_entailment")
            for number, (text, label) in enumerate(sentences(count, seed))
        ]

    table = write_table("train.tsv", [header, *rows(200, 0)])
    write_table("dev.tsv", [header, *rows(30, 1)])
    write_table("test.tsv", [header[:3], *(row[:3] for row in rows(8, 2))])
    result, workdir = train(
        "classification", data__directory=str(table.parent), data__format="glue:rte",
        train__epochs=6.0, optimizer__learning_rate=1e-2,
    )  # fmt: skip
    assert result["accuracy"] > 0.9 > result["accuracy_majority"]
    assert len(read_rows(workdir / "predictions" / "validation.jsonl")) == 30
    submission = (workdir / "predictions" / "RTE.tsv").read_text().splitlines()
    assert submission[0] == "index\tprediction"
    assert submission[1:] == [f"{number}\t{label}" for number, _, _, label in rows(8, 2)]


@pytest.mark.slow
def test_a_model_with_the_same_labels_keeps_its_head(train, write_table, sentences, capsys):
    table = write_table("train.tsv", [("text", "label"), *sentences(120)])
    first, workdir = train("classification", data__train=table)
    capsys.readouterr()
    keys = {"train__epochs": 0.1, "optimizer__learning_rate": 1e-9, "data__train": table}
    again, _ = train("classification", "again", base=workdir, **keys)
    assert "new and untrained" not in capsys.readouterr().err
    assert again["accuracy"] == first["accuracy"]

    others = write_table(
        "other.tsv", [("text", "label"), *((text, "x" + label) for text, label in sentences(120))]
    )
    keys |= {"data__train": others, "base": workdir / "model"}
    train("classification", "other", **keys)
    assert "new and untrained: classifier/bias, classifier/kernel" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([("text", "label"), ("a cat", "x"), ("", "y")], "train.tsv:3: the text is empty"),
        ([("text", "label"), *[("a cat", "x")] * 30], "the training examples have 1 label .x.; gi"),
    ],
)
def test_bad_files_are_refused_before_anything_is_made(train, write_table, tmp_path, rows, message):
    table = write_table("train.tsv", rows)
    with pytest.raises(UserError, match=message):
        train("classification", data__train=table)
    assert not (tmp_path / "run").exists()


def test_labels_that_the_model_does_not_know(
    experiment, tiny_config, tokenizer, write_table, tmp_path
):
    description = ModelDescription(tiny_config, "classification", labels=("animal", "thing"))
    params = random_params(description.make_module(Execution()))
    model_directory.save(tmp_path / "model", description, params, tokenizer)
    strange = write_table("dev.tsv", [("text", "label"), ("a cat", "animal"), ("a dog", "plant")])
    evaluation = experiment("classification", base="", data__validation=strange)
    with pytest.raises(UserError, match=r"dev.tsv:3: label 'plant' is not a label of the m"):
        evaluation.evaluate(model=tmp_path / "model")


def test_a_label_that_is_only_held_out_is_a_label(task, write_table, sentences):
    rows = [("text", "label"), *sentences(10)]  # one of them, whichever, is validation
    for index in range(1, 11):
        rare = [*rows[:index], (rows[index][0], "rare"), *rows[index + 1 :]]
        made = task(write_table("train.tsv", rare))
        assert made.description.labels == ("animal", "rare", "thing")


def test_scores_that_would_take_all_memory(task, write_table, sentences, monkeypatch):
    """A column of ids as labels, for example."""
    table = write_table("train.tsv", [("text", "label"), *sentences(40)])
    validation = str(write_table("dev.tsv", [("text", "label"), *sentences(30)]))
    monkeypatch.setattr(classification, "host_memory", lambda: 960)  # 30 texts × 2 labels × 4 × 4
    assert task(table, validation=validation)
    monkeypatch.setattr(classification, "host_memory", lambda: 959)
    message = (
        "dev.tsv: 30 texts by 2 labels take 0.0 GiB of this machine's 0.0 GiB; "
        "use fewer texts; or, if another column has the labels, set data.label_column"
    )
    with pytest.raises(UserError, match=re.escape(message)):
        task(table, validation=validation)
    rows = [("a cat", "animal,thing"), ("a sun", "thing")] * 30
    table = write_table("several.tsv", [("text", "label"), *rows])
    monkeypatch.setattr(classification, "host_memory", lambda: 960)
    with pytest.raises(UserError, match="the training texts: 60 texts by 2 labels take"):
        task(table, validation=validation, label_separator=",")


def test_refusals_before_a_training(task, write_table, sentences):
    rows = [("text", "label"), *sentences(40)]
    table = write_table("train.tsv", rows)
    strange = write_table("dev.tsv", [("text", "label"), ("a cat", "plant")])
    with pytest.raises(UserError, match=r"dev.tsv:2: label 'plant' is none of animal, thing"):
        task(table, validation=strange)
    with pytest.raises(UserError, match="there is no metric 'acuracy', only accuracy, f1, loss"):
        task(table, best_metric="acuracy")
    two = tuple(str(write_table(f"{name}.tsv", rows)) for name in ("va", "vb"))
    for name, higher in (("vb_loss", False), ("va_f1", True), ("loss", False)):
        assert task(table, best_metric=name, validation=two).evaluator.best_metric == (name, higher)
    with pytest.raises(UserError, match="there is no metric 'vc_loss', only accuracy, f1, loss"):
        task(table, best_metric="vc_loss", validation=two)
    unlabelled = write_table("none.tsv", [("text",), ("a cat",)])
    with pytest.raises(UserError, match="none.tsv has no labels to evaluate a training with"):
        task(table, validation=unlabelled)


LISTS = [{"text": "a cat", "labels": ["x", "y"]}, {"text": "a dog", "labels": []}]
# A label that no training text has is a label, too; 10 comes after 9.
VECTORS = [
    {"text": text, "label": f"[{vector}]"}
    for text, vector in (("a cat", "1 0 0 0 0 0 0 0 0 0 1 0"), ("a dog", "0 0 0 0 0 0 0 0 0 0 0 0"))
]
COLUMNS = [{"text": "a cat", "rude": 1, "spam": 0}, {"text": "a dog", "rude": 0, "spam": 1}]


@pytest.mark.parametrize(
    ("rows", "data", "problem", "labels"),
    [
        (LISTS, {}, "multi_label", ("x", "y")),
        (VECTORS, {}, "multi_label", tuple(f"LABEL_{number}" for number in range(12))),
        (COLUMNS, {"label_columns": ("spam", "rude")}, "multi_label", ("spam", "rude")),
        (COLUMNS, {"label_column": "rude", "labels": ("nice", "rude")}, "single_label",
         ("nice", "rude")),
    ],
)  # fmt: skip
def test_forms_of_labels(task, write_rows, rows, data, problem, labels):
    description = task(write_rows("train.jsonl", rows * 20), **data).description
    assert (description.problem_type, description.labels) == (f"{problem}_classification", labels)


def test_vectors_of_another_length_are_refused(task, write_rows):
    table = write_rows("train.jsonl", VECTORS * 20)
    other = write_rows("dev.jsonl", [{"text": "a cat", "label": "[1 0 0]"}])
    with pytest.raises(UserError, match="dev.jsonl:1: the row has a 0 or 1 for the 3 labels LAB"):
        task(table, validation=other)


def test_rows_that_are_not_lines_are_in_the_summary(task, tmp_path, capsys):
    table = tmp_path / "train.csv"
    rows = "a cat,animal\na mat,thing\n" * 20
    table.write_text(f'text,label\n{rows}a "cat,animal\n"a dog,animal\na mat",thing\n')
    summary = task(table, validation=table).data_summary
    message = f"{table}:43: a quotation mark makes one row of 2 lines that look like rows"
    starts = [warning.startswith(message) for warning in summary.warnings()[:3]]
    assert starts == [True, True, False]
    assert summary.lines()[1] == f"{table}: 43 lines → 42 rows"
    assert capsys.readouterr().err == ""


def test_an_example_is_named_by_file_and_line(experiment, make_model, write_rows, tmp_path):
    rows = [{"text": "the sea", "text_pair": "a cat", "label": label} for label in "xy"]
    train, validation = write_rows("train.jsonl", rows), write_rows("validation.jsonl", rows[1:])
    one_segment = tmp_path / "one_segment"
    make_model("encoder", type_vocab_size=1).save(one_segment)
    keys = {"data__train": train, "data__validation": validation}
    task, mesh = experiment("classification", one_segment, **keys).task, one_device_mesh()
    with pytest.raises(UserError, match=f"^{train}:1: the text is a pair, but the model has one"):
        _ = task.rows
    with pytest.raises(UserError, match=f"^{validation}:1: the text is a pair, but the model"):
        evaluate(task, random_params(task.module), mesh)


def test_balanced_labels_weigh_by_their_rarity(task, write_table):
    rows = [("text", "label"), *[("a cat", "animal")] * 6, *[("a mat", "thing")] * 2]
    table = write_table("train.tsv", rows)
    made = task(table, validation=table, class_weights="balanced")
    assert made.data_summary.balanced
    (batch,) = made.train_batches(0, 1, host=0, hosts=1)
    weights, is_real = batch["weights"], batch["weights"] > 0
    assert is_real.sum() == 8
    np.testing.assert_allclose(weights[is_real & (batch["labels"] == 0)], [8 / 12] * 6, rtol=1e-6)
    np.testing.assert_allclose(weights[is_real & (batch["labels"] == 1)], [2.0] * 2)


@pytest.mark.parametrize(
    ("export", "patience", "directories"),
    [
        ("latest", 0, ["predictions"]),
        ("latest", 1, [None, "predictions"]),
        ("best", 0, [None, "predictions"]),
    ],
)
def test_which_evaluation_predicts(
    experiment, write_table, sentences, monkeypatch, export, patience, directories
):
    """That of the last step only if that is certain to be exported, else one after the training."""
    table = write_table("train.tsv", [("text", "label"), *sentences(40)])
    made = experiment(
        "classification", data__train=table, train__export=export, train__patience=patience
    )
    actual = []

    def evaluate(task, params, mesh, *, with_test, quiet):
        actual.append(with_test or None)
        return EvalResult({}, made.task.description)

    def write_result(directory, evaluator, result):
        assert actual.pop()  # with the test sets
        actual.append(directory.name)

    def train(task, validate, *, predictions, **_):
        return validate(None, predictions)

    monkeypatch.setattr("bert_jax.experiment.evaluate", evaluate)
    monkeypatch.setattr("bert_jax.experiment.write_result", write_result)
    monkeypatch.setattr("bert_jax.experiment.train_loop", train)
    monkeypatch.setattr(run_directory, "restore_params", lambda *_, **__: (None, 9))
    made._run(table.parent, is_new=False)
    assert actual == directories


def test_a_test_file_without_any_of_several_labels_is_predicted(task, write_table):
    table = write_table("train.tsv", [("text", "label"), *[("a cat", "x|y"), ("a dog", "")] * 20])
    empty = write_table("test.tsv", [("text", "label"), ("a cat", ""), ("a dog", "")])
    made = task(table, test=empty, label_separator="|")
    assert [example.label for example in made.splits.test[0].examples] == [None, None]
    assert "test.tsv: no text has a label" in made.splits.test[0].note

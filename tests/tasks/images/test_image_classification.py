"""Classes of images: training, files, evaluation, predictions."""

import dataclasses
import json

import jax.numpy as jnp
import numpy as np
import pytest

import bert_jax
from bert_jax import cli
from bert_jax.data.examples import Example, ImageFile
from bert_jax.errors import UserError
from bert_jax.models.heads.image_classification_with_teacher import ImageLogits
from bert_jax.tasks.classification.problems import SingleLabel
from tests.image_files import write_images


def rows_of(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_a_training_learns_to_tell_dark_from_light(run):
    result = json.loads((run / "result.json").read_text())
    assert result["accuracy"] == 1.0
    assert result["accuracy_majority"] == 0.5
    names = {path.name for path in (run / "model").iterdir()}
    assert {"config.json", "model.safetensors", "preprocessor_config.json"} <= names
    config = json.loads((run / "model" / "config.json").read_text())
    assert config["architectures"] == ["ViTForImageClassification"]
    assert config["id2label"] == {"0": "dark", "1": "light"}
    assert "trained_length" not in config
    processor = json.loads((run / "model" / "preprocessor_config.json").read_text())
    assert processor["size"] == {"height": 8, "width": 8}
    summary = json.loads((run / "data_summary.json").read_text())
    assert (summary["unit"], summary["train"]) == ("images", 12)
    assert summary["tokens"]["longest"] == 5  # 2 × 2 patches and [CLS]


def test_predict_reads_a_folder_and_evaluate_the_same_model(run, photos, tmp_path, capsys):
    output, source = tmp_path / "labels.jsonl", photos / "validation"
    command = ["predict", "--model", f"{run}", "--input", f"{source}", "--output", f"{output}"]
    assert cli.main(command) == 0
    rows = rows_of(output)
    assert [row["image"] for row in rows][:2] == ["dark/0.png", "dark/1.png"]
    assert all(row["expected"] == row["label"] for row in rows)
    assert sum(rows[0]["probabilities"].values()) == pytest.approx(1)
    written = rows_of(run / "predictions" / "validation.jsonl")
    assert [row["score"] for row in written] == pytest.approx([row["score"] for row in rows])
    capsys.readouterr()
    config = f"image_classification:directory={photos}"
    assert cli.main(["evaluate", "--config", config, "--model", f"{run / 'model'}"]) == 0
    assert json.loads(capsys.readouterr().out)["accuracy"] == 1.0


def test_a_loaded_model_classifies_files_one_by_one_as_together(run, photos, tmp_path):
    model = bert_jax.load(run)
    paths = [photos / "train" / label / "0.png" for label in ("dark", "light")]
    together = model.classify_images(paths)
    assert [each.label for each in together] == ["dark", "light"]
    alone = [model.classify_images([path])[0].score for path in paths]
    assert alone == pytest.approx([each.score for each in together])
    damaged = tmp_path / "damaged.png"
    damaged.write_text("hello")
    with pytest.raises(UserError, match="^example 1: it is no image that Pillow can read"):
        model.classify_images([paths[0], damaged])
    with pytest.raises(UserError, match="the paths are one string"):
        model.classify_images(str(paths[0]))


def test_bad_rows_are_marked(run, photos, tmp_path):
    (tmp_path / "list.txt").write_text(f"{photos}/train/dark/0.png\nnone.png\n")
    output = tmp_path / "out.jsonl"
    command = ["predict", "--model", f"{run}", "--input", f"{tmp_path / 'list.txt'}"]
    assert cli.main([*command, "--output", f"{output}", "--option", "bad_rows=mark"]) == 0
    first, second = rows_of(output)
    assert first["label"] == "dark"
    assert second["error"].startswith(f"{tmp_path}/list.txt:2: {tmp_path}/none.png cannot be read")


def test_batches_do_not_depend_on_hosts_or_on_where_a_run_begins(experiment_of):
    task = experiment_of().task
    whole = list(task.train_batches(0, 6, host=0, hosts=1))
    assert {key: value.shape for key, value in whole[0].items()} == {
        "pixel_values": (4, 8, 8, 3),
        "labels": (4,),
        "weights": (4,),
        "attention_mask": (4, 5),
    }
    later = list(task.train_batches(4, 6, host=0, hosts=1))
    np.testing.assert_array_equal(later[1]["pixel_values"], whole[5]["pixel_values"])
    parts = [next(task.train_batches(4, 5, host=host, hosts=2)) for host in range(2)]
    joined = np.concatenate([part["pixel_values"] for part in parts])
    np.testing.assert_array_equal(joined, whole[4]["pixel_values"])
    # Each epoch changes the images anew.
    first, second = (
        {image.tobytes() for batch in whole[start : start + 3] for image in batch["pixel_values"]}
        for start in (0, 3)
    )
    assert first != second


def test_the_loss_smooths_labels(experiment_of):
    task = experiment_of({"data.label_smoothing": 0.2}).task
    logits = jnp.log(jnp.array([[0.9, 0.1], [0.5, 0.5]]))
    batch = {"labels": jnp.array([0, 1]), "weights": jnp.array([1.0, 0.0])}
    sums = task.loss({}, logits, batch)[""]
    assert float(sums["loss"]) == pytest.approx(-0.9 * np.log(0.9) - 0.1 * np.log(0.1))
    assert float(sums["accuracy"]) == 1


def test_both_heads_learn_the_labels_unless_there_is_a_teacher(experiment_of):
    task = experiment_of({"model.family": "deit"}).task
    assert task.description.class_name == "DeiTForImageClassificationWithTeacher"
    of_cls, distilled = (jnp.log(jnp.array([[p, 1 - p]])) for p in (0.8, 0.4))
    outputs = ImageLogits((of_cls + distilled) / 2, of_cls, distilled)
    batch = {"labels": jnp.array([0]), "weights": jnp.array([1.0])}
    both = task.loss({}, outputs, batch)[""]["loss"]
    assert float(both) == pytest.approx(-(np.log(0.8) + np.log(0.4)) / 2)
    beside = task.loss_beside_teacher({}, outputs, batch)[""]["loss"]
    assert float(beside) == pytest.approx(-np.log(0.8))
    np.testing.assert_array_equal(task.scores({}, outputs, batch), distilled)
    np.testing.assert_array_equal(task.teacher_scores({}, outputs, batch), outputs.logits)


def test_the_five_best_labels_count_where_there_are_more(experiment_of):
    names = tuple("abcdefg")
    evaluator = dataclasses.replace(experiment_of().task.evaluator, problem=SingleLabel(names))
    examples = [Example(ImageFile(name), name) for name in "aaa"]
    scores = [np.arange(7, dtype=np.float32) for _ in range(3)]
    scores[0] = -scores[0]  # the best label
    scores[1][0] = 2.5  # the fifth
    metrics = evaluator.metrics(examples, scores)
    assert metrics["accuracy"] == pytest.approx(1 / 3)
    assert metrics["top_5_accuracy"] == pytest.approx(2 / 3)
    assert "top_5_accuracy" in evaluator.metric_names(examples)


def test_a_model_goes_on_at_another_size_with_its_own_file(run, experiment_of):
    same = experiment_of(init_from=str(run / "model")).task
    assert same.processor.fields == bert_jax.load(run).tokenizer.fields
    larger = experiment_of({"model.image_size": 12}, init_from=str(run / "model")).task
    assert (larger.size, larger.tokens) == ((12, 12), 10)
    assert larger.processor.fields["size"] == {"height": 12, "width": 12}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"model.patch_size": 16}, "model.patch_size is 16; an image has 8: give a smaller patch"),
        ({"model.num_channels": 2}, "model.num_channels is 2; image files have 3 colours, or 1"),
        ({"data.length": 8}, "data.length is 8; all images of a model have the same number of"),
        ({"data.image_mean": (0.5, 0.5)}, "data.image_mean is (0.5, 0.5); give a number for each"),
        ({"data.resample": "cubic"}, "data.resample is 'cubic'; known are nearest, lanczos"),
        ({"data.labels": ("dark", "red")}, "label 'light' is not a label of the config: dark, red"),
    ],
)
def test_what_does_not_fit_is_refused(experiment_of, changes, message):
    with pytest.raises(UserError) as caught:
        experiment_of(changes).check()
    assert message in str(caught.value)


def test_a_model_of_texts_reads_no_images(experiment_of, base_model, photos):
    with pytest.raises(UserError, match="bert models have no head image_classification"):
        experiment_of(init_from=str(base_model)).check()
    with pytest.raises(UserError, match="does not classify images; give the directory of a model"):
        bert_jax.load(base_model).classify_images([photos / "train" / "dark" / "0.png"])


def test_one_class_is_refused(tmp_path, experiment_of):
    folder = write_images(tmp_path / "one", count=3)
    rows = "".join(f"dark/{number % 3}.png,dark\n" for number in range(30))
    (folder / "list.csv").write_text(f"image,label\n{rows}")
    changes = {"data.directory": "", "data.train": str(folder / "list.csv")}
    with pytest.raises(UserError, match=r"the training images have 1 class \(dark\); give images"):
        experiment_of(changes).check()


@pytest.mark.parametrize("name", ["validation", "val", "valid"])
def test_usual_names_of_the_folder_of_validation(experiment_of, tmp_path, name):
    folder = write_images(tmp_path / "photos", count=3, splits=("train", name))
    task = experiment_of({"data.directory": str(folder)}).task
    assert len(task.splits.train) == 6
    assert [eval_set.source for eval_set in task.splits.validation] == [str(folder / name)]

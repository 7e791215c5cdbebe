"""A loaded model: from a directory and back, on one device and on several."""

import dataclasses
import json
import os
import shutil
import subprocess
import sys

import jax
import numpy as np
import pytest

import bert_jax
from bert_jax.errors import UserError
from bert_jax.files.manifest import MANIFEST
from bert_jax.sharding.mesh import MeshShape, make_mesh


def test_the_model_of_a_run_is_not_replaced(make_model, tmp_path):
    for name in ("model_config.json", "several_runs.json"):
        run = tmp_path / name / "run"
        run.mkdir(parents=True)
        (run / name).write_text("{}")
        with pytest.raises(UserError, match="model is the model of the run .*run; give another"):
            make_model("encoder").save(run / "model")
        assert [path.name for path in run.iterdir()] == [name]


@pytest.mark.parametrize("head", ["encoder", "pretraining"])
def test_a_saved_model_is_the_same_model(make_model, tmp_path, head):
    model = make_model(head)
    model.save(tmp_path / "model")
    loaded = bert_jax.load(tmp_path / "model")
    assert type(loaded.module) is type(model.module)
    assert loaded.report.complete
    assert loaded.config == model.config
    jax.tree.map(np.testing.assert_array_equal, loaded.params, model.params)
    texts = ["the sun was low", ("a cat", "it ran")]
    np.testing.assert_array_equal(loaded.embed(texts), model.embed(texts))


def test_google_s_name_for_the_config_beside_weights(make_model, tmp_path):
    """As the first PyTorch files of BERT have it."""
    make_model("encoder").save(tmp_path / "model")
    (tmp_path / "model" / MANIFEST).unlink()
    config = tmp_path / "model" / "config.json"
    config.rename(config.with_name("bert_config.json"))
    assert bert_jax.load(tmp_path / "model").report.complete


def test_a_mesh_of_another_kind_is_refused(make_model, tmp_path):
    make_model("encoder").save(tmp_path / "model")
    with pytest.raises(UserError, match="mesh has the axes data; make it by bert_jax.sharding"):
        bert_jax.load(tmp_path / "model", mesh=jax.make_mesh((1,), ("data",)))
    mesh = make_mesh(MeshShape(data=-1), jax.local_devices()[:1])
    assert bert_jax.load(tmp_path / "model", mesh=mesh).mesh is mesh


def test_a_head_on_request(make_model, tmp_path, capsys):
    make_model("masked_lm").save(tmp_path / "model")
    model = bert_jax.load(tmp_path / "model", task="classification")
    assert "classifier/kernel" in capsys.readouterr().err
    assert model.embed(["sun"], "cls").shape == (1, 16)
    with pytest.raises(UserError, match="this BertForSequenceClassification does not fill masks"):
        model.fill_mask("[MASK]")
    again = bert_jax.load(tmp_path / "model", task="masked_lm")
    assert len(again.fill_mask("[MASK]")) == 5


@pytest.mark.slow
def test_heads_with_the_same_parameter_names_are_not_confused(make_model, tmp_path, capsys):
    heads = ["classification", "tagging", "multiple_choice"]
    for number, stored in enumerate(heads):
        labels = () if stored == "multiple_choice" else ("a", "b", "c")
        model = make_model(stored, num_labels=len(labels) or 2)
        description = dataclasses.replace(model.description, labels=labels)
        dataclasses.replace(model, description=description).save(tmp_path / stored)
        for task in (stored, heads[(number + 1) % 3]):
            capsys.readouterr()
            loaded = bert_jax.load(tmp_path / stored, task=task)
            is_new = "classifier/kernel" in capsys.readouterr().err
            assert is_new == (task != stored), (stored, task)
            assert loaded.description.labels == (labels if task == stored else ())


def test_labels_are_for_heads_that_have_them(make_model, tmp_path):
    make_model("masked_lm").save(tmp_path / "model")
    with pytest.raises(UserError) as error:
        bert_jax.load(tmp_path / "model", labels=["cat", "dog"])
    assert str(error.value) == (
        "a model with the head masked_lm has no labels; leave labels out, or give "
        "task=classification or tagging"
    )


def test_a_vocabulary_beyond_the_word_table_is_refused(model, tmp_path, pieces):
    model.save(tmp_path / "saved")
    directory = shutil.copytree(tmp_path / "saved", tmp_path / "model")
    for name in ("tokenizer.json", MANIFEST):
        (directory / name).unlink()
    (directory / "vocab.txt").write_text("\n".join([*pieces, "moon", "star"]) + "\n")
    assert json.loads((directory / "config.json").read_text())["vocab_size"] == 40
    with pytest.raises(UserError, match="42"):
        bert_jax.load(directory)


PROGRAM = """
import sys
import jax, numpy
import bert_jax
from bert_jax.sharding.mesh import MeshShape, make_mesh

directory, output, data, fsdp, tensor = sys.argv[1:]
mesh = make_mesh(MeshShape(int(data), int(fsdp), int(tensor)))
assert mesh.size == 8
model = bert_jax.load(directory, mesh=mesh)
texts = ["the sun was low " * (number % 7) for number in range(45)] + [("a cat", "it ran")]
numpy.savez(
    output,
    mean=model.embed(texts, batch_size=12),
    pooler=model.embed(texts, "pooler", batch_size=5),
    states=model.hidden_states(texts[-9:], (0, 1, 2))[-1].states,
    weights=model.attentions(texts[-9:])[-1].weights,
    scores=[
        [filling.score for filling in of_text]
        for of_text in model.fill_mask(["[MASK] sun", "the [MASK] was [MASK]", "[MASK]"], top_k=7)
    ],
)
"""


@pytest.mark.slow
@pytest.mark.usefixtures("processes_without_torch")
def test_eight_devices_predict_like_one(model, tmp_path):
    model.save(tmp_path / "model")

    def predictions(data, fsdp, tensor, devices=8):
        output = tmp_path / f"{data}-{fsdp}-{tensor}.npz"
        sizes = [str(size) for size in (data, fsdp, tensor)]
        program = PROGRAM.replace("mesh.size == 8", f"mesh.size == {devices}")
        done = subprocess.run(
            [sys.executable, "-c", program, str(tmp_path / "model"), str(output), *sizes],
            env=os.environ | {"JAX_NUM_CPU_DEVICES": str(devices)},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        with np.load(output) as arrays:
            return dict(arrays)

    expected = predictions(1, 1, 1, devices=1)
    assert expected["mean"].shape == expected["pooler"].shape == (46, 16)
    for sizes in ((8, 1, 1), (2, 2, 2), (1, 8, 1), (1, 4, 2)):
        arrays = predictions(*sizes)
        for name, array in expected.items():
            np.testing.assert_allclose(arrays[name], array, atol=1e-6, rtol=0, err_msg=name)

"""Model directories: what is written comes back to the bit, and damage is named."""

import json
import os

import jax
import numpy as np
import pytest
from safetensors import safe_open
from safetensors.numpy import load_file, save_file

from bert_jax.checkpoints import model_directory
from bert_jax.checkpoints.model_directory import load_description, load_params
from bert_jax.errors import UserError
from bert_jax.files.manifest import MANIFEST
from bert_jax.models.architectures import PreTrainingModel
from bert_jax.tokenization import load_tokenizer


@pytest.fixture
def load(model_path, model_config):
    return lambda: load_params(
        model_path, load_description(model_path), PreTrainingModel(model_config)
    )[0]


@pytest.fixture
def change(model_path):
    """Rewrites the tensors of the model directory, as other programs do."""
    path = model_path / "model.safetensors"
    (model_path / MANIFEST).unlink()

    def rewrite(edit) -> None:
        tensors = load_file(path)
        edit(tensors)
        save_file(tensors, path, metadata={"format": "pt"})

    return rewrite


def test_parameters_come_back_to_the_bit(load, model_params):
    found = load()
    assert jax.tree.structure(found) == jax.tree.structure(model_params)
    for leaf, saved in zip(*map(jax.tree.leaves, (found, model_params)), strict=True):
        assert leaf.dtype == np.float32
        assert np.asarray(leaf).tobytes() == saved.tobytes()


def test_the_description_comes_back(model_path, description):
    assert load_description(model_path) == description


def test_the_files_are_those_of_hugging_face(model_path, tokenizer):
    names = {path.name for path in model_path.iterdir()}
    assert {"config.json", "model.safetensors", "tokenizer.json", "vocab.txt"} <= names
    assert not any(name.endswith(".partial") for name in names)
    fields = json.loads((model_path / "config.json").read_text())
    assert fields["architectures"] == ["BertForPreTraining"]
    assert fields["model_type"] == "bert"
    assert fields["layer_norm_eps"] == 1e-9
    assert load_tokenizer(model_path).fingerprint() == tokenizer.fingerprint()
    with safe_open(model_path / "model.safetensors", framework="numpy") as file:
        assert file.metadata() == {"format": "pt"}


def test_others_may_read_what_the_umask_lets_them(tmp_path, description, model_params, tokenizer):
    before = os.umask(0o026)
    try:
        model_directory.save(tmp_path / "model", description, model_params, tokenizer)
    finally:
        os.umask(before)
    modes = {path.stat().st_mode & 0o777 for path in (tmp_path / "model").iterdir()}
    assert modes == {0o640}


def test_saving_again_gives_the_same_bytes(
    model_path, description, model_params, tokenizer, tmp_path
):
    again = tmp_path / "again"
    model_directory.save(again, description, model_params, tokenizer)
    assert {p.name for p in again.iterdir()} == {p.name for p in model_path.iterdir()}
    for path in model_path.iterdir():
        assert (again / path.name).read_bytes() == path.read_bytes()


def test_other_tensors_in_the_file_do_not_matter(change, load, model_params):
    def add(tensors):
        tensors["bert.embeddings.position_ids"] = np.arange(32)[None]
        tensors["my_head.weight"] = np.zeros((2, 16), np.float32)

    change(add)
    assert jax.tree.structure(load()) == jax.tree.structure(model_params)


def test_half_precision_is_widened(change, load, model_params):
    def halve(tensors):
        for name in tensors:
            tensors[name] = tensors[name].astype(np.float16)

    change(halve)
    found, expected = load()["mlm_head"]["bias"], model_params["mlm_head"]["bias"]
    assert found.dtype == np.float32
    assert found.tolist() == expected.astype(np.float16).astype(np.float32).tolist()


def test_a_missing_tensor(change, load):
    change(lambda tensors: tensors.pop("bert.encoder.layer.1.output.dense.weight"))
    with pytest.raises(
        UserError, match="model.safetensors has no tensor bert.encoder.layer.1.output.dense.weight"
    ):
        load()


def test_a_tensor_of_another_shape(change, load):
    def shrink(tensors):
        name = "bert.embeddings.word_embeddings.weight"
        tensors[name] = np.ascontiguousarray(tensors[name][:39])

    change(shrink)
    message = (
        r"tensor bert.embeddings.word_embeddings.weight has shape \(39, 16\), but vocab_size is 40"
    )
    with pytest.raises(UserError, match=message):
        load()


def test_a_transposed_kernel_is_not_taken_for_ours(change, load):
    def transpose(tensors):
        name = "bert.encoder.layer.0.intermediate.dense.weight"
        tensors[name] = np.ascontiguousarray(tensors[name].T)

    change(transpose)
    with pytest.raises(UserError, match=r"intermediate.dense.weight has shape \(16, 32\)"):
        load()


@pytest.mark.parametrize("kept", [0, 7, 100, -1])
def test_a_truncated_file(model_path, load, kept):
    path = model_path / "model.safetensors"
    path.write_bytes(path.read_bytes()[:kept])
    with pytest.raises(UserError, match="model.safetensors .*; copy or download it again"):
        load()


def test_files_that_are_not_there(model_path, load, tmp_path):
    (model_path / "model.safetensors").unlink()
    with pytest.raises(UserError, match="no weights|no model.safetensors"):
        load()
    with pytest.raises(UserError, match="config.json does not exist; give a model directory"):
        load_description(tmp_path / "nowhere")


def test_a_directory_that_cannot_be_made(tmp_path, description, model_params, tokenizer):
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match="cannot write .*/file/model"):
        model_directory.save(tmp_path / "file" / "model", description, model_params, tokenizer)

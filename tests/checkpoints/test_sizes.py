"""Sizes in a `config.json` are compared with the tensors before anything of these sizes is made."""

import json
import shutil

import pytest

import bert_jax
from bert_jax.checkpoints import model_directory
from bert_jax.errors import UserError
from bert_jax.files.manifest import MANIFEST
from bert_jax.models.execution import Execution
from bert_jax.sharding import mesh

BILLION = 10**9


@pytest.fixture
def change(base_model, tmp_path):
    """A copy of `base_model` with other values in its `config.json`."""
    copy = tmp_path / "model"
    shutil.copytree(base_model, copy)
    (copy / MANIFEST).unlink()

    def with_fields(**fields):
        path = copy / "config.json"
        path.write_text(json.dumps(json.loads(path.read_text()) | fields))
        return copy

    return with_fields


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"num_hidden_layers": BILLION}, "num_hidden_layers is 1000000000; it must be at most 1,0"),
        ({"num_hidden_layers": 999}, "has no tensor encoder.layer.2.|has no tensor bert.enco"),
        ({"hidden_size": BILLION, "num_attention_heads": 1}, r"shape \(16,\), but hidden_size is"),
        ({"hidden_size": 10**30, "num_attention_heads": 1}, "hidden_size is 10*; it must be at mo"),
        ({"intermediate_size": BILLION}, r"\(32,\), but intermediate_size is 1000000000; fix"),
        ({"vocab_size": BILLION}, r"shape \(40, 16\), but vocab_size is 1000000000; fix"),
        ({"max_position_embeddings": BILLION}, r"\(32, 16\), but max_position_embeddings is"),
        ({"type_vocab_size": BILLION}, r"shape \(2, 16\), but type_vocab_size is 1000000000"),
    ],
)
def test_sizes_that_the_tensors_do_not_have(change, fields, message):
    with pytest.raises(UserError, match=message):
        model_directory.load_description(change(**fields))


def test_a_new_head_that_no_memory_holds(change, monkeypatch):
    monkeypatch.setattr(mesh, "host_memory", lambda: 2**36)
    directory = change(num_labels=2 * BILLION)
    with pytest.raises(UserError, match=r"the parameters need [\d,.]+ GiB of each device, wh"):
        bert_jax.load(directory, task="classification")


def test_nothing_is_allocated_before_all_tensors_are_checked(change, monkeypatch):
    directory = change()
    description = model_directory.load_description(directory)
    module = description.make_module(Execution())
    monkeypatch.setattr(
        "bert_jax.checkpoints.parameters._empty", lambda shape: pytest.fail("allocated")
    )
    monkeypatch.setattr("bert_jax.checkpoints.parameters._DTYPES", ("float16",))
    with pytest.raises(UserError, match="has dtype float32, not one of float16; give a file of we"):
        model_directory.load_params(directory, description, module)

"""Checkpoints of TensorFlow: what is written comes back, and damage is named."""

import os

import numpy as np
import pytest

from bert_jax.checkpoints.tensors.tensorflow_checkpoint import (
    TensorflowCheckpoint,
    write_checkpoint,
)
from bert_jax.data.tensorflow import import_tensorflow
from bert_jax.errors import UserError


def test_tensors_keep_their_types(tmp_path):
    tensors = {
        "whole": np.int64(3),
        "half": np.float16([1.5, -2]),
        "scope/matrix": np.float64([[1, 2, 3], [4, 5, 6]]),
    }
    write_checkpoint(tmp_path / "odd.ckpt", tensors)
    with TensorflowCheckpoint(tmp_path / "odd.ckpt") as file:
        assert list(file.tensors) == ["half", "scope/matrix", "whole"]
        for name, tensor in tensors.items():
            assert file.tensors[name] == (tensor.shape, tensor.dtype)
            found = file.read(name)
            assert found.dtype == tensor.dtype
            assert found.tolist() == tensor.tolist()
            assert not found.flags.writeable


def test_wildcards_in_a_path(tmp_path):
    with pytest.raises(UserError, match="takes .* in a path for wildcards; rename it"):
        TensorflowCheckpoint(tmp_path / "model[1]" / "bert_model.ckpt")


def test_tensorflow_reads_what_is_written(tmp_path):
    write_checkpoint(tmp_path / "a.ckpt", {"b/kernel": np.float32([[1, 2]]), "a": np.int32(7)})
    tensorflow = import_tensorflow()
    assert tensorflow.train.list_variables(str(tmp_path / "a.ckpt")) == [
        ("a", []),
        ("b/kernel", [1, 2]),
    ]
    found = tensorflow.train.load_variable(str(tmp_path / "a.ckpt"), "b/kernel")
    assert found.tolist() == [[1.0, 2.0]]


def test_the_order_of_the_variables_does_not_matter(tmp_path):
    pair, single = np.float32([1, 2]), np.float32([3])
    write_checkpoint(tmp_path / "a", {"one": pair, "other": single})
    write_checkpoint(tmp_path / "b", {"other": single, "one": pair})
    for ending in ("index", "data-00000-of-00001"):
        assert (tmp_path / f"a.{ending}").read_bytes() == (tmp_path / f"b.{ending}").read_bytes()


def test_a_checkpoint_that_is_not_there(tmp_path):
    with pytest.raises(UserError, match=r"a.ckpt.index does not exist; copy its .index file"):
        TensorflowCheckpoint(tmp_path / "a.ckpt")


@pytest.mark.parametrize("ending", ["index", "data-00000-of-00001"])
def test_a_named_pipe_in_place_of_a_file(tmp_path, ending):
    write_checkpoint(tmp_path / "a.ckpt", {"one": np.float32([1])})
    (tmp_path / f"a.ckpt.{ending}").unlink()
    os.mkfifo(tmp_path / f"a.ckpt.{ending}")
    with pytest.raises(UserError, match=f"a.ckpt.{ending} is a named pipe, not a regular file; co"):
        TensorflowCheckpoint(tmp_path / "a.ckpt")


def test_a_place_that_cannot_be_written(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match="cannot write .*/a.ckpt: /.*; free space or give another"):
        write_checkpoint(tmp_path / "file" / "a.ckpt", {"a": np.float32([1])})

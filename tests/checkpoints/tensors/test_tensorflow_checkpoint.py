"""Checkpoints of TensorFlow: what is written comes back, and damage is named."""

import os

import numpy as np
import pytest

from bert_jax.checkpoints.tensors.tensorflow_checkpoint import (
    TensorflowCheckpoint,
    write_checkpoint,
)
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
            result = file.read(name)
            assert result.dtype == tensor.dtype
            assert result.tolist() == tensor.tolist()
            assert not result.flags.writeable
    write_checkpoint(tmp_path / "again.ckpt", dict(reversed(tensors.items())))  # any order
    for ending in ("index", "data-00000-of-00001"):
        first, again = (tmp_path / f"{name}.ckpt.{ending}" for name in ("odd", "again"))
        assert first.read_bytes() == again.read_bytes()


def test_paths_that_cannot_be_used(tmp_path):
    with pytest.raises(UserError, match="takes .* in a path for wildcards; rename it"):
        TensorflowCheckpoint(tmp_path / "model[1]" / "bert_model.ckpt")
    with pytest.raises(UserError, match=r"a.ckpt.index does not exist; copy its .index file"):
        TensorflowCheckpoint(tmp_path / "a.ckpt")
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match="cannot write .*/a.ckpt: /.*; free space or give another"):
        write_checkpoint(tmp_path / "file" / "a.ckpt", {"a": np.float32([1])})


@pytest.mark.parametrize("ending", ["index", "data-00000-of-00001"])
def test_a_named_pipe_in_place_of_a_file(tmp_path, ending):
    write_checkpoint(tmp_path / "a.ckpt", {"one": np.float32([1])})
    (tmp_path / f"a.ckpt.{ending}").unlink()
    os.mkfifo(tmp_path / f"a.ckpt.{ending}")
    with pytest.raises(UserError, match=f"a.ckpt.{ending} is a named pipe, not a regular file; co"):
        TensorflowCheckpoint(tmp_path / "a.ckpt")

"""Shards and their index, sound and damaged."""

import json
import struct

import numpy as np
import pytest

from bert_jax.checkpoints.tensors import ShardedFiles, TensorInfo
from bert_jax.errors import UserError

FIRST, SECOND = "model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"


@pytest.fixture
def index(tmp_path, write_safetensors):
    """Three tensors in two shards; the index does not list a fourth."""
    write_safetensors(
        tmp_path / FIRST,
        {"a": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}},
        struct.pack("<2f", 1, 2),
    )
    write_safetensors(
        tmp_path / SECOND,
        {
            "b": {"dtype": "F16", "shape": [1, 2], "data_offsets": [0, 4]},
            "c": {"dtype": "I64", "shape": [], "data_offsets": [4, 12]},
            "d": {"dtype": "U8", "shape": [1], "data_offsets": [12, 13]},
        },
        struct.pack("<2eqB", 3, 4, 5, 6),
    )
    path = tmp_path / "model.safetensors.index.json"
    write_index(path, {"c": SECOND, "a": FIRST, "b": SECOND})
    return path


def write_index(path, weight_map):
    path.write_text(json.dumps({"metadata": {"total_size": 20}, "weight_map": weight_map}))


def test_tensors_of_two_shards(index):
    with ShardedFiles(index) as file:
        assert file.path == index
        assert file.tensors == {
            "c": TensorInfo((), np.dtype(np.int64)),
            "a": TensorInfo((2,), np.dtype(np.float32)),
            "b": TensorInfo((1, 2), np.dtype(np.float16)),
        }
        assert file.read("a").tolist() == [1, 2]
        assert file.read("b").tolist() == [[3, 4]]
        assert file.read("c").tolist() == 5
        assert file.read("a").tolist() == [1, 2]


def test_shards_of_pytorch(tmp_path, write_zip):
    write_zip(tmp_path / "pytorch_model-00001-of-00001.bin")
    index = tmp_path / "pytorch_model.bin.index.json"
    write_index(index, dict.fromkeys(("weight", "bias"), "pytorch_model-00001-of-00001.bin"))
    with ShardedFiles(index) as file:
        assert file.read("weight").tolist() == [[1, 2], [3, 4], [5, 6]]
        assert file.read("bias").tolist() == [7, 8, 9]


def cut(index):
    shard = index.with_name(SECOND)
    shard.write_bytes(shard.read_bytes()[:-1])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            lambda index: index.with_name(SECOND).unlink(),
            f"index.json names {SECOND}, which is not there; copy or download the model again",
        ),
        (cut, f"{SECOND} is damaged"),
        (lambda index: write_index(index, {"a": FIRST, "b": FIRST}), "has b in .*, which lacks it"),
        (lambda index: write_index(index, {"a": "model.h5"}), r"shard ends in \.safetensors or"),
        (lambda index: index.unlink(), "index.json does not exist"),
    ],
)
def test_shards_that_are_not_as_the_index_says(index, change, message):
    change(index)
    with pytest.raises(UserError, match=message):
        ShardedFiles(index)


@pytest.mark.parametrize(
    "shard", [f"../{FIRST}", f"/{FIRST}", f"inner/{FIRST}", f"./{FIRST}", "..", "", 7, [FIRST]]
)
def test_shards_outside_the_directory(index, shard):
    inner = index.parent / "inner"
    inner.mkdir()
    (inner / FIRST).write_bytes(index.with_name(FIRST).read_bytes())
    for directory in (index.parent, inner):
        path = directory / "another.index.json"
        write_index(path, {"a": shard})
        with pytest.raises(UserError, match=r"another.index.json has a in .*; (shards|the name)"):
            ShardedFiles(path)


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (b"{", ":1: not JSON"),
        (b"{}", " has no weight_map"),
        (b'{"weight_map": {}}', " has no weight_map"),
        (b'{"weight_map": ["a"]}', " has no weight_map"),
    ],
)
def test_damaged_indices(index, content, expected):
    index.write_bytes(content)
    with pytest.raises(UserError, match=f"index.json{expected}"):
        ShardedFiles(index)

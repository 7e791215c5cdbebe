"""The file of a model directory that is opened, and the error without one."""

import json
import subprocess
import sys

import pytest

from bert_jax.checkpoints.tensors import open_tensors
from bert_jax.errors import UserError


@pytest.fixture
def write_numbered(write_safetensors):
    """Writes a safetensors file of one byte."""

    def write(path, value):
        header = {"a": {"dtype": "U8", "shape": [], "data_offsets": [0, 1]}}
        return write_safetensors(path, header, bytes([value]))

    return write


def test_the_first_that_is_there(tmp_path, write_numbered, write_zip):
    write_zip(tmp_path / "shard-2.bin")
    index = {"weight_map": {"weight": "shard-2.bin"}}
    (tmp_path / "pytorch_model.bin.index.json").write_text(json.dumps(index))
    with open_tensors(tmp_path) as file:
        assert list(file.tensors) == ["weight"]

    write_zip(tmp_path / "pytorch_model.bin")
    with open_tensors(tmp_path) as file:
        assert list(file.tensors) == ["weight", "bias"]

    write_numbered(tmp_path / "shard-1.safetensors", 1)
    index = {"weight_map": {"a": "shard-1.safetensors"}}
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps(index))
    with open_tensors(tmp_path) as file:
        assert file.read("a").tolist() == 1

    write_numbered(tmp_path / "model.safetensors", 2)
    with open_tensors(tmp_path) as file:
        assert file.read("a").tolist() == 2

    (tmp_path / "model.safetensors").write_bytes(b"{}")  # no other file replaces a damaged one
    with pytest.raises(UserError, match="model.safetensors is damaged"):
        open_tensors(tmp_path)
    with pytest.raises(UserError, match="none does not exist; give a model directory"):
        open_tensors(tmp_path / "none")
    with pytest.raises(UserError, match="model.safetensors is a file; give a model directory"):
        open_tensors(tmp_path / "model.safetensors")


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("model.ckpt-20.index", "model.ckpt-20.index is Google's; `bert-jax convert` makes"),
        ("tf_model.h5", "tf_model.h5 is TensorFlow's; get model.safetensors, or let transformers"),
        ("flax_model.msgpack", "flax_model.msgpack is Flax's, in transformers' layout; get model"),
        ("model.fp16.safetensors", "model.fp16.safetensors is not named model.safetensors; ren"),
        ("pytorch_model.fp16.bin", "pytorch_model.fp16.bin is not named pytorch_model.bin; ren"),
        ("adapter_config.json", "adapter_config.json: adapters are not supported; merge it into"),
        ("adapter_model.safetensors", "adapter_model.safetensors is of an adapter .LoRA.; mer"),
        ("q4.gguf", "q4.gguf is GGUF's, for llama.cpp; get model.safetensors or pytorch_model.bin"),
        ("model.onnx", "model.onnx is ONNX's; get model.safetensors or pytorch_model.bin of the"),
        ("onnx/model.onnx", "its onnx/model.onnx is ONNX's; get"),
        ("openvino_model.bin", "openvino_model.bin is OpenVINO's; get"),
        ("rust_model.ot", "rust_model.ot is Rust's; get"),
        ("training_args.bin", "has no weights; put model.safetensors or pytorch_model.bin there"),
    ],
)
def test_weights_of_another_kind(tmp_path, name, expected):
    (tmp_path / name).parent.mkdir(exist_ok=True)
    (tmp_path / name).write_bytes(b"x")
    with pytest.raises(UserError, match=expected) as caught:
        open_tensors(tmp_path)
    assert str(tmp_path) in str(caught.value)


def test_reading_imports_neither_pytorch_nor_jax_nor_tensorflow(tmp_path, write_zip):
    write_zip(tmp_path / "pytorch_model.bin")
    program = (
        "import pathlib, sys; from bert_jax.checkpoints.tensors import open_tensors\n"
        "print(open_tensors(pathlib.Path(sys.argv[1])).read('bias').tolist())\n"
        "print(sorted({'jax', 'tensorflow', 'torch'} & set(sys.modules)))"
    )
    command = [sys.executable, "-c", program, str(tmp_path)]
    assert subprocess.check_output(command, text=True) == "[7.0, 8.0, 9.0]\n[]\n"

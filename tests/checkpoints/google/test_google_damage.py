"""Google's files that cannot be read: one line says why."""

import json
import sys

import numpy as np
import pytest

from bert_jax.checkpoints.google_files import find, load_description
from bert_jax.data.tensorflow import import_tensorflow
from bert_jax.errors import UserError
from tests.checkpoints.google.released import GOOGLE_CONFIG, load


def test_a_missing_shard(released):
    (released / "bert_model.ckpt.data-00000-of-00001").unlink()
    with pytest.raises(
        UserError,
        match=r"bert_model.ckpt cannot be read: .*data-00000-of-00001; No such file .*; copy",
    ):
        load(find(released))


@pytest.mark.parametrize(
    ("file", "kept"),
    [("index", 0), ("index", 1000), ("data-00000-of-00001", 0), ("data-00000-of-00001", 1000)],
)
def test_a_truncated_file(released, file, kept):
    path = released / f"bert_model.ckpt.{file}"
    path.write_bytes(path.read_bytes()[:kept])
    with pytest.raises(UserError, match=r"bert_model.ckpt cannot be read: .*; copy its .index"):
        load(find(released))


def test_a_flipped_bit(released):
    path = released / "bert_model.ckpt.data-00000-of-00001"
    data = bytearray(path.read_bytes())
    data[data.index(np.float32([1, 2, 3, 4]).tobytes())] ^= 1
    path.write_bytes(data)
    with pytest.raises(UserError, match="bert_model.ckpt cannot be read: .*Checksum does not mat"):
        load(find(released))


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        (
            {"intermediate_size": 8},
            r"layer_0/intermediate/dense/bias has shape \(5,\), but intermediate_size is 8; fix",
        ),
        ({"num_hidden_layers": 3}, "has no tensor bert/encoder/layer_2/"),
        ({"hidden_act": "prelu"}, "bert_config.json: .*hidden_act is 'prelu'; known are gelu"),
        ({"vocab_size": "7"}, "bert_config.json: .*vocab_size is '7'; it must be a whole number"),
    ],
)
def test_a_config_of_another_model(released, fields, message):
    (released / "bert_config.json").write_text(json.dumps({**GOOGLE_CONFIG, **fields}))
    with pytest.raises(UserError, match=message):
        load(find(released))


@pytest.mark.parametrize(
    ("content", "message"), [("{", "bert_config.json:1: not JSON"), ("{}", "lacks vocab_size")]
)
def test_a_config_that_is_none(released, content, message):
    (released / "bert_config.json").write_text(content)
    with pytest.raises(UserError, match=message):
        load(find(released))


def test_a_checkpoint_of_tensorflow_2(tmp_path):
    tensorflow = import_tensorflow()
    checkpoint = tensorflow.train.Checkpoint(model=tensorflow.Variable([1.0, 2.0]))
    checkpoint.write(str(tmp_path / "bert_model.ckpt"))
    (tmp_path / "bert_config.json").write_text(json.dumps(GOOGLE_CONFIG))
    with pytest.raises(UserError, match="no variable bert/embeddings/word_embeddings .*Flow 1"):
        load_description(find(tmp_path))


def test_without_tensorflow(released, monkeypatch):
    files = find(released)
    monkeypatch.setitem(sys.modules, "tensorflow", None)
    with pytest.raises(UserError, match="need the package tensorflow, which is not installed"):
        load(files)

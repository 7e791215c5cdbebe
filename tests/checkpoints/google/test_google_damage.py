"""Google's files that cannot be read: one line says why."""

import json
import sys

import numpy as np
import pytest

from bert_jax.checkpoints.google_files import find, load_description
from bert_jax.data.tensorflow import import_tensorflow
from bert_jax.errors import UserError
from tests.checkpoints.google.released import GOOGLE_CONFIG, load


def flipped(data: bytes) -> bytes:
    position = data.index(np.float32([1, 2, 3, 4]).tobytes())
    return data[:position] + bytes([data[position] ^ 1]) + data[position + 1 :]


@pytest.mark.parametrize(
    ("file", "change", "message"),
    [
        ("data-00000-of-00001", None, ".*data-00000-of-00001; No such file .*; copy"),
        ("data-00000-of-00001", flipped, ".*Checksum does not mat"),
        *(
            (file, lambda content, kept=kept: content[:kept], ".*; copy its .index")
            for file in ("index", "data-00000-of-00001")
            for kept in (0, 1000)
        ),
    ],
)
def test_files_of_the_checkpoint(released, file, change, message):
    path = released / f"bert_model.ckpt.{file}"
    content = path.read_bytes()
    path.unlink()
    if change is not None:
        path.write_bytes(change(content))
    with pytest.raises(UserError, match=f"bert_model.ckpt cannot be read: {message}"):
        load(find(released))


def test_a_config_of_another_model(released):
    fields = {**GOOGLE_CONFIG, "intermediate_size": 8}
    (released / "bert_config.json").write_text(json.dumps(fields))
    message = r"layer_0/intermediate/dense/bias has shape \(5,\), but intermediate_size is 8; fix"
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

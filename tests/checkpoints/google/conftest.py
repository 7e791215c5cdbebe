"""Checkpoints of TensorFlow 1, written by TensorFlow's own Saver."""

import json
import shutil

import pytest

from bert_jax.tokenization import BertSwitches, WordPieceTokenizer
from tests.checkpoints.google.released import (
    GOOGLE_CONFIG,
    PIECES,
    PRETRAINING,
    counted,
    write_with_saver,
    write_with_slots,
)


@pytest.fixture(scope="session")
def checkpoints(tmp_path_factory):
    """Writes each checkpoint once."""
    kept = tmp_path_factory.mktemp("checkpoints")

    def copy(name, shapes, directory):
        if not (kept / name).is_dir():
            (kept / name).mkdir()
            # A graph for each would take time.
            write = write_with_saver if name == "pretraining" else write_with_slots
            write(kept / name / "bert_model.ckpt", counted(shapes))
        shutil.copytree(kept / name, directory, dirs_exist_ok=True)
        (directory / "bert_config.json").write_text(json.dumps(GOOGLE_CONFIG))
        (directory / "vocab.txt").write_text("\n".join(PIECES) + "\n")

    return copy


@pytest.fixture
def released(checkpoints, tmp_path):
    """The files of a pre-trained model, as they come in Google's archives."""
    directory = tmp_path / "uncased_L-2_H-6_A-3"
    checkpoints("pretraining", PRETRAINING, directory)
    return directory


@pytest.fixture(scope="module")
def tokenizer():
    return WordPieceTokenizer.from_vocabulary(PIECES, BertSwitches(True, None, True))

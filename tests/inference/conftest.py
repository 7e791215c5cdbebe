"""A model of indexes, and their size."""

import pytest

import bert_jax
from bert_jax.search import vector_writing


@pytest.fixture
def small_shards(monkeypatch):
    """Ten texts fill three shards."""
    monkeypatch.setattr(vector_writing, "SHARD_DOCUMENTS", 4)


@pytest.fixture(scope="module")
def saved(tmp_path_factory, make_model):
    """A model that was loaded from files."""
    directory = tmp_path_factory.mktemp("models") / "model"
    make_model("encoder").save(directory)
    return bert_jax.load(directory)

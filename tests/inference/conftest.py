"""A model of indexes, and their size; predictions of a file."""

import json

import pytest

import bert_jax
from bert_jax.inference.predict import predict
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


@pytest.fixture
def ask(model, tmp_path):
    """Writes an input, answers it, and reads the records."""

    def run(task, content, name="in.jsonl", model=model, **options):
        source, target = tmp_path / name, tmp_path / "out.jsonl"
        source.write_bytes(content if isinstance(content, bytes) else content.encode())
        options = {"progress": False, "batch_size": 2, **options}
        count = predict(model, task, source, target, options)
        records = [json.loads(line) for line in target.read_text().splitlines()]
        assert len(records) == count
        return records

    return run

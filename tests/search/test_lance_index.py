"""LanceDB, on the disk and in a bucket: the documents that an exact search finds."""

import functools
import json
import os

import numpy as np
import pytest

from bert_jax.errors import UserError
from bert_jax.inference.index import Index
from bert_jax.inference.index_options import IndexOptions
from bert_jax.search import vector_writing

pytestmark = pytest.mark.slow
pytest.importorskip("lancedb")

WORDS = ("cat", "dog", "sun", "sea", "boys", "mat", "shell", "tree", "warm", "long", "found", "up")
# Enough for a product quantisation.
TEXTS = [f"the {a} {b} {c}" for a in WORDS for b in WORDS for c in WORDS[:4]]
QUERIES = ["the cat sat down", "a long sea", "warm"]


def agreement(index, searcher, queries=QUERIES):
    """The share of the ten nearest documents of each query that a searcher finds."""
    found, exact = (
        [{hit.id for hit in hits} for hits in index.search(queries, 10, searcher=name)]
        for name in (searcher, "exact")
    )
    return np.mean([len(a & b) / 10 for a, b in zip(found, exact, strict=True)])


@pytest.fixture
def place(request, tmp_path):
    """A directory on the disk, or in a bucket, which LanceDB reaches with its own client."""
    if request.param == "disk":
        return str(tmp_path / "index")
    bucket = request.getfixturevalue("bucket")
    patch = request.getfixturevalue("monkeypatch")
    key = {"gcs_base_url": os.environ["STORAGE_EMULATOR_HOST"], "disable_oauth": True}
    key |= dict.fromkeys(("client_email", "private_key", "private_key_id"), "")
    (tmp_path / "key.json").write_text(json.dumps(key))
    patch.setenv("GOOGLE_SERVICE_ACCOUNT", str(tmp_path / "key.json"))
    patch.setenv("ALLOW_HTTP", "true")
    return f"{bucket}/index"


@pytest.mark.parametrize("place", ["disk", "bucket"], indirect=True)
@pytest.mark.parametrize("similarity", ["cosine", "euclidean"])
def test_an_index_beyond_memory(model, place, similarity):
    index = model.index(
        TEXTS[:500], path=place, options=IndexOptions(similarity=similarity, faiss="", lance=True)
    )
    index.add(TEXTS[500:])
    index.delete(map(str, range(0, 500, 2)))
    for opened in (index, Index.load(place, model)):
        assert len(opened) == len(TEXTS) - 250
        assert agreement(opened, "lance") > 0.9
        for exact, found in zip(
            *(opened.search(QUERIES, 5, searcher=name) for name in ("exact", "lance")), strict=True
        ):
            assert all(int(hit.id) >= 500 or int(hit.id) % 2 for hit in found)
            assert found[0].score == pytest.approx(exact[0].score, abs=1e-5)
            assert found[0].text == exact[0].text


def test_only_parts_of_a_table_are_searched(model, monkeypatch):
    """Of so few vectors, LanceDB makes one part, or two if more are asked for."""
    from lancedb.index import IvfPq

    monkeypatch.setattr("lancedb.index.IvfPq", functools.partial(IvfPq, num_partitions=2))
    index = model.index(TEXTS, options=IndexOptions(faiss="", lance=True))
    one, both = (agreement(index, f"lance:nprobes={count}", WORDS) for count in (1, 2))
    assert one < both > 0.9


def test_an_addition_that_was_not_finished_does_not_count(model, tmp_path, monkeypatch):
    index = model.index(TEXTS[:300], path=tmp_path / "index", options=IndexOptions(lance=True))

    def killed(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(vector_writing, "commit", killed)
        with pytest.raises(KeyboardInterrupt):
            index.add(["the cat"])
    again = Index.load(tmp_path / "index", model)
    assert len(again.search(["the cat"], 400, searcher="lance")[0]) == 300
    again.add(["a dog", "a tree"])
    assert len(again.search(["the cat"], 400, searcher="lance:nprobes=99")[0]) == 302


def test_refusals(model, tmp_path):
    with pytest.raises(UserError, match="similarity is 'manhattan'; LanceDB supports cosine, "):
        model.index(["a"], options=IndexOptions(similarity="manhattan", lance=True))
    index = model.index(["a"], options=IndexOptions(lance=True))
    with pytest.raises(UserError, match="searcher is 'lance:ef=3'; LanceDB has nprobes=N, the nu"):
        index.search(["a"], searcher="lance:ef=3")

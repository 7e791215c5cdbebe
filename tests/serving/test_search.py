"""`/search` answers as `Index.search`; its vectors are computed with those of other requests."""

import dataclasses

import pytest

from bert_jax.errors import NotFiniteError
from bert_jax.inference.index import Index
from bert_jax.inference.index_options import IndexOptions
from bert_jax.models.heads.token_vectors import FIXED, QueryExpansion, TokenVectors
from bert_jax.models.vectors import Normalize
from bert_jax.search.searchers import Searchers
from tests.inference.index_files import QUERIES, TEXTS, ids_of


@pytest.fixture(scope="module")
def index(encoder, tmp_path_factory):
    path = tmp_path_factory.mktemp("served") / "index"
    return encoder.index(TEXTS, path=path, options=IndexOptions(bm25=""))


@pytest.fixture(scope="module")
def client(serve, encoder, index):
    return serve({"tiny": encoder}, index)


def test_its_model_is_not_loaded_again(index, encoder, model):
    opened = Index.load(index.directory)
    opened.share([model, encoder])
    assert opened.query_predictor().model is encoder


@pytest.mark.parametrize("searcher", [None, "exact", "bm25", "faiss+bm25"])
def test_hits_are_those_of_the_index(client, index, searcher):
    answer = client.post("/search", json={"queries": QUERIES, "top_k": 3, "searcher": searcher})
    expected = index.search(QUERIES, 3, searcher=searcher)
    assert answer.status_code == 200, answer.text
    for made, hits, query in zip(answer.json()["results"], expected, QUERIES, strict=True):
        assert made["query"] == query
        assert [each["id"] for each in made["hits"]] == [hit.id for hit in hits]
        scores = [each["score"] for each in made["hits"]]
        assert scores == pytest.approx([hit.score for hit in hits], abs=1e-6)


@pytest.mark.parametrize("searcher", [None, "maxsim:bm25=3", "maxsim+bm25"])
def test_an_index_of_the_vectors_of_tokens_is_searched(serve, encoder, searcher):
    vectors = TokenVectors(modules=(Normalize(),), expansion=QueryExpansion(FIXED, 12))
    description = dataclasses.replace(encoder.description, stored_vectors=vectors)
    colbert = dataclasses.replace(encoder, description=description)
    index = colbert.index(TEXTS, options=IndexOptions(bm25=""))
    client = serve({"colbert": colbert}, index)
    answer = client.post("/search", json={"queries": QUERIES, "top_k": 3, "searcher": searcher})
    expected = index.search(QUERIES, 3, searcher=searcher)
    assert answer.status_code == 200, answer.text
    found = [[hit["id"] for hit in each["hits"]] for each in answer.json()["results"]]
    assert found == ids_of(expected)
    refused = client.post("/search", json={"queries": ["a"], "prompt": "query"})
    assert (refused.status_code, refused.json()["field"]) == (422, "prompt")


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"queries": ["a", " "]}, "queries"),
        ({"queries": ["a"], "top_k": 0}, "top_k"),
        ({"queries": ["a"], "searcher": "google"}, "searcher"),
        ({"queries": ["a"], "searcher": "bm25+exact:recall_target=0.9"}, "searcher"),
        ({"queries": ["a"], "prompt": "poem"}, "prompt"),
        ({"queries": ["a"], "prompt": "query", "searcher": "bm25"}, "prompt"),
        ({"queries": [" "], "searcher": "bm25"}, "queries"),
    ],
)
def test_a_wrong_field_is_named(client, body, field):
    answer = client.post("/search", json=body)
    assert 400 <= answer.status_code < 500
    assert answer.json().get("field") == field


def test_a_search_that_fails_is_424(client, index, monkeypatch):
    def fails(*_, **__):
        raise NotFiniteError("a similarity exceeds float32")

    monkeypatch.setattr(Index, "search", fails)
    answer = client.post("/search", json={"queries": ["a dog"], "searcher": "bm25"})
    assert (answer.status_code, answer.json()["error_type"]) == (424, "Backend")


def test_one_searcher_of_a_kind_is_kept(index, monkeypatch):
    searchers, opened = Searchers(index._files, None), []
    monkeypatch.setattr(searchers, "_open", lambda name: opened.append(name) or object())
    for name in ("exact", "faiss:nprobe=1", "faiss:nprobe=2", "faiss:nprobe=2", "exact"):
        searchers._searcher(name)
    assert opened == ["exact", "faiss:nprobe=1", "faiss:nprobe=2"]
    assert len(searchers._opened) == 2


def test_its_model_makes_vectors_that_the_queue_has_counted(client):
    def tokens():
        lines = client.get("/metrics").text.splitlines()
        return next(float(line.split()[1]) for line in lines if line.startswith("bert_jax_tokens_"))

    before = tokens()
    assert client.post("/search", json={"queries": ["the cat sat"]}).status_code == 200
    assert tokens() == before + 5

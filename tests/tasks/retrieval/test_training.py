"""Retrieval, end to end: queries with documents in, an encoder of vectors out, or two."""

import json
from pathlib import Path

import numpy as np
import pytest

import bert_jax
from bert_jax.data.runs import read_run
from bert_jax.errors import OptionError
from bert_jax.experiment.export import export


@pytest.fixture
def data(write_rows, make_queries):
    """The keys of `data` for 160 queries to train on, and 40 others."""
    train, validation = make_queries(160), make_queries(40, seed=1, negatives=4)
    return {
        "data__train": write_rows("train.jsonl", train),
        "data__validation": (str(write_rows("validation.jsonl", validation)),),
        "data__query_length": 8,
        "train__epochs": 6.0,
    }


QUERY, DOCUMENTS = "it was a cat", ["the sea was low .", "the cat was low ."]


@pytest.mark.slow
def test_one_encoder(train, data):
    result, workdir = train("retrieval", **data)
    assert result["ndcg@10"] > 0.9
    model = bert_jax.load(workdir / "model")
    assert model.report.complete
    assert [match.index for match in model.search(QUERY, DOCUMENTS)] == [1, 0]


@pytest.mark.slow
def test_two_encoders_with_a_projection_and_prompts(train, experiment, data, tmp_path):
    keys = {
        **data, "document_encoder__separate": True, "data__projection": 12,
        "data__normalize": True, "data__query_prompt": "one: ",
    }  # fmt: skip
    result, workdir = train("retrieval", **keys)
    assert result["ndcg@10"] > 0.9
    export(workdir, tmp_path / "documents", part="document")
    queries, documents = map(bert_jax.load, (workdir / "model", tmp_path / "documents"))
    assert queries.report.complete
    assert documents.report.complete
    assert queries.description.vectors.prompts == {"query": "one: "}
    vectors = queries.embed([QUERY], prompt="query")
    assert vectors.shape == (1, 12)
    far, near = (vectors @ documents.embed(DOCUMENTS).T)[0]
    assert near > far + 0.5
    # Each was trained on its side alone.
    other = (vectors @ queries.embed(DOCUMENTS).T)[0]
    assert abs(other - [far, near]).max() > 0.1
    of_run = experiment("retrieval", **keys)
    assert of_run.evaluate(workdir=workdir) == pytest.approx(result)
    with pytest.raises(OptionError, match="has the encoder of queries alone; give the directory"):
        of_run.evaluate(model=workdir / "model")
    # The two directories are evaluated as the run was.
    keys["document_encoder__init_from"] = str(tmp_path / "documents")
    output = tmp_path / "judged"
    same = experiment("retrieval", **keys)
    assert same.evaluate(model=workdir / "model", output=output) == pytest.approx(result)
    # So is one directory with both, which also begins another training.
    export(workdir, tmp_path / "both", part="both")
    assert of_run.evaluate(model=tmp_path / "both") == pytest.approx(result)
    keys |= {"init_from": str(tmp_path / "both"), "document_encoder__init_from": ""}
    steps = {"train__epochs": 0.0, "train__steps": 1, "optimizer__learning_rate": 1e-9}
    same_again, _ = train("retrieval", workdir="again", **keys | steps)
    assert same_again == pytest.approx(result)
    one = experiment("retrieval", **keys | {"document_encoder__separate": False})
    with pytest.raises(OptionError, match="queries and documents; take one by"):
        one.evaluate(model=tmp_path / "both")
    run, before = map(read_run, (output / "validation.run", workdir / "predictions/validation.run"))
    lines = Path(data["data__validation"][0]).read_text().splitlines()
    queries = [json.loads(line)["query"] for line in lines]
    assert run.keys() == before.keys() == {str(queries.index(query)) for query in queries}
    for query, scores in run.items():
        assert scores == pytest.approx(before[query], abs=1e-5)


@pytest.mark.slow
def test_both_encoders_are_read_by_sentence_transformers(train, data, tmp_path):
    peer = pytest.importorskip("sentence_transformers")
    _, workdir = train(
        "retrieval", **data | {"train__epochs": 0.0}, data__projection=12, data__normalize=True,
        data__query_prompt="one: ", document_encoder__separate=True, train__steps=2,
    )  # fmt: skip
    export(workdir, tmp_path / "documents", part="document")
    for directory, side in ((workdir / "model", "query"), (tmp_path / "documents", "document")):
        actual = bert_jax.load(directory).embed(DOCUMENTS, prompt=side)
        model = peer.SentenceTransformer(str(directory), device="cpu")
        expected = model.encode(DOCUMENTS, prompt_name=side)
        np.testing.assert_allclose(actual, expected, atol=1e-5)
    export(workdir, tmp_path / "both", part="both")
    model, peers = (
        bert_jax.load(tmp_path / "both"),
        peer.SentenceTransformer(str(tmp_path / "both")),
    )
    for side, encode in (("query", peers.encode_query), ("document", peers.encode_document)):
        actual = model.embed(DOCUMENTS, side=side)
        np.testing.assert_allclose(actual, encode(DOCUMENTS), atol=1e-5)

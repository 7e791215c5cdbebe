"""Indexes of the vectors of tokens: what is found, the files, changes, refusals."""

import dataclasses
import json

import numpy as np
import pyarrow.parquet as pq
import pytest

import bert_jax
from bert_jax.errors import UserError
from bert_jax.inference.index import Index
from bert_jax.inference.index_options import IndexOptions
from bert_jax.inference.open_qa import OpenQA
from bert_jax.models.heads.token_vectors import (
    APPEND,
    FIXED,
    MEAN_MAXSIM,
    PUNCTUATION,
    QueryExpansion,
    TokenVectors,
)
from bert_jax.models.vectors import Normalize
from tests.inference.index_files import QUERIES, TEXTS, contents, ids_of

pytestmark = pytest.mark.usefixtures("small_shards")

# As Stanford's: mask tokens fill up a query, and punctuation of documents does not count.
STANFORD = TokenVectors(
    modules=(Normalize(),),
    query_length=12,
    document_length=20,
    expansion=QueryExpansion(FIXED, 12),
    skipped_words=PUNCTUATION,
)
# As Hofstätter's: dot products of vectors of any length, with attended mask tokens.
HOFSTAETTER = TokenVectors(expansion=QueryExpansion(APPEND, 8, attend=True))
MEAN = TokenVectors(modules=(Normalize(),), similarity=MEAN_MAXSIM)


@pytest.fixture(scope="module")
def colbert(make_model):
    return of_kind(make_model("encoder"), STANFORD)


@pytest.fixture(scope="module")
def saved_colbert(colbert, tmp_path_factory):
    directory = tmp_path_factory.mktemp("models") / "colbert"
    colbert.save(directory)
    return bert_jax.load(directory)


def of_kind(model, vectors):
    description = dataclasses.replace(model.description, stored_vectors=vectors)
    return dataclasses.replace(model, description=description)


def maxsim_of_all(model, queries, texts):
    """By the definition, token by token, in double precision."""
    of_queries = model.token_vectors(queries, "query")
    scores = np.array([
        [sum(max(t @ d for d in text.vectors.astype(float)) for t in query.vectors.astype(float))
         for text in model.token_vectors(texts)]
        for query in of_queries
    ])  # fmt: skip
    if model.description.stored_vectors.similarity == MEAN_MAXSIM:
        scores /= [[len(query.vectors)] for query in of_queries]
    return scores


def check(found, expected, names, top_k):
    """Checks hits of queries against the scores of all documents with these names."""
    for hits, scores in zip(found, expected, strict=True):
        order = np.argsort(-scores)[:top_k]
        assert [hit.id for hit in hits] == [names[number] for number in order]
        np.testing.assert_allclose([hit.score for hit in hits], scores[order], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    "vectors",
    [
        pytest.param(STANFORD, id="cosine"),
        pytest.param(HOFSTAETTER, id="dot", marks=pytest.mark.slow),
        pytest.param(MEAN, id="mean", marks=pytest.mark.slow),
    ],
)
def test_equal_to_comparing_all_tokens_of_all_documents(make_model, vectors):
    model = of_kind(make_model("encoder"), vectors)
    index = model.index(TEXTS, options=IndexOptions(faiss="Flat", bm25="english"))
    expected = maxsim_of_all(model, QUERIES, TEXTS)
    names = [*map(str, range(10))]
    for searcher in (None, "maxsim", "maxsim:bm25", "maxsim:faiss=10"):
        check(index.search(QUERIES, 4, searcher=searcher), expected, names, 4)
    assert len(index.search(QUERIES, 99)[0]) == 10
    pairs = [(query, text) for query in QUERIES for text in TEXTS]
    np.testing.assert_allclose(index.similarities(pairs), expected.ravel(), rtol=1e-5)


def test_a_first_stage_finds_some_documents_which_are_compared_exactly(colbert):
    index = colbert.index(TEXTS, options=IndexOptions(faiss="Flat", bm25="english"))
    expected = maxsim_of_all(colbert, QUERIES, TEXTS)
    for stage in ("bm25", "faiss"):
        found = index.search(QUERIES, 2, searcher=f"maxsim:{stage}=3")
        assert all(found)
        for hits, scores in zip(found, expected, strict=True):
            assert [hit.score for hit in hits] == pytest.approx([scores[int(h.id)] for h in hits])
            assert scores[int(hits[0].id)] > np.median(scores)
    # One document has a word of the query, and three have another one: no more are compared.
    queries = ["a shell", "the warm sun"]
    words = ids_of(index.search(queries, searcher="bm25"))
    again = ids_of(index.search(queries, 3, searcher="maxsim:bm25=3"))
    assert [set(each) for each in again] == [{"6"}, {"2", "5", "9"}] == [set(w) for w in words]
    fused = index.search(QUERIES, 4, searcher="maxsim+bm25")
    assert fused == index.search(QUERIES, 4, searcher="maxsim:faiss=10+bm25")


def test_other_programs_read_the_shards(saved_colbert, tmp_path):
    path = tmp_path / "index"
    saved_colbert.index(TEXTS, path=path, options=IndexOptions(dtype="float16"))
    assert sorted(contents(path)) == [
        "index.json",
        *("maxsim/10/counts.npy", "maxsim/10/vectors.bin"),
        *(f"vectors/0000{number}.parquet" for number in range(3)),
    ]
    table = pq.read_table(path / "vectors", use_threads=False)
    kind = str(table.schema.field("vectors").type)
    assert kind == "list<element: fixed_size_list<element: halffloat>[16]>"
    for stored, text in zip(
        table.column("vectors").to_pylist(), saved_colbert.token_vectors(TEXTS), strict=True
    ):
        np.testing.assert_allclose(stored, text.vectors, atol=1e-3)
        assert "." not in text.tokens  # no punctuation, no padding
    index = Index.load(path)  # it loads its model
    expected = maxsim_of_all(saved_colbert, QUERIES, TEXTS)
    (hits, *_), (scores, *_) = index.search(QUERIES, 10), expected
    assert {hit.id: pytest.approx(scores[int(hit.id)], abs=0.02) for hit in hits} == {
        hit.id: hit.score for hit in hits
    }


def test_documents_are_deleted_and_added(saved_colbert, tmp_path):
    path = tmp_path / "index"
    index = saved_colbert.index(TEXTS, path=path, options=IndexOptions(faiss="Flat", bm25=""))
    index.delete(["0", "4", "8"])
    index.add(["the cat sat down", "a dog"], ids=["0", "new"])
    names = ["1", "2", "3", "5", "6", "7", "9", "0", "new"]
    texts = [*(TEXTS[int(each)] for each in names[:7]), "the cat sat down", "a dog"]
    expected = maxsim_of_all(saved_colbert, QUERIES, texts)
    for opened in (index, Index.load(path, saved_colbert)):
        assert len(opened) == 9
        for searcher in ("maxsim", "maxsim:faiss=9", "maxsim:bm25"):
            for top_k in (3, 50):
                check(opened.search(QUERIES, top_k, searcher=searcher), expected, names, top_k)
        (hits,) = opened.search(["the cat sat down"], 2, searcher="maxsim:faiss=2")
        assert hits[0].id == "0"
        (hits,) = opened.search(["dog"], 3, searcher="maxsim:bm25=3")
        assert {hit.id for hit in hits} == {"1", "new"}
    assert sorted(contents(path)) == [
        *("bm25/-12/postings/data.npy", "bm25/-12/postings/indices.npy"),
        *("bm25/-12/postings/indptr.npy", "bm25/-12/postings/postings.json"),
        *("bm25/-12/words.json", "deleted/3.npy", "faiss/Flat-12.faiss", "index.json"),
        *("maxsim/12/counts.npy", "maxsim/12/vectors.bin"),
        *(f"vectors/0000{number}.parquet" for number in range(4)),
    ]


def test_an_interrupted_index_is_continued_to_the_same_bytes(saved_colbert, tmp_path):
    def interrupted():
        yield from TEXTS[:7]
        raise KeyboardInterrupt

    options = IndexOptions(faiss="IVF2,Flat")
    saved_colbert.index(TEXTS, path=tmp_path / "whole", options=options)
    with pytest.raises(KeyboardInterrupt):
        saved_colbert.index(interrupted(), path=tmp_path / "index", options=options)
    assert sorted(contents(tmp_path / "index")) == ["index.json", "vectors/00000.parquet"]
    saved_colbert.index(TEXTS, path=tmp_path / "index", options=options)
    assert contents(tmp_path / "index") == contents(tmp_path / "whole")


@pytest.mark.parametrize(
    ("texts", "documents", "said"),
    [
        (TEXTS, 10, "about 10"),
        (iter(TEXTS), 1_000, "every 1,000"),  # their number is not known
        (iter(TEXTS[:3]), 3, "about 3"),
    ],
)
def test_the_size_is_said_before_vectors_are_made(colbert, capsys, texts, documents, said):
    index = colbert.index(texts, options=IndexOptions(dtype="float16"))
    tokens = next(index._files.vectors()).counts.mean()  # the shard that is sampled
    assert capsys.readouterr().err == (
        f"{said} documents × {tokens:.0f} tokens × 16 values × 2 bytes are "
        f"{tokens * documents * 16 * 2 / 1e6:.1f} MB, stored twice: in Parquet, and for the "
        "search\n"
    )


def test_bad_use_is_one_line(saved_colbert, make_model, model, tmp_path):
    path = tmp_path / "index"
    index = saved_colbert.index(TEXTS, path=path)
    dense = model.index(TEXTS, options=IndexOptions(pooling="mean"))
    plain, options = make_model("encoder"), IndexOptions
    no_tokens = "the files of the model name no vectors of tokens; give a model for late interact"
    for call, message in [
        (lambda: index.search(["a"], searcher="exact"), "of vectors of tokens, maxsim is exact"),
        (lambda: index.search(["a"], searcher="faiss"), "finds candidates alone; choose maxsim:fa"),
        (
            lambda: index.search(["a"], searcher="lance"),
            "lance; it is for one vector of each text, and here each token has one, or choose",
        ),
        (
            lambda: index.search(["a"], searcher="maxsim:faiss"),
            "index has no faiss to find candidates by; add it by `bert-jax index --output INDEX -",
        ),
        (lambda: index.search(["a"], searcher="maxsim:bm25=9"), "has no bm25 to find candidates"),
        (lambda: index.search(["a"], searcher="maxsim:k=9"), "'maxsim:k=9'; give maxsim, maxsim:"),
        (lambda: index.search(["a"], searcher="maxsim:bm25=0"), "'maxsim:bm25=0'; give maxsim, "),
        (lambda: index.search(["a"], prompt="query"), "prompt is 'query'; of late interaction, "),
        (
            lambda: dense.search(["a"], searcher="maxsim"),
            "maxsim; it is made of the vectors of a model such as ColBERT, or choose another sear",
        ),
        (lambda: Index.load(path, plain), "was made by another model; give the same model"),
        (lambda: Index.load(path, of_kind(plain, MEAN)), "was made by another model"),
        (lambda: saved_colbert.index(TEXTS, query_model=plain), no_tokens),
        (
            lambda: plain.index(TEXTS, query_model=saved_colbert),
            "the model makes other vectors, with the method token_vectors",
        ),
        (
            lambda: saved_colbert.index(TEXTS, options=options(similarity="cosine")),
            "similarity is 'cosine'; of vectors of tokens, it is maxsim",
        ),
        (
            lambda: saved_colbert.index(TEXTS, options=options(lance=True)),
            "lance is True; it is for one vector of each text, and here each token has one",
        ),
        (
            lambda: saved_colbert.index(TEXTS, options=options(prompt="a ")),
            "prompt is 'a '; of late interaction, the prompts are a part of the model; leave it o",
        ),
        (
            lambda: saved_colbert.index(["a"], ["x"], options=options(faiss="IVF9,Flat")),
            "FAISS refuses 'IVF9,Flat': .*training points",
        ),
        (
            lambda: saved_colbert.index(TEXTS, path=path, options=options(pooling="mean")),
            "index is an index with other options; give the same pooling",
        ),
    ]:
        with pytest.raises(UserError, match=message) as caught:
            call()
        assert "\n" not in str(caught.value)
    (path / "maxsim/10/vectors.bin").write_bytes(b"1234")
    damaged = "maxsim/10 is missing or damaged; remove it, and `bert-jax index --output .* makes it"
    with pytest.raises(UserError, match=damaged):
        Index.load(path, saved_colbert).search(QUERIES)


@pytest.mark.slow
def test_the_verbs_fuse_evaluate_and_mine_with_it(saved_colbert, make_model, tmp_path, capsys):
    (tmp_path / "corpus.jsonl").write_text(
        "".join(json.dumps({"_id": str(n), "text": text}) + "\n" for n, text in enumerate(TEXTS))
    )
    (tmp_path / "queries.jsonl").write_text(
        "".join(json.dumps({"_id": f"q{n}", "text": text}) + "\n" for n, text in enumerate(QUERIES))
    )
    best = maxsim_of_all(saved_colbert, QUERIES, TEXTS).argmax(axis=1)
    judgements = "".join(f"q{n}\t{number}\t1\n" for n, number in enumerate(best))
    (tmp_path / "qrels.tsv").write_text(f"query-id\tcorpus-id\tscore\n{judgements}")
    (tmp_path / "train.jsonl").write_text(
        json.dumps({"query": "the cat", "positives": [TEXTS[0]]}) + "\n"
    )

    def run(verb, *arguments):
        assert bert_jax.cli.main([verb, *map(str, arguments)]) == 0
        return json.loads(capsys.readouterr().out.splitlines()[-1])

    index, directory = tmp_path / "index", saved_colbert.origin.directory
    made = run("index", "--model", directory, "--input", tmp_path, "--output", index)
    assert made == {"documents": 10}
    files = ("--input", tmp_path, "--judgements", tmp_path / "qrels.tsv")
    scores = run("search", "--index", index, *files, "--output", tmp_path / "results.run")
    assert (scores["mrr@10"], scores["ndcg@10"]) == (1, 1)
    assert run("index", "--output", index, "--bm25", "--faiss", "Flat") == {"documents": 10}
    make_model("encoder").save(tmp_path / "model")
    bert_jax.load(tmp_path / "model").index(TEXTS, path=tmp_path / "dense")
    found = run("search", "--index", index, "--index", tmp_path / "dense", "--text", "warm")
    assert len(found["hits"]) == 10
    mined = tmp_path / "mined.jsonl"
    arguments = ("--input", tmp_path / "train.jsonl", "--output", mined, "--negatives", 1)
    run("mine", *arguments, "--model", directory, "--collection", tmp_path / "corpus.jsonl")
    (record,) = map(json.loads, mined.read_text().splitlines())
    (hits,) = Index.load(index, saved_colbert).search(["the cat"], 2)
    assert record["negatives"] == [next(hit.text for hit in hits if hit.id != "0")]


@pytest.mark.slow
def test_passages_are_found_and_answered_from(colbert, make_model):
    documents = [bert_jax.Document(f"d{n}", text, "the song") for n, text in enumerate(TEXTS)]
    index = colbert.index(documents, options=IndexOptions(passages=3))
    question_answering = OpenQA(index, make_model("question_answering"))
    (hits,) = index.search(["where was the cat ?"], 3)
    (passages,) = question_answering.retrieve(["where was the cat ?"], 3)
    assert [each.hit for each in passages] == hits
    assert question_answering.answer("where was the cat ?", 3).document in {
        hit.document for hit in hits
    }
    pairs = [("where was the cat ?", ("the song", hit.text)) for hit in hits]
    assert index.similarities(pairs) == pytest.approx([hit.score for hit in hits])

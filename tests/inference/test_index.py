"""Indexes: found documents, the files, refusals."""

import dataclasses
import json
from pathlib import Path

import faiss
import jax
import numpy as np
import pyarrow.parquet as pq
import pytest

import bert_jax
from bert_jax.errors import UserError
from bert_jax.inference.index import Index
from bert_jax.inference.index_options import IndexOptions
from bert_jax.models.heads.sparse_vectors import SparseVectors
from bert_jax.search.vector_files import VectorFiles
from bert_jax.tasks.sparse_vectors import dot_products
from tests.inference.index_files import QUERIES, TEXTS, contents, ids_of

pytestmark = pytest.mark.usefixtures("small_shards")


@pytest.mark.slow
@pytest.mark.parametrize("similarity", ["cosine", "euclidean"])
def test_both_searchers_find_what_comparing_all_vectors_finds(model, similarity):
    index = model.index(TEXTS, options=IndexOptions(similarity=similarity))
    texts, queries = (
        model.embed(each, normalize=similarity == "cosine").astype(np.float64)
        for each in (TEXTS, QUERIES)
    )
    differences = queries[:, None] - texts[None]
    expected = {
        "cosine": queries @ texts.T,
        "euclidean": -np.sqrt((differences**2).sum(axis=2)),
    }[similarity]
    order = np.argsort(-expected, axis=1)[:, :4]
    for searcher in ("exact", "faiss"):
        found = index.search(QUERIES, 4, searcher=searcher)
        assert ids_of(found) == [[str(number) for number in row] for row in order]
        assert [[hit.text for hit in hits] for hits in found] == [
            [TEXTS[number] for number in row] for row in order
        ]
        scores = [[hit.score for hit in hits] for hits in found]
        np.testing.assert_allclose(scores, np.take_along_axis(expected, order, 1), rtol=2e-5)
    assert len(index) == 10
    assert len(index.search(["the cat"], 99)[0]) == 10


@pytest.mark.slow
def test_other_programs_read_the_shards(saved, tmp_path):
    documents = [
        bert_jax.Document(f"d{n}", text, "the sea" * (n == 1)) for n, text in enumerate(TEXTS)
    ]
    saved.index(documents, path=tmp_path / "index", options=IndexOptions(dtype="float16"))
    assert sorted(contents(tmp_path / "index")) == [
        "faiss/Flat-10.faiss",
        "index.json",
        *(f"vectors/0000{number}.parquet" for number in range(3)),
    ]
    table = pq.read_table(tmp_path / "index" / "vectors", use_threads=False)
    joined = [TEXTS[0], "the sea the dog ran up", *TEXTS[2:]]
    assert table.column("id").to_pylist() == [document.id for document in documents]
    assert table.column("text").to_pylist() == TEXTS
    assert table.column("title").to_pylist() == ["", "the sea", *[""] * 8]
    assert str(table.schema.field("vector").type).startswith("fixed_size_list<element: halffloat")
    vectors = np.array(table.column("vector").to_pylist())
    np.testing.assert_allclose(vectors, saved.embed(joined, normalize=True), atol=1e-3)


def test_the_flat_index_has_the_bytes_that_faiss_writes(saved, tmp_path):
    index = saved.index(
        TEXTS, path=tmp_path / "index", options=IndexOptions(similarity="manhattan")
    )
    flat = faiss.IndexFlat(16, faiss.METRIC_L1)
    flat.add(np.concatenate(list(index._files.vectors())))
    faiss.write_index(flat, str(tmp_path / "flat"))
    name = "faiss/Flat-10.faiss"
    assert contents(index.directory)[name] == (tmp_path / "flat").read_bytes()


def test_shards_that_are_read_one_after_the_other_do_not_stay_in_memory(saved, tmp_path):
    """The pages of a file that is mapped count as memory of the process."""
    saved.index(TEXTS, path=tmp_path / "index")
    files = VectorFiles.open(tmp_path / "index")

    def is_mapped():
        return str(tmp_path / "index" / "vectors") in Path("/proc/self/maps").read_text()

    assert sum(map(len, files.vectors())) == len(TEXTS)
    assert not is_mapped()
    assert files.documents([0])[0]["text"] == TEXTS[0]
    assert is_mapped()  # for the next hit


def test_words_are_searched_and_fused_with_vectors(saved, tmp_path):
    index = saved.index(TEXTS, path=tmp_path / "index", options=IndexOptions(bm25="english"))
    # "the" is a stop word, and the stem of "boys" is "boy".
    found = index.search(["the boy", "warm dogs", "the"], searcher="bm25")
    assert ids_of(found) == [["4"], ["8", "1", "2", "5", "9"], []]
    longer = saved.index(TEXTS, options=IndexOptions(bm25="english:b=0")).search(
        ["dogs"], searcher="bm25"
    )
    assert ids_of(longer) == [["1", "8"]]  # where the length does not count
    index.delete(["8"])
    index.add(["two dogs", "dogs , dogs"])
    for opened in (index, Index.load(tmp_path / "index")):
        assert ids_of(opened.search(["dog"], searcher="bm25")) == [["11", "10", "1"]]
    (words,), (vectors,), (fused,) = (
        index.search(["warm dogs"], 12, searcher=name) for name in ("bm25", "faiss", "faiss+bm25")
    )
    expected = {
        hit.id: sum(
            1 / (61 + [each.id for each in hits].index(hit.id))
            for hits in (words, vectors)
            if hit.id in [each.id for each in hits]
        )
        for hit in vectors
    }
    assert {hit.id: pytest.approx(hit.score) for hit in fused} == expected
    assert [hit.score for hit in fused] == sorted((hit.score for hit in fused), reverse=True)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["cosine", "dot", "euclidean", "sparse"])
def test_a_pair_is_as_similar_as_a_hit(model, make_model, kind):
    if kind == "sparse":
        of_words = make_model("masked_lm")
        description = dataclasses.replace(of_words.description, stored_vectors=SparseVectors())
        index = dataclasses.replace(of_words, description=description).index(TEXTS)
    else:
        index = model.index(TEXTS, options=IndexOptions(similarity=kind))
    found = index.search(QUERIES, 3)
    pairs = [(query, hit.text) for query, hits in zip(QUERIES, found, strict=True) for hit in hits]
    expected = [hit.score for hits in found for hit in hits]
    assert index.similarities(pairs) == pytest.approx(expected, rel=1e-5)
    assert index.similarities([]) == []


@pytest.mark.slow
def test_sparse_vectors_are_searched(make_model, tmp_path):
    model = make_model("masked_lm")
    description = dataclasses.replace(model.description, stored_vectors=SparseVectors())
    splade = dataclasses.replace(model, description=description)
    index = splade.index(TEXTS, path=tmp_path / "index")
    queries, texts = splade.sparse_vectors(QUERIES), splade.sparse_vectors(TEXTS)
    expected = dot_products(queries, texts)
    order = np.argsort(-expected, axis=1, kind="stable")
    for opened in (index, Index.load(tmp_path / "index", splade)):
        found = opened.search(QUERIES)
        assert ids_of(found) == [[str(number) for number in row] for row in order]
        scores = [[hit.score for hit in hits] for hits in found]
        np.testing.assert_allclose(scores, np.take_along_axis(expected, order, 1), rtol=1e-5)
    index.delete(["0"])
    index.add(["the cat"], ids=["0"])
    assert len(index.search(QUERIES[:1])[0]) == 10
    table = pq.read_table(tmp_path / "index" / "vectors")
    weights = dict(
        zip(table.column("words")[1].as_py(), table.column("weights")[1].as_py(), strict=True)
    )
    assert weights == pytest.approx(
        dict(zip(texts[1].ids, texts[1].weights, strict=True)), abs=1e-6
    )
    with pytest.raises(UserError, match="of sparse vectors, sparse is exact"):
        index.search(QUERIES, searcher="exact")
    with pytest.raises(UserError, match="faiss; it is for vectors that are not sparse, or choose"):
        index.search(QUERIES, searcher="faiss")
    with pytest.raises(UserError, match="lance is True; it is for vectors that are not"):
        splade.index(TEXTS, options=IndexOptions(lance=True))
    with pytest.raises(UserError, match="similarity is 'cosine'; of sparse vectors, it is dot"):
        splade.index(TEXTS, options=IndexOptions(similarity="cosine"))


def test_the_model_of_queries_may_be_another_one(saved, make_model, tmp_path):
    questions = make_model("classification", num_labels=2)
    saved.index(
        TEXTS,
        path=tmp_path / "index",
        query_model=questions,
        options=IndexOptions(similarity="dot", pooling="mean"),
    )
    expected = questions.embed(["the sea"]) @ saved.embed(TEXTS).T
    (hits,) = Index.load(tmp_path / "index", questions).search(["the sea"], 1)
    assert hits[0].id == str(expected.argmax())
    with pytest.raises(UserError, match="was made by another model; give the same model, or make"):
        Index.load(tmp_path / "index", saved)
    with pytest.raises(UserError, match="its model was not loaded from files; give model, the one"):
        Index.load(tmp_path / "index").search(["the sea"])
    Index.load(tmp_path / "index", questions).add(["a shell"])  # by the model of the documents


@pytest.mark.parametrize(
    ("head", "name"),
    [("classification", "SequenceClassification"), ("question_answering", "QuestionAnswering")],
)
def test_a_model_of_another_task_needs_a_pooling(model, make_model, head, name):
    other = make_model(head)
    message = (
        f"this BertFor{name} was not trained to make vectors of texts, and has no files of "
        "sentence-transformers; give another model, or make an index with a pooling, such as mean"
    )
    with pytest.raises(UserError, match=message):
        other.index(TEXTS)
    with pytest.raises(UserError, match=message):
        model.index(TEXTS, query_model=other)
    index = other.index(TEXTS, options=IndexOptions(pooling="mean"))
    assert index.search(TEXTS[:1], 1)[0][0].id == "0"


@pytest.mark.parametrize(
    ("texts", "options", "message"),
    [
        ("the cat", {}, "the texts are one string, 'the cat'; give a list of strings"),
        ({"a": "the cat"}, {}, "the texts are one dict, {'a': 'the cat'}; give a list of strings"),
        (TEXTS, {"ids": "abc"}, "the ids are one string, 'abc'; give a list of strings"),
        (TEXTS[:3], {"ids": ["a", "b", "a"]}, "the id 'a' is of another document, too; give each"),
        (TEXTS[:2], {"ids": ["a", ""]}, "document 1 has no id; give every one its own"),
        (TEXTS[:2], {"ids": ["a", 7]}, "document 1: its id is 7, not a string"),
        (TEXTS[:2], {"ids": ["a"]}, "there are fewer ids than texts, or more; give one for each"),
        ([], {}, "there are no documents to index; give some"),
        (["a", " "], {}, "document '1' is empty; give it a text, or leave it out"),
        (["a", None], {}, "document 1: its text is None, not a string"),
        (
            [{"id": "a", "title": "b", "text": "c"}],
            {},
            "document 0: its text is {'id': 'a', .*}, not a string; .* are of bert_jax.Document",
        ),
        (["a", "\ud83d"], {}, "document 1: its text is .*, character 0: U.D83D is half of a surro"),
        (TEXTS, {"dtype": "int8"}, "dtype is 'int8'; known are float32, float16"),
        (
            TEXTS,
            {"similarity": "cos"},
            "similarity is 'cos'; known are cosine, dot, euclidean, man",
        ),
        (TEXTS, {"faiss": "Foo"}, "FAISS refuses 'Foo': could not parse index string Foo; give wh"),
        (TEXTS, {"faiss": "IVF99,Flat"}, "FAISS refuses 'IVF99,Flat': .*Number of training points"),
    ],
)
def test_bad_input_is_one_line(model, tmp_path, texts, options, message):
    options = dict(options)
    ids = options.pop("ids", None)
    with pytest.raises(UserError, match=message) as caught:
        model.index(texts, ids, tmp_path / "index", options=IndexOptions(**options))
    assert "\n" not in str(caught.value)
    with pytest.raises(UserError):
        Index.load(tmp_path / "index")


def test_an_error_of_the_texts_is_not_called_one_of_the_ids(model):
    with pytest.raises(ValueError, match="invalid literal for int"):
        model.index(map(int, ["x"]), ids=["a"])


def test_a_vector_beyond_the_range_of_float16_is_refused(model):
    large = dataclasses.replace(model, params=jax.tree.map(lambda leaf: leaf * 1e6, model.params))
    with pytest.raises(UserError, match="document 'a': its vector is not finite in float16; check"):
        large.index(["the cat"], ids=["a"], options=IndexOptions(similarity="dot", dtype="float16"))


def test_bad_use_of_an_index_is_one_line(saved, tmp_path):
    path = tmp_path / "index"
    index = saved.index(TEXTS, path=path, options=IndexOptions(faiss=""))
    for call, message in [
        (lambda: index.search("the cat"), "the texts are one string, 'the cat'; give a list"),
        (
            lambda: index.search(["the cat", " "]),
            "example 1: the query is empty; give it a text, or",
        ),
        (lambda: index.search(["the cat"], 0), "top_k is 0; it must be at least 1"),
        (
            lambda: index.search(["a"], searcher="hnsw"),
            "searcher is 'hnsw'; known are exact, faiss, lan",
        ),
        (
            lambda: index.search(["a"], searcher="faiss"),
            "faiss; add it by `bert-jax index --output INDEX --faiss Flat`, or choose another",
        ),
        (
            lambda: index.search(["a"], searcher="exact+bm25+exact"),
            r"searcher is 'exact\+bm25\+exact'; give each one once",
        ),
        (lambda: index.delete(["7", "x", "y"]), "index has no document x, y"),
        (
            lambda: index.add(["a"], ids=["7"]),
            "the id '7' is of another document, too; give each document i",
        ),
        (
            lambda: saved.index(
                TEXTS, path=path, options=IndexOptions(prompt="the ", store_texts=False)
            ),
            "index is an index with other options; give the same prompt, store_texts, or another d",
        ),
        (
            lambda: index.search(["a"], searcher="exact:x=1"),
            "searcher is 'exact:x=1'; an exact search has recall_target=X",
        ),
        (lambda: saved.index(TEXTS, path=tmp_path), "has files of something else; give another"),
    ]:
        with pytest.raises(UserError, match=message):
            call()
    assert len(Index.load(path)) == 10
    shard = path / "vectors/00001.parquet"
    whole = shard.read_bytes()
    vectors = pq.read_table(shard).column("vector").combine_chunks().flatten()
    shard.write_bytes(whole[:-1])
    with pytest.raises(UserError, match=r"vectors/00001\.parquet missing or not as written; copy"):
        Index.load(path)
    at = whole.index(vectors.to_numpy()[:2].tobytes())
    shard.write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
    with pytest.raises(
        UserError, match=r"vectors/00001\.parquet is missing or damaged; copy the index"
    ):
        list(Index.load(path)._files.vectors())
    contents = (path / "index.json").read_text()
    (path / "index.json").write_text(contents.replace("vectors/00001", "../00001"))
    with pytest.raises(UserError, match=r"index\.json names '\.\./00001\.parquet', which is not"):
        Index.load(path)
    (path / "index.json").write_text(json.dumps({"shards": 7}))
    with pytest.raises(UserError, match=r"index\.json is damaged; copy the index again"):
        Index.load(path)


def test_passages_of_documents_are_found_with_their_place(model):
    documents = [
        bert_jax.Document("a", " the cat sat  on the mat . it was warm", "Cats"),
        bert_jax.Document("b", "a sea"),
        bert_jax.Document("c", "", "Trees"),
    ]
    index = model.index(documents, options=IndexOptions(passages=4))
    index.add([bert_jax.Document("d", "the dog ran up a tree")])
    with pytest.raises(UserError, match="document 'e' is empty"):
        index.add([bert_jax.Document("e", " ")])
    found = {hit.id: hit for hit in index.search(["the cat"], 99)[0]}
    assert {(hit.id, hit.title, hit.text, hit.document, hit.start) for hit in found.values()} == {
        ("a#0", "Cats", "the cat sat  on", "a", 1),
        ("a#1", "Cats", "the mat . it", "a", 17),
        ("a#2", "Cats", "was warm", "a", 30),
        ("b#0", "", "a sea", "b", 0),
        ("c#0", "Trees", "", "c", 0),
        ("d#0", "", "the dog ran up", "d", 0),
        ("d#1", "", "a tree", "d", 15),
    }
    # The vector is that of the title with the text.
    (best,) = index.search(["Cats the mat . it"], 1)[0]
    assert (best.id, best.score) == ("a#1", pytest.approx(1, abs=1e-5))
    index.delete(["a", "d"])
    assert sorted(hit.id for hit in index.search(["the cat"], 99)[0]) == ["b#0", "c#0"]


def test_a_title_is_joined_with_the_text_or_a_text_of_its_own_or_left_out(model):
    documents = [
        bert_jax.Document("a", "a tree", "the cat"),
        bert_jax.Document("b", "the cat a tree"),
    ]
    query = model.embed(["it was"])[0]
    forms = {"join": "the cat a tree", "pair": ("the cat", "a tree"), "omit": "a tree"}
    for titles, first in forms.items():
        expected = model.embed([first, "the cat a tree"]) @ query
        index = model.index(
            documents, options=IndexOptions(titles=titles, similarity="dot", bm25="english")
        )
        hits = index.search(["it was"])[0]
        scores = {hit.id: hit.score for hit in hits}
        assert [scores["a"], scores["b"]] == pytest.approx(expected, abs=1e-5)
        pair = ("it was", ("the cat", "a tree"))
        assert index.similarities([pair]) == pytest.approx(expected[:1], abs=1e-5)
        by_words = ["b"] if titles == "omit" else ["a", "b"]
        assert ids_of(index.search(["cat"], searcher="bm25")) == [by_words]
    with pytest.raises(UserError, match="document 'c' is empty; give it a text, or leave it out"):
        model.index([bert_jax.Document("c", "", "the cat")], options=IndexOptions(titles="omit"))

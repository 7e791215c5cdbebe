"""The search by MaxSim: by hand, and against all products of random vectors."""

import dataclasses

import numpy as np
import pytest

from bert_jax.search import maxsim, searchers, vector_writing
from bert_jax.search.maxsim import MaxSimSearcher
from bert_jax.search.vector_files import TokenArrays, VectorFiles
from bert_jax.search.vector_writing import Block


@pytest.fixture
def files_of(tmp_path):
    """Makes the files of documents, each an array of vectors."""

    def make(documents, per_shard=7, similarity="maxsim", dtype="float32", **options):
        width = documents[0].shape[1]
        settings = {"kind": "tokens", "width": width, "dtype": dtype, "similarity": similarity}
        settings["titles"] = "omit"
        names = [f"word{number}" for number in range(len(documents))]
        blocks = [
            Block(start, ids, ids, {"id": ids, "text": ids})
            for start in range(0, len(names), per_shard)
            if (ids := names[start : start + per_shard])
        ]
        paths = {"model": "", "query_model": ""}
        contents = vector_writing.open_for_writing(tmp_path / "index", settings, paths)
        contents = vector_writing.write_shards(
            tmp_path / "index",
            contents,
            0,
            blocks,
            lambda block: TokenArrays.joined(
                documents[block.first : block.first + len(block.ids)], width
            ),
        )
        contents = searchers.make(VectorFiles(tmp_path / "index", contents), options)
        contents = dataclasses.replace(contents, is_complete=True)
        vector_writing.commit(tmp_path / "index", contents)
        return VectorFiles.open(tmp_path / "index")

    return make


def test_candidates_of_tokens_by_hand(files_of):
    documents = [np.float32([each]) for each in [(3, 0), (0, 3), (2, 2), (1, 1), (2.5, -9)]]
    files = files_of(documents, maxsim="", faiss="Flat")
    query = ("", np.eye(2, dtype=np.float32))

    def search(parameters, top_k):
        scores, numbers = MaxSimSearcher(files, parameters).search([query], top_k)
        return list(zip(numbers[0].tolist(), scores[0].tolist(), strict=True))

    # The first vector finds documents 0 and 4, with 3 and 2.5, the second one 1 and 2, with 3 and
    # 2. So 0 counts as 3 + 2, 4 as 2.5 + 2, 1 as 2.5 + 3, and 2 as 2.5 + 2: the best are 0 and 1.
    assert search("faiss=2", 2) == [(0, 3), (1, 3)]
    # With three, 2 has 2 + 2 = 4, as 0 has 3 + 1, and is before 4 with 2.5 + 1.
    assert search("faiss=3", 3) == [(2, 4), (0, 3), (1, 3)]
    everything = [(2, 4), (0, 3), (1, 3), (3, 2), (4, -6.5), (-1, -np.inf)]
    assert search("", 6) == search("faiss=5", 6) == everything


@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize("similarity", ["maxsim", "meanmaxsim"])
def test_equal_to_all_products(files_of, monkeypatch, similarity, dtype):
    monkeypatch.setattr(maxsim, "_ROWS", 40)  # a few documents at once
    rng = np.random.default_rng(0)
    documents = [
        rng.standard_normal((count, 8)).astype(dtype).astype(np.float32)
        for count in (*rng.integers(1, 30, 48), 0, 130)
    ]
    rng.shuffle(documents)
    queries = [rng.standard_normal((count, 8)).astype(np.float32) for count in (1, 5, 32)]
    files = files_of(documents, similarity=similarity, dtype=dtype, maxsim="")
    expected = np.array([
        [(q.astype(float) @ d.T).max(axis=1).sum() if len(d) else -1e9 for d in documents]
        for q in queries
    ])  # fmt: skip
    if similarity == "meanmaxsim":
        expected /= [[len(query)] for query in queries]
    for deleted in ([], [0, 1, 17, 49]):
        if deleted:
            contents = vector_writing.write_deleted(files.directory, files.contents, deleted)
            vector_writing.commit(files.directory, contents)
            files = VectorFiles.open(files.directory)
            expected[:, deleted] = -np.inf
        scores, numbers = MaxSimSearcher(files).search([("", each) for each in queries], 60)
        assert (scores.dtype, numbers.dtype, numbers.shape) == (np.float32, np.int64, (3, 60))
        count = 50 - len(deleted)
        order = np.argsort(-expected, axis=1)[:, :count]
        np.testing.assert_array_equal(numbers[:, :count], order)
        np.testing.assert_allclose(
            scores[:, :count], np.take_along_axis(expected, order, axis=1), rtol=1e-5, atol=1e-5
        )
        assert (numbers[:, count:] == -1).all()


def test_faiss_finds_nearly_what_comparing_all_finds(files_of):
    rng = np.random.default_rng(1)
    documents = [
        each / np.linalg.norm(each, axis=1, keepdims=True)
        for each in rng.standard_normal((300, 9, 16)).astype(np.float32)
    ]
    # Queries are tokens of a document with noise.
    wanted = rng.choice(300, 20, replace=False)
    queries = [
        ("", documents[each][:6] + 0.2 * rng.standard_normal((6, 16)).astype(np.float32))
        for each in wanted
    ]
    files = files_of(documents, per_shard=64, maxsim="", faiss="IVF8,Flat")
    scores, numbers = MaxSimSearcher(files).search(queries, 3)
    assert numbers[:, 0].tolist() == wanted.tolist()
    found = MaxSimSearcher(files, "faiss=20,nprobe=4").search(queries, 3)
    assert found[1][:, 0].tolist() == wanted.tolist()
    np.testing.assert_allclose(found[0][:, 0], scores[:, 0], rtol=1e-5)

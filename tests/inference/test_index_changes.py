"""Indexes that change: documents added and deleted, searchers added, interruptions."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

import bert_jax
from bert_jax.errors import UserError
from bert_jax.inference.index import Index
from bert_jax.inference.index_options import IndexOptions
from tests.inference.index_files import QUERIES, TEXTS, contents, ids_of

pytestmark = pytest.mark.usefixtures("small_shards")


@pytest.mark.slow
def test_documents_are_deleted_and_added(saved, tmp_path):
    path = tmp_path / "index"
    index = saved.index(TEXTS, path=path, options=IndexOptions(faiss="IVF2,Flat"))
    index.delete(["0", "4", "8"])
    index.add(["the cat sat down", "a dog"], ids=["0", "new"])
    index.add([TEXTS[4]])
    expected = {**dict(zip(map(str, range(10)), TEXTS, strict=True)), "0": "the cat sat down"}
    expected |= {"new": "a dog", "12": TEXTS[4]}
    for gone in ("4", "8"):
        del expected[gone]
    for opened in (index, Index.load(path)):
        assert len(opened) == 10
        for searcher in ("exact", "faiss:nprobe=2"):
            for top_k in (3, 50):
                (hits,) = opened.search(["the cat sat down"], top_k, searcher=searcher)
                assert hits[0].id == "0"
                assert len(hits) == min(top_k, 10)
                assert {hit.id: hit.text for hit in hits}.items() <= expected.items()
    # What no longer counts is removed.
    assert sorted(contents(path)) == [
        "deleted/3.npy",
        "faiss/IVF2,Flat-13.faiss",
        "index.json",
        *(f"vectors/0000{number}.parquet" for number in range(5)),
    ]


def ended_after(texts, count):
    """Ends like a killed process after some texts."""
    yield from texts[:count]
    raise KeyboardInterrupt


def test_an_index_that_another_process_has_changed_is_not_called_damaged(saved, tmp_path):
    path = tmp_path / "index"
    saved.index(TEXTS, path=path, options=IndexOptions(bm25="english")).delete(["0"])
    earlier, unread, other = (Index.load(path, saved) for _ in range(3))
    assert len(earlier) == 9  # it has read which are deleted
    other.add(["the song"], ids=["new"])
    other.delete(["1"])
    changed = "index has changed since it was opened; load it again"
    for index, name in ((earlier, "faiss"), (earlier, "bm25"), (unread, "exact")):
        with pytest.raises(UserError, match=changed):
            index.search(QUERIES, searcher=name)
    for folder, name in (("faiss", "faiss/Flat-11.faiss"), ("bm25", "bm25/english-11")):
        for file in filter(Path.is_file, (path / folder).rglob("*")):
            file.write_bytes(b"")
        message = f"{name} is missing or damaged; remove it, and `bert-jax index --output {path}` m"
        with pytest.raises(UserError, match=message):
            Index.load(path, saved).search(QUERIES, searcher=folder)


@pytest.mark.slow
def test_a_repeated_index_keeps_its_searchers(saved, tmp_path):
    path = tmp_path / "index"
    saved.index(TEXTS, path=path, options=IndexOptions(faiss="IVF2,Flat", bm25="english"))
    before = contents(path)
    shutil.rmtree(path / "faiss")
    saved.index(TEXTS, path=path)
    assert contents(path) == before
    index = saved.index(TEXTS, path=path, options=IndexOptions(lance=True))
    assert ids_of(index.search(["the boys"], searcher="bm25")) == [["4"]]
    assert len(index.search(["the boys"], searcher="faiss:nprobe=2")[0]) == 10
    assert len(index.search(["the boys"], searcher="lance")[0]) == 10
    # Another option replaces a searcher, and "" removes FAISS.
    saved.index(TEXTS, path=path, options=IndexOptions(faiss="", bm25=""))
    assert {name.split("/")[0] for name in contents(path)} == {
        *("bm25", "index.json", "lance", "vectors")
    }
    assert json.loads((path / "index.json").read_text())["options"] == {"bm25": "", "lance": ""}


def test_options_that_differ_in_signs_alone_are_not_the_same(saved, tmp_path):
    options = [IndexOptions(bm25=f"english:k1={k1}") for k1 in ("5", ".5")]
    for each in options:
        replaced = saved.index(TEXTS, path=tmp_path / "index", options=each)
    fresh = saved.index(TEXTS, options=each)
    assert replaced.search(["a shell"], searcher="bm25") == fresh.search(
        ["a shell"], searcher="bm25"
    )


@pytest.mark.slow
def test_searchers_are_added_to_stored_vectors_and_made_again(saved, tmp_path):
    path = tmp_path / "index"
    index = saved.index(TEXTS[:5], path=path)
    index.add(TEXTS[5:])
    index.delete(["4"])
    shards = {name: each for name, each in contents(path).items() if "vectors/" in name}
    unloaded = Index.load(path)
    unloaded.add_searchers(faiss="IVF2,Flat", bm25="english", lance=True)
    assert ids_of(unloaded.search(["shell boys"], searcher="bm25")) == [["6"]]
    made = contents(path)
    assert made.items() >= shards.items()
    (expected,) = ids_of(unloaded.search(QUERIES[:1], searcher="exact"))
    for name in ("faiss", "bm25", "lance"):
        shutil.rmtree(path / name)
    Index.load(path).add_searchers()
    again = contents(path)
    assert {n: each for n, each in again.items() if not n.startswith(("lance", "index"))} == {
        n: each for n, each in made.items() if not n.startswith(("lance", "index"))
    }
    for searcher in ("faiss:nprobe=2", "lance"):
        assert ids_of(Index.load(path).search(QUERIES[:1], searcher=searcher)) == [expected]
    shutil.rmtree(path / "faiss")
    index = Index.load(path, saved)
    index.add(["the cat sat down"])  # trains FAISS's index again
    assert index.search(QUERIES[:1], 1, searcher="faiss:nprobe=2")[0][0].id == "10"


def test_vectors_are_kept_where_faiss_cannot_be_trained(saved, tmp_path):
    path = tmp_path / "index"
    kept = "; the vectors are kept: the same command with another faiss goes on from them"
    with pytest.raises(UserError, match=kept):
        saved.index(TEXTS, path=path, options=IndexOptions(faiss="IVF99,Flat"))
    shard = path / "vectors/00000.parquet"
    before = shard.stat().st_mtime_ns
    saved.index(TEXTS, path=path, options=IndexOptions(faiss="IVF2,Flat"))
    assert shard.stat().st_mtime_ns == before
    with pytest.raises(UserError, match=kept):
        Index.load(path).add_searchers(faiss="IVF99,Flat")
    assert len(Index.load(path, saved).search(["warm"], searcher="faiss:nprobe=2")[0]) == 10


def test_an_interrupted_index_is_continued_to_the_same_bytes(saved, tmp_path, monkeypatch):
    saved.index(TEXTS, path=tmp_path / "whole")
    path = tmp_path / "index"
    with pytest.raises(KeyboardInterrupt):
        saved.index(ended_after(TEXTS, 7), path=path)
    assert sorted(contents(path)) == ["index.json", "vectors/00000.parquet"]
    with pytest.raises(UserError, match=r"index is half-written; repeat the `bert-jax index` that"):
        Index.load(path)
    before = (path / "vectors/00000.parquet").stat().st_mtime_ns
    with pytest.raises(UserError, match=r"collection has changed since vectors/00000\.parquet was"):
        saved.index(["the cat", *TEXTS], path=path)
    saved.index(TEXTS, path=path)
    assert contents(path) == contents(tmp_path / "whole")
    assert (path / "vectors/00000.parquet").stat().st_mtime_ns == before
    # The same call again finds everything done.
    saved.index(TEXTS, path=path)
    assert contents(path) == contents(tmp_path / "whole")
    for changed in (TEXTS[:9], [*TEXTS, "more"], [*TEXTS[:3], "more", *TEXTS[4:]]):
        with pytest.raises(UserError, match="the collection has changed since vectors/0000"):
            saved.index(changed, path=path)
    assert contents(path) == contents(tmp_path / "whole")


def test_a_collection_without_the_documents_that_were_added(saved, tmp_path):
    path = tmp_path / "index"
    saved.index(TEXTS[:6], path=path).add(TEXTS[6:7])
    before = contents(path)
    with pytest.raises(UserError, match="index has more documents than the 6 of the collection; "):
        saved.index(TEXTS[:6], path=path, options=IndexOptions(bm25="english"))
    with pytest.raises(UserError, match="00001.parquet was made of it, from document number 4 on"):
        saved.index([*TEXTS[:5], "other"], path=path)
    assert contents(path) == before


def test_an_interrupted_addition_leaves_the_index_as_it_was(saved, tmp_path):
    path = tmp_path / "index"
    index = saved.index(TEXTS[:4], path=path)
    with pytest.raises(KeyboardInterrupt):
        index.add(ended_after(TEXTS[4:], 5))
    assert len(Index.load(path)) == 4
    Index.load(path).add(TEXTS[4:])
    whole = tmp_path / "whole"
    saved.index(TEXTS[:4], path=whole).add(TEXTS[4:])
    assert contents(path) == contents(whole)


def test_documents_are_added_in_the_precision_of_the_index(saved, tmp_path):
    half = bert_jax.load(saved.origin.directory, precision="bfloat16")
    half.index(["the cat sat"], path=tmp_path / "index", options=IndexOptions(faiss=""))
    index = Index.load(tmp_path / "index", saved)
    index.add(["the cat sat"])
    first, second = index._files.vectors()
    np.testing.assert_array_equal(first, second)
    with pytest.raises(
        UserError, match="index is an index with other options; give the same precision, or"
    ):
        saved.index(["the cat sat"], path=tmp_path / "index")

"""The inverted index by hand, against a product with every document, and its files."""

import mmap

import numpy as np
import pytest
from scipy.sparse import csr_array, random_array

from bert_jax.errors import UserError
from bert_jax.search.sparse import SparseSearcher, matrix

DOCUMENTS = [([0, 2], [1.0, 2.0]), ([], []), ([2], [2.0]), ([1], [3.0])]


def test_only_documents_with_a_word_of_the_query_are_found_and_ties_by_number():
    searcher = SparseSearcher(matrix(DOCUMENTS, 4))
    scores, numbers = searcher.search(matrix([([2, 3], [2.0, 9.0]), ([0, 1], [1, 1])], 4), 3)
    assert scores.tolist() == [[4, 4, -np.inf], [3, 1, -np.inf]]
    assert numbers.tolist() == [[0, 2, -1], [3, 0, -1]]
    assert (scores.dtype, numbers.dtype, len(searcher)) == (np.float32, np.int64, 4)


@pytest.mark.parametrize("k", [1, 7, 300])
def test_equal_to_the_products_with_all_documents(k, tmp_path):
    rng = np.random.default_rng(k)

    def draw(rows):  # few distinct weights, so there are ties
        return random_array(
            (rows, 40), density=0.1, rng=rng, data_sampler=lambda size: rng.integers(1, 4, size)
        )

    documents, queries = draw(200), draw(35)
    searcher = SparseSearcher(documents)
    scores, numbers = searcher.search(queries, k)
    products = (queries @ documents.T).toarray()
    for row, product in enumerate(products):
        expected = [n for n in np.argsort(-product, kind="stable") if product[n]][:k]
        assert numbers[row].tolist() == expected + [-1] * (k - len(expected))
        assert scores[row, : len(expected)].tolist() == product[expected].tolist()
    searcher.save(tmp_path / "sparse")
    loaded = SparseSearcher.load(tmp_path / "sparse")
    memory = loaded._postings.data
    while isinstance(memory, np.ndarray):
        memory = memory.base
    assert isinstance(memory, mmap.mmap)  # the weights stay on the disk
    assert [array.tolist() for array in loaded.search(queries, k)] == [
        scores.tolist(), numbers.tolist(),
    ]  # fmt: skip


def test_what_is_refused(tmp_path):
    with pytest.raises(UserError, match="document 1 has a weight that is not finite"):
        SparseSearcher(csr_array(np.array([[0, 1.0], [1, np.nan]])))
    searcher = SparseSearcher(matrix(DOCUMENTS, 4))
    with pytest.raises(UserError, match="the queries have 3 words, the index 4: use the model"):
        searcher.search(matrix([([0], [1.0])], 3))
    searcher.save(tmp_path)
    (tmp_path / "data.npy").write_bytes((tmp_path / "data.npy").read_bytes()[:-4])
    with pytest.raises(UserError, match="is damaged: .*; make the index again"):
        SparseSearcher.load(tmp_path)
    (tmp_path / "postings.json").unlink()
    with pytest.raises(UserError, match=r"postings\.json does not exist; make the index again"):
        SparseSearcher.load(tmp_path)

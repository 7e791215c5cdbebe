"""BM25 by hand, against bm25s' own search, and its files."""

import json
import math

import bm25s
import numpy as np
import pytest

from bert_jax.errors import UserError
from bert_jax.search.bm25 import LANGUAGES, WordOptions, WordSearcher, _Words

TEXTS = ["The wings of a wing.", "", "Flows over wings", "a heated flow, 2 flows: x y Überschall"]


def test_scores_by_hand():
    # Without stop words and words of a letter: wing wing | | flow over wing | heat flow flow …
    searcher = WordSearcher.from_texts(TEXTS, WordOptions.parsed("english:k1=1.2,b=0.75"))
    scores, numbers = searcher.search(["winging flows and flows", "unknown"], 3)
    mean_length = (2 + 0 + 3 + 4) / 4
    idf = math.log(1 + (4 - 2 + 0.5) / (2 + 0.5))

    def part(frequency, length):
        return idf * frequency / (frequency + 1.2 * (0.25 + 0.75 * length / mean_length))

    assert numbers.tolist() == [[2, 3, 0], [-1, -1, -1]]
    expected = [part(1, 3) + 2 * part(1, 3), 2 * part(2, 4), part(2, 2)]
    np.testing.assert_allclose(scores[0], expected, rtol=1e-6)
    assert len(searcher) == 4


def test_words():
    assert _Words("english")(TEXTS[3]) == ["heat", "flow", "flow", "überschal"]
    assert _Words("")("The x of A_1's") == ["the", "of", "a_1"]
    assert _Words("german")("und die Häuser") == ["haus"]
    for language in LANGUAGES:
        assert len(_Words(language)._stop_words) > 30


def test_equal_to_the_search_of_bm25s_and_as_loaded(tmp_path):
    rng = np.random.default_rng(0)
    words = np.array([f"w{number}" for number in range(50)])
    texts, queries = (
        [" ".join(words[(50 * rng.random(rng.integers(1, 30)) ** 2).astype(int)]) for _ in range(n)]
        for n in (300, 20)
    )
    searcher = WordSearcher.from_texts(texts, WordOptions(language=""))
    scores, numbers = searcher.search(queries, 300)
    peer = bm25s.BM25(k1=0.9, b=0.4, method="lucene")
    split = [text.split() for text in texts]
    peer.index(split, show_progress=False)
    for row, query in enumerate(queries):
        all_scores = peer.get_scores(query.split())
        found = numbers[row][numbers[row] >= 0]
        assert sorted(found) == np.flatnonzero(all_scores).tolist()
        np.testing.assert_allclose(scores[row, : len(found)], all_scores[found], rtol=1e-5)
    searcher.save(tmp_path / "words")
    loaded = WordSearcher.load(tmp_path / "words")
    assert all(map(np.array_equal, loaded.search(queries, 300), (scores, numbers)))


def test_a_collection_without_words(tmp_path):
    WordSearcher.from_texts(["", "."]).save(tmp_path / "words")
    searcher = WordSearcher.load(tmp_path / "words")
    assert len(searcher) == 2
    assert searcher.search(["wing", ""], 2)[1].tolist() == [[-1, -1]] * 2


def test_what_is_refused(tmp_path):
    with pytest.raises(UserError, match="language is 'latin'; known are danish, dutch"):
        WordOptions(language="latin")
    with pytest.raises(UserError, match="bm25 is 'english:b=2'; its b: it must be at least 0"):
        WordOptions.parsed("english:b=2")
    for text in ("english:k2=1", "english:b=low", "english:k1", "english:language=german"):
        with pytest.raises(UserError, match=f"bm25 is '{text}'; it is a language, perhaps with"):
            WordOptions.parsed(text)
    WordSearcher.from_texts(TEXTS).save(tmp_path)
    (tmp_path / "words.json").write_text(json.dumps({"options": {"k2": 1}, "words": []}))
    with pytest.raises(UserError, match=r"words\.json is damaged; make the index again"):
        WordSearcher.load(tmp_path)

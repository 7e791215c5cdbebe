"""BM25 on the sets of an evaluation, the search by words that vectors should beat."""

from collections.abc import Mapping

import numpy as np

from bert_jax.data.examples import Text, texts_of
from bert_jax.metrics.ranking import Run
from bert_jax.search.bm25 import WordSearcher
from bert_jax.tasks.base.retrieval.sets import RankedSet


def word_run(ranked: RankedSet, collection: Mapping[str, Text], depth: int) -> Run:
    """The first documents of each query by BM25, for English; of a list all its documents."""
    documents = collection if ranked.documents is None else ranked.documents
    ids = np.array(list(documents), object)
    searcher = WordSearcher.from_texts(" ".join(texts_of(text)) for text in documents.values())
    run = {}
    for query, text in ranked.queries.items():
        # One query at a time: of a list, every document that shares a word has a score.
        (scores,), (numbers,) = searcher.search(
            [text], min(depth, len(ids)) if ranked.lists is None else len(ids)
        )
        score_of = dict(zip(ids[numbers[numbers >= 0]], map(float, scores), strict=False))
        if ranked.lists is not None:
            score_of = {document: score_of.get(document, 0.0) for document in ranked.lists[query]}
        run[query] = score_of
    return run

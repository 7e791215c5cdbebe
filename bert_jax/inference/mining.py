"""Hard negatives: documents that a search finds for a query, but that are not relevant to it.

`mining_rules` says which of them are chosen.
"""

import collections
import dataclasses
import functools
import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from bert_jax.data.examples import Candidates, Document, Relevance, Text, texts_of, with_title
from bert_jax.data.outputs import Layout, float32_repr, resumable_outputs, to_json
from bert_jax.data.readers.candidate_lists import distinct, joined, positives_first
from bert_jax.errors import OptionError
from bert_jax.inference.engine import Chunk
from bert_jax.inference.index import Index
from bert_jax.inference.mining_rules import (
    MiningOptions,
    Query,
    ScoredQuery,
    candidates_of,
    choose,
    positives,
)
from bert_jax.inference.ranking import score_chunks
from bert_jax.inference.streams import progress_bar
from bert_jax.search.bm25 import WordSearcher
from bert_jax.search.hits import Hit
from bert_jax.search.searchers import BM25
from bert_jax.tasks.base.predictor import Model
from bert_jax.tasks.ranking.predict import RankingPredictOptions, json_of

Similarities = Callable[[Sequence[tuple[str, Text]]], list[float]]

# Queries that are searched together.
_QUERIES = 256


@dataclasses.dataclass(frozen=True)
class Retriever:
    """Finds documents for queries, and compares documents with queries.

    Attributes:
        search: (queries, top_k) → the hits of each query.
        similarities: pairs of a query and a text → a score of each, as a hit's; None: only hits
            have scores.
        titles: how the title of a document is read, see `with_title`.
        passages: words of a passage; None: documents are whole.
    """

    search: Callable[[Sequence[str], int], list[list[Hit]]]
    similarities: Similarities | None = None
    titles: str = "join"
    passages: int | None = None


def index_retriever(index: Index, searcher: str | None = None, batch_size: int = 32) -> Retriever:
    """Finds documents of an index; for the arguments see `Index.search`."""
    search = functools.partial(index.search, searcher=searcher, batch_size=batch_size)
    similarities = functools.partial(index.similarities, batch_size=batch_size)
    compares_vectors = searcher is None or (searcher != BM25 and "+" not in searcher)
    return Retriever(
        search, similarities if compares_vectors else None, index.titles, index.passages
    )


def word_retriever(documents: Iterable[Document], titles: str = "join") -> Retriever:
    """Finds documents by their words, by BM25, in memory."""
    documents = list(documents)
    texts = (with_title(document.text, document.title, titles) for document in documents)
    searcher = WordSearcher.from_texts(" ".join(texts_of(text)) for text in texts)

    def search(queries: Sequence[str], top_k: int) -> list[list[Hit]]:
        ranked = zip(*(each.tolist() for each in searcher.search(queries, top_k)), strict=True)
        return [
            [
                Hit(documents[number].id, score, documents[number].text, documents[number].title)
                for score, number in zip(*row, strict=True)
                if number >= 0
            ]
            for row in ranked
        ]

    return Retriever(search, titles=titles)


def merged(examples: Iterable[Query], options: MiningOptions) -> list[Query]:
    """The queries; of those with equal texts, one with the documents of all, positives first.

    Of equal documents of a query, the one with the highest grade counts.

    Raises:
        OptionError: they have scores of a teacher, which negatives would not have.
    """

    def without_scores(example: Query) -> Query:
        if example.label.scores and not options.scores:
            rule = "give {scores} for new ones of all documents, or remove them"
            problem = f"{example.location}: the documents have scores, but negatives will not"
            raise OptionError("scores", None, rule, problem)
        return dataclasses.replace(example, label=Relevance(example.label.grades))

    queries = joined(map(without_scores, examples))
    return [distinct(positives_first(query)) for query in queries]


def positives_of(queries: Iterable[Query]) -> list[Document]:
    """The positives of all queries as a collection, each text once."""
    texts = dict.fromkeys(text for query in queries for text in positives(query))
    parts = map(texts_of, texts)
    return [Document(str(n), each[-1], " ".join(each[:-1])) for n, each in enumerate(parts)]


def mine(
    queries: Sequence[Query],
    retriever: Retriever,
    target: str,
    options: MiningOptions,
    how: RankingPredictOptions,
    *,
    reranker: Model | None = None,
    progress: bool = False,
) -> dict[str, Any]:
    """Writes queries with their documents and hard negatives, as files to train on.

    `_QUERIES` queries are searched together, so no array has a score for each query and document.
    A query without any negative is left out.

    Args:
        queries: queries with positives, see `merged`.
        retriever: finds documents.
        target: JSON lines, see `data.readers.ranking`; "-" for stdout. A file is complete, or does
            not exist; only one that bert_jax wrote is replaced.
        options: which documents are negatives.
        how: how the queries were read, and how the re-ranker computes.
        reranker: a cross-encoder, or another model of `LoadedModel.rank`; its scores of all
            candidates and positives replace the searcher's.
        progress: whether a progress bar is shown on stderr.

    Returns:
        Numbers of "queries" and "negatives" that are written, of queries with "fewer" negatives
        than asked for and "without" any, and of candidates that were "dropped", by the reason.

    Raises:
        OptionError: scores of positives are needed, and the searcher has none, or of other texts.
        UserError: no query gets a negative, or the documents have no texts.
    """
    options = options.within(queries, is_rescored=reranker is not None)
    counts, dropped = collections.Counter[str](), collections.Counter[str]()
    scored = _scored_queries(queries, retriever, options, how, reranker, dropped)
    is_graded = any(grade not in (0, 1) for query in queries for grade in query.label.grades)
    record = functools.partial(_record, is_graded=is_graded, has_scores=options.scores)
    with (
        progress_bar(lambda: len(queries), enabled=progress) as advance,
        resumable_outputs(target, [Layout()], request=None) as outputs,
    ):
        for number, each in enumerate(scored):
            advance(1)
            chosen = choose(each, options, number, dropped)
            if not chosen and len(positives(each.query)) == len(each.query.input.documents):
                counts["without"] += 1
                continue
            is_fewer = len(chosen) < options.negatives
            counts.update(queries=1, negatives=len(chosen), fewer=int(is_fewer))
            outputs.write("", to_json(record(each, chosen)) + "\n")
        if not counts["negatives"]:
            raise _without_negatives(target, +dropped)
    names = ("queries", "negatives", "fewer", "without")
    return {name: counts[name] for name in names} | {"dropped": dict(+dropped)}


def _without_negatives(target: str, dropped: collections.Counter[str]) -> OptionError:
    """The error where each document that was retrieved was dropped."""
    known = dropped.pop("known", 0)
    options = ", ".join(f"{{{name}}} ({count:,} dropped)" for name, count in dropped.items())
    return OptionError(
        next(iter(dropped), "negatives"),
        None,
        f"give more documents ({{collection}}, {{index}}){options and f', or change {options}'}",
        f"{target}: no query gets a negative; {known:,} of the documents that were retrieved are "
        "the queries' own",
    )


def _scored_queries(
    queries: Sequence[Query],
    retriever: Retriever,
    options: MiningOptions,
    how: RankingPredictOptions,
    reranker: Model | None,
    dropped: collections.Counter[str],
) -> Iterator[ScoredQuery]:
    """The queries with their candidates, and all scores that the options need."""
    blocks = _search_blocks(queries, retriever, options.range_max or 0, how.titles, dropped)
    if reranker is not None:
        score = functools.partial(score_chunks, reranker, options=how)
        return _rescore(itertools.chain.from_iterable(blocks), options, score)
    if options.scores or options.has_margin:
        similarities = _similarities(retriever, how.titles)
        blocks = (_add_vector_scores(each, options, similarities) for each in blocks)
    return itertools.chain.from_iterable(blocks)


def _similarities(retriever: Retriever, titles: str) -> Similarities:
    """Scores of positives, which are comparable with those of hits."""
    if retriever.similarities is None:
        rule = "leave out margins and {scores}, or give a {reranker}, whose scores count"
        problem = "BM25 and fused ranks have no score of a positive that is not retrieved"
        raise OptionError("searcher", BM25, rule, problem)
    if titles not in (retriever.titles, "pair"):  # of a pair, the index makes what it has
        rule = f"set {{titles={retriever.titles}}}"
        problem = f"the index was made with titles={retriever.titles}, the queries are read with "
        raise OptionError("titles", titles, rule, f"{problem}titles={titles}")
    return retriever.similarities


def _search_blocks(
    queries: Sequence[Query],
    retriever: Retriever,
    count: int,
    titles: str,
    dropped: collections.Counter[str],
) -> Iterator[list[ScoredQuery]]:
    """Lists of queries with their best `count` candidates and the scores of the searcher."""
    depth = count + max(len(query.input.documents) for query in queries)
    for start in range(0, len(queries), _QUERIES):
        block = _search(queries[start : start + _QUERIES], retriever, count, depth, titles)
        dropped["known"] += sum(len(each.scores) - len(each.candidates) for each in block)
        yield block


def _search(
    queries: Sequence[Query], retriever: Retriever, count: int, depth: int, titles: str
) -> list[ScoredQuery]:
    """The queries with the candidates among `depth` hits, and among more where they are too few."""
    retrieved = retriever.search([query.input.query for query in queries], depth)
    scored = [
        candidates_of(query, hits, titles, retriever.passages)
        for query, hits in zip(queries, retrieved, strict=True)
    ]
    short = [
        number
        for number, each in enumerate(scored)
        if len(each.candidates) < count and len(retrieved[number]) == depth
    ]
    if short:
        again = _search([queries[n] for n in short], retriever, count, 2 * depth, titles)
        for number, each in zip(short, again, strict=True):
            scored[number] = each
    return scored


def _add_vector_scores(
    scored: Sequence[ScoredQuery], options: MiningOptions, similarities: Similarities
) -> list[ScoredQuery]:
    """The queries with scores of their own documents, also of those that were not retrieved."""
    missing = [
        (each, text)
        for each in scored
        for text in options.scored(each.query)
        if text not in each.scores
    ]
    pairs = [(each.query.input.query, text) for each, text in missing]
    computed: dict[str, dict[Text, float]] = collections.defaultdict(dict)
    for (query, text), score in zip(pairs, similarities(pairs), strict=True):
        computed[query][text] = score
    return [
        dataclasses.replace(each, scores={**each.scores, **computed[each.query.input.query]})
        for each in scored
    ]


def _rescore(
    scored: Iterable[ScoredQuery],
    options: MiningOptions,
    score: Callable[[Iterator[Candidates]], Iterable[Chunk[Candidates, np.ndarray]]],
) -> Iterator[ScoredQuery]:
    """The queries with the scores of a re-ranker, see `score_chunks`."""
    waiting = collections.deque[ScoredQuery]()

    def texts_of_query(each: ScoredQuery) -> tuple[Text, ...]:
        return (*options.scored(each.query), *each.candidates)

    def examples() -> Iterator[Candidates]:
        for each in scored:
            waiting.append(each)
            yield Candidates(each.query.input.query, texts_of_query(each))

    for chunk in score(examples()):
        for _, scores in chunk.pairs:
            each = waiting.popleft()
            pairs = zip(texts_of_query(each), scores.tolist(), strict=True)
            yield dataclasses.replace(each, scores=dict(pairs))


def _record(
    scored: ScoredQuery, chosen: Sequence[Text], *, is_graded: bool, has_scores: bool
) -> dict[str, Any]:
    """A line of the output: positives and negatives; or documents with labels, if those differ."""
    query = scored.query
    documents = (*query.input.documents, *chosen)
    texts = [json_of(text) for text in documents]
    count = len(positives(query))
    record: dict[str, Any] = {"id": query.id, "query": query.input.query}
    if is_graded:
        record |= {"documents": texts, "labels": [*query.label.grades, *[0.0] * len(chosen)]}
    else:
        record |= {"positives": texts[:count], "negatives": texts[count:]}
    if has_scores:
        record["scores"] = [float32_repr(scored.scores[text]) for text in documents]
    return record

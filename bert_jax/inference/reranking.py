"""Files of queries with documents → files with the scores of a model, in a new order."""

import contextlib
import dataclasses
import functools
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from bert_jax.data.examples import Candidates, Example, Examples
from bert_jax.data.readers.candidate_columns import RankingOptions
from bert_jax.data.readers.collection import CollectionOptions, open_collection, read_queries
from bert_jax.data.readers.lines import open_lines
from bert_jax.data.runs import read_run
from bert_jax.errors import UserError, listed, require_at_least
from bert_jax.files.paths import TREC_ENDINGS
from bert_jax.inference.model import LoadedModel
from bert_jax.inference.predict import predict_stream, request_of
from bert_jax.inference.ranking import score_chunks
from bert_jax.metrics.ranking import Judgements, Run, ranked
from bert_jax.tasks.ranking.predict import DOCUMENT_IDS, RERANK


@dataclasses.dataclass(frozen=True)
class FirstSearch:
    """The results of a search, which are ranked again.

    Attributes:
        queries, documents: the texts, see `data.readers.collection`.
        run: the results, a run as of TREC.
        top_k: number of results of a query, the best ones; the others are left out; None: all.
        judgements: grades of documents, which JSON lines have as labels; None: unknown.
    """

    queries: str | Path
    documents: str | Path
    run: str | Path
    top_k: int | None = None
    judgements: Judgements | None = None

    def __post_init__(self) -> None:
        require_at_least("top_k", self.top_k, 1)

    @functools.cached_property
    def results(self) -> Run:
        """The run, read once: it may come from stdin.

        Raises:
            UserError: it cannot be read, or is empty.
        """
        run = read_run(self.run)
        if not run:
            raise UserError(f"{self.run} is empty; give the results of a search")
        return run

    @contextlib.contextmanager
    def open(self, options: RankingOptions) -> Iterator[Examples[Candidates]]:
        """The queries of the run with their documents, in the order of the run.

        Raises:
            UserError: a file cannot be read, or the run is empty, or has other queries or
                documents.
        """
        run = {query: ranked(scores)[: self.top_k] for query, scores in self.results.items()}
        queries = read_queries(self.queries)
        self._check(run, queries, "query", self.queries)
        needed = dict.fromkeys(document for documents in run.values() for document in documents)
        with open_collection(self.documents, CollectionOptions(empty=options.empty)) as collection:
            texts = {each.id: options.text_of(each) for each in collection if each.id in needed}
        self._check(needed, texts, "document", self.documents)

        def examples() -> Iterator[Example[Candidates]]:
            for query, ids in run.items():
                fields: dict[str, Any] = {"id": query, DOCUMENT_IDS: ids}
                if self.judgements is not None:
                    grades = self.judgements.get(query, {})
                    fields["labels"] = [grades.get(document, 0) for document in ids]
                yield Example(
                    Candidates(queries[query], tuple(texts[document] for document in ids)),
                    id=query,
                    location=f"{self.run}: query {query!r:.80}",
                    fields=fields,
                )

        opened: Examples[Candidates] = Examples(examples(), lambda: opened.count / len(run))
        yield opened

    def _check(
        self, needed: Iterable[str], known: Mapping[str, Any], what: str, source: str | Path
    ) -> None:
        if unknown := [repr(name) for name in needed if name not in known]:
            raise UserError(
                f"{self.run}: {source} has no {what} {listed(unknown)}; give the files that the "
                "run was made from"
            )


def rerank(
    model: LoadedModel,
    source: str | Path | FirstSearch,
    target: str | Path,
    values: Mapping[str, Any],
    stopped: Callable[[], bool] = lambda: False,
) -> int:
    """Scores the documents of each query.

    A target that ends in .run or .trec is a run as of TREC; any other has JSON lines, `query`,
    `documents` and `scores`, which a training reads as the scores of a teacher.

    Args:
        model: a cross-encoder, or a model of vectors, see `LoadedModel.rank`.
        source: a file of queries with documents, see `data.readers.ranking`, or a first search.
        target: see `inference.predict.predict`, also for its continuation after a stop.
        values: values of `RankingPredictOptions`, by name.
        stopped: whether to stop; called after each batch and each query.

    Returns:
        The number of queries.

    Raises:
        UserError: see `predict`; or the run does not belong to its queries and documents.
        KeyboardInterrupt: `stopped` returned True.
    """
    options: Any = RERANK.read_options("rerank", target, values)
    chunks = functools.partial(score_chunks, model, options=options)
    request = functools.partial(request_of, model, "rerank", options)
    if isinstance(source, FirstSearch):
        opened: contextlib.AbstractContextManager[Examples[Any]] = source.open(options)
        name = source.run
    elif options.output_format == "run":
        raise UserError(
            f"{target}: a run needs ids of documents; give the results of a search with their "
            "queries and documents, or an output with the ending .jsonl"
        )
    else:
        opened, name = RERANK.reader.open(source, options), source
    with opened as examples:
        return predict_stream(examples, name, target, chunks, RERANK, options, request, stopped)


def run_in(target: Path) -> Run:
    """The run in a file that `rerank` has written for a first search."""
    if target.suffix.lower() in TREC_ENDINGS:
        return read_run(target)
    with open_lines(target) as lines:
        records = [json.loads(line) for _, line in lines]
    return {
        record["id"]: dict(zip(record[DOCUMENT_IDS], record["scores"], strict=True))
        for record in records
    }

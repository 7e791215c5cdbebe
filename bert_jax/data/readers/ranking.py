"""Queries with relevant and other documents, in every form in which files to train on have them.

    JSON lines, TSV, CSV   a query with positives and negatives, or with labelled documents; rows of
                           one labelled document are gathered by query, see `candidates`
    TSV without a header   as of WikiQA, MS MARCO and teachers' scores, see `candidate_records`
    JSON                   DPR's list of questions; SQuAD's, where the paragraph is the positive
    judgements             a BEIR folder or its qrels/SPLIT.tsv: the judged documents of each query
    plain text             each text is its own positive: two views of it (SimCSE)

Texts that are stored elsewhere replace their ids at the end.
"""

from collections.abc import Iterator
from pathlib import Path

from bert_jax.data.examples import Candidates, Example, Relevance
from bert_jax.data.readers.candidate_columns import RankingOptions
from bert_jax.data.readers.candidate_lists import consistent, gathered, positives_first
from bert_jax.data.readers.candidate_records import open_table
from bert_jax.data.readers.candidate_texts import with_texts
from bert_jax.data.readers.candidates import CandidateParser, Id
from bert_jax.data.readers.judgements import JudgementFiles, find_judgements
from bert_jax.data.readers.rows import Report, TableCounts
from bert_jax.process import say

_DEFAULTS = RankingOptions()


def read_candidates(
    source: str | Path,
    options: RankingOptions = _DEFAULTS,
    split: str = "train",
    report: Report = TableCounts.say,
    *,
    for_training: bool = True,
) -> Iterator[Example[Candidates]]:
    """The queries of a source with their documents, positives first; a label is a `Relevance`.

    Each record is an example, except that rows of one document and its label are gathered by query.
    In training, a negative with the text of a positive of its query is left out.

    Args:
        source: a file, also compressed; a BEIR folder; "-" for stdin; or "tfds:…".
        options: options of the reader.
        split: the file of judgements in a BEIR folder, "train", "validation" or "test".
        report: see `Report`.
        for_training: see `CandidateParser`.

    Raises:
        UserError: the source cannot be read; or, during iteration, a record is malformed, or a
            query or document is unknown; the message names the location.
    """
    without: list[str] = []
    parse = CandidateParser(options, for_training=for_training)
    examples = _examples(source, options, split, report, parse)
    contradicting: list[str] = []
    for example in map(positives_first, examples):
        if for_training:
            example = consistent(example, contradicting)
        if options.require_positive and not max(example.label.grades, default=0.0) > 0:
            without.append(example.location)
        else:
            yield example
    if without:
        say(f"queries without a positive left out: {len(without):,}; the first: {without[0]}")
    if contradicting:
        count, first = len(contradicting), contradicting[0]
        say(f"negatives that are also positives left out: {count:,}; the first: {first}")


def _examples(
    source: str | Path,
    options: RankingOptions,
    split: str,
    report: Report,
    parse: CandidateParser,
) -> Iterator[Example[Candidates]]:
    if files := find_judgements(source, options, split):
        yield from _judged(files, options)
        return
    corpus, queries = options.path_of(options.corpus), options.path_of(options.queries)
    with open_table(source, options, report) as table:
        if table.columns:
            parse.columns(table.columns, table.location)
        examples = gathered(table.examples(parse))
        if corpus or queries:
            examples = with_texts(list(examples), options, corpus, queries)
        yield from examples
    if parse.skipped:
        say(f"empty documents left out: {len(parse.skipped)}; the first: {parse.skipped[0]}")


def _judged(files: JudgementFiles, options: RankingOptions) -> Iterator[Example[Candidates]]:
    """The judged documents of each query."""
    judgements = files.read(require_positive=options.require_positive)
    examples = [
        Example(
            Candidates(Id(query), tuple(map(Id, grades))),
            Relevance(tuple(map(float, grades.values()))),
            query,
            files.path,
        )
        for query, grades in judgements.items()
    ]
    yield from with_texts(examples, options, files.corpus, files.queries, judgements=files.path)

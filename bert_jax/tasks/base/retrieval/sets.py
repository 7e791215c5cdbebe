"""Sets of queries to evaluate: each with a list of documents, or all with one collection."""

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from bert_jax.data.examples import Candidates, Example, Text
from bert_jax.data.readers.candidate_columns import RankingOptions
from bert_jax.data.readers.candidate_lists import joined
from bert_jax.data.readers.collection import CollectionOptions, open_collection, read_queries
from bert_jax.data.readers.judgements import find_judgements
from bert_jax.data.readers.ranking import read_candidates
from bert_jax.data.readers.rows import Report
from bert_jax.errors import OptionError
from bert_jax.metrics.ranking import Judgements
from bert_jax.process import say
from bert_jax.tasks.base.ranked_task import say_not_counted
from bert_jax.tasks.base.retrieval.options import RetrievalData
from bert_jax.tasks.base.splits import EvalSet, Splits


@dataclasses.dataclass(frozen=True)
class RankedSet:
    """A set of queries, and the documents that are ranked for them.

    Attributes:
        name: name of the set.
        queries: texts of the queries by their ids.
        judgements: grades of documents by the id of the query.
        documents: texts of the documents by their ids; None: the collection is searched.
        lists: ids of the documents to rank, by the id of the query; None: all are ranked.
        locations: "file:line" of the first example with a text, where examples have the texts.
    """

    name: str
    queries: Mapping[str, str]
    judgements: Judgements
    documents: Mapping[str, Text] | None = None
    lists: Mapping[str, Sequence[str]] | None = None
    locations: Mapping[Text, str] = dataclasses.field(default_factory=dict)


def ranked_set(eval_set: EvalSet[Any], collection: Mapping[str, Text]) -> RankedSet:
    """The set of some examples: queries with judgements, see `read_set`, or with candidates."""
    examples = eval_set.examples
    if isinstance(examples[0].input, Candidates):
        locations = {
            text: example.location
            for example in reversed(examples)
            for text in (example.input.query, *example.input.documents)
        }
        ranked = _candidate_set(eval_set.name, examples, collection)
        return dataclasses.replace(ranked, locations=locations)
    queries = {example.id: example.input for example in examples}
    return RankedSet(eval_set.name, queries, {example.id: example.label for example in examples})


def _candidate_set(
    name: str, examples: Sequence[Example[Candidates]], collection: Mapping[str, Text]
) -> RankedSet:
    """The set of queries with candidates; equal queries are one, with the documents of all.

    Equal documents have one id, or all their ids in the collection.

    Lists of relevant documents alone would be perfect in any order. If some queries have such a
    list, they are not judged. If all have, each query's documents are ranked with the whole
    collection, if it has them; else among the documents of all queries.
    """
    examples = list(joined(examples))
    texts = dict.fromkeys(text for example in examples for text in example.input.documents)
    has_others = _has_others(examples)
    ids: dict[Text, list[str]] = {}
    for id, text in collection.items():
        ids.setdefault(text, []).append(id)
    is_searched = not has_others and bool(ids) and texts.keys() <= ids.keys()
    if not is_searched:
        ids = {text: [str(number)] for number, text in enumerate(texts)}
    has_ids = len({example.id for example in examples}) == len(examples)
    queries: dict[str, str] = {}
    judgements: dict[str, dict[str, float]] = {}
    for number, example in enumerate(examples):
        query = example.id if has_ids else str(number)
        queries[query], grades = example.input.query, judgements.setdefault(query, {})
        for text, grade in zip(example.input.documents, example.label.grades, strict=True):
            for id in ids[text]:
                grades[id] = max(grade, grades.get(id, 0))
    if is_searched:
        return RankedSet(name, queries, judgements)
    documents = {id: text for text, (id,) in ids.items()}
    if not has_others:
        return RankedSet(name, queries, judgements, documents)
    lists = {query: list(grades) for query, grades in judgements.items()}
    judged = {
        id: grades for id, grades in judgements.items() if min(grades.values(), default=1) <= 0
    }
    say_not_counted(name, len(queries) - len(judged), len(queries))
    return RankedSet(name, queries, judged, documents, lists)


def _has_others(examples: Sequence[Example[Candidates]]) -> bool:
    """Whether a document is not relevant for its query."""
    return any(example.label.has_others for example in examples)


def _may_search(examples: Sequence[Example[Any]]) -> bool:
    """Whether the examples do not have the documents to rank."""
    return isinstance(examples[0].input, str) or not _has_others(examples)


def read_set(
    options: RankingOptions, source: str, split: str, report: Report
) -> Iterator[Example[Any]]:
    """The examples of a source, for `read_splits`.

    They have `Candidates` with a `Relevance`; or, in a set to evaluate with judgements, a query
    with the grades of documents by their ids.

    Raises:
        UserError: the source cannot be read.
    """
    files = find_judgements(source, options, split)
    if files is None or split == "train":
        yield from read_candidates(source, options, split, report)
        return
    judgements = files.read(require_positive=options.require_positive)
    queries = read_queries(files.queries)
    for query, grades in judgements.items():
        if query in queries:
            yield Example(queries[query], grades, query, files.path)
    if unknown := judgements.keys() - queries.keys():
        say(
            f"{files.path}: {len(unknown)} of {len(judgements)} judged queries are not in "
            f"{files.queries}, as {min(unknown)!r:.80}: left out"
        )


def read_collection(data: RetrievalData, splits: Splits[Any]) -> dict[str, Text]:
    """Texts of the documents of the collection by their ids, if a set is searched there.

    Raises:
        UserError: it cannot be read, or two sets have different ones.
    """
    if not any(_may_search(each.examples) for each in (*splits.validation, *splits.test)):
        return {}
    if not (corpus := _corpus(data, splits)):
        return {}
    with open_collection(corpus, CollectionOptions(empty=data.empty)) as documents:
        return {each.id: data.text_of(each) for each in documents}


def _corpus(data: RetrievalData, splits: Splits[Any]) -> str:
    """`data.corpus`, or the collection of the judgements to evaluate, or to train on; "": none."""
    corpus = data.path_of(data.corpus)
    for split, sets in ("validation", splits.validation), ("test", splits.test):
        for each in sets:
            is_judged = isinstance(each.examples[0].input, str)
            if not is_judged or not (files := find_judgements(each.source, data, split)):
                continue
            if corpus and files.corpus != corpus:
                rule = "give all sets the same {data.corpus}"
                problem = f"{each.source} judges documents of {files.corpus}, not of {corpus}"
                raise OptionError("data.corpus", corpus, rule, problem)
            corpus = files.corpus
    if not corpus and (splits.all_train or not data.validation):
        files = find_judgements(data.path_of(data.train), data, "train")
        corpus = files.corpus if files else ""
    return corpus

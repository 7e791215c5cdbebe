"""Queries with documents: those of a query gathered, put in order, and chosen."""

import dataclasses
import itertools
from collections.abc import Iterable, Iterator, Sequence

from bert_jax.data.examples import Candidates, Example, Relevance
from bert_jax.errors import UserError


def chosen(example: Example[Candidates], indices: Sequence[int]) -> Example[Candidates]:
    """The example with some of its documents, in this order."""
    query, documents = example.input.query, example.input.documents
    grades, scores = example.label.grades, example.label.scores
    return dataclasses.replace(
        example,
        input=Candidates(query, tuple(documents[index] for index in indices)),
        label=Relevance(
            tuple(grades[index] for index in indices),
            tuple(scores[index] for index in indices if scores),
        ),
    )


def gathered(examples: Iterable[Example[Candidates]]) -> Iterator[Example[Candidates]]:
    """The examples, those with labels as one for each query."""
    labelled: list[Example[Candidates]] = []
    for example in examples:
        if example.label_field:
            labelled.append(example)
        else:
            yield example
    yield from joined(labelled)


def joined(examples: Iterable[Example[Candidates]]) -> Iterator[Example[Candidates]]:
    """One example for each query, with the documents of all its examples.

    Raises:
        UserError: only some examples of a query have scores.
    """
    by_query: dict[str, list[Example[Candidates]]] = {}
    for example in examples:
        by_query.setdefault(example.input.query, []).append(example)
    for query, several in by_query.items():
        labels = [example.label for example in several]
        if len({bool(label.scores) for label in labels}) > 1:
            problem = "only some of the rows of this query have scores"
            raise UserError(f"{several[0].location}: {problem}; give all of them scores, or none")
        documents = itertools.chain.from_iterable(each.input.documents for each in several)
        grades = itertools.chain.from_iterable(label.grades for label in labels)
        scores = itertools.chain.from_iterable(label.scores for label in labels)
        yield dataclasses.replace(
            several[0],
            input=Candidates(query, tuple(documents)),
            label=Relevance(tuple(grades), tuple(scores)),
        )


def distinct(example: Example[Candidates]) -> Example[Candidates]:
    """The example with each document once, the first one."""
    first = {text: n for n, text in reversed([*enumerate(example.input.documents)])}
    return chosen(example, sorted(first.values()))


def positives_first(example: Example[Candidates]) -> Example[Candidates]:
    """The example with its documents by their grades, the highest first."""
    grades = example.label.grades
    order = sorted(range(len(grades)), key=lambda index: -grades[index])
    return chosen(example, order)


def consistent(example: Example[Candidates], contradicting: list[str]) -> Example[Candidates]:
    """The example without negatives that are also positives; appends their locations."""
    documents, grades = example.input.documents, example.label.grades
    positives = {text for text, grade in zip(documents, grades, strict=True) if grade > 0}
    kept = [n for n, text in enumerate(documents) if grades[n] > 0 or text not in positives]
    contradicting += [example.location] * (len(documents) - len(kept))
    return example if len(kept) == len(documents) else chosen(example, kept)

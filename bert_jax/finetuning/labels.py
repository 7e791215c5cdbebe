"""Which labels the texts of a classifier have, and what kind of problem they make."""

import dataclasses
import sys
from collections.abc import Iterable

from bert_jax.data.labelled.examples import TextExample
from bert_jax.data.labelled.texts import TextOptions
from bert_jax.errors import UserError
from bert_jax.finetuning.problems import AnyOfSeveral, Number, OneOfSeveral, Problem
from bert_jax.finetuning.splits import Part
from bert_jax.inference.classification import problem_type
from bert_jax.sharding.hosts import is_main_host
from bert_jax.training.task import Foundation

PROBLEMS: dict[str, type[Problem]] = {
    problem.problem_type: problem for problem in (OneOfSeveral, AnyOfSeveral, Number)
}


def kind_of(told: str, options: TextOptions, foundation: Foundation) -> type[Problem]:
    """The problem that a config names, or that the model or the form of the labels tells.

    Args:
        told: one of Hugging Face's problem types, "" for none.
        options: how files are read.
        foundation: of the model; what a finished one was made for is not to be changed.

    Raises:
        UserError: there is no such type.
    """
    if told:
        if told not in PROBLEMS:
            known = ", ".join(PROBLEMS)
            raise UserError(f"data.problem_type {told!r} is unknown; known are {known}")
        return PROBLEMS[told]
    if foundation.is_finished and foundation.description:
        return PROBLEMS[problem_type(foundation.description)]
    if options.layout and options.layout.regression:
        return Number
    return AnyOfSeveral if options.label_separator else OneOfSeveral


def has_lists(examples: Iterable[TextExample]) -> bool:
    """Whether texts have several labels, as JSON can say it."""
    return any(isinstance(example.label, tuple) for example in examples)


def labels_of(examples: Iterable[TextExample]) -> dict[str, str]:
    """All labels that there are, with the place of the first example of each."""
    found: dict[str, str] = {}
    for example in examples:
        labels = example.label if isinstance(example.label, tuple) else (example.label,)
        for label in labels:
            if label is not None:
                found.setdefault(str(label), example.place)
    return found


def without_strange_labels(part: Part[TextExample], problem: Problem) -> Part[TextExample]:
    """A part to be predicted: where it has labels that the model does not know, without labels."""
    if all(example.label is None for example in part.examples):
        return part
    try:
        # An empty cell may say that a text has none of several labels; a file of them says nothing.
        if all(example.label == () for example in part.examples):
            raise UserError(f"{part.source}: no text has a label")
        problem.targets(part.examples)
    except UserError as error:
        if is_main_host():
            print(f"{error}: {part.source} is predicted and not judged", file=sys.stderr)
        unlabelled = [dataclasses.replace(example, label=None) for example in part.examples]
        return dataclasses.replace(part, examples=unlabelled)
    return part

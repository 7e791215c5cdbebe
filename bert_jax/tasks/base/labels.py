"""The labels of a task: which there are, in which order, and what kind of problem they make."""

import dataclasses
import math
import sys
from collections.abc import Iterable, Mapping

from bert_jax.data.examples import TextExample
from bert_jax.data.readers.texts import TextOptions
from bert_jax.errors import UserError
from bert_jax.sharding.hosts import is_main_host
from bert_jax.tasks.base.splits import EvalSet
from bert_jax.tasks.base.task import ModelInit
from bert_jax.tasks.classification.decoding import label_names, problem_type
from bert_jax.tasks.classification.problems import MultiLabel, Problem, Regression, SingleLabel

PROBLEMS: dict[str, type[Problem]] = {
    problem.problem_type: problem for problem in (SingleLabel, MultiLabel, Regression)
}


def infer_problem_type(told: str, options: TextOptions, model_init: ModelInit) -> type[Problem]:
    """The problem that a config names, or that the model or the form of the labels tells.

    Args:
        told: one of Hugging Face's problem types, "" for none.
        options: how files are read.
        model_init: of the model; what a finished one was made for is not to be changed.

    Raises:
        UserError: there is no such type.
    """
    if told:
        if told not in PROBLEMS:
            known = ", ".join(PROBLEMS)
            raise UserError(f"data.problem_type {told!r} is unknown; known are {known}")
        return PROBLEMS[told]
    if model_init.is_finished and model_init.description:
        return PROBLEMS[problem_type(model_init.description)]
    if options.layout and options.layout.regression:
        return Regression
    return MultiLabel if options.label_separator else SingleLabel


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


def drop_unknown_labels(part: EvalSet[TextExample], problem: Problem) -> EvalSet[TextExample]:
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


def choose_labels(
    found: Iterable[str], model_init: ModelInit, given: tuple[str, ...] = ()
) -> tuple[str, ...]:
    """The labels of a task and their order.

    Args:
        found: labels of the data, in any order; with their places, if it is a mapping.
        model_init: of the model.
        given: the labels that the config names, in their order.

    Returns:
        Of a model that is judged, its own; or those that are given, as names for its outputs. In a
        training, those that are given; else those of the model to begin with, if they are the same
        ones; else those found, in the order of the numbers that they are, else of the alphabet.

    Raises:
        UserError: a label that was found is none of the chosen ones.
    """
    there = set(found)
    if model_init.is_finished and model_init.description:
        own = label_names(model_init.description)
        chosen, whose = own, "the model"
        if not there <= set(own) and len(given) == len(own):
            chosen, whose = given, "data.labels"
    elif given:
        chosen, whose = given, "data.labels"
    else:
        known = model_init.description.labels if model_init.description else ()
        return known if there == set(known) else tuple(sorted(there, key=_order))
    strange = sorted(there - set(chosen))
    if strange:
        place = f"{found[strange[0]]}: " if isinstance(found, Mapping) else ""
        raise UserError(
            f"{place}label {strange[0]!r} is none of those of {whose}: {', '.join(chosen)}; mend "
            "the data, or name the labels in the order of the model's with data.labels"
        )
    return chosen


def _order(label: str) -> tuple[int, float, str]:
    try:
        number = float(label)
    except ValueError:
        number = math.nan
    return (0, number, label) if math.isfinite(number) else (1, 0.0, label)

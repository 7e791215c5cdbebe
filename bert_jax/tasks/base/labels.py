"""The labels of a task: their names, their order, their numbers and their weights."""

import dataclasses
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

import numpy as np

from bert_jax.checkpoints.config_file import ModelDescription
from bert_jax.data.examples import Example
from bert_jax.errors import OptionError, UserError
from bert_jax.tasks.base.model_init import ModelInit
from bert_jax.tasks.base.splits import EvalSet

Input = TypeVar("Input")


def label_names(description: ModelDescription) -> tuple[str, ...]:
    """The names of all C labels of a model; by default Hugging Face's LABEL_0, LABEL_1, ….

    Raises:
        UserError: `config.json` does not name each label once.
    """
    if not description.labels and (named := description.other.get("id2label")) is not None:
        raise UserError(
            f"config.json: id2label is {str(named)[:80]}; it must name the labels 0, 1, 2, … once "
            "each"
        )
    count = description.config.num_labels
    return description.labels or tuple(f"LABEL_{number}" for number in range(count))


def label_numbers(labels: Sequence[str]) -> Callable[[str, str], int]:
    """The function from a label and its location to the label's number.

    Raises:
        OptionError: by the function, where a label is none of `labels`.
    """
    numbers = {label: number for number, label in enumerate(labels)}

    def number(label: str, location: str) -> int:
        if label not in numbers:
            raise OptionError(
                "data.labels",
                labels,
                "fix the line, or name the labels with {data.labels}",
                problem=f"{location}: label {label!r} is none of {', '.join(labels)}",
            )
        return numbers[label]

    return number


def class_numbers(labels: Sequence[str], examples: Sequence[Example[Any]]) -> np.ndarray:
    """The number of each example's class, int32 [n].

    Raises:
        UserError: an example has several classes, or one that is none of `labels`.
    """
    number = label_numbers(labels)
    return np.array([number(class_of(example), example.location) for example in examples], np.int32)


def class_of(example: Example[Any]) -> str:
    """The class of an example, for tasks where each has one.

    Raises:
        UserError: it has a list of classes.
    """
    if isinstance(example.label, tuple):
        raise UserError(
            f"{example.location}: the label is a list of {len(example.label)} labels, but a text "
            "has one class; give it one, or train another model for several"
        )
    return str(example.label)


def drop_labels(eval_set: EvalSet[Input], reason: object) -> EvalSet[Input]:
    """The set without the labels of its examples, with a note that says why."""
    examples = [dataclasses.replace(example, label=None) for example in eval_set.examples]
    note = f"{eval_set.source}: its labels are not used, so it has no metrics: {reason}"
    return dataclasses.replace(eval_set, examples=examples, note=note)


def choose_labels(
    present: Iterable[str], model_init: ModelInit, named: tuple[str, ...] = ()
) -> tuple[str, ...]:
    """The labels of a task in their order.

    Args:
        present: labels of the data, in any order; a mapping has the location of each.
        model_init: the model that the training starts from, or that is evaluated.
        named: labels named in the config, in their order.

    Returns:
        For a model that is only evaluated: its own labels, or the named ones as names of its
        outputs. In training: the named ones; else the labels of the initial model, if they are the
        same set; else the labels present, in numerical order if all are numbers, else
        alphabetically.

    Raises:
        OptionError: a label of the data is unknown.
    """
    labels = set(present)
    if model_init.is_finished and model_init.description:
        own = label_names(model_init.description)
        chosen, source = own, "the model"
        if not labels <= set(own) and len(named) == len(own):
            chosen, source = named, "the config"
    elif named:
        chosen, source = named, "the config"
    else:
        known = model_init.description.labels if model_init.description else ()
        return known if labels == set(known) else tuple(sorted(labels, key=_order))
    unknown = sorted(labels - set(chosen))
    if unknown:
        location = f"{present[unknown[0]]}: " if isinstance(present, Mapping) else ""
        raise OptionError(
            "data.labels",
            named,
            "fix the data, or name the labels in the order of the model's with {data.labels}",
            problem=f"{location}label {unknown[0]!r} is not a label of {source}: "
            f"{', '.join(chosen)}",
        )
    return chosen


def _order(label: str) -> tuple[int, float, str]:
    try:
        number = float(label)
    except ValueError:
        number = math.nan
    return (0, number, label) if math.isfinite(number) else (1, 0.0, label)


def balanced_weights(counts: np.ndarray) -> np.ndarray:
    """Number of examples per class, int64 [C] → weight per example of each class, float32 [C].

    The mean over all examples is 1, so that the learning rate keeps its meaning.
    """
    return (counts.sum() / np.count_nonzero(counts) / counts.clip(1)).astype(np.float32)


def example_weights(targets: np.ndarray, *, balanced: bool) -> np.ndarray:
    """The weight of each of n examples in the loss, float32 [n]; only classes can be balanced."""
    if not balanced:
        return np.ones(len(targets), np.float32)
    return balanced_weights(np.bincount(targets))[targets]

"""Which labels a task has, in which order, and what kind of problem they make."""

import dataclasses
import itertools

import numpy as np
import pytest

from bert_jax.checkpoints.config_file import ModelDescription
from bert_jax.data.examples import Example
from bert_jax.data.readers.columns import TextOptions
from bert_jax.errors import UserError
from bert_jax.models.execution import Execution
from bert_jax.tasks.base.labels import choose_labels
from bert_jax.tasks.base.model_init import ModelInit
from bert_jax.tasks.base.splits import EvalSet
from bert_jax.tasks.classification.problems import (
    MultiLabel,
    Regression,
    SingleLabel,
    drop_unknown_labels,
    has_lists,
    infer_problem_type,
    labels_of,
)


def example(label, location="a.tsv:1"):
    return Example("a cat", label, "0", location)


@pytest.fixture
def founded(tiny_config):
    """A foundation on a model with labels."""

    def make(*labels, is_finished=False, outputs=None):
        config = dataclasses.replace(tiny_config, num_labels=outputs or len(labels))
        description = ModelDescription(config, "classification", labels=labels)
        return ModelInit(Execution(), description=description, is_finished=is_finished)

    return make


def test_the_order_of_labels():
    none = ModelInit(Execution())
    assert choose_labels(["b", "a"], none) == ("a", "b")
    assert choose_labels(["10", "9", "-1"], none) == ("-1", "9", "10")
    # Labels that no number orders are last, always in the same order.
    for order in (["3", "nan", "1", "2"], ["nan", "2", "3", "1"], ["1", "inf", "2", "3", "nan"]):
        labels = choose_labels(order, none)
        assert labels[:3] == ("1", "2", "3")
        assert list(labels[3:]) == sorted(labels[3:])
    assert choose_labels(["a", "b"], none, ("b", "a", "c")) == ("b", "a", "c")
    with pytest.raises(UserError, match=r"label 'x' is not a label of the config: a, b"):
        choose_labels(["x"], none, ("a", "b"))


def test_the_labels_of_a_model_to_begin_with(founded):
    assert choose_labels(["neg", "pos"], founded("pos", "neg")) == ("pos", "neg")
    assert choose_labels(["bad", "good"], founded("pos", "neg")) == ("bad", "good")
    assert choose_labels(["neg", "pos"], founded("pos", "neg"), ("neg", "pos")) == ("neg", "pos")


def test_the_labels_of_a_finished_model(founded):
    assert choose_labels(["pos"], founded("pos", "neg", is_finished=True)) == ("pos", "neg")
    assert choose_labels([], founded(is_finished=True, outputs=2)) == ("LABEL_0", "LABEL_1")
    # Other names for its outputs, in their order.
    finished = founded("LABEL_0", "LABEL_1", is_finished=True)
    assert choose_labels(["0", "1"], finished, ("0", "1")) == ("0", "1")
    with pytest.raises(UserError, match="label '0' is not a label of the model: LABEL_0, LABEL"):
        choose_labels(["0", "1"], finished)


def test_the_kind_of_a_problem(founded):
    none = ModelInit(Execution())
    assert infer_problem_type("", TextOptions(), none) is SingleLabel
    assert infer_problem_type("", TextOptions(label_separator=","), none) is MultiLabel
    assert infer_problem_type("regression", TextOptions(), none) is Regression
    assert infer_problem_type("", TextOptions(format="glue:stsb"), none) is Regression
    assert infer_problem_type("", TextOptions(), founded(is_finished=True, outputs=1)) is Regression
    with pytest.raises(UserError, match="data.problem_type is 'ranking'; known are"):
        infer_problem_type("ranking", TextOptions(), none)
    examples = [example("a"), example(("b", "c")), example(None)]
    assert has_lists(examples)
    assert labels_of(examples) == {"a": "a.tsv:1", "b": "a.tsv:1", "c": "a.tsv:1"}


def test_a_text_with_several_labels_is_correct_if_all_are():
    logits, targets = np.float32([[2, -2], [2, 2]]), np.float32([[1, 0], [1, 0]])
    assert MultiLabel(("a", "b")).correct(logits, targets).tolist() == [True, False]


def test_a_test_file_with_unknown_labels_is_predicted():
    problem = SingleLabel(("a", "b"))
    known = EvalSet("test", "t.tsv", [example("a"), example("b")])
    assert drop_unknown_labels(known, problem) is known
    strange = EvalSet("test", "t.tsv", [example("a"), example("x", "t.tsv:3")])
    dropped = drop_unknown_labels(strange, problem)
    assert [row.label for row in dropped.examples] == [None, None]
    assert dropped.note.startswith("t.tsv: its labels are not used, so it has no metrics: t.tsv:3:")


def test_the_majority_is_the_best_constant_answer():
    """Against all constant answers, on random targets with ties and with one example."""
    rng = np.random.default_rng(0)
    for _ in range(50):
        count = int(rng.integers(1, 12))
        numbers, several = rng.integers(0, 3, count), rng.integers(0, 2, (count, 3))
        values = rng.integers(-2, 3, count).astype(np.float32)

        single, target = SingleLabel(("a", "b", "c")), numbers.astype(np.int32)
        answers = [np.full(count, number) for number in range(3)]
        actual = single.decide(single.majority(target)[None]).repeat(count, axis=0)
        assert (actual == target).mean() == max((each == target).mean() for each in answers)

        multi, target = MultiLabel(("a", "b", "c")), several.astype(np.float32)
        answers = [np.tile(each, (count, 1)) for each in itertools.product([False, True], repeat=3)]
        actual = multi.decide(multi.majority(target)[None]).repeat(count, axis=0)
        best = max((each == (target > 0)).mean() for each in answers)  # of single decisions
        assert (actual == (target > 0)).mean() == best

        regression = Regression()
        actual = regression.decide(regression.majority(values)[None]).repeat(count, axis=0)
        errors = [np.square(values - each).mean() for each in np.linspace(-2, 2, 401)]
        assert np.square(values - actual).mean() <= min(errors) + 1e-6

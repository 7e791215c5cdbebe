"""What labels of pairs become, and which are refused."""

import jax
import numpy as np
import pytest

from bert_jax.data.examples import Example
from bert_jax.errors import UserError
from bert_jax.models.sentence_pairs import PairOutput
from bert_jax.tasks.similarity.objectives import (
    ContrastiveObjective,
    CosineObjective,
    MultipleNegativesRanking,
    SoftmaxObjective,
    text_numbers,
)


def pairs(*labels):
    return [
        Example((f"a {number}", f"b {number}"), label, str(number), f"pairs.tsv:{number + 2}")
        for number, label in enumerate(labels)
    ]


def test_labels_of_a_range_become_cosines():
    objective = CosineObjective((1.0, 5.0))
    assert objective.targets(pairs(1.0, 5.0, 3.0, "2")).tolist() == [0, 1, 0.5, 0.25]


@pytest.mark.parametrize(
    ("objective", "labels", "message"),
    [
        (CosineObjective((0, 1)), (0.5, 3.5), r"tsv:3: the label 3.5 is not between 0 and 1"),
        (CosineObjective((0, 1)), ("x",), r"tsv:2: the label 'x' is not a number"),
        (CosineObjective((0, 1)), (("a", "b"),), r"tsv:2: the label \('a', 'b'\) is not a number"),
        (ContrastiveObjective(), (0.0, 1.0, 0.5), r"tsv:4: the label is 0.5; .*must be 1"),
        (SoftmaxObjective(("x", "y")), ("x", "z"), r"tsv:3: label 'z' is none of x, y"),
    ],
)
def test_labels_that_are_refused(objective, labels, message):
    with pytest.raises(UserError, match=message):
        objective.targets(pairs(*labels))


def test_which_pairs_belong_together(capsys):
    objective = MultipleNegativesRanking(label_range=(0.0, 5.0))
    unlabelled = pairs(None, None)
    assert objective.select(unlabelled) == unlabelled
    assert capsys.readouterr().err == ""
    labelled = pairs(5.0, 2.5, 3.0, 0.0)
    assert objective.select(labelled) == [labelled[0], labelled[2]]
    assert "2 of 4 training pairs are labelled 2.5 or less: left out" in capsys.readouterr().err
    with pytest.raises(UserError, match="no training pair has a label above 2.5"):
        objective.select(pairs(0.0, 1.0))


def test_equal_texts_have_equal_numbers():
    texts = [("a", "b"), ("c", "a"), ("b", "b")]
    examples = [Example(pair) for pair in texts]
    assert text_numbers(examples).tolist() == [[0, 1], [2, 0], [1, 1]]


def test_which_losses_are_metrics():
    assert CosineObjective().can_evaluate(pairs(0.2, 0.4))
    assert ContrastiveObjective().can_evaluate(pairs(0.0, 1.0))
    assert not ContrastiveObjective().can_evaluate(pairs(0.0, 0.5))
    assert SoftmaxObjective(("x", "y")).can_evaluate(pairs("x"))
    assert not SoftmaxObjective(("x", "y")).can_evaluate(pairs("3.5"))
    assert not SoftmaxObjective().can_evaluate(pairs("x"))
    assert not MultipleNegativesRanking().can_evaluate(pairs(1.0))


def test_losses_by_hand():
    # Cosines 1 and 0.
    vectors = np.array([[[2, 0], [1, 0]], [[3, 0], [0, 1]]], np.float32)
    logits = np.log(np.array([[0.25, 0.75], [0.5, 0.5]], np.float32))
    output, everything = PairOutput(vectors, logits), np.ones(2, bool)

    def losses(objective, *labels):
        return jax.jit(objective.losses)(output, objective.targets(pairs(*labels)), everything)

    np.testing.assert_allclose(losses(CosineObjective((0, 4)), 4.0, 2.0), [0, 0.25], atol=1e-6)
    np.testing.assert_allclose(losses(ContrastiveObjective(1.5), 0.0, 0.0), [1.125, 0.125])
    np.testing.assert_allclose(
        losses(SoftmaxObjective(("x", "y")), "x", "y"), -np.log([0.25, 0.5]), rtol=1e-5
    )
    # The first text of both is nearest to the first second text, and 4 is the scale.
    expected = [np.log(1 + np.exp(-4)), np.log(1 + np.exp(4))]
    np.testing.assert_allclose(
        losses(MultipleNegativesRanking(4.0), None, None), expected, rtol=1e-5
    )

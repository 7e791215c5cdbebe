"""Losses that make the vectors of two texts comparable, one value for each pair.

Source: Sentence-BERT (Reimers and Gurevych, 2019), section 3, as in the library
sentence-transformers. The two vectors are called u and v.
"""

import abc
import dataclasses
from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np
import optax

from bert_jax.data.examples import Example, Pair
from bert_jax.errors import OptionError, UserError
from bert_jax.metrics.similarity import are_related
from bert_jax.models.layers import cosines, jax_similarities
from bert_jax.models.sentence_pairs import PairOutput
from bert_jax.process import say
from bert_jax.tasks.base.labels import class_numbers
from bert_jax.tasks.base.ranking_losses import contrastive, cosent, cross_entropy


class Objective(abc.ABC):
    """A loss of pairs, and the labels that it needs.

    Attributes:
        labels: names of the C classes, if the labels are classes.
        needs_labels: whether every pair must have a label.
        is_global: whether the loss of a pair depends on the other pairs of its batch, see
            `Task.global_loss`.
    """

    labels: tuple[str, ...] = ()
    needs_labels = True
    is_global = False

    def select(self, examples: list[Example[Pair]]) -> list[Example[Pair]]:
        """The training examples that the loss can use."""
        return examples

    def can_evaluate(self, examples: Sequence[Example[Pair]]) -> bool:
        """Whether the mean loss over these validation pairs is one of their metrics."""
        return not self.is_global

    @abc.abstractmethod
    def targets(self, examples: Sequence[Example[Pair]]) -> np.ndarray:
        """Labels as numbers, [n, …].

        Raises:
            UserError: a label is of the wrong kind; the message names its location.
        """

    @abc.abstractmethod
    def losses(self, output: PairOutput, targets: jax.Array, is_pair: jax.Array) -> jax.Array:
        """The loss of each pair, float32 [B].

        Args:
            output: vectors of B pairs.
            targets: labels of these pairs, as from `targets`.
            is_pair: bool [B], False for rows of padding.
        """


@dataclasses.dataclass(frozen=True)
class CosineObjective(Objective):
    """Regression of the cosine on the label, which is scaled from its range to 0 … 1.

    Attributes:
        label_range: lowest and highest label.
    """

    label_range: tuple[float, float] = (0.0, 1.0)

    def targets(self, examples: Sequence[Example[Pair]]) -> np.ndarray:
        """Similarities, float32 [n]."""
        least, greatest = self.label_range
        numbers = numbers_of(examples)
        for example, number in zip(examples, numbers, strict=True):
            if not least <= number <= greatest:
                raise OptionError(
                    "data.label_range",
                    self.label_range,
                    "set {data.label_range} to the range of the labels, as {data.label_range=0,5}",
                    problem=f"{example.location}: the label {number:g} is not between {least:g} "
                    f"and {greatest:g}",
                )
        return ((numbers - least) / (greatest - least)).astype(np.float32)

    def losses(self, output: PairOutput, targets: jax.Array, is_pair: jax.Array) -> jax.Array:
        return jnp.square(cosines(*jnp.unstack(output.vectors, axis=1)) - targets)


@dataclasses.dataclass(frozen=True)
class ContrastiveObjective(Objective):
    """Moves similar pairs (label 1) together, and others (label 0) apart up to a margin.

    The distance is 1 - cosine, see `ranking_losses.contrastive`.

    Attributes:
        margin: the distance above which the loss of other pairs is 0.
    """

    margin: float = 0.5

    def targets(self, examples: Sequence[Example[Pair]]) -> np.ndarray:
        """Labels, float32 [n], 0 or 1."""
        numbers = numbers_of(examples)
        for example, number in zip(examples, numbers, strict=True):
            if number not in (0, 1):
                raise UserError(
                    f"{example.location}: the label is {number:g}; for the contrastive loss it "
                    "must be 1 (similar pairs) or 0 (others)"
                )
        return numbers.astype(np.float32)

    def can_evaluate(self, examples: Sequence[Example[Pair]]) -> bool:
        """Whether the labels are 0 and 1, and not degrees of similarity."""
        return set(numbers_of(examples)) <= {0, 1}

    def losses(self, output: PairOutput, targets: jax.Array, is_pair: jax.Array) -> jax.Array:
        return contrastive(cosines(*jnp.unstack(output.vectors, axis=1)), targets, self.margin)


@dataclasses.dataclass(frozen=True)
class SoftmaxObjective(Objective):
    """A classifier of the label that reads u, v and |u - v|, as for natural language inference."""

    labels: tuple[str, ...] = ()

    def targets(self, examples: Sequence[Example[Pair]]) -> np.ndarray:
        """Class numbers, int32 [n]."""
        return class_numbers(self.labels, examples)

    def can_evaluate(self, examples: Sequence[Example[Pair]]) -> bool:
        """Whether there is a classifier, and the pairs have its labels."""
        return bool(self.labels) and {example.label for example in examples} <= set(self.labels)

    def losses(self, output: PairOutput, targets: jax.Array, is_pair: jax.Array) -> jax.Array:
        return optax.softmax_cross_entropy_with_integer_labels(output.logits, targets)


@dataclasses.dataclass(frozen=True)
class MultipleNegativesRanking(Objective):
    """Cross-entropy of each first text's own second text among all second texts of the batch.

    The logits are scale × cosine (Henderson et al., 2017, section 4.4); for second texts that are
    no negatives see `metrics.similarity.are_related`.

    Labels are not needed. If there are some, pairs with a label in the lower half of the range are
    left out.

    Attributes:
        scale: factor of the cosines, 1 / temperature.
        label_range: lowest and highest label.
    """

    scale: float = 20.0
    label_range: tuple[float, float] = (0.0, 1.0)
    needs_labels = False
    is_global = True

    def select(self, examples: list[Example[Pair]]) -> list[Example[Pair]]:
        """The pairs that belong together: without a label, or in the upper half of the range.

        Raises:
            OptionError: there are none.
        """
        middle = sum(self.label_range) / 2
        chosen = [pair for pair in examples if pair.label is None or number_of(pair) > middle]
        if not chosen:
            raise OptionError(
                "data.label_range",
                self.label_range,
                "give pairs that belong together, or set {data.label_range}",
                problem=f"no training pair has a label above {middle:g}, the middle of their range",
            )
        if len(chosen) < len(examples):
            say(
                f"{len(examples) - len(chosen)} of {len(examples)} training pairs are labelled "
                f"{middle:g} or less: left out"
            )
        return chosen

    def targets(self, examples: Sequence[Example[Pair]]) -> np.ndarray:
        """Text numbers, int32 [n, 2]."""
        return text_numbers(examples)

    def losses(self, output: PairOutput, targets: jax.Array, is_pair: jax.Array) -> jax.Array:
        first, second = jnp.unstack(output.vectors, axis=1)
        scores = self.scale * jax_similarities(first, second, "cosine")  # BB
        is_negative = ~are_related(targets, targets) & is_pair
        return cross_entropy(scores, jnp.arange(len(targets)), is_negative)


@dataclasses.dataclass(frozen=True)
class CosentObjective(Objective):
    """Pairs with a higher label get a higher cosine, whatever the values of the labels.

    All pairs of the global batch are compared; see `ranking_losses.cosent`.

    Attributes:
        scale: factor of the cosines.
    """

    scale: float = 20.0
    is_global = True

    def targets(self, examples: Sequence[Example[Pair]]) -> np.ndarray:
        """Labels, float32 [n]."""
        return numbers_of(examples).astype(np.float32)

    def losses(self, output: PairOutput, targets: jax.Array, is_pair: jax.Array) -> jax.Array:
        scores = self.scale * cosines(*jnp.unstack(output.vectors, axis=1))
        return jnp.full(len(scores), cosent(scores, targets, is_pair))


def text_numbers(examples: Sequence[Example[Pair]]) -> np.ndarray:
    """Numbers of texts, equal for equal texts, int32 [n, 2]."""
    known: dict[str, int] = {}
    numbers = [
        [known.setdefault(text, len(known)) for text in example.input] for example in examples
    ]
    return np.array(numbers, np.int32)


def numbers_of(examples: Sequence[Example[Pair]]) -> np.ndarray:
    """The labels as numbers, float64 [n].

    Raises:
        OptionError: a label is not a number.
    """
    return np.array([number_of(example) for example in examples], np.float64)


def number_of(example: Example[Pair]) -> float:
    """The label as a number.

    Raises:
        OptionError: the label is not a number.
    """
    try:
        return float(example.label)  # a tuple raises TypeError
    except (TypeError, ValueError) as error:
        raise OptionError(
            "data.label_column",
            None,
            "set {data.label_column}, or train with {data.loss=softmax}",
            problem=f"{example.location}: the label {example.label!r:.40} is not a number",
        ) from error

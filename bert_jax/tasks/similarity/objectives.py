"""What the vectors of pairs are trained for (Sentence-BERT, section 3): one class for each loss."""

import abc
import dataclasses
import sys
from collections.abc import Sequence

import jax
import numpy as np
import optax

from bert_jax.data.examples import TextExample
from bert_jax.errors import UserError
from bert_jax.models.sentence_pairs import PairOutput
from bert_jax.tasks.similarity.losses import contrastive_losses, cosine_losses, in_batch_losses


class Objective(abc.ABC):
    """A loss of pairs, and what it takes for labels.

    Attributes:
        labels: names of the C classes, if they are classes.
    """

    labels: tuple[str, ...] = ()
    needs_labels = True

    def select(self, examples: list[TextExample]) -> list[TextExample]:
        """The training examples that it can use."""
        return examples

    def judges(self, examples: Sequence[TextExample]) -> bool:
        """Whether its mean loss over validation pairs is a metric of them."""
        return True

    @abc.abstractmethod
    def targets(self, examples: Sequence[TextExample]) -> np.ndarray:
        """Labels as numbers, [n, …].

        Raises:
            UserError: a label is of the wrong kind, with its place.
        """

    @abc.abstractmethod
    def losses(self, output: PairOutput, targets: jax.Array, is_pair: jax.Array) -> jax.Array:
        """The loss of each pair, float32 [B].

        Args:
            output: of B pairs.
            targets: theirs.
            is_pair: bool [B], False for rows that fill up the batch.
        """


@dataclasses.dataclass(frozen=True)
class CosineObjective(Objective):
    """The cosine is to be the label, which is brought from its range to 0 … 1.

    Attributes:
        label_range: the least and the greatest label.
    """

    label_range: tuple[float, float] = (0.0, 1.0)

    def targets(self, examples: Sequence[TextExample]) -> np.ndarray:
        """float32 [n]."""
        least, greatest = self.label_range
        numbers = numbers_of(examples)
        for example, number in zip(examples, numbers, strict=True):
            if not least <= number <= greatest:
                raise UserError(
                    f"{example.place}: the label {number:g} lies outside data.label_range, "
                    f"{least:g} to {greatest:g}; set it to what the labels range over, as "
                    "data.label_range=0,5"
                )
        return ((numbers - least) / (greatest - least)).astype(np.float32)

    def losses(self, output: PairOutput, targets: jax.Array, is_pair: jax.Array) -> jax.Array:
        """The squared difference."""
        return cosine_losses(output.vectors, targets)


@dataclasses.dataclass(frozen=True)
class ContrastiveObjective(Objective):
    """Similar pairs (label 1) are to be near, others (label 0) further away than a margin.

    Attributes:
        margin: that distance, 1 - cosine.
    """

    margin: float = 0.5

    def targets(self, examples: Sequence[TextExample]) -> np.ndarray:
        """float32 [n], 0 or 1."""
        numbers = numbers_of(examples)
        for example, number in zip(examples, numbers, strict=True):
            if number not in (0, 1):
                raise UserError(
                    f"{example.place}: the label is {number:g}; the contrastive loss knows 1 for "
                    "similar pairs and 0 for others"
                )
        return numbers.astype(np.float32)

    def judges(self, examples: Sequence[TextExample]) -> bool:
        """Whether they are labelled in the same way, and not by degrees."""
        return set(numbers_of(examples)) <= {0, 1}

    def losses(self, output: PairOutput, targets: jax.Array, is_pair: jax.Array) -> jax.Array:
        """See `contrastive_losses`."""
        return contrastive_losses(output.vectors, targets, self.margin)


@dataclasses.dataclass(frozen=True)
class SoftmaxObjective(Objective):
    """A classifier is to tell the label from u, v and |u - v|, as that of NLI."""

    labels: tuple[str, ...] = ()

    def targets(self, examples: Sequence[TextExample]) -> np.ndarray:
        """int32 [n]."""
        numbers = {label: number for number, label in enumerate(self.labels)}
        for example in examples:
            if example.label not in numbers:
                raise UserError(
                    f"{example.place}: label {example.label!r} is none of {', '.join(numbers)}; "
                    "mend the line"
                )
        return np.array([numbers[str(example.label)] for example in examples], np.int32)

    def judges(self, examples: Sequence[TextExample]) -> bool:
        """Whether there is a classifier, and they have its labels."""
        return bool(self.labels) and {one.label for one in examples} <= set(self.labels)

    def losses(self, output: PairOutput, targets: jax.Array, is_pair: jax.Array) -> jax.Array:
        """Cross-entropy."""
        return optax.softmax_cross_entropy_with_integer_labels(output.logits, targets)


@dataclasses.dataclass(frozen=True)
class MultipleNegativesRanking(Objective):
    """Of all second texts of a batch, each first text is to find its own.

    Labels are not needed. Where there are some, pairs in the lower half of their range are no
    pairs to learn from.

    Attributes:
        scale: of the cosines, one over the temperature.
        label_range: the least and the greatest label.
    """

    scale: float = 20.0
    label_range: tuple[float, float] = (0.0, 1.0)
    needs_labels = False

    def select(self, examples: list[TextExample]) -> list[TextExample]:
        """The pairs that belong together."""
        middle = sum(self.label_range) / 2
        chosen = [one for one in examples if one.label is None or number_of(one) > middle]
        if not chosen:
            raise UserError(
                f"data.train: no pair has a label above {middle:g}, the middle of "
                "data.label_range; give pairs that belong together"
            )
        if len(chosen) < len(examples):
            print(
                f"{len(examples) - len(chosen)} of {len(examples)} training pairs are labelled "
                f"{middle:g} or less: left out",
                file=sys.stderr,
            )
        return chosen

    def judges(self, examples: Sequence[TextExample]) -> bool:
        """No: the loss of a pair depends on the others of its batch."""
        return False

    def targets(self, examples: Sequence[TextExample]) -> np.ndarray:
        """Numbers of the texts, int32 [n, 2]."""
        return text_numbers(examples)

    def losses(self, output: PairOutput, targets: jax.Array, is_pair: jax.Array) -> jax.Array:
        """See `in_batch_losses`."""
        return in_batch_losses(output.vectors, targets, is_pair, self.scale)


def text_numbers(examples: Sequence[TextExample]) -> np.ndarray:
    """Equal numbers for equal texts, int32 [n, 2]."""
    known: dict[str, int] = {}
    numbers = [
        [known.setdefault(text, len(known)) for text in (one.text, str(one.pair))]
        for one in examples
    ]
    return np.array(numbers, np.int32)


def numbers_of(examples: Sequence[TextExample]) -> np.ndarray:
    """The labels as numbers, float64 [n].

    Raises:
        UserError: one is no number.
    """
    return np.array([number_of(example) for example in examples], np.float64)


def number_of(example: TextExample) -> float:
    """The label as a number.

    Raises:
        UserError: it is none.
    """
    try:
        return float(example.label)  # type: ignore[arg-type]  # a tuple is no number either
    except (TypeError, ValueError) as error:
        raise UserError(
            f"{example.place}: the label {example.label!r:.40} is no number; set "
            "data.label_column, or train with data.loss=softmax"
        ) from error

"""How `parity` compares a head with transformers: random labels, and losses of both libraries."""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from bert_jax.models.config import EncoderConfig

IGNORED_LABEL = -100

_MASKED = 0.15

Labels = dict[str, np.ndarray]
Arrays = Mapping[str, jax.Array]


@dataclasses.dataclass
class DrawnBatch:
    """A random batch, to which a head adds labels.

    Attributes:
        ids: int32 [B · K, T], rows of the encoder; K = 1 except for multiple choice.
        mask: int32 [B · K, T], 0 at padding.
        is_word: bool [B · K, T], False at [CLS], [SEP] and padding.
        config: architecture of the model.
        problem_type: problem type of a sequence classifier.
        mask_id: returns the id of [MASK].
        generator: generator of all random values.
    """

    ids: np.ndarray
    mask: np.ndarray
    is_word: np.ndarray
    config: EncoderConfig
    problem_type: str
    mask_id: Callable[[], int]
    generator: np.random.Generator

    def mask_words(self) -> np.ndarray:
        """Masks some words of `ids`, one or more per row; they are the labels, int32 [B · K, T]."""
        chosen = self.is_word & (self.generator.random(self.ids.shape) < _MASKED)
        chosen[np.arange(len(self.ids)), self.is_word.argmax(1)] = True
        labels = np.where(chosen, self.ids, IGNORED_LABEL)
        self.ids = np.where(chosen, self.mask_id(), self.ids).astype(np.int32)
        return labels.astype(np.int32)

    def classes(self, count: int, classes: int) -> np.ndarray:
        """Int32 [count], each below `classes`."""
        return self.generator.integers(0, classes, count).astype(np.int32)

    def one_class(self, classes: int) -> np.ndarray:
        """The same class for all rows: the gradients of several classes may cancel to rounding."""
        return np.repeat(self.classes(1, classes), len(self.ids))


@dataclasses.dataclass(frozen=True)
class Comparison:
    """The outputs of a head that are compared with Hugging Face's class.

    Attributes:
        logits: names of the logits in Hugging Face's output.
        per_token: names of the logits with an entry for each token, [B, T, ...].
        losses: parts of the loss; if there are several, followed by their sum. The last has
            gradients.
        labels: labels of a drawn batch, by argument of Hugging Face's class; or, if the class has
            no loss, coefficients of outputs: the loss is their sum.
        loss: logits by name, labels, problem type → `losses`, float32 scalars; None: the class has
            no loss.
        losses_of_class: output of the class, labels, and `cross_entropy` for its tensors →
            `losses`; None: its only loss.
        reads_padding: whether the loss depends on the logits of padding.
        reads_problem_type: whether the loss depends on the problem type.
        choices: K, the number of rows of an example.
        features: further arguments of the models for a drawn batch, by name, beside token ids,
            token types and mask; [B · K, ...].
        has_decoder: whether the model has a decoder beside its encoder.
    """

    logits: tuple[str, ...]
    losses: tuple[str, ...]
    labels: Callable[[DrawnBatch], Labels]
    per_token: tuple[str, ...] = ()
    loss: Callable[[Arrays, Arrays, str], list[jax.Array]] | None = None
    losses_of_class: Callable[..., list[Any]] | None = None
    reads_padding: bool = False
    reads_problem_type: bool = False
    choices: int = 1
    features: Callable[[DrawnBatch], Mapping[str, np.ndarray]] = lambda draw: {}
    has_decoder: bool = False

    def named_logits(self, output: Any) -> dict[str, Any]:
        """The logits in the output of a model of bert_jax or of transformers, by name."""
        # Models of bert_jax with a single output return it as an array.
        default = output if hasattr(output, "shape") else None
        values = {name: getattr(output, name, default) for name in self.logits}
        return {name: value for name, value in values.items() if value is not None}

    def named_losses(
        self, output: Any, labels: Mapping[str, Any], problem_type: str
    ) -> dict[str, Any]:
        """The losses of a model of bert_jax; the last one has gradients."""
        if self.loss is None:
            values = [linear_form(output, labels)]
        else:
            values = self.loss(self.named_logits(output), labels, problem_type)
        return dict(zip(self.losses, values, strict=True))


def linear_form(output: Any, labels: Mapping[str, Any]) -> Any:
    """The loss of a model without one, for arrays of JAX and tensors of PyTorch.

    The sum of all outputs that `labels` has coefficients of; an encoder may have no pooler.
    """
    values = {name: _output(output, name) for name in labels}
    return sum((value * labels[name]).sum() for name, value in values.items() if value is not None)


def _output(output: Any, name: str) -> Any:
    """An output by its name; DPR's encoders return the last hidden state as the last of all."""
    if name == "last_hidden_state" and not hasattr(output, name):
        return output.hidden_states[-1]
    return getattr(output, name, None)


def cross_entropy(logits: jax.Array, labels: jax.Array) -> jax.Array:
    """[..., C] and int [...] → the mean over the labels, without `IGNORED_LABEL`."""
    import optax  # here, since models are used without it

    return _mean_of_labelled(optax.softmax_cross_entropy_with_integer_labels, logits, labels)


def sigmoid_cross_entropy(logits: jax.Array, labels: jax.Array) -> jax.Array:
    """Two [...] → the mean over the labels, without `IGNORED_LABEL`."""
    import optax

    return _mean_of_labelled(optax.sigmoid_binary_cross_entropy, logits, labels)


def _mean_of_labelled(
    loss: Callable[[jax.Array, jax.Array], jax.Array], logits: jax.Array, labels: jax.Array
) -> jax.Array:
    counts = labels != IGNORED_LABEL
    each = loss(logits, jnp.where(counts, labels, 0))
    return jnp.sum(jnp.where(counts, each, 0)) / jnp.sum(counts)


def cross_entropy_of_logits(logits: Arrays, labels: Arrays, _: str) -> list[jax.Array]:
    """The loss of a head with one kind of logits and of labels."""
    return [cross_entropy(logits["logits"], labels["labels"])]

"""What each model gives out, and the loss that Hugging Face's class has for it."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from bert_jax.models.config import Head

IGNORED_LABEL = -100


class Outputs(NamedTuple):
    """The outputs of the model of one head.

    Attributes:
        logits: their names in Hugging Face's output.
        per_token: those of them with an entry for each token, [B, T, ...].
        losses: the parts of the loss, and after several parts their sum, which has the gradients.
        reads_padding: whether the loss depends on the logits of padding.
    """

    logits: tuple[str, ...]
    per_token: tuple[str, ...]
    losses: tuple[str, ...]
    reads_padding: bool = False


OUTPUTS: dict[Head, Outputs] = {
    # No loss of its own: a fixed random linear form, so that every gradient is there.
    Head.ENCODER: Outputs(("pooler_output",), (), ("linear_form",)),
    Head.PRETRAINING: Outputs(
        ("prediction_logits", "seq_relationship_logits"),
        ("prediction_logits",),
        ("masked_lm", "next_sentence", "sum"),
    ),
    Head.MASKED_LM: Outputs(("logits",), ("logits",), ("masked_lm",)),
    Head.NEXT_SENTENCE: Outputs(("logits",), (), ("next_sentence",)),
    Head.CLASSIFICATION: Outputs(("logits",), (), ("classification",)),
    Head.TAGGING: Outputs(("logits",), ("logits",), ("tagging",)),
    Head.QUESTION_ANSWERING: Outputs(
        ("start_logits", "end_logits"),
        ("start_logits", "end_logits"),
        ("span",),
        reads_padding=True,
    ),
    # A softmax does not see what its choices have in common: in an untrained model, which gives
    # them all about the same score, the gradients of the loss alone are hardly more than rounding.
    Head.MULTIPLE_CHOICE: Outputs(("logits",), (), ("choice", "mean_score", "sum")),
}


def settled_problem_type(problem_type: str | None, num_labels: int) -> str:
    """The loss of a classifier whose config names none: one output is a regression."""
    return problem_type or ("regression" if num_labels == 1 else "single_label_classification")


def named_logits(head: Head, output: Any) -> dict[str, jax.Array]:
    """The logits in the output of one of our models."""
    fields = output._asdict() if hasattr(output, "_asdict") else {"logits": output}
    wanted = {name: fields[name] for name in OUTPUTS[head].logits}
    return {name: value for name, value in wanted.items() if value is not None}


def losses(
    head: Head, problem_type: str, output: Any, labels: Mapping[str, jax.Array]
) -> dict[str, jax.Array]:
    """The losses of one of our models, from its output and the labels of `inputs`; the last counts.

    Args:
        head: of the model.
        problem_type: of a sequence classifier, as `settled_problem_type` gives it.
        output: of the model.
        labels: under the names of the arguments of Hugging Face's class.

    Returns:
        Scalars, float32, in the order of `Outputs.losses`.
    """
    logits = named_logits(head, output)
    match head:
        case Head.ENCODER:
            parts = [_linear_form(output, labels)]
        case Head.PRETRAINING:
            words = _cross_entropy(logits["prediction_logits"], labels["labels"])
            pair = _cross_entropy(logits["seq_relationship_logits"], labels["next_sentence_label"])
            parts = [words, pair, words + pair]
        case Head.QUESTION_ANSWERING:
            start = _cross_entropy(logits["start_logits"], labels["start_positions"])
            end = _cross_entropy(logits["end_logits"], labels["end_positions"])
            parts = [(start + end) / 2]
        case Head.CLASSIFICATION if problem_type == "regression":
            target = labels["labels"].reshape(logits["logits"].shape)
            parts = [jnp.mean(jnp.square(logits["logits"] - target))]
        case Head.CLASSIFICATION if problem_type == "multi_label_classification":
            each = optax.sigmoid_binary_cross_entropy(logits["logits"], labels["labels"])
            parts = [jnp.mean(each)]
        case Head.MULTIPLE_CHOICE:
            choice = _cross_entropy(logits["logits"], labels["labels"])
            score = jnp.mean(logits["logits"])
            parts = [choice, score, choice + score]
        case _:
            parts = [_cross_entropy(logits["logits"], labels["labels"])]
    return dict(zip(OUTPUTS[head].losses, parts, strict=True))


def _linear_form(output: Any, labels: Mapping[str, jax.Array]) -> jax.Array:
    form = jnp.sum(output.last_hidden_state * labels["last_hidden_state"])
    if output.pooler_output is None:
        return form
    return form + jnp.sum(output.pooler_output * labels["pooler_output"])


def _cross_entropy(logits: jax.Array, labels: jax.Array) -> jax.Array:
    """[..., C] and int [...] → the mean over the labels that are not `IGNORED_LABEL`."""
    counts = labels != IGNORED_LABEL
    each = optax.softmax_cross_entropy_with_integer_labels(logits, jnp.where(counts, labels, 0))
    return jnp.sum(jnp.where(counts, each, 0)) / jnp.sum(counts)

"""What each model gives out, and the loss that Hugging Face's class has for it."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

IGNORED_LABEL = -100


class Head(NamedTuple):
    """The outputs of one architecture.

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


HEADS: dict[str, Head] = {
    # No loss of its own: a fixed random linear form, so that every gradient is there.
    "BertModel": Head(("pooler_output",), (), ("linear_form",)),
    "BertForPreTraining": Head(
        ("prediction_logits", "seq_relationship_logits"),
        ("prediction_logits",),
        ("masked_lm", "next_sentence", "sum"),
    ),
    "BertForMaskedLM": Head(("logits",), ("logits",), ("masked_lm",)),
    "BertForNextSentencePrediction": Head(("logits",), (), ("next_sentence",)),
    "BertForSequenceClassification": Head(("logits",), (), ("classification",)),
    "BertForTokenClassification": Head(("logits",), ("logits",), ("tagging",)),
    "BertForQuestionAnswering": Head(
        ("start_logits", "end_logits"),
        ("start_logits", "end_logits"),
        ("span",),
        reads_padding=True,
    ),
    # A softmax does not see what its choices have in common: in an untrained model, which gives
    # them all about the same score, the gradients of the loss alone are hardly more than rounding.
    "BertForMultipleChoice": Head(("logits",), (), ("choice", "mean_score", "sum")),
}


def settled_problem_type(problem_type: str | None, num_labels: int) -> str:
    """The loss of a classifier whose config names none: one output is a regression."""
    return problem_type or ("regression" if num_labels == 1 else "single_label_classification")


def named_logits(architecture: str, output: Any) -> dict[str, jax.Array]:
    """The logits in the output of one of our models."""
    fields = output._asdict() if hasattr(output, "_asdict") else {"logits": output}
    wanted = {name: fields[name] for name in HEADS[architecture].logits}
    return {name: value for name, value in wanted.items() if value is not None}


def losses(
    architecture: str, problem_type: str, output: Any, labels: Mapping[str, jax.Array]
) -> dict[str, jax.Array]:
    """The losses of one of our models, from its output and the labels of `inputs`; the last counts.

    Args:
        architecture: a key of `HEADS`.
        problem_type: of a sequence classifier, as `settled_problem_type` gives it.
        output: of the model.
        labels: under the names of the arguments of Hugging Face's class.

    Returns:
        Scalars, float32, in the order of `Head.losses`.
    """
    logits = named_logits(architecture, output)
    match architecture:
        case "BertModel":
            parts = [_linear_form(output, labels)]
        case "BertForPreTraining":
            words = _cross_entropy(logits["prediction_logits"], labels["labels"])
            pair = _cross_entropy(logits["seq_relationship_logits"], labels["next_sentence_label"])
            parts = [words, pair, words + pair]
        case "BertForQuestionAnswering":
            start = _cross_entropy(logits["start_logits"], labels["start_positions"])
            end = _cross_entropy(logits["end_logits"], labels["end_positions"])
            parts = [(start + end) / 2]
        case "BertForSequenceClassification" if problem_type == "regression":
            target = labels["labels"].reshape(logits["logits"].shape)
            parts = [jnp.mean(jnp.square(logits["logits"] - target))]
        case "BertForSequenceClassification" if problem_type == "multi_label_classification":
            each = optax.sigmoid_binary_cross_entropy(logits["logits"], labels["labels"])
            parts = [jnp.mean(each)]
        case "BertForMultipleChoice":
            choice = _cross_entropy(logits["logits"], labels["labels"])
            score = jnp.mean(logits["logits"])
            parts = [choice, score, choice + score]
        case _:
            parts = [_cross_entropy(logits["logits"], labels["labels"])]
    return dict(zip(HEADS[architecture].losses, parts, strict=True))


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

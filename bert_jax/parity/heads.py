"""The inputs, labels, outputs and losses of a comparison, for each head.

The losses are those of Hugging Face's classes; inputs are drawn from a seed.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

from bert_jax.errors import UserError
from bert_jax.models.config import EncoderConfig, Head
from bert_jax.tokenization import Tokenizer

IGNORED_LABEL = -100


class Outputs(NamedTuple):
    """The outputs of a model with one head.

    Attributes:
        logits: names of the logits in Hugging Face's output.
        per_token: names of the logits with an entry for each token, [B, T, ...].
        losses: parts of the loss; if there are several, followed by their sum. The last has
            gradients.
        reads_padding: whether the loss depends on the logits of padding.
    """

    logits: tuple[str, ...]
    per_token: tuple[str, ...]
    losses: tuple[str, ...]
    reads_padding: bool = False


OUTPUTS: dict[Head, Outputs] = {
    # No loss: a fixed random linear form, so that every gradient is non-zero.
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
    # A softmax ignores what its choices have in common: in an untrained model, which scores all
    # choices about equally, the gradients of the loss alone are hardly more than rounding.
    Head.MULTIPLE_CHOICE: Outputs(("logits",), (), ("choice", "mean_score", "sum")),
    Head.REPLACED_TOKENS: Outputs(("logits",), ("logits",), ("replaced_tokens",)),
    # The class has no loss.
    Head.READER: Outputs(
        ("start_logits", "end_logits", "relevance_logits"),
        ("start_logits", "end_logits"),
        ("linear_form",),
    ),
}


def named_logits(head: Head, output: Any) -> dict[str, Any]:
    """The logits in the output of a model of bert_jax or of transformers, by name."""
    # Models of bert_jax with a single output return it as an array; an encoder may have no pooler.
    default = None if head is Head.ENCODER else output
    values = {name: getattr(output, name, default) for name in OUTPUTS[head].logits}
    return {name: value for name, value in values.items() if value is not None}


def losses(
    head: Head, problem_type: str, output: Any, labels: Mapping[str, jax.Array]
) -> dict[str, jax.Array]:
    """The losses of a model of bert_jax; the gradients are those of the last one.

    Args:
        head: head of the model.
        problem_type: problem type of a sequence classifier.
        output: output of the model.
        labels: labels of a `ParityInput`.

    Returns:
        Scalars, float32, in the order of `Outputs.losses`.
    """
    logits = named_logits(head, output)
    match head:
        case Head.ENCODER | Head.READER:
            parts = [linear_form(output, labels)]
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
        case Head.REPLACED_TOKENS:
            counts = labels["labels"] != IGNORED_LABEL
            each = optax.sigmoid_binary_cross_entropy(logits["logits"], labels["labels"])
            parts = [jnp.sum(jnp.where(counts, each, 0)) / jnp.sum(counts)]
        case _:
            parts = [_cross_entropy(logits["logits"], labels["labels"])]
    return dict(zip(OUTPUTS[head].losses, parts, strict=True))


def linear_form(output: Any, labels: Mapping[str, Any]) -> Any:
    """The loss of a model without one, for arrays of JAX and tensors of PyTorch.

    The sum of all outputs that `labels` has coefficients of; an encoder may have no pooler.
    """
    values = {name: _output(output, name) for name in labels}
    return sum((value * labels[name]).sum() for name, value in values.items() if value is not None)


def _output(output: Any, name: str) -> Any:
    """An output by its name; DPR's encoders have the last hidden state among all others alone."""
    if name == "last_hidden_state" and not hasattr(output, name):
        return output.hidden_states[-1]
    return getattr(output, name, None)


def _cross_entropy(logits: jax.Array, labels: jax.Array) -> jax.Array:
    """[..., C] and int [...] → the mean over the labels other than `IGNORED_LABEL`."""
    counts = labels != IGNORED_LABEL
    each = optax.softmax_cross_entropy_with_integer_labels(logits, jnp.where(counts, labels, 0))
    return jnp.sum(jnp.where(counts, each, 0)) / jnp.sum(counts)


# In the order of the arguments of bert_jax's models.
FEATURES = ("input_ids", "token_type_ids", "attention_mask")

_CHOICES = 2
_MASKED = 0.15


@dataclasses.dataclass(frozen=True)
class ParityInput:
    """One batch. The encoder has R rows: B, or B · C for multiple choice.

    Attributes:
        name: name in the table.
        text: description of the input.
        features: arrays by `FEATURES`, int32 [B, T] or, for multiple choice, [B, C, T].
        labels: int32 or float32, by argument of Hugging Face's class; for the bare encoder the
            coefficients of its linear form, `last_hidden_state` [B, T, D] and `pooler_output`
            [B, D].
    """

    name: str
    text: str
    features: Mapping[str, np.ndarray]
    labels: Mapping[str, np.ndarray]

    def rows(self, feature: str) -> np.ndarray:
        """A feature in the rows of the encoder, [R, T]."""
        values = self.features[feature]
        return values.reshape(-1, values.shape[-1])


def make_inputs(
    config: EncoderConfig, tokenizer: Tokenizer, head: Head, problem_type: str, *, seed: int = 0
) -> tuple[ParityInput, ...]:
    """A short row, a padded batch and a row of maximum length.

    Args:
        config: architecture of the model.
        tokenizer: tokenizer; its template defines the special tokens. There is a second segment if
            the model has the token types of a pair.
        head: head of the model; the labels are those of its loss.
        problem_type: problem type of a sequence classifier.
        seed: seed of the inputs.

    Raises:
        UserError: the model has too few positions for a word and the special tokens.
    """
    longest = config.max_length
    least = 1 + tokenizer.num_special_tokens(pair=False)
    if longest < least:
        raise UserError(
            f"the model takes {longest} tokens, but an input has at least {least}, a word and the "
            "special tokens: give another model"
        )
    inputs = []
    for number, (name, lengths, with_pairs) in enumerate(_plans(longest)):
        generator = np.random.default_rng((seed, number))
        maker = _Maker(config, tokenizer, head, problem_type, generator)
        has_pairs = with_pairs and tokenizer.supports_pairs(config.type_vocab_size)
        inputs.append(maker.make(name, lengths, has_pairs=has_pairs))
    return tuple(inputs)


def _plans(longest: int) -> tuple[tuple[str, list[int], bool], ...]:
    """Name, lengths of the rows, and whether they are pairs of texts."""
    return (
        ("short", [min(12, longest)], False),
        ("padded", [min(length, longest) for length in (24, 17, 6)], True),
        ("full", [longest], True),
    )


@dataclasses.dataclass(frozen=True)
class _Maker:
    """Draws one input."""

    config: EncoderConfig
    tokenizer: Tokenizer
    head: Head
    problem_type: str
    generator: np.random.Generator

    def make(self, name: str, lengths: Sequence[int], *, has_pairs: bool) -> ParityInput:
        """A batch with one row of each length, or with one question of that many choices."""
        batch = len(lengths)
        if self.head is Head.MULTIPLE_CHOICE:
            lengths = [length for length in lengths for _ in range(_CHOICES)]
        rows = [self._row(length, max(lengths), has_pairs) for length in lengths]
        ids, types, mask = (np.stack(parts) for parts in zip(*rows, strict=True))  # RT
        ids, labels = self._with_labels(ids, mask)
        if self.head is Head.MULTIPLE_CHOICE:
            ids, types, mask = (
                array.reshape(batch, _CHOICES, -1) for array in (ids, types, mask)
            )  # BCT
        facts = [f"batch {batch}", f"{max(lengths)} tokens"]
        if self.head is Head.MULTIPLE_CHOICE:
            facts.append(f"{_CHOICES} choices")
        if min(lengths) < max(lengths):
            facts.append(f"padding (rows of {', '.join(map(str, dict.fromkeys(lengths)))})")
        if has_pairs:
            facts.append("two segments")
        features = dict(zip(FEATURES, (ids, types, mask), strict=True))
        return ParityInput(name, ", ".join(facts), features, labels)

    def _row(
        self, length: int, width: int, is_pair: bool
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """One text or two, padded: ids, token types and mask, int32 [width]."""
        template = self.tokenizer.template
        is_pair = is_pair and length >= 2 + template.num_special_tokens(pair=True)
        words = length - template.num_special_tokens(pair=is_pair)
        sizes = {"A": (words + 1) // 2 if is_pair else words, "B": words // 2}
        ids = np.full(width, self.tokenizer.padding_id, np.int32)
        types, mask = np.zeros(width, np.int32), np.zeros(width, np.int32)
        ids[:length], mask[:length] = self._words(length), 1
        start = 0
        for name, type_id in template.parts(pair=is_pair):
            stop = start + sizes.get(name, 1)
            if name not in sizes:
                ids[start] = self.tokenizer.template_id(name)
            types[start:stop] = type_id
            start = stop
        return ids, types, mask

    def _words(self, count: int) -> np.ndarray:
        special = self.tokenizer.special_ids
        ordinary = np.setdiff1d(
            np.arange(self.config.vocab_size),
            [*special.known(), self.config.pad_token_id],
        )
        return self.generator.choice(ordinary if ordinary.size else [special.unk or 0], count)

    def _with_labels(
        self, ids: np.ndarray, mask: np.ndarray
    ) -> tuple[np.ndarray, dict[str, np.ndarray]]:
        """Two [R, T] → the ids, some of them masked if the loss is over words, and the labels."""
        rows, lengths = len(ids), mask.sum(1)
        match self.head:
            case Head.PRETRAINING:
                ids, words = self._mask_words(ids)
                return ids, {"labels": words, "next_sentence_label": self._one_class(rows, 2)}
            case Head.MASKED_LM:
                ids, words = self._mask_words(ids)
                return ids, {"labels": words}
            case Head.NEXT_SENTENCE:
                return ids, {"labels": self._one_class(rows, 2)}
            case Head.CLASSIFICATION:
                return ids, {"labels": self._targets(rows)}
            case Head.REPLACED_TOKENS:
                replaced = self._classes(ids.size, 2).reshape(ids.shape)
                labels = np.where(mask, replaced, IGNORED_LABEL)
                return ids, {"labels": labels.astype(np.float32)}
            case Head.TAGGING:
                tags = self._classes(ids.size, self.config.num_labels).reshape(ids.shape)
                labels = np.where(self._is_word(ids), tags, IGNORED_LABEL)
                return ids, {"labels": labels.astype(np.int32)}
            case Head.QUESTION_ANSWERING:
                ends = np.sort(self.generator.integers(0, lengths, (2, rows)), axis=0)
                start, end = ends.astype(np.int32)
                return ids, {"start_positions": start, "end_positions": end}
            case Head.MULTIPLE_CHOICE:
                return ids, {"labels": self._classes(rows // _CHOICES, _CHOICES)}
            case Head.READER:
                return ids, self._form_of_reader(mask)
            case _:
                return ids, self._linear_form(mask)

    def _mask_words(self, ids: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Masks some words, which become the labels; at least one per row."""
        is_word = self._is_word(ids)
        chosen = is_word & (self.generator.random(ids.shape) < _MASKED)
        chosen[np.arange(len(ids)), is_word.argmax(1)] = True
        labels = np.where(chosen, ids, IGNORED_LABEL)
        mask = self.tokenizer.special_id("mask", "parity of the words' head")
        return np.where(chosen, mask, ids).astype(np.int32), labels.astype(np.int32)

    def _is_word(self, ids: np.ndarray) -> np.ndarray:
        special = self.tokenizer.special_ids
        around = [i for i in (special.cls, special.sep, special.pad) if i is not None]
        return ~np.isin(ids, around)

    def _classes(self, count: int, classes: int) -> np.ndarray:
        return self.generator.integers(0, classes, count).astype(np.int32)

    def _one_class(self, rows: int, classes: int) -> np.ndarray:
        """The same class for all rows: the gradients of several classes may cancel to rounding."""
        return np.repeat(self._classes(1, classes), rows)

    def _targets(self, rows: int) -> np.ndarray:
        """Labels of a sequence classifier: [B] classes or values, [B, C] flags or values."""
        labels = self.config.num_labels
        if self.problem_type == "single_label_classification":
            return self._one_class(rows, labels)
        if self.problem_type == "multi_label_classification":
            return self._classes(rows * labels, 2).reshape(rows, labels).astype(np.float32)
        values = self.generator.normal(size=(rows, labels)).astype(np.float32)
        return values[:, 0] if labels == 1 else values

    def _linear_form(self, mask: np.ndarray) -> dict[str, np.ndarray]:
        """Random coefficients, 0 at padding."""
        width = self.config.hidden_size
        tokens = self.generator.normal(size=(*mask.shape, width)) * mask[..., None]
        pooled = self.generator.normal(size=(len(mask), width))
        return {
            "last_hidden_state": (tokens / tokens.size).astype(np.float32),
            "pooler_output": (pooled / pooled.size).astype(np.float32),
        }

    def _form_of_reader(self, mask: np.ndarray) -> dict[str, np.ndarray]:
        """Random coefficients of the logits, 0 at padding."""
        start, end = self.generator.normal(size=(2, *mask.shape)) * mask / mask.size
        relevance = self.generator.normal(size=len(mask)) / len(mask)
        forms = {"start_logits": start, "end_logits": end, "relevance_logits": relevance}
        return {name: value.astype(np.float32) for name, value in forms.items()}

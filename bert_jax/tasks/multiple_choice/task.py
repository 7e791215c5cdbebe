"""The right one of several endings or answers: SWAG and its relatives (paper, section 4.4)."""

import dataclasses
from collections import Counter
from collections.abc import Iterable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from ml_collections import ConfigDict

from bert_jax.checkpoints.config_file import ModelDescription
from bert_jax.data.examples import ChoiceExample
from bert_jax.data.labelled_batches import LabelledBatches, Sequences
from bert_jax.data.pipeline import Batch
from bert_jax.data.readers.choices import ChoiceOptions, read_choices
from bert_jax.models.config import EncoderConfig, Head
from bert_jax.models.kernels import MASK_VALUE
from bert_jax.options import from_keys, keys_of
from bert_jax.tasks.base.labelled_task import (
    LabelledTask,
    TrainedModel,
    labelled_defaults,
    labelled_options,
    model_tokenizer,
)
from bert_jax.tasks.base.predictor import BatchOptions, Model, Predictor, encode_in_chunks
from bert_jax.tasks.base.splits import read_splits
from bert_jax.tasks.base.task import ModelInit, Sums, weighted_sums
from bert_jax.tasks.multiple_choice.decoding import ChoiceEncoder, ChoicePredictor
from bert_jax.tasks.multiple_choice.predict import PREDICT
from bert_jax.tokenization import Tokenizer


class MultipleChoiceTask(LabelledTask[ChoiceExample, np.ndarray]):
    """Multiple choice; an answer is the scores of the choices, float32 [C]."""

    PREDICT = PREDICT

    def make_batches(self) -> LabelledBatches:
        """Each item is an example with a row for each of its choices.

        C is that of the item with the most choices; the others have rows of padding, which
        `choice_mask` (bool [B, C]) tells.
        """
        examples = self.splits.train
        encode = ChoiceEncoder(self.tokenizer, self.description.config, self.options.length)
        of_examples = encode_in_chunks(encode, examples, encode.check)
        sequences = Sequences.of(row for rows in of_examples for row in rows)
        encode.report()
        rows = _row_numbers([len(example.choices) for example in examples])  # nC
        lengths = np.where(rows < 0, 0, sequences.lengths[rows]).max(axis=1)
        targets = _targets(examples)

        def make(chosen: np.ndarray, length: int) -> Batch:
            theirs = np.where(chosen[:, None] < 0, -1, rows[chosen])  # BC
            return {
                **sequences.pad(theirs, length, self.tokenizer),
                "choice_mask": theirs >= 0,
                "labels": targets[chosen],
                "weights": (chosen >= 0).astype(np.float32),
            }

        return self.batches_of(lengths, make)

    def loss_sums(self, params: Any, batch: dict[str, jax.Array], dropout_key: Any = None) -> Sums:
        """Cross-entropy over the choices of each item, and what is answered right."""
        logits: Any = self.forward(params, batch, dropout_key)
        logits = jnp.where(batch["choice_mask"], logits, MASK_VALUE)  # BC
        labels = batch["labels"]
        losses = optax.softmax_cross_entropy_with_integer_labels(logits, labels)
        correct = logits.argmax(axis=-1) == labels
        return {"": weighted_sums(batch["weights"], {"loss": losses, "accuracy": correct})}

    def predictor(self, model: Model) -> Predictor[ChoiceExample, np.ndarray]:
        """The predictor of users."""
        return ChoicePredictor(model, BatchOptions(self.options.batch_size, self.options.length))

    def label_of(self, example: ChoiceExample) -> int | None:
        return example.label

    def metrics(self, examples: list[ChoiceExample], answers: list[np.ndarray]) -> dict[str, float]:
        """Accuracy, and the mean cross-entropy."""
        targets = _targets(examples)
        losses, correct = [], []
        for scores, target in zip(answers, targets, strict=True):
            exact = scores.astype(np.float64)
            losses.append(np.logaddexp.reduce(exact) - exact[target])
            correct.append(scores.argmax() == target)
        return {"loss": float(np.mean(losses)), "accuracy": float(np.mean(correct))}

    def metric_names(self, examples: list[ChoiceExample]) -> Iterable[str]:
        """Always the same."""
        return "loss", "accuracy"

    def baseline_metrics(self, examples: list[ChoiceExample]) -> dict[str, float]:
        """`accuracy_majority`: the commonest place alone; `accuracy_chance`: a guess."""
        places = Counter(example.label for example in examples)
        chances = [1 / len(example.choices) for example in examples]
        return {
            "accuracy_majority": max(places.values()) / len(examples),
            "accuracy_chance": float(np.mean(chances)),
        }

    def examples_as_text(self, count: int) -> str:
        """The right choice, prompt, question, and all choices, one item a line."""
        return "\n".join(
            "\t".join(filter(None, (str(one.label), one.prompt, one.question, *one.choices)))
            for one in self.splits.train[:count]
        )


def defaults() -> dict[str, dict[str, Any]]:
    """The keys of this task, by section; those of `ChoiceOptions` are keys of `data`."""
    return labelled_defaults(
        keys_of(ChoiceOptions),
        optimizer={"learning_rate": 2e-5},
        train={"global_batch_size": 16},
    )


def create(config: ConfigDict, model_init: ModelInit) -> MultipleChoiceTask:
    """The task of a config, see `bert_jax.config`."""
    tokenizer = model_tokenizer(model_init)
    options = from_keys(ChoiceOptions, config.data)
    splits = read_splits(
        config.data,
        lambda source, split: read_choices(source, options, needs_labels=split == "train"),
        with_train=not model_init.is_finished,
    )
    return MultipleChoiceTask(
        splits,
        TrainedModel(tokenizer, _description(model_init, tokenizer), model_init.execution),
        labelled_options(config, ("accuracy", True)),
    )


def _description(model_init: ModelInit, tokenizer: Tokenizer) -> ModelDescription:
    """The model: one output whatever the labels are, which are those of no other head."""
    config, base = model_init.architecture(tokenizer), model_init.description
    if base is not None and base.head is Head.MULTIPLE_CHOICE:
        return ModelDescription(config, Head.MULTIPLE_CHOICE, labels=base.labels)
    config = dataclasses.replace(config, num_labels=EncoderConfig.num_labels)
    return ModelDescription(config, Head.MULTIPLE_CHOICE)


def _targets(examples: list[ChoiceExample]) -> np.ndarray:
    """The numbers of the right choices, int32 [n]; all examples have them."""
    return np.array([example.label for example in examples], np.int32)


def _row_numbers(counts: list[int]) -> np.ndarray:
    """The rows of each of n examples that have so many, int64 [n, C], -1 where there is none."""
    ends = np.cumsum(counts)[:, None]
    numbers = ends - np.array(counts)[:, None] + np.arange(max(counts))
    return np.where(numbers < ends, numbers, -1)

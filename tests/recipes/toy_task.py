"""A new task, whole: the stars of a review as the mean of a distribution over one to five.

Saved as `bert_jax/tasks/toy_task.py`, it is trained with a config's `task = "toy_task"`, evaluated,
and answered by `bert-jax predict --task toy_task`. Nothing else has to change.
"""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np

from bert_jax.data.outputs import float32_repr
from bert_jax.data.readers.columns import TextOptions
from bert_jax.data.readers.texts import read_texts
from bert_jax.tasks.base.labelled_evaluator import LabelledEvaluator
from bert_jax.tasks.base.labelled_options import (
    LabelledData,
    labelled_defaults,
    labelled_options,
    model_tokenizer,
)
from bert_jax.tasks.base.labelled_task import LabelledTask, encode_in_chunks
from bert_jax.tasks.base.predict_spec import TEXTS, PredictSpec, TextPredictOptions
from bert_jax.tasks.base.splits import read_splits
from bert_jax.tasks.base.task import weighted_sums
from bert_jax.tasks.base.text_rows import TextEncoder, TextPredictor
from bert_jax.tasks.base.train_spec import TrainSpec

STARS = np.arange(1.0, 6.0, dtype=np.float32)


@jax.jit
def mean_stars(logits):
    """float32 [B, 5] → [B]."""
    return (jax.nn.softmax(logits) * STARS).sum(axis=-1)


class StarsPredictor(TextPredictor[float]):
    """Decode: one row of tokens and one number for each text."""

    def compute(self, batch):
        return mean_stars(super().compute(batch))

    def decode_row(self, encoding, output):
        return float(output)


# Read (any table or JSON lines) and write, for `predict` and for `evaluate`.
PREDICT = PredictSpec(
    TEXTS,
    TextPredictOptions,
    StarsPredictor,
    lambda text, stars: {"stars": float32_repr(stars)},
    heads=("classification",),
    is_default=False,  # without --task, the head's own task predicts
)


class StarsEvaluator(LabelledEvaluator):
    PREDICT = PREDICT
    lower_is_better = ("loss", "mean_absolute_error")

    def metric_names(self, examples):
        return ("mean_absolute_error",)

    def metrics(self, examples, predictions):
        errors = [abs(row.label - stars) for row, stars in zip(examples, predictions, strict=True)]
        return {"mean_absolute_error": float(np.mean(errors))}


class StarsTask(LabelledTask):
    def make_evaluator(self):
        return StarsEvaluator(self.splits, self.options, self.description)

    def make_rows(self):
        """Encode the training texts."""
        encode = TextEncoder(self.tokenizer, self.description.config, self.options.length)
        examples = self.splits.train
        stars = np.array([example.label for example in examples], np.float32)
        return self.one_row_each(encode_in_chunks(encode, examples), labels=stars)

    def loss(self, params, outputs, batch):
        stars = mean_stars(outputs)
        losses = jnp.square(stars - batch["labels"])
        return {"": weighted_sums(batch["weights"], {"loss": losses})}

    def examples_as_text(self, count):
        return "\n".join(f"{row.label}\t{row.input}" for row in self.splits.train[:count])


@dataclasses.dataclass(frozen=True)
class StarsData(LabelledData, TextOptions):
    """The keys of section `data`; numbers out of range are refused before a file is read."""


def create(config, model_init):
    tokenizer = model_tokenizer(model_init)
    return StarsTask(
        splits=read_splits(
            config.data,
            lambda source, split, report: read_texts(
                source, config.data, regression=True, report=report
            ),
            with_train=not model_init.is_finished,
        ),
        tokenizer=tokenizer,
        description=model_init.describe(tokenizer, "classification", num_labels=len(STARS)),
        execution=model_init.execution,
        options=labelled_options(config, "mean_absolute_error"),
    )


TRAIN = TrainSpec(StarsData, create, defaults=labelled_defaults())

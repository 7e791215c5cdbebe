"""Classes or a number for texts and pairs of texts (paper, section 4.1): GLUE, and users' files."""

import dataclasses
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from ml_collections import ConfigDict

from bert_jax.data.examples import TextExample
from bert_jax.data.labelled_batches import LabelledBatches
from bert_jax.data.readers.glue import GlueLayout
from bert_jax.data.readers.texts import Text, TextOptions, read_texts
from bert_jax.errors import OptionError
from bert_jax.models.config import Head
from bert_jax.options import from_keys, keys_of
from bert_jax.tasks.base.labelled_task import (
    LabelledOptions,
    LabelledTask,
    TrainedModel,
    balanced_weights,
    is_balanced,
    labelled_defaults,
    labelled_options,
    model_tokenizer,
)
from bert_jax.tasks.base.predictor import (
    BatchOptions,
    Model,
    Predictor,
    encode_in_chunks,
)
from bert_jax.tasks.base.splits import EvalSet, Splits, choose_labels, read_splits
from bert_jax.tasks.base.task import ModelInit, Sums, TrainingTask, weighted_sums
from bert_jax.tasks.base.text_rows import TextEncoder
from bert_jax.tasks.classification.predict import (
    PREDICT,
    ClassificationPredictor,
    TextPrediction,
    to_prediction,
)
from bert_jax.tasks.classification.problems import (
    MultiLabel,
    Problem,
    Regression,
    SingleLabel,
    drop_unknown_labels,
    has_lists,
    infer_problem_type,
    labels_of,
)


class ClassificationTask(LabelledTask[TextExample, np.ndarray]):
    """Texts and pairs of texts; what is evaluated are the scores of the labels, float32 [C]."""

    PREDICT = PREDICT
    lower_is_better = ("loss", "mean_squared_error")

    def __init__(
        self,
        splits: Splits[TextExample],
        model: TrainedModel,
        options: LabelledOptions,
        problem: Problem,
        *,
        balanced: bool = False,
        submissions: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        """For splits, model and options see `LabelledTask`.

        Args:
            splits: the examples.
            model: what is trained.
            options: of all labelled tasks.
            problem: the problem type with its labels.
            balanced: whether every class has the same weight in the loss; else every text.
            submissions: names of a benchmark's submission files, by the names of the test files.

        Raises:
            UserError: see `LabelledTask`; or other labels than classes are balanced.
        """
        if balanced and not isinstance(problem, SingleLabel):
            raise OptionError(
                "class_weights", "balanced", "that is for texts that have one label each"
            )
        super().__init__(splits, model, options)
        self._problem = problem
        self._balanced = balanced
        self._submissions = submissions

    def make_batches(self) -> LabelledBatches:
        examples = self.splits.train
        targets = self._problem.targets(examples)
        encode = TextEncoder(self.tokenizer, self.description.config, self.options.length)
        rows = encode_in_chunks(encode, map(text_of, examples), encode.check)
        batches = self.batches_of_rows(
            (row for (row,) in rows), labels=targets, weights=self._weights(targets)
        )
        encode.report()
        return batches

    def loss_sums(self, params: Any, batch: dict[str, jax.Array], dropout_key: Any = None) -> Sums:
        logits: Any = self.forward(params, batch, dropout_key)
        values = {"loss": self._problem.losses(logits, batch["labels"])}
        correct = self._problem.correct(logits, batch["labels"])
        if correct is not None:
            values["accuracy"] = correct
        return {"": weighted_sums(batch["weights"], values)}

    def predictor(self, model: Model) -> Predictor[Text, np.ndarray]:
        return ClassificationPredictor(
            model, BatchOptions(self.options.batch_size, self.options.length)
        )

    def predictor_input(self, example: TextExample) -> Text:
        return text_of(example)

    def label_of(self, example: TextExample) -> Any:
        return example.label

    def metrics(
        self, examples: list[TextExample], predictions: list[np.ndarray]
    ) -> dict[str, float]:
        """Those of the problem type, and the mean loss."""
        targets, scores = self._problem.targets(examples), np.stack(predictions)
        losses = self._problem.losses(jnp.asarray(scores), jnp.asarray(targets))
        loss = float(np.mean(jax.device_get(losses), dtype=np.float64))
        return {"loss": loss, **self._problem.metrics(scores, targets)}

    def metric_names(self, examples: list[TextExample]) -> Iterable[str]:
        self._problem.targets(examples)  # labels of the wrong kind are refused
        return "loss", *self._problem.metric_names

    def baseline_metrics(self, examples: list[TextExample]) -> dict[str, float]:
        """`<metric>_majority`: those of the best constant prediction."""
        targets = self._problem.targets(examples)
        scores = np.tile(self._problem.majority(targets), (len(targets), 1))  # nC
        metrics = self._problem.metrics(scores, targets)
        return {f"{name}_majority": value for name, value in metrics.items()}

    def examples_as_text(self, count: int) -> str:
        """Label, text and pair, one example a line."""
        chosen = self.splits.train[:count]
        return "\n".join(
            "\t".join([str(example.label), example.text, *([example.pair] if example.pair else [])])
            for example in chosen
        )

    def as_output(self, prediction: np.ndarray) -> TextPrediction:
        return to_prediction(self.description, prediction)

    def further_files(self, eval_set: EvalSet[TextExample]) -> Iterable[str]:
        submission = self._submissions.get(Path(eval_set.source).name)
        return (submission,) if submission else ()

    def write_reports(
        self, directory: Path, eval_set: EvalSet[TextExample], predictions: list[np.ndarray]
    ) -> None:
        targets = self._problem.targets(eval_set.examples)
        self._problem.report(np.stack(predictions), targets, directory / eval_set.name)

    def _weights(self, targets: np.ndarray) -> np.ndarray:
        """The weight of each example in the loss, float32 [n]."""
        if not self._balanced:  # classes have no counts where a text has several, or a number
            return np.ones(len(targets), np.float32)
        counts = np.bincount(targets, minlength=self._problem.outputs)
        return balanced_weights(counts)[targets]


def text_of(example: TextExample) -> Text:
    """The text of an example, or its pair of texts."""
    return example.text if example.pair is None else (example.text, example.pair)


def defaults() -> dict[str, dict[str, Any]]:
    """The keys of this task, by section; those of `TextOptions` are keys of `data`."""
    return labelled_defaults(
        {
            **keys_of(TextOptions),
            "problem_type": "",
            "labels": (),
            "class_weights": "",
        }
    )


def create(config: ConfigDict, model_init: ModelInit) -> ClassificationTask:
    """The task of a config.

    Raises:
        UserError: the data and the options do not fit together.
    """
    data = config.data
    balanced = is_balanced(data.class_weights)
    tokenizer = model_tokenizer(model_init)
    options = from_keys(TextOptions, data)
    kind = infer_problem_type(data.problem_type, options, model_init)
    layout = options.layout
    splits = read_splits(
        data,
        lambda source, split: read_texts(
            source, options, regression=kind is Regression, needs_labels=split == "train"
        ),
        with_train=not model_init.is_finished,
        default_names=_files(layout),
    )
    if kind is SingleLabel and not data.problem_type and has_lists(splits.all_train):
        kind = MultiLabel
    named = tuple(map(str, data.labels)) or (layout.classes if layout else ())
    # A finished model is only evaluated.
    evaluated = (example for eval_set in splits.validation for example in eval_set.examples)
    present = labels_of(evaluated if model_init.is_finished else splits.all_train)
    labels = () if kind is Regression else choose_labels(present, model_init, named)
    problem = kind(labels)
    splits = dataclasses.replace(
        splits, test=[drop_unknown_labels(eval_set, problem) for eval_set in splits.test]
    )
    if kind is not Regression and len(labels) < 2 and not model_init.is_finished:
        raise OptionError(
            "train",
            data.train,
            "give examples of two or more",
            problem=f"the training examples have {len(labels)} label ({', '.join(labels)})",
        )
    description = model_init.describe(
        tokenizer,
        Head.CLASSIFICATION,
        num_labels=problem.outputs,
        labels=labels,
        problem_type=problem.problem_type,
    )
    return ClassificationTask(
        splits,
        TrainedModel(tokenizer, description, model_init.execution),
        labelled_options(config, layout.metric if layout else problem.best_metric),
        problem,
        balanced=balanced,
        submissions={split.file: split.submission for split in layout.test} if layout else {},
    )


def _files(layout: GlueLayout | None) -> dict[str, tuple[str, ...]]:
    """The names of a benchmark's files, by split."""
    if layout is None:
        return {}
    return {
        "train": (layout.train,),
        "validation": tuple(split.file for split in layout.validation),
        "test": tuple(split.file for split in layout.test),
    }


TRAIN = TrainingTask(create, defaults)

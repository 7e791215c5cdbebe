"""Classes or a number for texts and pairs of texts (paper, section 4.1): GLUE, and users' files."""

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from ml_collections import ConfigDict

from bert_jax.checkpoints.config_file import ModelDescription
from bert_jax.data.examples import TextExample
from bert_jax.data.labelled_batches import LabelledBatches
from bert_jax.data.pipeline import Batch
from bert_jax.data.readers.glue import GlueLayout
from bert_jax.data.readers.texts import TextOptions, read_texts
from bert_jax.data.records import open_records
from bert_jax.data.sequences import Sequences
from bert_jax.errors import UserError
from bert_jax.files import write_atomically
from bert_jax.models.config import Head
from bert_jax.options import from_keys, keys_of
from bert_jax.tasks.base import sections
from bert_jax.tasks.base.chunks import encoded
from bert_jax.tasks.base.class_weights import balanced_weights, is_balanced
from bert_jax.tasks.base.labelled_task import (
    LabelledOptions,
    LabelledTask,
    TrainedModel,
    model_tokenizer,
)
from bert_jax.tasks.base.labels import (
    choose_labels,
    drop_unknown_labels,
    has_lists,
    infer_problem_type,
    labels_of,
)
from bert_jax.tasks.base.predictor import BatchOptions, Model, Predictor, Text
from bert_jax.tasks.base.splits import EvalSet, Splits, read_splits
from bert_jax.tasks.base.task import ModelInit, Sums, weighted_sums
from bert_jax.tasks.base.text_rows import TextEncoder
from bert_jax.tasks.classification.decoding import (
    SUBMISSION_HEAD,
    ClassificationPredictor,
    as_record,
    outcome,
    submission_line,
)
from bert_jax.tasks.classification.problems import MultiLabel, Problem, Regression, SingleLabel


class ClassificationTask(LabelledTask[TextExample, np.ndarray]):
    """Sentences and sentence pairs; an answer is the scores of the labels, float32 [C]."""

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
        """See `LabelledTask`.

        Args:
            splits: the examples.
            model: what is trained.
            options: of all labelled tasks.
            problem: what the labels mean.
            balanced: whether every class is to have the same weight in the loss; else every text.
            submissions: the files that a benchmark wants, by the name of the test file.

        Raises:
            UserError: see `LabelledTask`; or what is to be balanced is no class.
        """
        if balanced and not isinstance(problem, SingleLabel):
            raise UserError("data.class_weights is for texts that have one label each")
        super().__init__(splits, model, options)
        self._problem = problem
        self._balanced = balanced
        self._submissions = submissions

    def make_batches(self) -> LabelledBatches:
        """Each example is one row."""
        examples = self.splits.train
        targets = self._problem.targets(examples)
        weights = self._weights(targets)
        encode = TextEncoder(self.tokenizer, self.description.config, self.options.length)
        rows = encoded(encode, map(text_of, examples), encode.check)
        sequences = Sequences.of(row for (row,) in rows)
        encode.report()

        def make(chosen: np.ndarray, length: int) -> Batch:
            return {
                **sequences.pad(chosen, length, self.tokenizer),
                "labels": targets[chosen],
                "weights": np.where(chosen < 0, np.float32(0), weights[chosen]),
            }

        return self.batches_of(sequences.lengths, make)

    def loss_sums(self, params: Any, batch: dict[str, jax.Array], dropout_key: Any = None) -> Sums:
        """The loss, and what is answered right."""
        logits: Any = self.forward(params, batch, dropout_key)
        values = {"loss": self._problem.losses(logits, batch["labels"])}
        correct = self._problem.correct(logits, batch["labels"])
        if correct is not None:
            values["accuracy"] = correct
        return {"": weighted_sums(batch["weights"], values)}

    def predictor(self, model: Model) -> Predictor[Text, np.ndarray]:
        """The predictor of users."""
        return ClassificationPredictor(
            model, BatchOptions(self.options.batch_size, self.options.length)
        )

    def predictor_input(self, example: TextExample) -> Text:
        return text_of(example)

    def has_labels(self, example: TextExample) -> bool:
        """Whether it has a label."""
        return example.label is not None

    def metrics(self, examples: list[TextExample], answers: list[np.ndarray]) -> dict[str, float]:
        """Those of the problem, and the mean loss."""
        targets, scores = self._problem.targets(examples), np.stack(answers)
        losses = self._problem.losses(jnp.asarray(scores), jnp.asarray(targets))
        loss = float(np.mean(jax.device_get(losses), dtype=np.float64))
        return {"loss": loss, **self._problem.metrics(scores, targets)}

    def metric_names(self, examples: list[TextExample]) -> Iterable[str]:
        """Those of the problem, and the loss."""
        return "loss", *self._problem.metrics(*_one_answer(self._problem, examples))

    def baseline_metrics(self, examples: list[TextExample]) -> dict[str, float]:
        """`<metric>_majority`: what the commonest answer alone would get."""
        metrics = self._problem.metrics(*_one_answer(self._problem, examples))
        return {f"{name}_majority": value for name, value in metrics.items()}

    def examples_as_text(self, count: int) -> str:
        """Label, text and pair, one example a line."""
        chosen = self.splits.train[:count]
        return "\n".join(
            "\t".join([str(one.label), one.text, *([one.pair] if one.pair else [])])
            for one in chosen
        )

    def write(self, directory: Path, part: EvalSet[TextExample], answers: list[np.ndarray]) -> None:
        """`<part>.jsonl`, the file of a benchmark, and a report where there are labels."""
        lines = [SUBMISSION_HEAD]
        with open_records(directory / f"{part.name}.jsonl") as records:
            for example, scores in zip(part.examples, answers, strict=True):
                found = outcome(self.description, scores)
                gold = {} if example.label is None else {"expected": example.label}
                records.write({"id": example.id, **gold, **as_record(found)})
                lines.append(submission_line(example.id, found))
        submission = self._submissions.get(Path(part.source).name)
        if submission:
            write_atomically(directory / submission, "".join(lines).encode())
        if self.is_labelled(part):
            targets = self._problem.targets(part.examples)
            self._problem.report(np.stack(answers), targets, directory / part.name)

    def _weights(self, targets: np.ndarray) -> np.ndarray:
        """The weight of each example in the loss, float32 [n]."""
        if not self._balanced:  # classes have no counts where a text has several, or a number
            return np.ones(len(targets), np.float32)
        counts = np.bincount(targets, minlength=self._problem.outputs)
        return balanced_weights(counts)[targets]


def _one_answer(problem: Problem, examples: Sequence[TextExample]) -> tuple[np.ndarray, np.ndarray]:
    """The commonest answer to all examples, [n, C], and what is right."""
    targets = problem.targets(examples)
    return np.tile(problem.commonest(targets), (len(targets), 1)), targets


def text_of(example: TextExample) -> Text:
    """What the model reads of an example."""
    return example.text if example.pair is None else (example.text, example.pair)


def defaults() -> dict[str, dict[str, Any]]:
    """The keys of this task, by section; those of `TextOptions` are keys of `data`."""
    return sections.defaults(
        {
            **keys_of(TextOptions),
            "problem_type": "",
            "labels": (),
            "class_weights": "",
        }
    )


def create(config: ConfigDict, model_init: ModelInit) -> ClassificationTask:
    """The task of a config, see `bert_jax.config`."""
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
    if kind is SingleLabel and not data.problem_type and has_lists(splits.given):
        kind = MultiLabel
    given = tuple(map(str, data.labels)) or (layout.classes if layout else ())
    # Of a finished model nothing is trained: the labels are those that it is judged by.
    judged = (one for part in splits.validation for one in part.examples)
    found = labels_of(judged if model_init.is_finished else splits.given)
    labels = () if kind is Regression else choose_labels(found, model_init, given)
    problem = kind(labels)
    splits = dataclasses.replace(
        splits, test=[drop_unknown_labels(part, problem) for part in splits.test]
    )
    if kind is not Regression and len(labels) < 2 and not model_init.is_finished:
        raise UserError(
            f"data.train: {len(labels)} label ({', '.join(labels)}); a classifier needs two or more"
        )
    description = ModelDescription(
        dataclasses.replace(model_init.architecture(tokenizer), num_labels=problem.outputs),
        Head.CLASSIFICATION,
        labels=labels,
        problem_type=problem.problem_type,
    )
    return ClassificationTask(
        splits,
        TrainedModel(tokenizer, description, model_init.execution),
        sections.labelled_options(config, (layout.metric if layout else problem.best_metric, True)),
        problem,
        balanced=balanced,
        submissions={of.file: of.submission for of in layout.test} if layout else {},
    )


def _files(layout: GlueLayout | None) -> dict[str, tuple[str, ...]]:
    """The names of a benchmark's files, by split."""
    if layout is None:
        return {}
    return {
        "train": (layout.train,),
        "validation": tuple(one.file for one in layout.validation),
        "test": tuple(one.file for one in layout.test),
    }

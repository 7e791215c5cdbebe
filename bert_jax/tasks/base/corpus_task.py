"""Training on a corpus: batches of its examples, and the evaluation by mean losses."""

import abc
import dataclasses
import functools
from collections.abc import Iterable, Mapping
from typing import Generic, TypeVar

import flax.linen as nn
import jax
import numpy as np

from bert_jax.checkpoints.config_file import ModelDescription
from bert_jax.data.pipeline import Batch, Batches, batches_in_order
from bert_jax.data.pretraining.corpus import CorpusSplit
from bert_jax.data.pretraining.examples import CorpusExamples
from bert_jax.data.pretraining.packing import PackedBatches
from bert_jax.metrics import baseline_warning
from bert_jax.models.execution import Execution
from bert_jax.sharding.hosts import batch_share
from bert_jax.sharding.mesh import batch_parts, explain_out_of_memory
from bert_jax.tasks.base.corpora import Corpora, CorpusOptions
from bert_jax.tasks.base.predictor import Model
from bert_jax.tasks.base.summary import DataSummary, TokenCounts
from bert_jax.tasks.base.task import EvalResult, Evaluator, Predict, Task, mean_losses, with_rows
from bert_jax.tasks.base.train_spec import TaskConfig

Data = TypeVar("Data", bound=CorpusOptions)
Examples = TypeVar("Examples", bound=CorpusExamples)


class CorpusTask(Task, Generic[Data, Examples]):
    """A task that predicts tokens of a corpus.

    Attributes:
        best_metric: see `Evaluator`.
        general_metrics: the metrics that are reported of a general corpus.
    """

    grows_batches = True
    best_metric: tuple[str, bool]
    general_metrics: tuple[str, ...]

    def __init__(
        self,
        config: TaskConfig[Data],
        corpora: Corpora,
        description: ModelDescription,
        execution: Execution,
    ) -> None:
        """Plans the examples of both splits.

        Args:
            config: sizes of the batches, and options of the examples.
            corpora: corpora with their tokenizer.
            description: contents of the exported model directory.
            execution: dtype and kernels.
        """
        self._config = config
        self._corpora = corpora.by_prefix
        self.tokenizer = corpora.tokenizer
        self.description = dataclasses.replace(description, trained_length=config.data.length)
        self.module = self.make_module(execution)
        self._examples = self.make_examples(self._corpora[""].splits["train"], weighted=True)
        self._train = self.make_rows(self._examples)
        self._validation = {
            prefix: self.make_examples(corpus.splits["validation"], weighted=False)
            for prefix, corpus in self._corpora.items()
        }

    @abc.abstractmethod
    def make_examples(self, split: CorpusSplit, *, weighted: bool) -> Examples:
        """The examples of a split; `weighted`: whether sources are repeated by their weights."""

    def make_rows(self, examples: Examples) -> CorpusExamples | PackedBatches:
        """The rows of training batches."""
        return examples

    def make_module(self, execution: Execution) -> nn.Module:
        """The module that is trained."""
        return self.description.make_module(execution)

    @property
    def examples_per_epoch(self) -> int:
        """Rows of an epoch; with packing, each has several examples."""
        return self._train.rows_per_epoch

    def fingerprints(self) -> dict[str, str]:
        return {
            f"{prefix}corpus": corpus.manifest.fingerprint
            for prefix, corpus in self._corpora.items()
        }

    def train_batches(self, start: int, stop: int, *, host: int, hosts: int) -> Batches:
        train = self._config.train
        for steps, size in train.batch_sizes(start, stop):
            # Batch n of the run begins with example n · global_batch_size, whatever its size.
            batches = train.global_batch_size // size

            def batch(number: int, batches: int = batches, rows: int = size // hosts) -> Batch:
                return self._train.batch(number * batches, rows, host=host, hosts=hosts)

            yield from batches_in_order(batch, steps.start, steps.stop)

    def batch_shapes(self) -> dict[str, jax.ShapeDtypeStruct]:
        return with_rows(self._train.batch(0, 1), self._config.train.global_batch_size)

    def evaluation_batches(
        self, *, host: int, hosts: int, divisor: int = 1, examples: CorpusExamples | None = None
    ) -> Batches:
        """This host's rows of the batches of an evaluation, the same examples every time.

        Args:
            host: index of this host's part of each batch, see `sharding.hosts.batch_share`.
            hosts: number of equal parts.
            divisor: the number of rows of a batch is a multiple of it; padding has the weight 0.
            examples: the examples; None: the validation examples of the corpus.
        """
        chosen = examples or self._validation[""]
        # As many rows as a micro-batch of training; never packed, so that each example counts once.
        rows = self._config.train.global_batch_size // self._config.train.microbatches
        own = -(-rows // divisor) * divisor // hosts
        columns = np.arange(host * own, (host + 1) * own)
        batches = -(-chosen.examples_per_epoch // rows)
        batches = min(batches, self._config.data.evaluation_batches or batches)
        return batches_in_order(
            lambda number: chosen.evaluation_batch(number, rows, columns), 0, batches
        )

    @functools.cached_property
    def data_summary(self) -> DataSummary:
        corpus = self._corpora[""]
        counts, train = corpus.manifest.splits, corpus.splits["train"]
        unknown = counts["train"].unknown_tokens / max(counts["train"].tokens, 1)
        return DataSummary(
            unit="documents",
            train=counts["train"].documents,
            validation={"validation": counts["validation"].documents},
            test={},
            tokens=TokenCounts.from_lengths(train.document_tokens, unknown),
            epoch_share=self.epoch_share(),
            reading=self.degenerate_targets(),
        )

    def epoch_share(self) -> float | None:
        """See `DataSummary`."""
        return None

    def degenerate_targets(self) -> tuple[str, ...]:
        """Sentences about examples that teach nothing."""
        return ()


@dataclasses.dataclass(frozen=True)
class LossEvaluator(Evaluator):
    """The means of losses and metrics over validation batches; nothing is written or kept.

    Attributes:
        task: the task that makes the batches and computes the losses.
        best_metric: see `Evaluator`.
        sets: examples by the prefix of their metrics: "" for the corpus, with all metrics, and
            "general_" for a general corpus, with `CorpusTask.general_metrics`.
    """

    task: CorpusTask
    best_metric: tuple[str, bool]
    sets: Mapping[str, CorpusExamples]

    def evaluate(self, model: Model, predict: Predict, *, with_test: bool) -> EvalResult:
        metrics: dict[str, float] = {}
        for prefix, examples in self.sets.items():
            means = self._means(examples, model)
            names = self.task.general_metrics if prefix else means
            metrics |= {f"{prefix}{name}": means[name] for name in names}
        return EvalResult(metrics, model.description)

    def _means(self, examples: CorpusExamples, model: Model) -> dict[str, float]:
        task, mesh = self.task, model.mesh
        share, divisor = batch_share(mesh), batch_parts(mesh)
        batches = task.evaluation_batches(
            host=share.index, hosts=share.count, divisor=divisor, examples=examples
        )
        rule = "lower {train.global_batch_size} or raise {train.microbatches}"
        work = "a batch of the evaluation, with the rows of a micro-batch"
        with explain_out_of_memory(work, "train.global_batch_size", rule):
            return mean_losses(task, model.params, batches, mesh)


@dataclasses.dataclass(frozen=True)
class TokenEvaluator(LossEvaluator):
    """The mean losses of a model that predicts every token, and what a constant answer reaches.

    Attributes:
        labels: keys of the labels and of their weights in a batch.
    """

    labels: tuple[str, str]

    def baseline_warning(self, metrics: Mapping[str, float], baselines: Mapping[str, float]) -> str:
        """As for other tasks, by the accuracy: the best metric is a loss."""
        return baseline_warning(("accuracy", True), metrics["accuracy"], baselines)

    def baselines(self) -> dict[str, float]:
        """The validation accuracy of always the most frequent token."""
        batches = self.task.evaluation_batches(host=0, hosts=1)
        counts = label_counts(batches, {"": self.labels})[""]
        return {"accuracy_most_frequent": float(counts.max() / max(counts.sum(), 1))}


def label_counts(
    batches: Iterable[Batch], terms: Mapping[str, tuple[str, str]]
) -> dict[str, np.ndarray]:
    """How often each label occurs in batches, float64 [highest label + 1] by term.

    Args:
        batches: batches with weights of 0 and 1.
        terms: the labels and the weights of each term; one that the batches lack is left out.
    """
    counts: dict[str, np.ndarray] = {}
    for batch in batches:
        for term, (labels, weights) in terms.items():
            if labels in batch:
                new = np.bincount(batch[labels].ravel(), batch[weights].ravel())
                old = counts.get(term, np.zeros(1))
                size = max(len(new), len(old))
                counts[term] = np.pad(new, (0, size - len(new))) + np.pad(old, (0, size - len(old)))
    return counts

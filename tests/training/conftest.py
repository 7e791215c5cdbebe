"""A pre-training task on the tiny corpus."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from bert_jax.checkpoints.config_file import ModelDescription
from bert_jax.data.pretraining.batches import PretrainingBatches
from bert_jax.data.pretraining.corpus import Corpus
from bert_jax.models.config import EncoderConfig
from bert_jax.models.execution import Execution
from bert_jax.tasks.base.corpora import Corpora
from bert_jax.tasks.base.train_spec import TaskConfig
from bert_jax.tasks.pretraining.task import CorpusData, DistillablePretrainingTask, PretrainingTask
from bert_jax.training_options import OptimizerOptions, TrainOptions

EXECUTION = Execution()
OPTIONS = CorpusData(length=16, max_predictions=3)


@pytest.fixture(scope="module", autouse=True)
def _processes_without_torch(processes_without_torch) -> None:
    """For every module here that starts trainings."""


@pytest.fixture(scope="session")
def make_tiny_task(tiny_corpus: Path) -> Callable[..., PretrainingTask]:
    """Builds a task with batches of eight rows of 16 tokens."""

    def make(config: EncoderConfig, execution: Execution = EXECUTION) -> PretrainingTask:
        corpus = Corpus.open(tiny_corpus)
        return DistillablePretrainingTask(
            TaskConfig(OPTIONS, TrainOptions(global_batch_size=8), OptimizerOptions()),
            Corpora({"": corpus}, corpus.tokenizer()),
            ModelDescription(config, "pretraining"),
            execution,
        )

    return make


@pytest.fixture(scope="session")
def tiny_batch(tiny_corpus: Path) -> dict[str, np.ndarray]:
    """The first batch of such a task."""
    corpus = Corpus.open(tiny_corpus)
    batches = PretrainingBatches(corpus.splits["train"], corpus.tokenizer(), OPTIONS)
    return batches.batch(0, 8)

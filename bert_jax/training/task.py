"""What the training loop needs to know of a task, whatever the task is."""

import abc
from collections.abc import Generator
from typing import Any

import flax.linen as nn
import jax

from bert_jax.data.pipeline import Batch
from bert_jax.tokenization.interface import Tokenizer

# Sums of a loss and of counts over examples, by part of the loss: {"mlm": {"loss": …, …}, …}.
Sums = dict[str, dict[str, jax.Array]]


class Task(abc.ABC):
    """Batches, model, losses and metrics of one kind of problem.

    A loss has parts ("mlm", "nsp"), each a weighted mean. Only numerators (`sums`) and denominators
    (`weights`) leave the task, so that they can be added over micro-batches, devices and evaluation
    batches before one is divided by the other: a mean of means would weigh them wrongly.

    Attributes:
        module: the model.
        tokenizer: that made the ids of the batches.
        best_metric: name of the metric that chooses the best checkpoint, and whether the higher
            value is the better one.

    A task lives in a module of `bert_jax.tasks` with `ARCHITECTURE` (Hugging Face's name for its
    parameters), `BEST_METRIC`, `make_module(model_config, execution)`, `defaults()` (its keys of
    section `data`) and `create(config, model_config, execution)`.
    """

    module: nn.Module
    tokenizer: Tokenizer
    best_metric: tuple[str, bool]

    @abc.abstractmethod
    def train_batches(
        self, start: int, stop: int, *, host: int, hosts: int
    ) -> Generator[Batch, None, None]:
        """This host's rows of the global batches `start` … `stop - 1`."""

    @abc.abstractmethod
    def evaluation_batches(self, *, host: int, hosts: int) -> Generator[Batch, None, None]:
        """This host's rows of held-out batches; rows that only fill up a batch weigh nothing."""

    @abc.abstractmethod
    def weights(self, batch: dict[str, jax.Array]) -> dict[str, jax.Array]:
        """The weight of a batch in each part of the loss, float32 scalars."""

    @abc.abstractmethod
    def sums(self, params: Any, batch: dict[str, jax.Array], dropout_key: Any = None) -> Sums:
        """Weighted sums over a batch, float32 scalars; each part has at least "loss".

        Args:
            params: the parameters.
            batch: as from `train_batches`.
            dropout_key: a key for training, None for evaluation without dropout.
        """

    @abc.abstractmethod
    def baselines(self) -> dict[str, float]:
        """Held-out metrics of answers that need no model, as `<part>_<name>`."""

    @abc.abstractmethod
    def examples_as_text(self, count: int) -> str:
        """The first training examples of a run, readable."""

    @abc.abstractmethod
    def summary(self, metrics: dict[str, float]) -> dict[str, float]:
        """Metrics with what follows from them added, such as the perplexity."""


def means(sums: dict[str, dict[str, Any]], weights: dict[str, Any]) -> dict[str, Any]:
    """Flat metrics `<part>_<name>`, and `loss`, the sum of the parts' losses.

    A part of weight 0 gives 0.
    """
    metrics = {
        f"{part}_{name}": value / weights[part].clip(1e-8)
        for part, values in sums.items()
        for name, value in values.items()
    }
    return {"loss": sum(metrics[f"{part}_loss"] for part in sums), **metrics}

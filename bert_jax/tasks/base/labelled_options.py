"""The options that all tasks with labelled examples read from a config, and their defaults."""

import contextlib
import dataclasses
import math
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any

import numpy as np
from ml_collections import ConfigDict

from bert_jax.errors import OptionError, require_at_least, require_between
from bert_jax.tasks.base.predictor import BatchOptions
from bert_jax.tasks.base.task import ModelInit
from bert_jax.tokenization import Tokenizer

# Keys of section `data` that all labelled tasks have, see `splits.read_splits`.
DATA: dict[str, Any] = {
    "directory": "",
    "train": "",
    "validation": (),
    "test": (),
    "validation_fraction": 0.1,
    "limit": 0,
    "length": 0,
    "best_metric": "",
}


@dataclasses.dataclass(frozen=True)
class LabelledOptions:
    """The options of every labelled task.

    Attributes:
        best_metric: the name of the metric that chooses the best checkpoint.
        batch_size: examples per training batch over all hosts, and rows per evaluation batch.
        length: maximum number of tokens per row; 0: the default of the task, or what the files of
            the model say if that is less.
        seed: seed of the order of training examples.
        steps: training steps; 0: given by `epochs`.
        epochs: passes over the training examples, if `steps` is 0.
    """

    best_metric: str
    batch_size: int
    length: int
    seed: int
    steps: int = 0
    epochs: float = math.inf

    @property
    def batches(self) -> BatchOptions:
        """How rows are grouped when examples are predicted."""
        return BatchOptions(self.batch_size, self.length or None)


def labelled_defaults(
    data: Mapping[str, Any],
    optimizer: Mapping[str, Any] = MappingProxyType({}),
    train: Mapping[str, Any] = MappingProxyType({}),
) -> dict[str, dict[str, Any]]:
    """The keys of a labelled task with their defaults, by section.

    Training follows the paper (appendix A.3), with the two corrections that make few examples
    suffice: Adam's bias correction, and a decay from the end of the warm-up (Mosbach et al., 2021).

    Args:
        data: the task's own keys of section `data`.
        optimizer: keys of section `optimizer` with another default for the task.
        train: keys of section `train` with another default for the task.
    """
    return {
        "data": {**DATA, **data},
        "optimizer": {
            "learning_rate": 3e-5,
            "warmup_ratio": 0.1,
            "decay_from": "warmup",
            "bias_correction": True,
            **optimizer,
        },
        "train": {
            "steps": 0,
            "epochs": 3.0,
            "eval_every": 0,
            "global_batch_size": 32,
            "evaluate_per_epoch": 1,
            "export": "best",
            **train,
        },
    }


def check_labelled_options(config: ConfigDict) -> None:
    """Raises OptionError where a key that all labelled tasks have is out of range."""
    data = config.data
    if data.length:
        require_at_least("data.length", data.length, 3)
    require_at_least("data.limit", data.limit, 0)
    require_between("data.validation_fraction", data.validation_fraction, 0, 1, without_high=True)
    is_balanced(data.get("class_weights", ""))


def labelled_options(config: ConfigDict, best_metric: str) -> LabelledOptions:
    """The options that every labelled task reads from a config.

    Args:
        config: the whole config.
        best_metric: the default of `data.best_metric`.
    """
    return LabelledOptions(
        best_metric=config.data.best_metric or best_metric,
        batch_size=config.train.global_batch_size,
        length=config.data.length,
        seed=config.seed,
        steps=config.train.steps,
        epochs=config.train.epochs,
    )


@contextlib.contextmanager
def length_key() -> Iterator[None]:
    """Names the maximum length of a row in errors by its key in a config."""
    try:
        yield
    except OptionError as error:
        raise error.renamed(lambda key: "data.length" if key == "max_length" else key) from error


def model_tokenizer(model_init: ModelInit) -> Tokenizer:
    """The tokenizer of the model that is trained.

    Raises:
        OptionError: the config names neither a model to start from nor a tokenizer.
    """
    if model_init.tokenizer is None:
        raise OptionError(
            "init_from",
            "",
            "give the model to fine-tune, a directory or a hub id (or, to train from nothing, a "
            "tokenizer as tokenizer.path)",
            problem="init_from is not set",
        )
    return model_init.tokenizer


def is_balanced(class_weights: str) -> bool:
    """Whether classes have equal weights in the loss (`data.class_weights`); otherwise examples.

    Raises:
        OptionError: the value is neither "" nor "balanced".
    """
    if class_weights not in ("", "balanced"):
        raise OptionError("data.class_weights", class_weights, "it must be '' or 'balanced'")
    return class_weights == "balanced"


def balanced_weights(counts: np.ndarray) -> np.ndarray:
    """Number of examples per class, int64 [C] → weight per example of each class, float32 [C].

    The mean over all examples is 1, so that the learning rate keeps its meaning.
    """
    return (counts.sum() / np.count_nonzero(counts) / counts.clip(1)).astype(np.float32)

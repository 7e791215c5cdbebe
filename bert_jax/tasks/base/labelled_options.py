"""The options that all tasks with labelled examples read from a config, and their defaults."""

import contextlib
import dataclasses
import math
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any

from bert_jax.data.readers.tables import FileOptions
from bert_jax.errors import OptionError, require_at_least, require_between
from bert_jax.tasks.base.model_init import ModelInit
from bert_jax.tasks.base.predictor import BatchOptions
from bert_jax.tasks.base.train_spec import TaskConfig
from bert_jax.tokenization import Tokenizer


@dataclasses.dataclass(frozen=True)
class LabelledData(FileOptions):
    """The keys of section `data` that all labelled tasks have.

    Attributes:
        directory: directory of the files; "": the working directory.
        train, validation, test: files, or "tfds:…"; several for `validation` and `test`.
        validation_fraction: share of the training examples for validation without such a file.
        limit: number of training examples, drawn at random; 0: all.
        length: maximum number of tokens per row; 0: the default of the task, or the limit in
            the model's files if that is less.
        best_metric: the metric that chooses the best checkpoint, of several validation sets its
            mean, or with the name of a set as `NAME_loss` that of this set; "": the default of the
            task.
    """

    directory: str = ""
    train: str = ""
    validation: tuple[str, ...] = ()
    test: tuple[str, ...] = ()
    validation_fraction: float = 0.1
    limit: int = 0
    length: int = 0
    best_metric: str = ""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.length:
            require_at_least("data.length", self.length, 3)
        require_at_least("data.limit", self.limit, 0)
        require_between(
            "data.validation_fraction", self.validation_fraction, 0, 1, without_high=True
        )


@dataclasses.dataclass(frozen=True)
class ClassData(LabelledData):
    """The section `data` of the tasks that learn classes.

    Attributes:
        class_weights: "balanced": every class has the same weight in the loss; "": every example,
            or every word.
    """

    class_weights: str = ""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.class_weights not in ("", "balanced"):
            rule = "it must be '' or 'balanced'"
            raise OptionError("data.class_weights", self.class_weights, rule)


@dataclasses.dataclass(frozen=True)
class LabelledOptions:
    """The options of every labelled task.

    Attributes:
        best_metric: the name of the metric that chooses the best checkpoint.
        batch_size: examples per training batch over all hosts, and rows per evaluation batch.
        length: maximum number of tokens per row; 0: the default of the task, or the limit in
            the model's files if that is less.
        seed: seed of the order of training examples.
        steps: training steps; 0: the number of steps in `epochs`.
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
    optimizer: Mapping[str, Any] = MappingProxyType({}),
    train: Mapping[str, Any] = MappingProxyType({}),
) -> dict[str, dict[str, Any]]:
    """The defaults of a labelled task for keys of the sections `optimizer` and `train`.

    Training follows the paper (appendix A.3), with the two corrections that make few examples
    suffice: Adam's bias correction, and a decay from the end of the warm-up (Mosbach et al., 2021).

    Args:
        optimizer: keys of section `optimizer` with another default for the task.
        train: keys of section `train` with another default for the task.
    """
    return {
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


def labelled_options(config: TaskConfig[LabelledData], best_metric: str) -> LabelledOptions:
    """The options of every labelled task; `best_metric` is the default of `data.best_metric`."""
    return LabelledOptions(
        best_metric=config.data.best_metric or best_metric,
        batch_size=config.train.global_batch_size,
        length=config.data.length,
        seed=config.seed,
        steps=config.train.steps,
        epochs=config.train.epochs,
    )


@contextlib.contextmanager
def config_keys() -> Iterator[None]:
    """Names the options of a predictor, see `BatchOptions`, in errors by their keys in a config."""
    keys = {"max_length": "data.length", "batch_size": "train.global_batch_size"}
    try:
        yield
    except OptionError as error:
        raise error.renamed(lambda key: keys.get(key, key)) from error


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
            "tokenizer as {tokenizer.path})",
            problem="init_from is not set",
        )
    return model_init.tokenizer

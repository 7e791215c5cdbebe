"""The sections of a config as labelled tasks have them."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from ml_collections import ConfigDict

from bert_jax.tasks.base.labelled_task import LabelledOptions

# Keys of section `data` that all labelled tasks have, see `splits.read_splits`.
DATA: dict[str, Any] = {
    "directory": "",
    "train": "",
    "validation": (),
    "test": (),
    "validation_fraction": 0.1,
    "limit": 0,
    "length": 128,
    "best_metric": "",
}


def defaults(
    data: Mapping[str, Any],
    optimizer: Mapping[str, Any] = MappingProxyType({}),
    train: Mapping[str, Any] = MappingProxyType({}),
) -> dict[str, dict[str, Any]]:
    """The keys of a labelled task with their defaults, by section.

    Training is as the paper has it (appendix A.3), with the two corrections that make few examples
    suffice: Adam's bias correction, and a decay from the end of the warm-up (Mosbach et al., 2021).

    Args:
        data: the task's own keys of section `data`.
        optimizer: keys that have another default here.
        train: likewise.
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


def labelled_options(config: ConfigDict, best_metric: tuple[str, bool]) -> LabelledOptions:
    """What every labelled task reads of a config.

    Args:
        config: the whole config.
        best_metric: where `data.best_metric` names none; of one that is named, higher is better,
            unless it is a loss or an error.
    """
    name = config.data.best_metric
    if name:
        best_metric = (name, not name.endswith(("loss", "error")))
    return LabelledOptions(
        best_metric=best_metric,
        batch_size=config.train.global_batch_size,
        length=config.data.length,
        seed=config.seed,
    )

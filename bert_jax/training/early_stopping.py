"""Early stopping: ends a training when evaluations have not improved for too long."""

import dataclasses
import math
from collections.abc import Mapping
from typing import Any

from bert_jax.errors import OptionError
from bert_jax.metrics import unknown_metric


@dataclasses.dataclass
class EarlyStopping:
    """The best evaluation of a run so far, and the number of evaluations since.

    Attributes:
        patience: training stops after this many evaluations without improvement; 0: never.
        metric: name of the metric that is compared, and whether higher is better.
        best: best value of the metric so far, None before the first evaluation.
        num_bad_evals: number of evaluations since the best one.
    """

    patience: int
    metric: tuple[str, bool]
    best: float | None = None
    num_bad_evals: int = 0

    @classmethod
    def restored(
        cls, patience: int, metric: tuple[str, bool], position: Mapping[str, Any]
    ) -> "EarlyStopping":
        """Restores the state from a checkpoint's position."""
        return cls(patience, metric, position.get("best"), position.get("num_bad_evals", 0))

    def as_position(self) -> dict[str, Any]:
        """The state as JSON, for the position in a checkpoint."""
        return {"best": self.best, "num_bad_evals": self.num_bad_evals}

    def update(self, metrics: Mapping[str, float]) -> bool:
        """Counts an evaluation. NaN is never an improvement.

        Returns:
            Whether the evaluation is the best so far.

        Raises:
            OptionError: the metric is missing.
        """
        name, higher_is_better = self.metric
        if name not in metrics:
            if metrics:
                raise unknown_metric(name, metrics)
            if self.patience:
                raise OptionError(
                    "train.patience",
                    self.patience,
                    "it needs labelled examples to evaluate on; set {data.validation}, or "
                    "{train.patience=0}",
                )
            return False
        value = float(metrics[name])
        gain = 0.0 if self.best is None else value - self.best
        is_better = self.best is None or (gain > 0 if higher_is_better else gain < 0)
        if math.isnan(value) or not is_better:
            self.num_bad_evals += 1
            return False
        self.best, self.num_bad_evals = value, 0
        return True

    @property
    def is_over(self) -> bool:
        """Whether training stops."""
        return 0 < self.patience <= self.num_bad_evals

    def __str__(self) -> str:
        """The reason for the stop."""
        best = "" if self.best is None else f" than {self.best:.4f}"
        return f"no better {self.metric[0]}{best} in {self.num_bad_evals} evaluations"

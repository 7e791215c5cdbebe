"""Early stopping: ends a training when evaluations have not improved for too long."""

import dataclasses
import math
from collections.abc import Mapping
from typing import Any

from bert_jax.errors import OptionError


@dataclasses.dataclass
class EarlyStopping:
    """The best evaluation of a run so far, and how many have passed since.

    Attributes:
        patience: the training ends after this many evaluations without a better one; 0: never.
        metric: name of the metric that is compared, and whether higher is better.
        best: its best value so far, None before the first evaluation.
        num_bad_evals: evaluations since the best one.
    """

    patience: int
    metric: tuple[str, bool]
    best: float | None = None
    num_bad_evals: int = 0

    @classmethod
    def restored(
        cls, patience: int, metric: tuple[str, bool], position: Mapping[str, Any]
    ) -> "EarlyStopping":
        """From the position that a checkpoint keeps."""
        return cls(patience, metric, position.get("best"), position.get("num_bad_evals", 0))

    def as_position(self) -> dict[str, Any]:
        """The part that a checkpoint keeps, as JSON."""
        return {"best": self.best, "num_bad_evals": self.num_bad_evals}

    def update(self, metrics: Mapping[str, float]) -> bool:
        """Counts an evaluation. NaN is never the best.

        Returns:
            Whether it is the best so far.

        Raises:
            UserError: the metric is missing.
        """
        name, higher_is_better = self.metric
        if name not in metrics:
            if metrics:
                raise OptionError(
                    "best_metric",
                    name,
                    "set {best_metric} to one of them",
                    problem=f"there is no metric {name!r}, only {', '.join(metrics)}",
                )
            if self.patience:
                raise OptionError(
                    "patience",
                    self.patience,
                    "it needs labelled examples to evaluate on; set {validation}, or {patience=0}",
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
        """Whether the training must end."""
        return 0 < self.patience <= self.num_bad_evals

    def __str__(self) -> str:
        """Why the training ended."""
        best = "" if self.best is None else f" than {self.best:.4f}"
        return f"no better {self.metric[0]}{best} in {self.num_bad_evals} evaluations"

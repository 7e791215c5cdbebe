"""Early stopping: how long an evaluation has not been better than the best."""

import dataclasses
import math
from collections.abc import Mapping
from typing import Any

from bert_jax.errors import UserError


@dataclasses.dataclass
class EarlyStopping:
    """What the evaluations of a run have come to.

    Attributes:
        limit: so many evaluations without a better one end the training; 0: never.
        metric: which one counts, and whether the higher value is the better one.
        best: its best value so far, None before there is any.
        num_bad_evals: evaluations since the best one.
    """

    limit: int
    metric: tuple[str, bool]
    best: float | None = None
    num_bad_evals: int = 0

    @classmethod
    def restored(
        cls, limit: int, metric: tuple[str, bool], position: Mapping[str, Any]
    ) -> "EarlyStopping":
        """As it was when a checkpoint was written."""
        return cls(limit, metric, position.get("best"), position.get("num_bad_evals", 0))

    def as_position(self) -> dict[str, Any]:
        """What a checkpoint keeps of it, as JSON."""
        return {"best": self.best, "num_bad_evals": self.num_bad_evals}

    def update(self, metrics: Mapping[str, float]) -> bool:
        """One more evaluation. A value that is not a number is never the best.

        Returns:
            Whether it is the best so far.

        Raises:
            UserError: the metric is missing.
        """
        name, higher_is_better = self.metric
        if name not in metrics:
            if metrics:
                raise UserError(
                    f"data.best_metric {name!r} is none of the metrics: {', '.join(metrics)}"
                )
            if self.limit:
                raise UserError(
                    "train.patience needs labelled examples to evaluate on; give data.validation, "
                    "or set it to 0"
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
        """Whether the training is to end."""
        return 0 < self.limit <= self.num_bad_evals

    def __str__(self) -> str:
        """Why the training ended."""
        best = "" if self.best is None else f" than {self.best:.4f}"
        return f"no better {self.metric[0]}{best} in {self.num_bad_evals} evaluations"

"""The section `train` of a config: duration, batches, and when to log, evaluate and save."""

import dataclasses
import math
from fractions import Fraction

from bert_jax.errors import (
    INT32_MAX,
    OptionError,
    require_at_least,
    require_between,
    require_one_of,
)
from bert_jax.tasks.base.train_spec import BatchKeys

EXPORTS = ("latest", "best")


@dataclasses.dataclass(frozen=True)
class TrainOptions(BatchKeys):
    """The section `train` of a config.

    Attributes:
        steps: number of training steps; 0: `epochs` decides.
        global_batch_size: examples per step, over all devices and micro-batches.
        microbatches: gradient-accumulation steps per update.
        log_every, eval_every, checkpoint_every: intervals in steps; 0: only at the end (the log
            also at the first step). The best checkpoint is one of the evaluated ones; with `export`
            "best", each evaluation that is the best so far is also saved.
        keep_checkpoints: number of newest checkpoints kept, in addition to the best.
        epochs: passes over the training examples, if `steps` is 0.
        evaluate_per_epoch: evaluations per epoch, if `eval_every` is 0.
        evaluate_first: whether the model is also evaluated before the first step.
        patience: stop after this many evaluations without improvement; 0: never.
        export: checkpoint that becomes the exported model, "latest" or "best".
        seeds: one run per seed, see `sweep`; (): a single run with the config's `seed`.
    """

    log_every: int = 50
    eval_every: int | Fraction = 500
    checkpoint_every: int = 500
    keep_checkpoints: int = 2
    evaluate_per_epoch: int = 0
    evaluate_first: bool = False
    patience: int = 0
    export: str = "latest"
    seeds: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        for name in ("global_batch_size", "microbatches", "keep_checkpoints"):
            require_at_least(f"train.{name}", getattr(self, name), 1)
        for name in ("steps", "log_every", "checkpoint_every", "evaluate_per_epoch", "patience"):
            require_at_least(f"train.{name}", getattr(self, name), 0)
        require_between("train.epochs", self.epochs, 0)
        if not self.steps and not self.epochs:
            raise OptionError("train.steps", 0, "it must be at least 1, or train.epochs above 0")
        if self.global_batch_size % self.microbatches:
            rule = f"it must be a multiple of train.microbatches, {self.microbatches}"
            raise OptionError("train.global_batch_size", self.global_batch_size, rule)
        require_between("train.eval_every", self.eval_every, 0, INT32_MAX)
        require_one_of("train.export", self.export, EXPORTS)
        if not all(type(seed) is int and 0 <= seed < 2**32 for seed in self.seeds):
            rule = "seeds are whole numbers from 0 to 2**32 - 1"
            raise OptionError("train.seeds", self.seeds, rule)
        if len(set(self.seeds)) < len(self.seeds):
            raise OptionError("train.seeds", self.seeds, "seeds must be distinct; leave one out")

    def resolved(self, examples_per_epoch: int) -> "TrainOptions":
        """The options with epochs converted to steps; an epoch ends with a last, partial batch.

        The evaluations of an epoch are spread evenly, the last one at its end; so `eval_every` can
        be a fraction of a step, see `is_due`.

        Args:
            examples_per_epoch: number of training examples.
        """
        batches = -(-examples_per_epoch // self.global_batch_size)
        changes: dict[str, int | Fraction] = {}
        if not self.steps:
            # 0.07 × 100 is a little more than 7: rounded to six decimal places.
            steps = max(1, math.ceil(round(self.epochs * batches, 6)))
            if steps > INT32_MAX:
                rule = f"that is {steps:,} steps, and {INT32_MAX:,} are possible"
                raise OptionError("train.epochs", self.epochs, rule)
            changes["steps"] = steps
        if self.evaluate_per_epoch and not self.eval_every:
            changes["eval_every"] = Fraction(batches, self.evaluate_per_epoch)
        return dataclasses.replace(self, **changes)  # type: ignore[arg-type]


def is_due(step: int, every: int | Fraction) -> bool:
    """Whether a multiple of `every` lies in the step that ends at `step`; never for 0.

    With 2.5, it is true for steps 3, 5, 8, 10, …
    """
    return every > 0 and step // every > (step - 1) // every

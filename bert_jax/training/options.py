"""The section `train` of a config: how long, in which batches, and what happens when."""

import dataclasses
import math
from fractions import Fraction

from bert_jax.errors import OptionError

EXPORTS = ("latest", "best")


@dataclasses.dataclass(frozen=True)
class TrainOptions:
    """The section `train` of a config.

    Attributes:
        steps: steps of the whole training; 0: those of `epochs`.
        global_batch_size: examples of one step, over all devices and micro-batches.
        microbatches: parts of a step that pass through the model one after the other.
        log_every, eval_every, checkpoint_every: in steps; 0 for only at the end (and the log also
            at the first step). The best checkpoint is chosen among those that were evaluated; with
            `export` "best", each evaluation that is the best so far is saved besides.
        keep_checkpoints: how many of the newest stay, besides the best.
        epochs: passes over the training examples, where `steps` is 0.
        evaluate_per_epoch: evaluations of an epoch, where `eval_every` is 0.
        patience: so many evaluations without a better one end the training; 0: never.
        export: which checkpoint becomes the model, "latest" or "best".
        seeds: one run for each of them, see `sweep`; none: one run with the config's seed.
    """

    steps: int = 1000
    global_batch_size: int = 32
    microbatches: int = 1
    log_every: int = 50
    eval_every: int | Fraction = 500
    checkpoint_every: int = 500
    keep_checkpoints: int = 2
    epochs: float = 0.0
    evaluate_per_epoch: int = 0
    patience: int = 0
    export: str = "latest"
    seeds: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        if not (self.steps > 0 or (self.steps == 0 and self.epochs > 0)):
            remedy = "" if self.steps else ", or {epochs} above 0"
            raise OptionError("steps", self.steps, "it must be at least 1" + remedy)
        for name in ("global_batch_size", "microbatches", "keep_checkpoints"):
            if getattr(self, name) < 1:
                raise OptionError(name, getattr(self, name), "it must be at least 1")
        if self.global_batch_size % self.microbatches:
            rule = f"it must be a multiple of {{microbatches}}, {self.microbatches}"
            raise OptionError("global_batch_size", self.global_batch_size, rule)
        for name in ("epochs", "evaluate_per_epoch", "patience"):
            if not 0 <= getattr(self, name) < math.inf:
                raise OptionError(name, getattr(self, name), "it must be 0 or more")
        for name in ("log_every", "eval_every", "checkpoint_every"):
            if getattr(self, name) < 0:
                rule = "it must be 0 (only at the end) or more"
                raise OptionError(name, getattr(self, name), rule)
        if self.export not in EXPORTS:
            raise OptionError("export", self.export, f"known are {', '.join(EXPORTS)}")
        if not all(type(seed) is int and 0 <= seed < 2**32 for seed in self.seeds):
            rule = "seeds are whole numbers from 0 to 2**32 - 1"
            raise OptionError("seeds", self.seeds, rule)
        if len(set(self.seeds)) < len(self.seeds):
            raise OptionError("seeds", self.seeds, "it has a seed twice; leave one out")

    def resolved(self, examples_per_epoch: int) -> "TrainOptions":
        """The options with epochs as steps; an epoch ends with its last, partial batch.

        The evaluations of an epoch are spread evenly, the last one at its end; so `eval_every` may
        become a fraction of a step, see `is_due`.

        Args:
            examples_per_epoch: what there is to train on.
        """
        batches = -(-examples_per_epoch // self.global_batch_size)
        changes: dict[str, int | Fraction] = {}
        if not self.steps:
            # 0.07 × 100 is a little more than 7: what is not seen in six places is rounding.
            changes["steps"] = max(1, math.ceil(round(self.epochs * batches, 6)))
        if self.evaluate_per_epoch and not self.eval_every:
            changes["eval_every"] = Fraction(batches, self.evaluate_per_epoch)
        return dataclasses.replace(self, **changes)  # type: ignore[arg-type]


def is_due(step: int, every: int | Fraction) -> bool:
    """Whether a multiple of `every` lies in the step that ends at `step`; of 0, none does.

    With 2.5, these are steps 3, 5, 8, 10, …
    """
    return every > 0 and step // every > (step - 1) // every

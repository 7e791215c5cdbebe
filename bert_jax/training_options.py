"""The sections `train` and `optimizer` of a config."""

import dataclasses
import math
from collections.abc import Iterator
from fractions import Fraction
from typing import Any

from bert_jax.errors import (
    INT32_MAX,
    OptionError,
    require_at_least,
    require_between,
    require_one_of,
)

EXPORTS = ("latest", "best")
DECAYS = ("linear", "cosine", "one_minus_sqrt", "inverse_sqrt", "constant_inverse_sqrt", "constant")
# Decays that end at 0 after the last step, so that the part in which they fall can be chosen.
_ENDING_DECAYS = DECAYS[:3]
DECAY_STARTS = ("start", "warmup")
OPTIMIZERS = ("adamw", "lamb", "stable_adamw", "adafactor")
# Options of the moments of all but Adafactor.
_ADAM_KEYS = ("beta1", "beta2", "epsilon", "bias_correction")
ALTERNATIVES = (
    ("train.steps", "train.epochs"),
    ("train.eval_every", "train.evaluate_per_epoch"),
    ("optimizer.warmup_steps", "optimizer.warmup_ratio"),
)
"""Pairs of keys that say the same in two ways: one of them is 0."""

# The share of a run whose checkpoints may be averaged without a warning.
_LONGEST_AVERAGE = 0.1


def _check_alternatives(section: str, options: Any) -> None:
    """Raises OptionError where both of two `ALTERNATIVES` of a section are set."""
    for keys in ALTERNATIVES:
        one, other = (getattr(options, key.removeprefix(section), 0) for key in keys)
        if one and other:
            raise OptionError(keys[1], other, f"leave it out, or {{{keys[0]}}}, which is {one}")


@dataclasses.dataclass(frozen=True)
class TrainOptions:
    """The section `train`: duration, batches, and when to log, evaluate and save.

    Attributes:
        steps: number of training steps; 0: `epochs` is set.
        global_batch_size: examples per step, over all devices and micro-batches.
        microbatches: gradient-accumulation steps per update.
        batch_warmup: global batch sizes of the first steps, each a divisor of `global_batch_size`;
            a step with a smaller batch leaves out the other rows of its batch. (): none.
        batch_warmup_ratio: the share of all steps with these sizes, in equal parts.
        log_every, eval_every, checkpoint_every: intervals in steps; 0: only at the end (the log
            also at the first step). The best checkpoint is one of the evaluated ones; with `export`
            "best", each evaluation that is the best so far is also saved.
        keep_checkpoints: number of newest checkpoints kept, in addition to the best.
        epochs: passes over the training examples, instead of `steps`.
        evaluate_per_epoch: evaluations per epoch, instead of `eval_every`.
        evaluate_first: whether the model is also evaluated before the first step.
        patience: stop after this many evaluations without improvement; 0: never.
        export: checkpoint that becomes the exported model, "latest" or "best".
        average_checkpoints: the exported model is the mean of so many newest checkpoints (Vaswani
            et al., 2017, section 6.1: 5); one that only a stop of the run has caused does not
            count.
        seeds: one run per seed, see `sweep`; (): a single run with the config's `seed`.
    """

    steps: int = 1000
    epochs: float = 0.0
    global_batch_size: int = 32
    microbatches: int = 1
    batch_warmup: tuple[int, ...] = ()
    batch_warmup_ratio: float = 0.0
    log_every: int = 50
    eval_every: int | Fraction = 500
    checkpoint_every: int = 500
    keep_checkpoints: int = 2
    evaluate_per_epoch: int = 0
    evaluate_first: bool = False
    patience: int = 0
    export: str = "latest"
    average_checkpoints: int = 1
    seeds: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        for name in (
            "global_batch_size",
            "microbatches",
            "keep_checkpoints",
            "average_checkpoints",
        ):
            require_at_least(f"train.{name}", getattr(self, name), 1)
        for name in ("steps", "log_every", "checkpoint_every", "evaluate_per_epoch", "patience"):
            require_at_least(f"train.{name}", getattr(self, name), 0)
        require_between("train.epochs", self.epochs, 0)
        _check_alternatives("train.", self)
        if not self.steps and not self.epochs:
            raise OptionError("train.steps", 0, "it must be at least 1, or {train.epochs} above 0")
        if self.global_batch_size % self.microbatches:
            rule = f"it must be a multiple of {{train.microbatches}}, {self.microbatches}"
            raise OptionError("train.global_batch_size", self.global_batch_size, rule)
        self._check_batch_warmup()
        require_between("train.eval_every", self.eval_every, 0, INT32_MAX)
        require_one_of("train.export", self.export, EXPORTS)
        if self.average_checkpoints > self.keep_checkpoints:
            rule = f"raise {{train.keep_checkpoints}}, {self.keep_checkpoints}, to as many"
            raise OptionError("train.average_checkpoints", self.average_checkpoints, rule)
        if self.average_checkpoints > 1 and self.export == "best":
            rule = "it averages the newest ones: set {train.export=latest}"
            raise OptionError("train.average_checkpoints", self.average_checkpoints, rule)
        if not all(type(seed) is int and 0 <= seed < 2**32 for seed in self.seeds):
            rule = "seeds are whole numbers from 0 to 2**32 - 1"
            raise OptionError("train.seeds", self.seeds, rule)
        if len(set(self.seeds)) < len(self.seeds):
            raise OptionError("train.seeds", self.seeds, "seeds must be distinct; leave one out")

    def _check_batch_warmup(self) -> None:
        require_between("train.batch_warmup_ratio", self.batch_warmup_ratio, 0, 1)
        for size in self.batch_warmup:
            require_at_least("train.batch_warmup", size, 1)
            if self.global_batch_size % size or size % self.microbatches:
                rule = (
                    f"each size must divide {{train.global_batch_size}}, {self.global_batch_size}, "
                    f"and be a multiple of {{train.microbatches}}, {self.microbatches}; for none "
                    "set it to () and {train.batch_warmup_ratio=0}"
                )
                raise OptionError("train.batch_warmup", self.batch_warmup, rule)
        if bool(self.batch_warmup) != bool(self.batch_warmup_ratio):
            rule = "give {train.batch_warmup} and {train.batch_warmup_ratio} together"
            raise OptionError("train.batch_warmup", self.batch_warmup, rule)
        if self.batch_warmup and not self.steps:
            rule = "give {train.steps} instead: an epoch has no number of steps with it"
            raise OptionError("train.epochs", self.epochs, rule)

    @property
    def batch_warmup_steps(self) -> int:
        """The number of steps with a batch size of `batch_warmup`."""
        return round(self.batch_warmup_ratio * self.steps)

    def batch_sizes(self, start: int, stop: int) -> Iterator[tuple[range, int]]:
        """The global batch size of the steps `start` … `stop - 1`, counted from 0, as ranges."""
        sizes = (*self.batch_warmup, self.global_batch_size)
        parts = max(1, len(self.batch_warmup))
        ends = [self.batch_warmup_steps * part // parts for part in range(1, len(sizes))]
        for size, end in zip(sizes, (*ends, stop), strict=True):
            steps = range(start, min(end, stop))
            if steps:
                yield steps, size
                start = steps.stop

    def resolved(self, examples_per_epoch: int) -> "TrainOptions":
        """The options with epochs converted to steps; an epoch ends with a last, partial batch.

        The evaluations of an epoch are spread evenly, the last one at its end; so `eval_every` can
        be a fraction of a step, see `is_due`.

        Args:
            examples_per_epoch: number of training examples.

        Raises:
            OptionError: there are more steps than can be counted, or too few checkpoints for an
                average.
        """
        batches = -(-examples_per_epoch // self.global_batch_size)
        changes: dict[str, int | float | Fraction] = {}
        if self.epochs:
            # 0.07 × 100 is a little more than 7: rounded to six decimal places.
            steps = max(1, math.ceil(round(self.epochs * batches, 6)))
            if steps > INT32_MAX:
                rule = f"that is {steps:,} steps, and {INT32_MAX:,} are possible"
                raise OptionError("train.epochs", self.epochs, rule)
            changes |= {"steps": steps, "epochs": 0.0}
        if self.evaluate_per_epoch:
            every = Fraction(batches, self.evaluate_per_epoch)
            changes |= {"eval_every": every, "evaluate_per_epoch": 0}
        resolved = dataclasses.replace(self, **changes)  # type: ignore[arg-type]
        checkpoints = -(-resolved.steps // (self.checkpoint_every or resolved.steps))
        if checkpoints < self.average_checkpoints:
            rule = f"lower it, or set {{train.checkpoint_every}}, which is {self.checkpoint_every}"
            problem = f"{resolved.steps} steps have {checkpoints} checkpoints"
            problem = f"train.average_checkpoints is {self.average_checkpoints}, but {problem}"
            raise OptionError("train.average_checkpoints", self.average_checkpoints, rule, problem)
        return resolved

    def average_warning(self) -> str:
        """Why the mean of the checkpoints is not of the end of the run alone; "": it is.

        Of options in steps. In the paper five checkpoints, of 10 minutes each, are the last 7 % of
        12 hours.
        """
        every, count = self.checkpoint_every or self.steps, self.average_checkpoints
        oldest = (-(-self.steps // every) - count + 1) * every
        share = 1 - oldest / self.steps
        if count == 1 or share <= _LONGEST_AVERAGE:
            return ""
        most = int(_LONGEST_AVERAGE * self.steps) // (count - 1)
        closer = f"train.checkpoint_every to at most {most:,}, or " if most else ""
        return (
            f"the exported model is the mean of {count} checkpoints of the last {share:.0%} of the "
            f"run: set {closer}train.average_checkpoints=1"
        )


def is_due(step: int, every: int | Fraction) -> bool:
    """Whether a multiple of `every` lies in the step that ends at `step`; never for 0.

    With 2.5, it is true for steps 3, 5, 8, 10, …
    """
    return every > 0 and step // every > (step - 1) // every


@dataclasses.dataclass(frozen=True)
class OptimizerOptions:
    """The section `optimizer`.

    Attributes:
        name: "adamw"; "lamb" (You et al., 2020, as implemented in albert/lamb_optimizer.py);
            "stable_adamw", see `training.stable_adamw`; or "adafactor" as T5 used it, see
            `training.adafactor`.
        learning_rate: peak learning rate.
        head_learning_rate: peak learning rate of the parameters outside the encoder, such as a
            classifier; 0: `learning_rate`.
        layer_decay: ratio of a layer's learning rate to the rate of the layer above, see
            `layer_rates.rate_factors`.
        freeze_encoder: whether only pooler and head are trained (feature-based: paper, section
            5.3).
        freeze_layers: N: the embeddings and the lowest N layers are frozen.
        warmup_steps, decay, decay_from, decay_ratio: see `schedule.learning_rate`.
        warmup_ratio: warm-up as a fraction of all steps, instead of `warmup_steps`, for runs of any
            length.
        weight_decay: decoupled weight decay, scaled by the learning rate.
        beta1, beta2, epsilon: parameters of AdamW, LAMB and StableAdamW.
        bias_correction: whether the moments are corrected for their start at 0. The original BERT
            does not correct ("mostly an oversight", google-research/bert#153); with few steps, as
            in fine-tuning, the correction helps (Mosbach et al., 2021).
        max_grad_norm: gradients are scaled down to this global norm; 0 for no clipping.
        shard_over_data: whether the data-parallel replicas (`mesh.data`) each hold a part of the
            moments and compute a part of the update, instead of all of it.
    """

    freeze_encoder: bool = False
    freeze_layers: int = 0
    name: str = "adamw"
    learning_rate: float = 1e-4
    head_learning_rate: float = 0.0
    layer_decay: float = 1.0
    warmup_steps: int = 0
    warmup_ratio: float = 0.0
    decay: str = "linear"
    decay_from: str = "start"
    decay_ratio: float = 1.0
    weight_decay: float = 0.01
    beta1: float = 0.9
    beta2: float = 0.999
    epsilon: float = 1e-6
    bias_correction: bool = False
    max_grad_norm: float = 1.0
    shard_over_data: bool = False

    def __post_init__(self) -> None:
        require_one_of("optimizer.name", self.name, OPTIMIZERS)
        for field in dataclasses.fields(self) if self.name == "adafactor" else ():
            if field.name in _ADAM_KEYS and (value := getattr(self, field.name)) != field.default:
                rule = "{optimizer.name=adafactor} has no such option: leave it out"
                raise OptionError(f"optimizer.{field.name}", value, rule)
        require_one_of("optimizer.decay", self.decay, DECAYS)
        require_one_of("optimizer.decay_from", self.decay_from, DECAY_STARTS)
        require_between("optimizer.decay_ratio", self.decay_ratio, 0, 1, without_low=True)
        if self.decay_ratio < 1 and self.decay not in _ENDING_DECAYS:
            rule = f"{{optimizer.decay={self.decay}}} has no end: leave it out"
            raise OptionError("optimizer.decay_ratio", self.decay_ratio, rule)
        if self.name == "stable_adamw" and not self.bias_correction:
            rule = "{optimizer.name=stable_adamw} corrects it: set {optimizer.bias_correction=true}"
            raise OptionError("optimizer.bias_correction", False, rule)
        for key in ("learning_rate", "head_learning_rate", "weight_decay", "max_grad_norm"):
            require_between(f"optimizer.{key}", getattr(self, key), 0)
        for key in ("freeze_layers", "warmup_steps"):
            require_at_least(f"optimizer.{key}", getattr(self, key), 0)
        require_between("optimizer.warmup_ratio", self.warmup_ratio, 0, 1)
        _check_alternatives("optimizer.", self)
        if self.head_learning_rate and not self.learning_rate:
            raise OptionError(
                "optimizer.learning_rate",
                self.learning_rate,
                "it must be above 0 beside {optimizer.head_learning_rate}; to train the head "
                "alone, give its rate as {optimizer.learning_rate}, and "
                "{optimizer.freeze_encoder=true}",
            )
        for key in ("beta1", "beta2"):
            require_between(f"optimizer.{key}", getattr(self, key), 0, 1, without_high=True)
        require_between("optimizer.epsilon", self.epsilon, 0, without_low=True)
        require_between("optimizer.layer_decay", self.layer_decay, 0, 1, without_low=True)

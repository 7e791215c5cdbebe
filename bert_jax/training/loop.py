"""The training loop.

The order in which things happen, and it is not to be changed:

1. mesh, task, optimizer: from the config; nothing is computed yet
2. state: from the newest checkpoint of this run, else from `init_from`, else from the seed
3. for each step: take the batch → step → (log) → (evaluate) → (save) → (stop if asked to)
4. wait for the last checkpoint

A checkpoint holds the state after a step and the position of the next batch, so a resumed run sees
what an uninterrupted one would have seen.
"""

import contextlib
import dataclasses
import math
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax
from jax.sharding import Mesh

from bert_jax.checkpoints.runs import RunCheckpoints
from bert_jax.errors import UserError
from bert_jax.sharding.hosts import is_main_host, to_global
from bert_jax.training.logs import RunLog
from bert_jax.training.optimizer import OptimizerOptions, make_optimizer
from bert_jax.training.progress import Progress, Speedometer
from bert_jax.training.signals import Interrupted, StopSignals
from bert_jax.training.state import TrainState, abstract_state, new_state, with_params
from bert_jax.training.step import TrainStep, make_train_step
from bert_jax.training.task import Batch, Task


@dataclasses.dataclass(frozen=True)
class TrainOptions:
    """The section `train` of a config.

    Attributes:
        steps: steps of the whole training.
        global_batch_size: examples of one step, over all devices and micro-batches.
        microbatches: parts of a step that pass through the model one after the other.
        log_every, eval_every, checkpoint_every: in steps; 0 for only at the end (and the log also
            at the first step). The best checkpoint is chosen among those that were evaluated.
        keep_checkpoints: how many of the newest stay, besides the best.
        epochs: passes over the training examples, in place of `steps`; 0: `steps` counts.
        evaluate_per_epoch: evaluations and checkpoints of an epoch, in place of `eval_every` and
            `checkpoint_every`; 0: these count.
        patience: so many evaluations without a better one end the training; 0: never.
        export: which checkpoint becomes the model, "latest" or "best".
        seeds: one run for each of them, see `several_runs`; none: one run with the config's seed.
    """

    steps: int = 1000
    global_batch_size: int = 32
    microbatches: int = 1
    log_every: int = 50
    eval_every: int = 500
    checkpoint_every: int = 500
    keep_checkpoints: int = 2
    epochs: float = 0.0
    evaluate_per_epoch: int = 0
    patience: int = 0
    export: str = "latest"
    seeds: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        for name in ("steps", "global_batch_size", "microbatches", "keep_checkpoints"):
            if getattr(self, name) < 1:
                raise UserError(f"train.{name} is {getattr(self, name)}; it must be at least 1")

    def resolved(self, examples_per_epoch: int) -> "TrainOptions":
        """The options with epochs as steps; an epoch ends with its last, partial batch."""
        batches = -(-examples_per_epoch // self.global_batch_size)
        steps = math.ceil(self.epochs * batches) if self.epochs else self.steps
        every = max(1, batches // self.evaluate_per_epoch) if self.evaluate_per_epoch else 0
        return dataclasses.replace(
            self,
            steps=steps,
            eval_every=every or self.eval_every,
            checkpoint_every=every or self.checkpoint_every,
        )


def train(
    task: Task,
    *,
    optimizer_options: OptimizerOptions,
    options: TrainOptions,
    mesh: Mesh,
    workdir: Path,
    seed: int,
    initial_params: Any = None,
) -> dict[str, float]:
    """Trains to `options.steps`, from wherever `workdir` stands.

    Args:
        task: model, batches, losses.
        optimizer_options: the section `optimizer` of a config.
        options: the section `train`.
        mesh: the devices.
        workdir: of the run; checkpoints, metrics and events are written there.
        seed: of parameters and dropout.
        initial_params: parameters of a new run in place of random ones.

    Returns:
        The metrics of the last evaluation.

    Raises:
        Interrupted: a signal stopped the run, which is saved.
        UserError: among others a loss that is not finite; checkpoints are not overwritten then.
    """
    optimizer = make_optimizer(optimizer_options, options.steps)
    abstract = abstract_state(task, optimizer, mesh)
    checkpoints = RunCheckpoints(
        workdir, keep=options.keep_checkpoints, best_metric=task.best_metric
    )
    resume_step = checkpoints.latest_step
    if resume_step is not None:
        state, position = checkpoints.restore(resume_step, abstract)
        first_batch = position["next_example"] // options.global_batch_size
    else:
        state, first_batch = new_state(task, optimizer, abstract, seed=seed), 0
        if initial_params is not None:
            state = with_params(state, initial_params)

    train_step = make_train_step(
        task,
        optimizer,
        optimizer_options.schedule(options.steps),
        mesh=mesh,
        abstract=abstract,
        microbatches=options.microbatches,
        seed=seed,
    )
    log = RunLog(workdir, resume_step=resume_step or 0, enabled=is_main_host())
    progress = Progress(start=first_batch, stop=options.steps, enabled=is_main_host())
    run = _Run(task, options, mesh, checkpoints, log, progress)
    if resume_step is not None:
        progress.note(f"resuming {workdir} at step {resume_step}")
    batches = task.train_batches(
        first_batch, options.steps, host=jax.process_index(), hosts=jax.process_count()
    )
    with contextlib.closing(batches), StopSignals() as stop:
        try:
            return run.steps(state, first_batch, train_step, batches, stop)
        finally:
            progress.close()
            log.close()
            checkpoints.close()


@dataclasses.dataclass
class _Run:
    """What every step of a run works with."""

    task: Task
    options: TrainOptions
    mesh: Mesh
    checkpoints: RunCheckpoints
    log: RunLog
    progress: Progress
    pending: list[tuple[int, dict[str, jax.Array]]] = dataclasses.field(default_factory=list)
    speed: Speedometer = dataclasses.field(default_factory=Speedometer)

    def steps(
        self,
        state: TrainState,
        first: int,
        train_step: TrainStep,
        batches: Iterator[Batch],
        stop: StopSignals,
    ) -> dict[str, float]:
        """Steps `first` … `options.steps`; returns the last evaluation."""
        options = self.options
        held_out: dict[str, float] = {}
        for step, rows in enumerate(batches, start=first + 1):
            # JAX computes behind our back: the next batch is placed while this one is computed.
            batch = to_global(self.mesh, rows)
            state, metrics = train_step(state, batch)
            self.pending.append((step, metrics))
            self.speed.step(tokens=batch["input_ids"].size)
            self.progress.advance()

            last = step == options.steps
            if last or _due(step, options.log_every) or step == first + 1:
                self.write_log()
            held_out = {}
            if last or _due(step, options.eval_every):
                held_out = self.evaluate(step, state)
                self.log.write(step, "held_out", held_out)
            if last or _due(step, options.checkpoint_every) or stop.requested:
                self.save(step, state, held_out)
            if stop.requested and not last:
                self.checkpoints.wait()
                raise Interrupted(step)
        return held_out or self.evaluate(options.steps, state)

    def write_log(self) -> None:
        """Reads the metrics of the steps since the last time, all finite, and logs the newest.

        Only here does the host wait for the devices.
        """
        values = [(step, jax.device_get(metrics)) for step, metrics in self.pending]
        self.pending = []
        for step, metrics in values:
            if not (math.isfinite(metrics["loss"]) and math.isfinite(metrics["gradient_norm"])):
                raise self.not_finite(f"the loss of step {step}")
            if not math.isfinite(metrics["parameter_norm"]):
                raise self.not_finite(f"a parameter after step {step}")
        if values:
            step, metrics = values[-1]
            record = self.task.summary({name: float(value) for name, value in metrics.items()})
            record["tokens_per_second"] = self.speed.read()
            self.log.write(step, "train", record)
            self.progress.show(record)

    def not_finite(self, what: str) -> UserError:
        """Says what diverged and what is left."""
        return UserError(
            f"{what} is not finite; the last good checkpoint is {self.checkpoints.latest}; start "
            "another --workdir with a lower optimizer.learning_rate or a longer warm-up"
        )

    def evaluate(self, step: int, state: TrainState) -> dict[str, float]:
        """Metrics of the held-out documents, shown."""
        began = time.perf_counter()
        metrics = self.task.evaluate(state.params, self.mesh)
        shown = "  ".join(f"{name} {value:.4f}" for name, value in metrics.items())
        self.progress.note(f"step {step} held out: {shown}")
        self.speed.exclude(time.perf_counter() - began)
        return metrics

    def save(self, step: int, state: TrainState, held_out: dict[str, float]) -> None:
        """Begins to write a checkpoint, unless something in it or before it is not finite.

        The losses are those before each update; the last update shows in the parameters' norm.
        """
        began = time.perf_counter()
        if self.pending:
            self.write_log()
        position = {"next_example": step * self.options.global_batch_size}
        self.checkpoints.save(step, state, position, held_out)
        self.speed.exclude(time.perf_counter() - began)


def _due(step: int, every: int) -> bool:
    return every > 0 and step % every == 0

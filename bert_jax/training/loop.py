"""The training loop.

The order in which things happen, and it is not to be changed:

1. mesh, task, optimizer: from the config; nothing is computed yet
2. state: from the newest checkpoint of this run, else from `init_from`, else from the seed
3. for each step: take the batch → step → (log) → (evaluate) → (save, also where the best model is
   to be exported and this is it) → (stop if asked to, or if evaluations have not improved for too
   long)
4. wait for the last checkpoint

A checkpoint holds the state after a step, the position of the next batch, and what the evaluations
so far have come to; so a resumed run sees what an uninterrupted one would have seen.
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
from bert_jax.data.pipeline import Batch
from bert_jax.errors import NotFiniteError, UserError
from bert_jax.sharding.hosts import batch_share, from_main_host, is_main_host, to_global
from bert_jax.tasks.base.task import Task
from bert_jax.training.early_stopping import EarlyStopping
from bert_jax.training.logs import RunLog
from bert_jax.training.optimizer import OptimizerOptions, make_optimizer
from bert_jax.training.options import TrainOptions, is_due
from bert_jax.training.progress import Progress, Speedometer, computed_tokens, share_of_padding
from bert_jax.training.signals import Interrupted, StopSignals
from bert_jax.training.state import TrainState, abstract_state, new_state, with_params
from bert_jax.training.step import TrainStep, make_train_step, pack_rows


class DivergedError(UserError):
    """A loss, a parameter or a score is not finite."""


def train(
    task: Task,
    *,
    optimizer_options: OptimizerOptions,
    options: TrainOptions,
    mesh: Mesh,
    workdir: Path,
    seed: int,
    initial_params: Any = None,
    predictions: Path | None = None,
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
        predictions: where the last evaluation writes what `task.evaluate` writes.

    Returns:
        The metrics of the last evaluation.

    Raises:
        Interrupted: a signal stopped the run, which is saved.
        DivergedError: something is not finite; checkpoints are not overwritten then.
        UserError: something cannot be read, written or combined.
    """
    optimizer = make_optimizer(optimizer_options, options.steps)
    abstract = abstract_state(task, optimizer, mesh)
    checkpoints = RunCheckpoints(
        workdir, keep=options.keep_checkpoints, best_metric=task.best_metric
    )
    resume_step = from_main_host(checkpoints.latest_step)
    if resume_step is not None:
        state, position = checkpoints.restore(resume_step, abstract)
        first_batch = position["next_example"] // options.global_batch_size
        patience = EarlyStopping.restored(options.patience, task.best_metric, position)
    else:
        state, first_batch = new_state(task, optimizer, abstract, seed=seed), 0
        patience = EarlyStopping(options.patience, task.best_metric)
        if initial_params is not None:
            state = with_params(state, initial_params)

    train_step = make_train_step(
        task,
        optimizer,
        mesh=mesh,
        abstract=abstract,
        microbatches=options.microbatches,
        seed=seed,
    )
    log = RunLog(workdir, resume_step=resume_step or 0, enabled=is_main_host())
    progress = Progress(start=first_batch, stop=options.steps, enabled=is_main_host())
    run = _Run(task, options, mesh, checkpoints, log, progress, patience, predictions)
    if resume_step is not None:
        progress.note(f"resuming {workdir} at step {resume_step}")
    share = batch_share(mesh)
    batches = task.train_batches(
        first_batch,
        first_batch if patience.is_over else options.steps,
        host=share.index,
        hosts=share.count,
    )
    with checkpoints, contextlib.closing(batches), StopSignals() as stop:
        try:
            return run.steps(state, first_batch, train_step, batches, stop)
        finally:
            progress.close()
            log.close()


@dataclasses.dataclass
class _Run:
    """What every step of a run works with."""

    task: Task
    options: TrainOptions
    mesh: Mesh
    checkpoints: RunCheckpoints
    log: RunLog
    progress: Progress
    patience: EarlyStopping
    predictions: Path | None
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
        """Steps `first` … the last; returns the last evaluation."""
        options = self.options
        validation: dict[str, float] | None = None
        for step, rows in enumerate(batches, start=first + 1):
            rows = pack_rows(self.task, self.mesh, options.microbatches, rows)
            # Steps run behind our back: this batch is placed while the one before is computed.
            batch = to_global(self.mesh, rows)
            state, metrics = train_step(state, batch)
            self.pending.append((step, metrics))
            self.speed.step(tokens=computed_tokens(batch), padding=share_of_padding(rows))
            self.progress.advance()

            last = step == options.steps
            if last or is_due(step, options.log_every) or step == first + 1:
                self.write_log()
            validation, is_best = None, False
            if last or is_due(step, options.eval_every):
                self.write_log()  # says that the loss has diverged before NaN scores stop it
                validation = self.evaluate(step, state, self.predictions if last else None)
                self.log.write(step, "validation", validation)
                is_best = self.patience.update(validation)
                last = last or self.patience.is_over
            stopping = stop.after(step)
            # The best model must not fall between two checkpoints if it is the one to be exported.
            is_kept = is_best and options.export == "best"
            if last or is_kept or is_due(step, options.checkpoint_every) or stopping:
                self.save(step, state, validation or {})
            if last:
                break
            if stopping:
                self.checkpoints.wait()
                raise Interrupted(step)
        if self.patience.is_over:
            self.progress.note(f"stopped at step {int(state.step)}: {self.patience}")
        if validation is None:
            validation = self.evaluate(int(state.step), state, self.predictions)
        return validation

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
            record |= self.speed.read()
            self.log.write(step, "train", record)
            self.progress.show(record)

    def not_finite(self, what: str) -> DivergedError:
        """Says what diverged and what is left."""
        return DivergedError(
            f"{what} is not finite; the last good checkpoint is {self.checkpoints.latest}; start "
            "another --workdir with a lower optimizer.learning_rate or a longer warm-up"
        )

    def evaluate(self, step: int, state: TrainState, predictions: Path | None) -> dict[str, float]:
        """Metrics of the validation examples, shown."""
        began = time.perf_counter()
        try:
            metrics = from_main_host(self.task.evaluate(state.params, self.mesh, predictions))
        except NotFiniteError as error:
            # Parameters may be numbers still and yet too large to compute with.
            raise self.not_finite(f"a score of the evaluation after step {step}") from error
        shown = "  ".join(f"{name} {value:.4f}" for name, value in metrics.items())
        self.progress.note(f"step {step} validation: {shown}")
        self.speed.exclude(time.perf_counter() - began)
        return metrics

    def save(self, step: int, state: TrainState, validation: dict[str, float]) -> None:
        """Begins to write a checkpoint, unless something in it or before it is not finite.

        The losses are those before each update; the last update shows in the parameters' norm.
        """
        began = time.perf_counter()
        self.write_log()
        next_example = step * self.options.global_batch_size
        position = {"next_example": next_example, **self.patience.as_position()}
        self.log.save()
        self.checkpoints.save(step, state, position, validation)
        self.speed.exclude(time.perf_counter() - began)

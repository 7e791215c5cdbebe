"""The training loop, the same for every task.

The order of events, which must not change:

1. shapes of the state; nothing is computed yet
2. state: from the newest checkpoint of this run, else from `initial_params`, else from the seed
3. batches: from the position of this state
4. for each step: batch → step → log → evaluate → save → stop
   (log, evaluate and save when they are due; save also a new best model if the best is exported;
   stop at the last step, after a signal, or when evaluations have not improved for too long)
5. wait for the last checkpoint

A checkpoint holds the state after a step, the position of the next batch, and the progress of early
stopping; so a resumed run computes what the uninterrupted run would have computed.
"""

import contextlib
import dataclasses
import math
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jax
from jax.sharding import Mesh

from bert_jax.checkpoints.runs import RunCheckpoints
from bert_jax.data.pipeline import Batch
from bert_jax.errors import NotFiniteError, UserError
from bert_jax.files import check_locks
from bert_jax.sharding.hosts import batch_share, from_main_host, is_main_host, to_global
from bert_jax.sharding.stopping import Interrupted, StopSignals
from bert_jax.tasks.base.task import EvalResult, Task
from bert_jax.training.early_stopping import EarlyStopping
from bert_jax.training.logs import RunLog
from bert_jax.training.optimizer import Optimizer
from bert_jax.training.progress import ProgressBar, Throughput, computed_tokens, padding_fraction
from bert_jax.training.step import (
    GlobalBatch,
    TrainState,
    TrainStep,
    abstract_state,
    make_train_step,
    new_state,
    pack_rows,
)
from bert_jax.training_options import TrainOptions, is_due

# (parameters, directory for predictions or None) → the evaluation.
Evaluate = Callable[[Any, Path | None], EvalResult]


_STOPPING = "stopping after this step, which is saved; a second signal ends the run at once"
_LOWER_RATE = "start another run with a lower learning rate or a longer warm-up"
# No update has been made before the loss of the first step.
_CHECK_START = "check the parameters that the run starts from, its data and the options of its loss"


class DivergedError(UserError):
    """A loss, a parameter or a score is not finite."""


def train(
    task: Task,
    evaluate: Evaluate,
    *,
    optimizer: Optimizer,
    options: TrainOptions,
    mesh: Mesh,
    workdir: Path,
    seed: int,
    initial_params: Any = None,
    predictions: Path | None = None,
) -> EvalResult:
    """Trains to `options.steps`, from the newest checkpoint in `workdir`, or from the start.

    Args:
        task: task with model, batches and losses.
        evaluate: computes the metrics that are logged and choose the best checkpoint.
        optimizer: optimizer with the schedule of the whole training.
        options: section `train` of a config.
        mesh: devices of the training.
        workdir: directory of the run; checkpoints, metrics and events are written there.
        seed: seed of parameters and dropout.
        initial_params: parameters of a new run instead of random ones.
        predictions: directory for predictions and reports of the last evaluation.

    Returns:
        The last evaluation.

    Raises:
        Interrupted: a signal stopped the run, after a checkpoint was saved.
        DivergedError: a value is not finite; existing checkpoints are kept.
        RetryableError: another process has taken over the work directory, see `files.lock`.
        UserError: a file cannot be read or written, or options are incompatible.
    """
    abstract = abstract_state(task, optimizer, mesh)

    best_metric = task.evaluator.best_metric
    checkpoints = RunCheckpoints(
        workdir,
        keep=options.keep_checkpoints,
        every=options.checkpoint_every if options.average_checkpoints > 1 else 0,
        best_metric=best_metric,
    )
    resume_step = from_main_host(checkpoints.latest_step)
    if resume_step is not None:
        state, position = checkpoints.restore(resume_step, abstract)
        first_batch = position["next_example"] // options.global_batch_size
        early_stopping = EarlyStopping.restored(options.patience, best_metric, position)
    else:
        state = new_state(task, optimizer, abstract, seed=seed, params=initial_params)
        first_batch = 0
        early_stopping = EarlyStopping(options.patience, best_metric)

    share = batch_share(mesh)
    batches = task.train_batches(
        first_batch,
        first_batch if early_stopping.is_over else options.steps,
        host=share.index,
        hosts=share.count,
    )
    train_step = make_train_step(
        task,
        optimizer,
        mesh=mesh,
        abstract=abstract,
        microbatches=options.microbatches,
        seed=seed,
        frozen_params=task.frozen_inputs.load(mesh),
    )
    log = RunLog(workdir, resume_step=resume_step or 0, enabled=is_main_host())
    progress = ProgressBar(start=first_batch, stop=options.steps, enabled=is_main_host())
    run = _Run(
        task, evaluate, options, mesh, checkpoints, log, progress, early_stopping, predictions
    )
    if resume_step is not None:
        progress.note(f"resuming {workdir} at step {resume_step}")
    with checkpoints, contextlib.closing(batches), StopSignals(_STOPPING) as signals:
        try:
            return run.steps(state, first_batch, train_step, batches, signals)
        finally:
            progress.close()
            log.close()


@dataclasses.dataclass
class _Run:
    """The state of a running training."""

    task: Task
    evaluate: Evaluate
    options: TrainOptions
    mesh: Mesh
    checkpoints: RunCheckpoints
    log: RunLog
    progress: ProgressBar
    early_stopping: EarlyStopping
    predictions: Path | None
    # Metrics of the steps since the last log, still on the devices.
    unlogged: list[tuple[int, dict[str, jax.Array]]] = dataclasses.field(default_factory=list)
    # Shapes of the batches so far.
    compiled: set[tuple[Any, ...]] = dataclasses.field(default_factory=set)
    throughput: Throughput = dataclasses.field(default_factory=Throughput)

    def steps(
        self,
        state: TrainState,
        first: int,
        train_step: TrainStep,
        batches: Iterator[Batch],
        signals: StopSignals,
    ) -> EvalResult:
        """Runs steps `first + 1` to the last; returns the last evaluation."""
        options = self.options
        validation: EvalResult | None = None
        if options.evaluate_first and not first and not self.log.has(0, "validation"):
            self.log.write(0, "validation", self.validate(0, state, None).metrics)
        for step, rows in enumerate(batches, start=first + 1):
            # The devices compute asynchronously: this batch is placed during the step before.
            rows = pack_rows(self.task, self.mesh, options.microbatches, rows)
            batch = to_global(self.mesh, rows)

            state, metrics = self.run_step(train_step, state, batch)
            self.unlogged.append((step, metrics))
            config = self.task.description.config
            self.throughput.step(
                tokens=computed_tokens(batch, config), padding=padding_fraction(rows, config)
            )
            self.progress.advance()

            last = step == options.steps
            if last or is_due(step, options.log_every) or step == first + 1:
                self.write_log()

            validation, is_best = None, False
            if last or is_due(step, options.eval_every):
                self.write_log()  # reports a loss that has diverged before NaN scores do
                validation = self.validate(step, state, self.predictions if last else None)
                self.log.write(step, "validation", validation.metrics)
                is_best = self.early_stopping.update(validation.metrics)
                last = last or self.early_stopping.is_over

            check_locks()
            stopping = signals.stop_after(step)
            # The best model must not fall between two checkpoints if it is to be exported.
            save_best = is_best and options.export == "best"
            is_regular = last or save_best or is_due(step, options.checkpoint_every)
            if is_regular or stopping:
                # Of equally good checkpoints the last is the best: one that only a signal has
                # caused must not be chosen, since the uninterrupted run does not have it.
                self.save(step, state, validation.metrics if validation and is_regular else {})

            if last:
                break
            if stopping:
                self.checkpoints.wait()
                raise Interrupted(step)
        if self.early_stopping.is_over:
            self.progress.note(f"stopped at step {int(state.step)}: {self.early_stopping}")
        if validation is None:
            step = int(state.step)
            validation = self.validate(step, state, self.predictions)
            if not self.log.has(step, "validation"):  # the training was made shorter
                self.log.write(step, "validation", validation.metrics)
        return validation

    def run_step(
        self, train_step: TrainStep, state: TrainState, batch: GlobalBatch
    ) -> tuple[TrainState, dict[str, jax.Array]]:
        """Runs a step, which is compiled for each shape of a batch."""
        shape = tuple(sorted((name, value.shape) for name, value in batch.items()))
        if shape in self.compiled:
            return train_step(state, batch)
        self.compiled.add(shape)
        with self.progress.compiling():
            return train_step(state, batch)

    def write_log(self) -> None:
        """Logs the newest step, after checking that all steps since the last log are finite.

        Only this method makes the host wait for the devices.

        Raises:
            DivergedError: a loss, a gradient or a parameter is not finite.
        """
        values = [(step, jax.device_get(metrics)) for step, metrics in self.unlogged]
        self.unlogged = []
        for step, metrics in values:
            if not (math.isfinite(metrics["loss"]) and math.isfinite(metrics["gradient_norm"])):
                what = f"the loss of step {step}"
                raise self.not_finite(what, _CHECK_START if step == 1 else _LOWER_RATE)
            if not math.isfinite(metrics["parameter_norm"]):
                raise self.not_finite(f"a parameter after step {step}")
        if values:
            step, metrics = values[-1]
            record = self.task.summary({name: float(value) for name, value in metrics.items()})
            record |= self.throughput.read()
            self.log.write(step, "train", record)
            self.progress.show(record)

    def not_finite(self, what: str, remedy: str = _LOWER_RATE) -> DivergedError:
        """The error that names the diverged value and the last good checkpoint."""
        latest = self.checkpoints.latest("good checkpoint")
        return DivergedError(f"{what} is not finite; {latest}; {remedy}")

    def validate(self, step: int, state: TrainState, predictions: Path | None) -> EvalResult:
        """The evaluation, with the metrics of the main host on all hosts, and a line of them.

        Raises:
            DivergedError: a score is not finite.
        """
        began = time.perf_counter()
        try:
            result = self.evaluate(state.params, predictions)
            metrics = from_main_host(result.metrics)
        except NotFiniteError as error:
            # Parameters may be finite still and yet too large to compute with.
            raise self.not_finite(f"a score of the evaluation after step {step}") from error
        shown = "  ".join(f"{name} {value:.4f}" for name, value in metrics.items())
        self.progress.note(f"step {step} validation: {shown}")
        self.throughput.exclude(time.perf_counter() - began)
        return dataclasses.replace(result, metrics=metrics)

    def save(self, step: int, state: TrainState, validation: dict[str, float]) -> None:
        """Starts to write a checkpoint, unless a value up to this step is not finite.

        Losses are computed before each update; the parameter norm shows the last update.

        Raises:
            DivergedError: a loss, a gradient or a parameter is not finite.
        """
        self.write_log()
        began = time.perf_counter()
        next_example = step * self.options.global_batch_size
        position = {"next_example": next_example, **self.early_stopping.as_position()}
        self.log.save()
        self.checkpoints.save(step, state, position, validation)
        self.throughput.exclude(time.perf_counter() - began)

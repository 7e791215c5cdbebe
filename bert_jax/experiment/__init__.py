"""`Experiment.from_config(config)`: everything that a config means, built once.

A verb of the command line loads a config, makes an `Experiment` of it and calls one method. The
sections `train`, `optimizer` and `mesh` become typed options; the task and the model are built
when they are first needed, so that `plan` and `bench` work before there are data.
"""

import contextlib
import dataclasses
import functools
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from jax.sharding import Mesh
from ml_collections import ConfigDict

from bert_jax.checkpoints import model_directory
from bert_jax.checkpoints.config_file import ModelDescription, config_bytes
from bert_jax.checkpoints.hub import resolve
from bert_jax.checkpoints.runs import newest_step
from bert_jax.config import Sections, presets
from bert_jax.data.pretraining.options import PrepareOptions
from bert_jax.distillation.report import compare
from bert_jax.distillation.task import DistilledTask, distilled
from bert_jax.errors import OptionError, UserError, as_retryable
from bert_jax.experiment import workdir as run_directory
from bert_jax.experiment.export import export
from bert_jax.experiment.workdir import EXPORTED_STEP, PREDICTIONS, WARNINGS
from bert_jax.files import atomic_directory, is_there, reachable
from bert_jax.files.manifest import MANIFEST
from bert_jax.files.paths import MODEL, MODEL_CONFIG, RESULT
from bert_jax.inference.evaluation import evaluate, write_result
from bert_jax.inference.output_cache import cached_beside, model_fingerprint
from bert_jax.planning.bench import BenchOptions, Workload, time_work
from bert_jax.planning.hardware import Slice
from bert_jax.planning.meshes import auto_mesh
from bert_jax.planning.plan import PlanOptions, make_plans
from bert_jax.planning.training_on_mesh import Training
from bert_jax.process import say
from bert_jax.sharding.hosts import check_batch_size, from_main_host, is_main_host, main_host_first
from bert_jax.sharding.mesh import make_mesh
from bert_jax.tasks.base.labelled_evaluator import MISTAKES
from bert_jax.tasks.base.model_init import ModelInit, finished_model, initial_params
from bert_jax.tasks.base.task import EvalResult, Task
from bert_jax.training.logs import draw_curves
from bert_jax.training.loop import train as train_loop
from bert_jax.training.optimizer import Optimizer, make_optimizer
from bert_jax.training.step import abstract_state, check_memory, explain_step_out_of_memory
from bert_jax.training_options import TrainOptions


@dataclasses.dataclass(frozen=True)
class Experiment:
    """The meaning of a config; a copy by `dataclasses.replace` shares no built part.

    Attributes:
        sections: the config.
        platform: "cpu", "gpu" or "tpu" to plan for other devices; "" for the local devices.
        with_data: whether the task reads its data; if not, it may use a synthetic corpus with
            batches of the same shapes.
    """

    sections: Sections
    platform: str = ""
    with_data: bool = True

    @classmethod
    def from_config(cls, config: ConfigDict) -> "Experiment":
        """Reads a config; opens no file and touches no device.

        Raises:
            UserError: a value is out of range.
        """
        return cls(Sections.read(config))

    # The parts, built when they are first needed.

    @functools.cached_property
    def model_init(self) -> ModelInit:
        """Architecture, tokenizer and initial parameters of the model."""
        return self.sections.model_init(self.platform)

    @functools.cached_property
    def task(self) -> Task:
        """The task, with its data loaded, and the teacher of `distillation`, if there is one."""
        spec, config, init = self.sections.spec, self.sections.task, self.model_init
        if spec.create_without_data is not None and not self.with_data:
            task = spec.create_without_data(config, init)
        else:
            task = self._checked_task(init)
        return distilled(task, self.sections.distillation, config, init.execution, spec.create)

    @functools.cached_property
    def options(self) -> TrainOptions:
        """The section `train`, with epochs converted to steps."""
        return self.sections.train.resolved(self.task.examples_per_epoch)

    @functools.cached_property
    def optimizer(self) -> Optimizer:
        """The optimizer with its schedule."""
        return make_optimizer(self.sections.optimizer, self.options.steps)

    @functools.cached_property
    def mesh(self) -> Mesh:
        """The mesh of the local devices; `mesh=auto` needs the task.

        Raises:
            UserError: the mesh does not divide the batch, or does not fit the devices.
        """
        if self.sections.mesh.auto:
            return auto_mesh(Training(self.task, self.optimizer, self.options))
        mesh = make_mesh(self.sections.mesh)
        options = self.sections.train
        for size in (*options.batch_warmup, options.global_batch_size):
            check_batch_size(size, mesh, options.microbatches)
        return mesh

    def check_devices(self) -> None:
        """Refuses a mesh that does not fit the devices or the batch, before data are read."""
        if not self.sections.mesh.auto:
            _ = self.mesh

    def check(self) -> None:
        """Refuses what a training would refuse, before anything is written.

        Raises:
            UserError: devices, data, model and optimizer do not fit together.
        """
        self.check_devices()
        if self.sections.train.batch_warmup and not self.task.grows_batches:
            rule = "leave it out: it is for the pre-training on a corpus"
            raise OptionError("train.batch_warmup", self.sections.train.batch_warmup, rule)
        abstract = abstract_state(self.task, self.optimizer, self.mesh)
        check_memory(self.task, abstract, self.options, self.mesh)

    def check_options(self, examples_per_epoch: int) -> None:
        """Checks the schedule and the precision, which need neither data nor model."""
        options = self.sections.train.resolved(examples_per_epoch)
        make_optimizer(self.sections.optimizer, options.steps)
        self.sections.execution(self.platform)

    # The work of the verbs.

    def prepare_options(self) -> PrepareOptions:
        """The options of `bert-jax prepare`.

        Raises:
            UserError: the task is not trained on a corpus, or a value is wrong.
        """
        prepare_options = self.sections.spec.prepare_options
        if prepare_options is None:
            raise UserError(
                f"task {self.sections.name} reads its files as they are; there is nothing to "
                "prepare: train"
            )
        options: PrepareOptions = prepare_options(self.sections.task)
        return options

    def describe_data(self) -> None:
        """Prints the summary of the data, and warnings, on the main host's stderr."""
        if is_main_host():
            say(*self.task.data_summary.lines())
            differing = presets.deviations(self.sections.keys, self.task.description.config)
            _warn([*self._warnings, *differing])

    def train(self, workdir: Path, *, describe: bool = True) -> dict[str, float]:
        """Trains a run to its end; writes `model/`, `curves.png` and `result.json` beside its logs.

        Args:
            workdir: directory of the run.
            describe: whether `describe_data` is called first.

        Returns:
            The validation metrics of the exported model, their baselines, and the metrics of test
            sets that have labels, as in `result.json`, which also has the step of the exported
            checkpoint and a list of warnings.
        """
        self.check()
        with run_directory.writing(workdir):
            with main_host_first():
                run_directory.init_workdir(workdir, self.sections, self.task)
            if result := from_main_host(run_directory.finished_result(workdir)):
                say(f"{workdir} is finished already: nothing to do")
                return run_directory.metrics_in(result)
            if describe:
                self.describe_data()
            is_new = from_main_host(newest_step(workdir) is None)
            if is_main_host():
                execution = self.model_init.execution
                say(f"computing in {execution.dtype}, attention {execution.attention}")
                if is_new:
                    run_directory.save_model_files(workdir, self.task)
            return self._publish(workdir, self._run(workdir, is_new))

    def evaluate(
        self, *, workdir: Path | None = None, model: Path | None = None, output: Path | None = None
    ) -> dict[str, float]:
        """Validation metrics of a run or of a model directory, with baselines.

        Args:
            workdir: directory of a run; the checkpoint that it exports is evaluated.
            model: a model directory, instead of a run.
            output: directory for predictions and reports, in which only files of earlier calls are
                replaced. With it, test sets are predicted, too, and evaluated if they have labels;
                and a labelled task continues from OUTPUT.partial after a stop or a kill.

        Raises:
            UserError: there is no such run or model, it is not for this task, or the data cannot be
                evaluated.
        """
        mesh, directory = make_mesh(self.sections.mesh), output
        if workdir is not None:
            description = run_directory.description_of(workdir)
            task = self._task_of_model(description, workdir / run_directory.TOKENIZER)
            if is_main_host() and (changed := run_directory.changed_evaluation_data(workdir, task)):
                _warn([f"{workdir} was trained with another {' and '.join(changed)}"])
            params = self._exported_params(workdir, task, description, mesh)
        elif model is not None:
            task, params = self._finished_model(resolve(model), mesh)
        else:
            raise UserError("evaluate needs --workdir RUN or --model DIR")

        def request() -> dict[str, Any]:
            model = model_fingerprint(task.model(params, mesh))
            return {**self.sections.keys, "examples": task.fingerprints(), **model}

        with contextlib.ExitStack() as stack:
            journal = stack.enter_context(cached_beside(output, request))
            if output is not None and is_main_host():
                output = stack.enter_context(atomic_directory(output, marker=MANIFEST))
            with_test = output is not None
            result = evaluate(task, params, mesh, with_test=with_test, journal=journal)
            if output is not None:
                write_result(output, task.evaluator, result)
        if directory is not None and is_main_host():
            _name_mistakes(directory)
        return {**result.metrics, **result.test_metrics, **task.evaluator.baselines()}

    def plan(self, devices: Slice, plan_options: PlanOptions) -> list[dict[str, Any]]:
        """Plans the cost of a training on devices that need not exist locally, see `make_plans`."""
        planned = dataclasses.replace(self, platform=devices.hardware.platform, with_data=False)
        return make_plans(
            Training(planned.task, planned.optimizer, planned.options),
            self.sections.mesh,
            devices,
            plan_options,
            dtype=planned.model_init.execution.dtype,
        )

    def bench(self, options: BenchOptions) -> dict[str, Any]:
        """Times the work of a config on the local devices, see `time_work`.

        Raises:
            OptionError: the task does not have the work, or memory does not suffice.
        """
        spec = self.sections.spec
        if options.work == "finetune" and spec.prepare_options is not None:
            raise OptionError(
                "work", "finetune", "it needs the config of a labelled task, or --work train"
            )
        here = dataclasses.replace(self, with_data=spec.has_data(self.sections.task.data))
        return time_work(options, here.workload)

    @property
    def workload(self) -> Workload:
        """The input of `time_work`."""
        execution = self.model_init.execution
        return Workload(self.task, execution, self.optimizer, self.options, self.mesh)

    def _checked_task(self, init: ModelInit) -> Task:
        task = self.sections.spec.create(self.sections.task, init)
        task.evaluator.check()
        return task

    def _finished_model(self, directory: Path, mesh: Mesh) -> tuple[Task, Any]:
        """The task with the model of a directory, and the parameters of this model on a mesh."""
        task = self._task_of_model(model_directory.load_description(directory), directory)
        params, report = task.load_params(directory, task.description, task.module, mesh=mesh)
        if report.new:
            raise UserError(
                f"{directory} cannot be evaluated for task {self.sections.name}: {report}"
            )
        return task, params

    def _task_of_model(self, description: ModelDescription, directory: Path) -> Task:
        """The task with a finished model; the tokenizer is read from a directory."""
        return self._checked_task(finished_model(description, directory, self.sections.execution()))

    def _run(self, workdir: Path, is_new: bool) -> EvalResult:
        """Trains to the end; returns the evaluation of the model that is exported."""
        task, mesh, options, init = self.task, self.mesh, self.options, self.model_init
        # If the last step is certain to be exported, its evaluation is the result; otherwise the
        # exported model is evaluated once more.
        averages = options.average_checkpoints > 1
        is_last = options.export == "latest" and not options.patience and not averages

        first = initial_params(init, task, mesh, self.sections.task.seed) if is_new else None
        reported: set[str] = set()  # sets whose cut texts an evaluation has reported

        def validate(params: Any, directory: Path | None) -> EvalResult:
            with_test = directory is not None
            result = evaluate(task, params, mesh, with_test=with_test, quiet=reported)
            if directory is not None:
                write_result(directory, task.evaluator, result)
            reported.update(result.predictions)
            return dataclasses.replace(result, predictions={})  # which may be large

        with explain_step_out_of_memory(options, mesh):
            result = train_loop(
                task,
                validate,
                optimizer=self.optimizer,
                options=options,
                mesh=mesh,
                workdir=workdir,
                seed=self.sections.task.seed,
                initial_params=first,
                predictions=workdir / PREDICTIONS if is_last else None,
            )
        if is_last:
            return result
        with as_retryable():
            params = self._exported_params(workdir, task, task.description, mesh)
            return validate(params, workdir / PREDICTIONS)

    def _exported_params(
        self, workdir: Path, task: Task, description: ModelDescription, mesh: Mesh
    ) -> Any:
        """The parameters of a run that the config exports: of a checkpoint, or a mean."""
        train = self.sections.train
        return run_directory.restore_params(
            workdir, description, train.export, mesh, task.module, average=train.average_checkpoints
        )[0]

    def _publish(self, workdir: Path, evaluation: EvalResult) -> dict[str, float]:
        """Exports the model, then writes the curves and the result, which it returns."""
        task, metrics = self.task, evaluation.metrics
        baselines = task.evaluator.baselines()
        result = {**metrics, **evaluation.test_metrics, **baselines}
        why = task.evaluator.baseline_warning(metrics, baselines)
        worse = [f"{why}; {self._to_try}"] if why else []
        with as_retryable():
            with main_host_first():
                # The evaluation may have tuned a value of the model, such as a threshold.
                if is_main_host():
                    content = config_bytes(evaluation.description)
                    run_directory.write(workdir, {MODEL_CONFIG: content})
            step = export(workdir, workdir / MODEL)
            teacher_metrics: dict[str, float] = {}
            if isinstance(task, DistilledTask):
                teacher, student = (
                    self._finished_model(directory, self.mesh)
                    for directory in (task.teacher.directory, resolve(workdir / MODEL))
                )
                teacher_metrics = evaluate(*teacher, self.mesh).metrics
                result |= compare(teacher, student, self.mesh, teacher_metrics, metrics)
            if is_main_host():
                derived = task.derived_metrics
                draw_curves(workdir, baselines, derived_metrics=derived, teacher=teacher_metrics)
                _warn([*worse, *self.sections.spec.export_notes(self.sections.task.data)])
                stored = {**result, EXPORTED_STEP: step, WARNINGS: self._warnings + worse}
                content = (json.dumps(stored, indent=2) + "\n").encode()
                run_directory.write(workdir, {RESULT: content})
                _name_mistakes(workdir / PREDICTIONS)
        return result

    @property
    def _warnings(self) -> list[str]:
        """What is doubtful before a training: of the data, and of what is averaged at its end."""
        average = self.options.average_warning()
        return self.task.data_summary.warnings() + ([average] if average else [])

    @property
    def _to_try(self) -> str:
        """What may help a result that is no better than a baseline."""
        train, rate = self.sections.train, self.sections.optimizer.learning_rate
        name = "epochs" if train.epochs else "steps"
        longer = f"train.{name} ({getattr(train, name):,} now)"
        return f"try another optimizer.learning_rate ({rate:g} now), more {longer}, or more data"


def _name_mistakes(directory: Path) -> None:
    """Says where the mistakes of each set are."""
    with reachable(directory):
        files = sorted(directory.glob(f"*{MISTAKES}")) if is_there(directory) else []
    say(*(f"{file}: mistakes, the worst first" for file in files))


def _warn(warnings: Sequence[str]) -> None:
    for warning in warnings:
        say(f"warning: {warning}")

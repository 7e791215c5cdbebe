"""`Experiment.from_config(config)`: everything that a config means, built once.

A verb of the command line loads a config, makes an `Experiment` of it and calls one method. The
sections `train`, `optimizer` and `mesh` become typed options here; the task and the model are built
when they are first needed, so that `plan` and `bench` work before there are data.
"""

import contextlib
import dataclasses
import functools
import json
import math
import sys
from collections.abc import Callable, Hashable
from pathlib import Path
from typing import Any, Concatenate, ParamSpec, TypeVar

from jax.sharding import Mesh
from ml_collections import ConfigDict, FrozenConfigDict

from bert_jax import model_init
from bert_jax import workdir as run_directory
from bert_jax.benchmarks import BenchOptions, Workload
from bert_jax.benchmarks import bench as time_workload
from bert_jax.checkpoints import model_directory
from bert_jax.checkpoints.config_file import ModelDescription, write_config
from bert_jax.checkpoints.hub import resolve
from bert_jax.checkpoints.runs import has_checkpoint
from bert_jax.config import key_names
from bert_jax.data.pretraining.preparation.prepare import PrepareOptions
from bert_jax.errors import OptionError, UserError, as_retryable
from bert_jax.files import write_atomically
from bert_jax.inference.evaluation import evaluate as evaluate_task
from bert_jax.options import from_keys
from bert_jax.planning.hardware import Slice, find_topology
from bert_jax.planning.meshes import (
    auto_mesh,
    candidate_meshes,
    choose_mesh,
    parse_mesh,
    usable_memory,
)
from bert_jax.planning.plan import as_json, make_plan
from bert_jax.planning.training_on_mesh import TrainingOnMesh
from bert_jax.sharding.hosts import check_batch_size, from_main_host, is_main_host, main_host_first
from bert_jax.sharding.mesh import MeshShape, make_mesh
from bert_jax.tasks import find_task
from bert_jax.tasks.base.task import ModelInit, Task, TrainingTask
from bert_jax.training.logs import draw_curves
from bert_jax.training.loop import train as train_loop
from bert_jax.training.optimizer import Optimizer, OptimizerOptions, make_optimizer
from bert_jax.training.options import TrainOptions
from bert_jax.training.step import abstract_state, explain_step_out_of_memory

PREDICTIONS = "predictions"
RESULT = "result.json"

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")


@dataclasses.dataclass(frozen=True)
class PlanOptions:
    """What is planned, besides the config.

    Attributes:
        mesh: as `fsdp=8,data=4`, `auto` or `all`, one or several; none: that of the config.
        search: whether the largest micro-batch is searched for.
        steps: of the training; None: those of the config.
        price: of a device for an hour, in any currency.
    """

    mesh: tuple[str, ...] = ()
    search: bool = True
    steps: int | None = None
    price: float | None = None

    def __post_init__(self) -> None:
        if self.steps is not None and self.steps < 1:
            raise OptionError("steps", self.steps, "it must be at least 1")
        if self.price is not None and not 0 <= self.price < math.inf:
            raise OptionError("price", self.price, "it must be 0 or more")


def _names_keys(
    method: Callable[Concatenate["Experiment", Arguments], Result],
) -> Callable[Concatenate["Experiment", Arguments], Result]:
    """Errors of a method name options as keys of the config."""

    @functools.wraps(method)
    def call(self: "Experiment", *args: Arguments.args, **kwargs: Arguments.kwargs) -> Result:
        with key_names(self.config):
            return method(self, *args, **kwargs)

    return call


@dataclasses.dataclass(frozen=True)
class Experiment:
    """What a config means; `dataclasses.replace` makes another one that shares no built part.

    Attributes:
        config: every key; nobody changes it any more.
        train_options: the section `train`, as it is written: see `options`.
        optimizer_options: the section `optimizer`.
        mesh_shape: the section `mesh`.
        platform: "cpu", "gpu" or "tpu" of devices elsewhere; "" for the devices that are here.
        with_data: whether the task reads its data; without, it may use a synthetic corpus, whose
            batches have the same shapes.
    """

    config: ConfigDict
    train_options: TrainOptions
    optimizer_options: OptimizerOptions
    mesh_shape: MeshShape
    platform: str = ""
    with_data: bool = True

    @classmethod
    def from_config(cls, config: ConfigDict) -> "Experiment":
        """Reads the sections; opens no file and touches no device.

        Raises:
            UserError: a value is out of range.
        """
        with key_names(config):
            if not 0 <= config.seed < 2**32:
                raise OptionError("seed", config.seed, "it must lie between 0 and 2**32 - 1")
            return cls(
                ConfigDict(config.to_dict()),
                from_keys(TrainOptions, config.train),
                from_keys(OptimizerOptions, config.optimizer),
                from_keys(MeshShape, config.mesh),
            )

    # The parts, built when they are first needed.

    @functools.cached_property
    @_names_keys
    def model_init(self) -> ModelInit:
        """Architecture, tokenizer and start of the model."""
        return model_init.of_config(self.config, self.platform)

    @functools.cached_property
    @_names_keys
    def task(self) -> Task:
        """The task, with its data open."""
        create = self._training_task.create_without_data
        if create is not None and not self.with_data:
            return create(self.config, self.model_init)
        return self._checked_task(self.model_init)

    @functools.cached_property
    @_names_keys
    def options(self) -> TrainOptions:
        """The section `train`, its epochs as steps."""
        return self.train_options.resolved(self.task.examples_per_epoch)

    @functools.cached_property
    @_names_keys
    def optimizer(self) -> Optimizer:
        """The optimizer with its schedule."""
        return make_optimizer(self.optimizer_options, self.options.steps)

    @functools.cached_property
    @_names_keys
    def mesh(self) -> Mesh:
        """The devices that are here; `mesh=auto` needs the task.

        Raises:
            UserError: the mesh does not divide the batch, or does not fit the devices.
        """
        if self.mesh_shape.auto:
            return auto_mesh(self.task, self.optimizer, self.options)
        mesh = make_mesh(self.mesh_shape)
        options = self.train_options
        check_batch_size(options.global_batch_size, mesh, options.microbatches)
        return mesh

    @property
    def workload(self) -> Workload:
        """What is computed on the devices that are here."""
        execution = self.model_init.execution
        return Workload(self.task, execution, self.optimizer, self.options, self.mesh)

    @property
    def task_key(self) -> Hashable:
        """Equal where `check` differs in nothing but `check_options`."""
        names = ("task", "data", "model", "tokenizer", "init_from")
        optimizer = self.optimizer_options
        return (
            FrozenConfigDict({name: self.config[name] for name in names}),
            self.train_options.microbatches,
            self.mesh_shape,
            optimizer.freeze_encoder,
            optimizer.freeze_layers,
        )

    @_names_keys
    def check_devices(self) -> None:
        """Refuses a mesh that does not fit the devices or the batch, before data are read."""
        if not self.mesh_shape.auto:
            _ = self.mesh

    @_names_keys
    def check(self) -> None:
        """Refuses what a training would refuse, before anything is written.

        Raises:
            UserError: devices, data, model and optimizer do not fit together.
        """
        self.check_devices()
        abstract_state(self.task, self.optimizer, self.mesh)

    @_names_keys
    def check_options(self, examples_per_epoch: int) -> None:
        """Checks what needs neither data nor model: the schedule and the precision."""
        options = self.train_options.resolved(examples_per_epoch)
        make_optimizer(self.optimizer_options, options.steps)
        model_init.execution(self.config, self.platform)

    # What can be done with it.

    @_names_keys
    def prepare_options(self) -> PrepareOptions:
        """What `bert-jax prepare` makes.

        Raises:
            UserError: the task is not trained on a corpus, or a value is wrong.
        """
        prepare_options = self._training_task.prepare_options
        if prepare_options is None:
            raise UserError(
                f"task {self.config.task} reads its files as they are; there is nothing to "
                "prepare: train"
            )
        return prepare_options(self.config)

    @_names_keys
    def train(self, workdir: Path) -> dict[str, float]:
        """Trains a run to its end; writes `model/`, `curves.png` and `result.json` beside its logs.

        Returns:
            The validation metrics of the exported model and their baselines, as in `result.json`.
        """
        self.check()
        with main_host_first():
            run_directory.init_workdir(workdir, self.config)
        result_file = workdir / RESULT
        if from_main_host(result_file.is_file()):  # it is written last
            print(f"{workdir} is finished already: nothing to do", file=sys.stderr)
            return json.loads(result_file.read_text(encoding="utf-8"))
        is_new = self._start_or_resume(workdir)
        metrics = self._run(workdir, is_new)
        return self._publish(workdir, metrics)

    @_names_keys
    def evaluate(
        self, *, workdir: Path | None = None, model: Path | None = None, output: Path | None = None
    ) -> dict[str, float]:
        """Validation metrics of a run or of a model directory, with baselines.

        Args:
            workdir: of the run; the checkpoint that it exports is evaluated.
            model: a model directory, in place of a run.
            output: a directory for predictions and reports.
        """
        mesh = make_mesh(self.mesh_shape)
        if workdir is not None:
            description = run_directory.description_of(workdir)
            task = self._task_of_model(description, workdir / run_directory.TOKENIZER)
            params, _ = run_directory.restore_params(
                workdir, description, self.train_options.export, mesh, task.module
            )
        elif model is not None:
            directory = resolve(model)
            description = model_directory.load_description(directory)
            task = self._task_of_model(description, directory)
            params, report = model_directory.load_params(
                directory, task.description, task.module, mesh=mesh
            )
            if report.new:
                raise UserError(
                    f"{directory} cannot be evaluated for task {self.config.task}: {report}"
                )
        else:
            raise UserError("evaluate needs --workdir RUN or --model DIR")
        return evaluate_task(task, params, mesh, output) | task.baselines()

    @_names_keys
    def plan(
        self, devices: Slice, plan_options: PlanOptions = PlanOptions()
    ) -> list[dict[str, Any]]:
        """What a training would cost on devices that are not here, see `planning.plan.as_json`.

        Returns:
            A plan for each mesh, in their order; of those for "all", what cannot be divided is left
            out, and the first is the one that fits with the shortest step.
        """
        topology = find_topology(devices)
        there = dataclasses.replace(self, platform=devices.hardware.platform, with_data=False)
        task, optimizer, options = there.task, there.optimizer, there.options
        steps = plan_options.steps or options.steps

        def planned(shape: MeshShape) -> dict[str, Any]:
            training = TrainingOnMesh(task, optimizer, options, topology, shape)
            dtype = there.model_init.execution.dtype
            plan = make_plan(training, dtype=dtype, search=plan_options.search)
            return as_json(plan, steps=steps, price=plan_options.price)

        plans: list[dict[str, Any]] = []
        for text in plan_options.mesh or ("auto" if self.mesh_shape.auto else "",):
            if text == "all":
                for shape in candidate_meshes(devices.count):
                    with contextlib.suppress(UserError):
                        plans.append(planned(shape))
            elif text == "auto":
                memory = usable_memory(devices)
                shape = choose_mesh(task, optimizer, options, topology.devices, memory)
                plans.append(planned(shape))
            else:
                plans.append(planned(parse_mesh(text) if text else self.mesh_shape))
        if not plans:
            raise OptionError(
                "global_batch_size",
                options.global_batch_size,
                f"no mesh of {devices} divides a batch of so many rows and this model; change it",
            )
        if "all" in plan_options.mesh:
            plans.sort(key=lambda plan: (not plan["fits"], plan["step_floor_s"] or 0.0))
        return plans

    @_names_keys
    def bench(self, options: BenchOptions) -> dict[str, Any]:
        """Times the work of a config on the devices that are here, see `benchmarks.bench`."""
        task = self._training_task
        if options.work == "finetune" and task.prepare_options is not None:
            raise OptionError(
                "work", "finetune", "it needs the config of a labelled task, or {work=train}"
            )
        here = dataclasses.replace(self, with_data=task.has_data(self.config))
        return time_workload(here.workload, options)

    @property
    def _training_task(self) -> TrainingTask:
        training_task: TrainingTask = find_task(self.config.task).TRAIN
        return training_task

    def _checked_task(self, init: ModelInit) -> Task:
        task = self._training_task.create(self.config, init)
        task.check()
        return task

    def _task_of_model(self, description: ModelDescription, directory: Path) -> Task:
        """The task with a finished model, whose tokenizer is in a directory."""
        return self._checked_task(model_init.of_model(self.config, description, directory))

    def _start_or_resume(self, workdir: Path) -> bool:
        """Prepares a new run, or checks the data of an old one; returns whether it is new."""
        if is_main_host():
            execution = self.model_init.execution
            print(
                f"computing in {execution.dtype}, attention {execution.attention}", file=sys.stderr
            )
        is_new = from_main_host(not has_checkpoint(workdir))
        if not is_new:
            run_directory.check_unchanged(workdir, self.task)
        elif is_main_host():
            run_directory.save_model_files(workdir, self.task)
        return is_new

    def _run(self, workdir: Path, is_new: bool) -> dict[str, float]:
        """Trains to the end; returns the metrics of the model that is exported."""
        task, mesh, options = self.task, self.mesh, self.options
        # If the last step is certain to become the model, its evaluation is the result; else the
        # model that is exported is evaluated once more.
        is_last = options.export == "latest" and not options.patience

        def evaluate(params: Any, directory: Path | None) -> dict[str, float]:
            return evaluate_task(task, params, mesh, directory)

        with explain_step_out_of_memory(options, mesh):
            metrics = train_loop(
                task,
                evaluate,
                optimizer=self.optimizer,
                options=options,
                mesh=mesh,
                workdir=workdir,
                seed=self.config.seed,
                initial_params=self._initial_params() if is_new else None,
                predictions=workdir / PREDICTIONS if is_last else None,
            )
        if is_last:
            return metrics
        with as_retryable():
            params, _ = run_directory.restore_params(
                workdir, task.description, options.export, mesh, task.module
            )
            return evaluate(params, workdir / PREDICTIONS)

    def _publish(self, workdir: Path, metrics: dict[str, float]) -> dict[str, float]:
        """Exports the model, then writes the curves and the result, which it returns."""
        task = self.task
        baselines = task.baselines()
        result = metrics | baselines
        with as_retryable():
            with main_host_first():
                # An evaluation may have set what the model needs, as a threshold.
                if is_main_host():
                    write_config(workdir / run_directory.MODEL_CONFIG, task.description)
            run_directory.export(workdir, workdir / "model", which=self.options.export)
            if is_main_host():
                draw_curves(workdir, baselines, derived_metrics=task.derived_metrics)
                write_atomically(workdir / RESULT, (json.dumps(result, indent=2) + "\n").encode())
        return result

    def _initial_params(self) -> Any:
        """Parameters of `init_from`, None if there is none."""
        source = self.model_init.description
        if source is None:
            return None
        directory = resolve(self.config.init_from)
        params, report = model_directory.load_params(
            directory,
            self.task.description,
            self.task.module,
            mesh=self.mesh,
            seed=self.config.seed,
            reinitialize=_heads_to_reinitialize(source, self.task.description),
        )
        if is_main_host():
            print(f"init_from {directory}: {report}", file=sys.stderr)
        return params


def _heads_to_reinitialize(source: ModelDescription, target: ModelDescription) -> tuple[str, ...]:
    """Prefixes of the names of parameters that mean something else in the source model."""
    if source.problem_type == target.problem_type == "regression":
        return ()
    if (
        source.head is target.head
        and source.config.num_labels == target.config.num_labels
        and source.labels in ((), target.labels)
    ):
        return ()
    return target.family.label_parameters

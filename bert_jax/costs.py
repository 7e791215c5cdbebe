"""What the work of a config costs: planned for devices elsewhere, timed on those that are here."""

import contextlib
from typing import Any

from ml_collections import ConfigDict

from bert_jax import model_init
from bert_jax.benchmarks.bench import Workload
from bert_jax.benchmarks.bench import bench as bench_subject
from bert_jax.benchmarks.command import BenchOptions
from bert_jax.config import task_module
from bert_jax.errors import UserError
from bert_jax.planning.command import PlanOptions
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
from bert_jax.sharding.hosts import check_batch_size
from bert_jax.sharding.mesh import MeshShape, make_mesh
from bert_jax.tasks.base.task import ModelInit, Task
from bert_jax.training.optimizer import OptimizerOptions, make_optimizer
from bert_jax.training.options import TrainOptions


def plan(config: ConfigDict, wanted: Slice, options: PlanOptions) -> list[dict[str, Any]]:
    """What a training would cost on devices that are not here, see `planning.plan.as_json`.

    Args:
        config: as for `train`; a corpus need not be there.
        wanted: the devices.
        options: meshes, steps, price.

    Returns:
        A plan for each mesh, in their order; of those for "all", what cannot be divided is left
        out, and the first is the one that fits with the shortest step.
    """
    topology = find_topology(wanted)
    # Where the corpus is, if it is there at all, has nothing to do with what is planned.
    base = model_init.of_config(config, wanted.hardware.platform)
    task = _without_data(config, base)
    train_options = TrainOptions(**config.train).resolved(task.examples_per_epoch)
    optimizer = make_optimizer(OptimizerOptions(**config.optimizer), train_options.steps)
    steps = train_options.steps if options.steps is None else options.steps

    def planned(shape: MeshShape) -> dict[str, Any]:
        training = TrainingOnMesh(task, optimizer, train_options, topology, shape)
        found = make_plan(training, dtype=base.execution.dtype, search=options.search)
        return as_json(found, steps=steps, price=options.price)

    plans: list[dict[str, Any]] = []
    configured = MeshShape(**config.mesh)
    for text in options.meshes or ("auto" if configured.auto else "",):
        if text == "all":
            for shape in candidate_meshes(wanted.count):
                with contextlib.suppress(UserError):
                    plans.append(planned(shape))
        elif text == "auto":
            memory = usable_memory(wanted)
            plans.append(
                planned(choose_mesh(task, optimizer, train_options, topology.devices, memory))
            )
        else:
            plans.append(planned(parse_mesh(text) if text else configured))
    if not plans:
        raise UserError(
            f"no mesh of {wanted} divides a batch of {train_options.global_batch_size} rows and "
            "this model; change train.global_batch_size"
        )
    if "all" in options.meshes:
        plans.sort(key=lambda found: (not found["fits"], found["step_floor_s"] or 0.0))
    return plans


def bench(config: ConfigDict, options: BenchOptions) -> dict[str, Any]:
    """Times the work of a config on the devices that are here, see `benchmarks.bench.bench`.

    Args:
        config: as for `train`; a corpus need not be there.
        options: what is timed.
    """
    base = model_init.of_config(config)
    create = task_module(config.task).create
    task = create(config, base) if config.data.get("corpus") else _without_data(config, base)
    train_options = TrainOptions(**config.train).resolved(task.examples_per_epoch)
    optimizer = make_optimizer(OptimizerOptions(**config.optimizer), train_options.steps)
    shape = MeshShape(**config.mesh)
    mesh = auto_mesh(task, optimizer, train_options) if shape.auto else make_mesh(shape)
    check_batch_size(train_options.global_batch_size, mesh, train_options.microbatches)
    subject = Workload(task, base.execution, optimizer, train_options, mesh)
    return bench_subject(subject, options)


def _without_data(config: ConfigDict, base: ModelInit) -> Task:
    """The task of a config, on a stand-in for its corpus if it wants one."""
    module = task_module(config.task)
    return getattr(module, "create_without_data", module.create)(config, base)

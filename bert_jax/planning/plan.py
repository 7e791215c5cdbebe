"""The cost of a training on a mesh: memory, FLOPs, collectives, and the minimum time of a step."""

import dataclasses
import itertools
from collections.abc import Callable, Iterator
from typing import Any

import jax

from bert_jax.errors import UserError, require_at_least, require_between
from bert_jax.planning.collectives import Traffic, traffic
from bert_jax.planning.hardware import Slice, find_topology
from bert_jax.planning.memory import Memory, measured
from bert_jax.planning.meshes import candidate_meshes, choose_mesh, parse_mesh, usable_memory
from bert_jax.planning.roofline import (
    StepTime,
    least_sent_bytes,
    local_parameters,
    memory_traffic,
    step_time,
)
from bert_jax.planning.training_on_mesh import CompiledStep, DoesNotFit, TrainingOnMesh
from bert_jax.sharding.mesh import MeshShape
from bert_jax.tasks.base.task import Task
from bert_jax.training.optimizer import Optimizer
from bert_jax.training.options import TrainOptions

_COMPILES_OF_A_SEARCH = 4


@dataclasses.dataclass(frozen=True)
class Plan:
    """The plan of a training on one mesh, with the names of `as_json`.

    Attributes:
        topology: devices, such as `v5e:16x16`.
        devices: number of devices.
        mesh: mesh, such as `fsdp=64,data=4`.
        precision: dtype of activations.
        parameters: number of parameters of the model.
        compiled: whether the step was compiled; otherwise all is estimated from shapes.
        fits: whether a device has enough memory.
        peak_bytes_per_device: bytes at the peak, even if it does not fit; None if the compiler does
            not report them.
        available_bytes_per_device: bytes that a program may use.
        memory_per_device: memory at the peak; None if it does not fit and so was not compiled.
        global_batch_size: rows of a global batch.
        length: tokens of a row.
        microbatch_per_device: rows of a micro-batch.
        largest_microbatch_per_device: maximum number of rows that fit; None if not searched.
        flops_per_step: FLOPs of the model, on all devices.
        flops_per_token: FLOPs of the model per token of the batch, including padding.
        program_flops_per_step: FLOPs of the program, including recomputation.
        collectives: communication of the compiled step, by kind.
        sent_bytes_per_device: minimum number of bytes that a device sends for these in a step; if
            not compiled, `least_sent_bytes_per_device`.
        least_sent_bytes_per_device: the analytic minimum for the mesh.
        step_floor: minimum time of a step.
        compile_s: compile time in seconds on this machine; None if not compiled.
    """

    topology: str
    devices: int
    mesh: str
    precision: str
    parameters: int
    compiled: bool
    fits: bool
    peak_bytes_per_device: int | None
    available_bytes_per_device: int
    memory_per_device: Memory | None
    global_batch_size: int
    length: int
    microbatch_per_device: int
    largest_microbatch_per_device: int | None
    flops_per_step: float
    flops_per_token: float
    program_flops_per_step: float
    collectives: dict[str, Traffic]
    sent_bytes_per_device: float
    least_sent_bytes_per_device: float
    step_floor: StepTime
    compile_s: float | None


@dataclasses.dataclass(frozen=True)
class PlanOptions:
    """What to plan, in addition to the config.

    Attributes:
        mesh: one or several meshes, such as `fsdp=8,data=4`, `auto` or `all`; none: the config's.
        search: whether to search for the largest micro-batch.
        steps: number of training steps; None: those of the config.
        price: price of a device per hour, in any currency.
    """

    mesh: tuple[str, ...] = ()
    search: bool = True
    steps: int | None = None
    price: float | None = None

    def __post_init__(self) -> None:
        require_at_least("steps", self.steps, 1)
        require_between("price", self.price, 0)


def make_plans(
    task: Task,
    optimizer: Optimizer,
    options: TrainOptions,
    mesh_shape: MeshShape,
    devices: Slice,
    plan_options: PlanOptions,
    *,
    dtype: str,
) -> list[dict[str, Any]]:
    """Plans of a training, see `as_json`.

    Args:
        task: task with model and batches.
        optimizer: optimizer with its schedule.
        options: batch size, micro-batches and steps.
        mesh_shape: mesh that is used if `plan_options` names none.
        devices: devices to plan for; they need not exist locally.
        plan_options: meshes and search.
        dtype: dtype of the activations.

    Returns:
        A plan for each mesh, in their order. For "all": the plans of all meshes that divide batch
        and model, those that fit first, ordered by the time of a step.

    Raises:
        UserError: no mesh divides the batch and the model.
    """
    topology = find_topology(devices)

    def planned(shape: MeshShape) -> dict[str, Any]:
        training = TrainingOnMesh(task, optimizer, options, topology, shape)
        plan = make_plan(training, dtype=dtype, search=plan_options.search)
        return as_json(plan, steps=plan_options.steps or options.steps, price=plan_options.price)

    plans: list[dict[str, Any]] = []
    errors: list[UserError] = []
    for text in plan_options.mesh or ("auto" if mesh_shape.auto else "",):
        if text == "all":
            for shape in candidate_meshes(devices.count):
                try:
                    plans.append(planned(shape))
                except UserError as error:
                    errors.append(error)
        elif text == "auto":
            memory = usable_memory(devices)
            plans.append(planned(choose_mesh(task, optimizer, options, topology.devices, memory)))
        else:
            plans.append(planned(parse_mesh(text) if text else mesh_shape))
    if not plans:
        raise errors[0]
    if "all" in plan_options.mesh:
        plans.sort(key=lambda plan: (not plan["fits"], plan["step_floor_s"] or 0.0))
    return plans


def make_plan(training: TrainingOnMesh, *, dtype: str, search: bool) -> Plan:
    """The plan of a training on a mesh.

    Args:
        training: the training, as shapes on the mesh.
        dtype: dtype of activations; selects the peak rate.
        search: whether to search for the largest micro-batch: on TPUs by compiling, otherwise by
            the estimate.
    """
    topology, mesh = training.topology, training.mesh
    result = training.compile(training.rows) if topology.compiles else None
    memory: Memory | None = training.estimate
    if isinstance(result, CompiledStep):
        memory = measured(
            result.memory_analysis,
            training.abstract,
            training.estimate.activations,
            training.step.constants,
        )
    elif isinstance(result, DoesNotFit):
        memory = None
    peak = memory.peak if memory else getattr(result, "needed_bytes", None)
    available = getattr(result, "available_bytes", None) or usable_memory(topology.slice)
    # Only the TPU compiler refuses a program that does not fit.
    if topology.compiles and topology.slice.hardware.platform == "tpu":
        fits = memory is not None
    else:
        fits = peak is not None and peak <= available

    itemsize = jax.numpy.dtype(dtype).itemsize
    config, length = training.task.description.config, training.batch["input_ids"].shape[-1]
    microbatches = training.options.microbatches
    local = local_parameters(training.abstract.params)
    least = least_sent_bytes(
        local,
        mesh,
        itemsize=itemsize,
        layer_activations=microbatches * training.rows * length * config.hidden_size,
        layers=config.num_hidden_layers,
    )
    collectives = result.collectives if isinstance(result, CompiledStep) else None
    sent = least if collectives is None else sum(each.sent_bytes for each in collectives)
    return Plan(
        topology=str(topology.slice),
        devices=topology.slice.count,
        mesh=training.name,
        precision=dtype,
        parameters=sum(leaf.size for leaf in jax.tree.leaves(training.abstract.params)),
        compiled=result is not None,
        fits=fits,
        peak_bytes_per_device=peak,
        available_bytes_per_device=available,
        memory_per_device=memory,
        global_batch_size=training.batch["input_ids"].shape[0],
        length=length,
        microbatch_per_device=training.rows,
        largest_microbatch_per_device=_largest(training, fits, peak, available) if search else None,
        flops_per_step=training.model_flops,
        flops_per_token=training.model_flops / training.batch["input_ids"].size,
        program_flops_per_step=training.program_flops,
        collectives=traffic(collectives or []),
        sent_bytes_per_device=sent,
        least_sent_bytes_per_device=least,
        step_floor=step_time(
            topology.slice.hardware,
            devices=topology.slice.count,
            dtype=dtype,
            program_flops=training.program_flops,
            moved_bytes=memory_traffic(
                local,
                training.estimate.optimizer,
                training.estimate.activations,
                mesh,
                itemsize=itemsize,
                microbatches=microbatches,
            ),
            sent_bytes=sent,
        ),
        compile_s=result.compile_seconds if result is not None else None,
    )


def _largest(training: TrainingOnMesh, fits: bool, peak: int | None, available: int) -> int:
    """Rows of the largest micro-batch on each device; the estimated bytes per row give a guess."""
    peak = training.estimate.peak if peak is None else peak
    one_row = training.activations.bytes(1, training.mesh)
    per_row = max(1, one_row - training.activations.bytes(0, training.mesh))
    guess = max(0, training.rows + (available - peak) // per_row)
    if training.topology.slice.hardware.platform != "tpu":
        return guess
    return largest_that_fits(
        lambda rows: isinstance(training.compile(rows), CompiledStep),
        known={training.rows: fits},
        guess=max(guess, training.rows) if fits else min(guess, training.rows - 1),
        tries=_COMPILES_OF_A_SEARCH,
    )


def largest_that_fits(
    fits: Callable[[int], bool], *, known: dict[int, bool], guess: int, tries: int
) -> int:
    """The largest of 1, 2, 3, 4, 6, 8, 12, 16, … rows that fit, with a limited number of tries.

    Args:
        fits: whether a number of rows fits; expensive.
        known: results that are already known.
        guess: number of rows to start with.
        tries: maximum number of calls of `fits`.

    Returns:
        Rows; 0 if none is known to fit.
    """
    known = dict(known)
    steps = list(itertools.takewhile(lambda rows: rows <= max(4 * guess, 4), _steps()))
    place = max(index for index, rows in enumerate(steps) if rows <= max(guess, 1))
    while 0 <= place < len(steps):
        rows = steps[place]
        if rows not in known:
            if tries == 0:
                break
            known[rows] = fits(rows)
            tries -= 1
        direction = 1 if known[rows] else -1
        place += direction
        # Stop between a number that fits and the next one, which does not.
        if 0 <= place < len(steps) and known.get(steps[place]) is (direction < 0):
            break
    return max((rows for rows, fit in known.items() if fit), default=0)


def _steps() -> Iterator[int]:
    """1, 2, 3, 4, 6, 8, 12, …: powers of two and the numbers half way between them."""
    yield 1
    for power in itertools.count(1):
        yield 1 << power
        yield 3 << power - 1


def as_json(plan: Plan, *, steps: int, price: float | None) -> dict[str, Any]:
    """A plan as a JSON object, with the cost of the training; times in seconds, memory in bytes.

    Args:
        plan: the plan.
        steps: number of training steps.
        price: price of a device per hour, in any currency.
    """
    seconds = plan.step_floor.lower_bound
    hours = None if seconds is None else steps * seconds / 3600
    return {
        **dataclasses.asdict(plan),
        "step_floor_s": seconds,
        "steps": steps,
        "days_floor": None if hours is None else hours / 24,
        "device_hours_floor": None if hours is None else hours * plan.devices,
        "cost_floor": None if hours is None or not price else hours * plan.devices * price,
    }

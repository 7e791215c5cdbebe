"""The cost of a training on a mesh: memory, FLOPs, collectives, and the minimum time of a step.

A plan is a dict for JSON:

topology                       devices, such as `v5e:16x16`
devices                        number of devices
mesh                           mesh, such as `fsdp=64,data=4`
precision                      dtype of activations; selects the peak rate
parameters                     number of parameters of the model
compiled                       whether the step was compiled, or all is estimated from
                               shapes
fits                           whether a device has enough memory
peak_bytes_per_device          bytes at the peak, even if it does not fit; null if the
                               compiler does not report them
available_bytes_per_device     bytes that a program may use
memory_per_device              `Memory` at the peak; null if it was not compiled because it
                               does not fit
global_batch_size              rows of a global batch
length                         tokens of a row
microbatch_per_device          rows of a micro-batch
largest_microbatch_per_device  maximum number of rows that fit; null if not searched
flops_per_step                 FLOPs of the model, on all devices
flops_per_token                FLOPs of the model per token of the batch, with padding
program_flops_per_step         FLOPs of the program, including recomputation
collectives                    `traffic` of the compiled step
sent_bytes_per_device          minimum number of bytes that a device sends for these in a
                               step; if not compiled, `least_sent_bytes_per_device`
least_sent_bytes_per_device    the analytic minimum for the mesh
step_floor                     `step_seconds`
compile_s                      compile time in seconds on this machine; null if not compiled
step_floor_s                   the maximum of `step_floor`, as if they overlapped perfectly
steps                          number of training steps
days_floor                     minimum duration of the training
device_hours_floor             the same, times the devices
cost_floor                     their price; null if it is not known
"""

import dataclasses
import math
from collections.abc import Callable, Sequence
from typing import Any

import jax

from bert_jax.errors import UserError, counted, require_at_least, require_between
from bert_jax.models.encoder_with_head import row_kinds, token_shape
from bert_jax.planning.collectives import traffic
from bert_jax.planning.hardware import Slice, Topology, find_topology
from bert_jax.planning.meshes import candidate_meshes, choose_mesh, parse_mesh, usable_memory
from bert_jax.planning.roofline import (
    flops_of_batch,
    least_sent_bytes,
    local_parameters,
    memory_traffic,
    program_flops,
    step_seconds,
)
from bert_jax.planning.training_on_mesh import CompiledStep, Training, TrainingOnMesh
from bert_jax.process import say
from bert_jax.sharding.mesh import MeshShape

_MAX_SEARCH_COMPILES = 4


@dataclasses.dataclass(frozen=True)
class PlanOptions:
    """What to plan, in addition to the config.

    Attributes:
        mesh: one or several meshes, such as `fsdp=8,data=4`, `auto` or `all`; none: the config's.
        search: whether to search for the largest micro-batch.
        steps: number of training steps; None: as in the config.
        price: price of a device per hour, in any currency.
    """

    mesh: Sequence[str] = ()
    search: bool = True
    steps: int | None = None
    price: float | None = None

    def __post_init__(self) -> None:
        require_at_least("steps", self.steps, 1)
        require_between("price", self.price, 0)


def make_plans(
    training: Training, mesh_shape: MeshShape, devices: Slice, options: PlanOptions, *, dtype: str
) -> list[dict[str, Any]]:
    """Plans of a training, one for each mesh.

    Args:
        training: the training.
        mesh_shape: mesh that is used if the options name none.
        devices: devices to plan for; they need not exist locally.
        options: meshes and search.
        dtype: dtype of the activations.

    Returns:
        A plan for each mesh, in their order. For "all": the plans of all meshes that divide batch
        and model, those that fit first, ordered by the time of a step.

    Raises:
        UserError: no mesh divides the batch and the model.
    """
    topology = find_topology(devices)

    def planned(shape: MeshShape) -> dict[str, Any]:
        on_mesh = TrainingOnMesh(training, shape, topology.devices)
        return make_plan(on_mesh, topology, options, dtype=dtype)

    plans: list[dict[str, Any]] = []
    errors: list[UserError] = []
    for text in options.mesh or ("auto" if mesh_shape.auto else "",):
        if text == "all":
            for shape in candidate_meshes(devices.count):
                try:
                    plans.append(planned(shape))
                except UserError as error:
                    errors.append(error)
        elif text == "auto":
            memory = usable_memory(devices)
            plans.append(planned(choose_mesh(training, topology.devices, memory)))
        else:
            plans.append(planned(parse_mesh(text) if text else mesh_shape))
    if not plans:
        raise errors[0]
    if "all" in options.mesh:
        plans.sort(key=lambda plan: (not plan["fits"], plan["step_floor_s"] or 0.0))
    return plans


def make_plan(
    training: TrainingOnMesh, topology: Topology, options: PlanOptions, *, dtype: str
) -> dict[str, Any]:
    """The plan of a training on a mesh, with the keys above."""
    mesh, task, train = training.mesh, training.training.task, training.training.options
    hardware, devices = topology.slice.hardware, topology.slice.count
    compiled = _compile(training, topology, training.rows) if topology.compiles else None
    memory = compiled.memory if compiled else training.estimate
    peak = compiled.needed_bytes if compiled else training.estimate.peak
    available = (compiled and compiled.available_bytes) or usable_memory(topology.slice)
    # Only the TPU compiler refuses a program that does not fit.
    fits = memory is not None
    if not (compiled and hardware.platform == "tpu"):
        fits = peak is not None and peak <= available

    config = task.description.config
    shapes = [token_shape(rows, config) for rows in row_kinds(training.batch).values()]
    tokens, itemsize = sum(map(math.prod, shapes)), jax.numpy.dtype(dtype).itemsize
    rows = train.microbatches * training.rows
    local = local_parameters(training.abstract.params)
    least = least_sent_bytes(
        local,
        mesh,
        itemsize=itemsize,
        layer_activations=rows * tokens / train.global_batch_size * config.hidden_size,
        layers=0 if config.is_recurrent else config.num_hidden_layers,  # those that are split
    )
    collectives = compiled.collectives if compiled and compiled.memory else None
    sent = least if collectives is None else sum(each.sent_bytes for each in collectives)
    model_flops = flops_of_batch(task.computed_models, training.batch)
    traced = training.step.trace(training.abstract, training.batch)
    computed_flops = program_flops(traced.jaxpr.jaxpr)
    floor = step_seconds(
        hardware,
        devices=devices,
        dtype=dtype,
        program_flops=computed_flops,
        moved_bytes=memory_traffic(
            local,
            training.estimate.optimizer,
            training.estimate.activations,
            mesh,
            itemsize=itemsize,
            microbatches=train.microbatches,
        ),
        sent_bytes=sent,
    )
    seconds = max((each for each in floor.values() if each is not None), default=None)
    steps = options.steps or train.steps
    hours = None if seconds is None else steps * seconds / 3600
    return {
        "topology": str(topology.slice),
        "devices": devices,
        "mesh": training.name,
        "precision": dtype,
        "parameters": sum(leaf.size for leaf in jax.tree.leaves(training.abstract.params)),
        "compiled": compiled is not None,
        "fits": fits,
        "peak_bytes_per_device": peak,
        "available_bytes_per_device": available,
        "memory_per_device": memory and dataclasses.asdict(memory),
        "global_batch_size": train.global_batch_size,
        "length": max(shape[-1] for shape in shapes),
        "microbatch_per_device": training.rows,
        "largest_microbatch_per_device": _largest(training, topology, fits, peak, available)
        if options.search
        else None,
        "flops_per_step": model_flops,
        "flops_per_token": model_flops / tokens,
        "program_flops_per_step": computed_flops,
        "collectives": traffic(collectives or []),
        "sent_bytes_per_device": sent,
        "least_sent_bytes_per_device": least,
        "step_floor": floor,
        "compile_s": compiled and compiled.seconds,
        "step_floor_s": seconds,
        "steps": steps,
        "days_floor": hours and hours / 24,
        "device_hours_floor": hours and hours * devices,
        "cost_floor": hours * devices * options.price if hours and options.price else None,
    }


def _compile(training: TrainingOnMesh, topology: Topology, rows: int) -> CompiledStep:
    """Compiles the step for `rows` rows on each device; reports on stderr."""
    where = f"{topology.slice} {training.name}: {counted(rows, 'rows')} on each device"
    say(f"{where}: compiling …")
    compiled = training.compile(rows)
    say(f"{where}: {'fits' if compiled.memory else 'does not fit'} ({compiled.seconds:.0f} s)")
    return compiled


def _largest(
    training: TrainingOnMesh, topology: Topology, fits: bool, peak: int | None, available: int
) -> int:
    """Rows of the largest micro-batch on each device; the estimated bytes per row give a guess."""
    peak = training.estimate.peak if peak is None else peak
    activations, parts = training.training.activations, training.training.options.microbatches
    zero, one = (activations.bytes(n, training.mesh, parts) for n in (0, 1))
    guess = max(0, training.rows + (available - peak) // max(1, one - zero))
    if topology.slice.hardware.platform != "tpu":
        return guess
    return largest_that_fits(
        lambda rows: _compile(training, topology, rows).memory is not None,
        known={training.rows: fits},
        guess=max(guess, training.rows) if fits else min(guess, training.rows - 1),
        tries=_MAX_SEARCH_COMPILES,
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
    limit = max(4 * guess, 4)
    # Powers of two and the numbers half way between them.
    sizes = [1, *(rows << n for n in range(limit.bit_length()) for rows in (2, 3))]
    sizes = [rows for rows in sizes if rows <= limit]
    index, visited = max(n for n, rows in enumerate(sizes) if rows <= max(guess, 1)), set[int]()
    while 0 <= index < len(sizes) and index not in visited:
        visited.add(index)
        rows = sizes[index]
        if rows not in known:
            if tries == 0:
                break
            known[rows] = fits(rows)
            tries -= 1
        index += 1 if known[rows] else -1
    return max((rows for rows, fit in known.items() if fit), default=0)

"""The cost of a training on a mesh: memory, FLOPs, collectives, the least time of a step."""

import dataclasses
import itertools
from collections.abc import Callable, Iterator
from typing import Any

import jax

from bert_jax.planning.collectives import Traffic, traffic
from bert_jax.planning.memory import Memory, measured
from bert_jax.planning.meshes import usable_memory
from bert_jax.planning.roofline import (
    StepTime,
    least_sent_bytes,
    local_parameters,
    memory_traffic,
    step_time,
)
from bert_jax.planning.training_on_mesh import CompiledStep, DoesNotFit, TrainingOnMesh

_COMPILES_OF_A_SEARCH = 4


@dataclasses.dataclass(frozen=True)
class Plan:
    """A training on one mesh, under the names of `as_json`.

    Attributes:
        topology: as `v5e:16x16`.
        devices: how many.
        mesh: as `fsdp=64,data=4`.
        precision: dtype of activations.
        parameters: of the model.
        compiled: whether the step was compiled; else all is estimated from shapes.
        fits: whether a device has enough memory.
        peak_bytes_per_device: at the peak, even if it does not fit; None if the compiler did not
            say.
        available_bytes_per_device: memory that a program may use.
        memory_per_device: at the peak; None if it does not fit and so was not compiled.
        global_batch_size: rows of a global batch.
        length: tokens of a row.
        microbatch_per_device: rows of a micro-batch.
        largest_microbatch_per_device: the most rows that fit; None if not searched.
        flops_per_step: of the model, on all devices.
        flops_per_token: of the model; tokens are those of the batch, padding counted.
        program_flops_per_step: with recomputation.
        collectives: of the compiled step, by kind.
        sent_bytes_per_device: the least that a device sends for these in a step; if not compiled,
            `least_sent_bytes_per_device`.
        least_sent_bytes_per_device: the analytic minimum for the mesh.
        step_floor: the least time of a step.
        compile_s: seconds on this machine; None if not compiled.
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


def make_plan(training: TrainingOnMesh, *, dtype: str, search: bool) -> Plan:
    """The plan of a training on a mesh.

    Args:
        training: its shapes on the mesh.
        dtype: of activations; decides which peak rate counts.
        search: whether to search for the largest micro-batch: on TPUs by compiling, else by the
            estimate.
    """
    topology, mesh = training.topology, training.mesh
    result = training.compile(training.rows) if topology.compiles else None
    memory: Memory | None = training.estimate
    if isinstance(result, CompiledStep):
        memory = measured(result.memory_analysis, training.abstract, training.estimate.activations)
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
    """Rows of the largest micro-batch on each device; the estimated bytes of a row give a guess."""
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
    """The largest of 1, 2, 3, 4, 6, 8, 12, 16, … rows that fit, by a limited number of tries.

    Args:
        fits: whether a number of rows fits; expensive.
        known: results that are known already.
        guess: where to start.
        tries: the most calls of `fits`.

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
        # Stop between a size that fits and a neighbour that does not.
        if 0 <= place < len(steps) and known.get(steps[place]) is (direction < 0):
            break
    return max((rows for rows, fit in known.items() if fit), default=0)


def _steps() -> Iterator[int]:
    """1, 2, 3, 4, 6, 8, 12, …: powers of two and the middles between them."""
    yield 1
    for power in itertools.count(1):
        yield 1 << power
        yield 3 << power - 1


def as_json(plan: Plan, *, steps: int, price: float | None) -> dict[str, Any]:
    """A plan as a JSON object, with what the training costs; times in seconds, memory in bytes.

    Args:
        plan: the plan.
        steps: of the training.
        price: of one device for an hour, in any currency.
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

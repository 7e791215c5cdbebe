"""What a training costs on a mesh: memory, FLOPs, collectives, the least time of a step."""

import dataclasses
from typing import Any

import jax

from bert_jax.planning.collectives import Traffic, traffic
from bert_jax.planning.compilation import CompiledStep, DoesNotFit
from bert_jax.planning.memory import Memory, measured
from bert_jax.planning.meshes import usable_memory
from bert_jax.planning.search import largest_that_fits
from bert_jax.planning.step_time import (
    StepTime,
    least_sent_bytes,
    memory_traffic,
    own_parameters,
    step_time,
)
from bert_jax.planning.training_on_mesh import TrainingOnMesh

_COMPILES_OF_A_SEARCH = 4


@dataclasses.dataclass(frozen=True)
class Plan:
    """A training on one mesh. Bytes and micro-batches are those of one device.

    Attributes:
        topology: as `v5e:16x16`.
        devices: how many.
        mesh: as `fsdp=64,data=4`.
        dtype: of activations.
        parameters: of the model.
        rows: of a global batch.
        length: tokens of a row.
        microbatch: rows of a micro-batch.
        largest_microbatch: rows that still fit; None where it was not looked for.
        compiled: whether a compiler said so; else shapes did.
        fits: whether a device has enough memory.
        memory: at the peak; None if it does not fit and so was not compiled.
        peak_bytes: at the peak, also of what does not fit; None where the compiler did not say.
        available_bytes: what a program may have.
        flops_per_step: of the model, on all devices.
        flops_per_token: of the model; tokens are those of the batch, padding counted.
        program_flops_per_step: with what is computed again.
        collectives: of the compiled step, by kind.
        sent_bytes: the least that a device sends in a step for these; without compiling, for the
            mesh.
        least_sent_bytes: the analytic minimum for the mesh.
        step_time: the floor of a step.
        compile_seconds: on this machine; None without compiling.
    """

    topology: str
    devices: int
    mesh: str
    dtype: str
    parameters: int
    rows: int
    length: int
    microbatch: int
    largest_microbatch: int | None
    compiled: bool
    fits: bool
    memory: Memory | None
    peak_bytes: int | None
    available_bytes: int
    flops_per_step: float
    flops_per_token: float
    program_flops_per_step: float
    collectives: dict[str, Traffic]
    sent_bytes: float
    least_sent_bytes: float
    step_time: StepTime
    compile_seconds: float | None


def make_plan(training: TrainingOnMesh, *, dtype: str, search: bool) -> Plan:
    """The plan of a training on a mesh.

    Args:
        training: laid out.
        dtype: of activations, which choose the devices' peak.
        search: whether the largest micro-batch is looked for: on TPUs by compiling, else by
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
    # The TPU compiler refuses what does not fit; the others leave it to the run.
    if topology.compiles and topology.slice.hardware.platform == "tpu":
        fits = memory is not None
    else:
        fits = peak is not None and peak <= available

    itemsize = jax.numpy.dtype(dtype).itemsize
    config, length = training.task.description.config, training.batch["input_ids"].shape[-1]
    microbatches = training.options.microbatches
    own = own_parameters(training.abstract.params)
    least = least_sent_bytes(
        own,
        mesh,
        itemsize=itemsize,
        layer_activations=microbatches * training.rows * length * config.hidden_size,
        layers=config.num_hidden_layers,
    )
    collectives = result.collectives if isinstance(result, CompiledStep) else None
    sent = least if collectives is None else sum(one.sent_bytes for one in collectives)
    return Plan(
        topology=str(topology.slice),
        devices=topology.slice.devices,
        mesh=training.name,
        dtype=dtype,
        parameters=sum(leaf.size for leaf in jax.tree.leaves(training.abstract.params)),
        rows=training.batch["input_ids"].shape[0],
        length=length,
        microbatch=training.rows,
        largest_microbatch=_largest(training, fits, peak, available) if search else None,
        compiled=result is not None,
        fits=fits,
        memory=memory,
        peak_bytes=peak,
        available_bytes=available,
        flops_per_step=training.model_flops,
        flops_per_token=training.model_flops / training.batch["input_ids"].size,
        program_flops_per_step=training.program_flops,
        collectives=traffic(collectives or []),
        sent_bytes=sent,
        least_sent_bytes=least,
        step_time=step_time(
            topology.slice.hardware,
            devices=topology.slice.devices,
            dtype=dtype,
            program_flops=training.program_flops,
            moved_bytes=memory_traffic(
                own,
                training.estimate.optimizer,
                training.estimate.activations,
                mesh,
                itemsize=itemsize,
                microbatches=microbatches,
            ),
            sent_bytes=sent,
        ),
        compile_seconds=result.compile_seconds if result is not None else None,
    )


def _largest(training: TrainingOnMesh, fits: bool, peak: int | None, available: int) -> int:
    """Rows of the largest micro-batch on each device.

    What the estimate says of the memory for each row gives a first guess.
    """
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


def as_json(plan: Plan, *, steps: int, price: float | None) -> dict[str, Any]:
    """A plan as JSON says it; times in seconds, memory in bytes.

    Args:
        plan: the plan.
        steps: of the training.
        price: of a device for an hour.
    """
    floor = plan.step_time.floor
    hours = None if floor is None else steps * floor / 3600
    memory = dataclasses.asdict(plan.memory) if plan.memory else None
    return {
        "topology": plan.topology,
        "devices": plan.devices,
        "mesh": plan.mesh,
        "precision": plan.dtype,
        "parameters": plan.parameters,
        "compiled": plan.compiled,
        "fits": plan.fits,
        "peak_bytes_per_device": plan.peak_bytes,
        "available_bytes_per_device": plan.available_bytes,
        "memory_per_device": memory,
        "global_batch_size": plan.rows,
        "length": plan.length,
        "microbatch_per_device": plan.microbatch,
        "largest_microbatch_per_device": plan.largest_microbatch,
        "flops_per_step": plan.flops_per_step,
        "flops_per_token": plan.flops_per_token,
        "program_flops_per_step": plan.program_flops_per_step,
        "collectives": {kind: dataclasses.asdict(one) for kind, one in plan.collectives.items()},
        "sent_bytes_per_device": plan.sent_bytes,
        "least_sent_bytes_per_device": plan.least_sent_bytes,
        "step_floor": dataclasses.asdict(plan.step_time),
        "step_floor_s": floor,
        "steps": steps,
        "days_floor": None if hours is None else hours / 24,
        "device_hours_floor": None if hours is None else hours * plan.devices,
        "cost_floor": None if hours is None or not price else hours * plan.devices * price,
        "compile_s": plan.compile_seconds,
    }

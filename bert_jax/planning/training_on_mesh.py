"""A training laid out and compiled on a mesh; its devices may be elsewhere."""

import dataclasses
import functools
import re
import sys
import time
from collections.abc import Mapping
from typing import Any

import jax

from bert_jax.planning.collectives import Collective, collectives_of
from bert_jax.planning.hardware import Topology
from bert_jax.planning.memory import (
    Activations,
    Memory,
    device_bytes,
    estimate,
    rows_per_device,
    trace_activations,
)
from bert_jax.planning.meshes import label
from bert_jax.planning.roofline import flops_of_batch, program_flops
from bert_jax.sharding.hosts import check_batch_size
from bert_jax.sharding.mesh import AXES, MeshShape, make_mesh
from bert_jax.tasks.base.task import Task, with_rows
from bert_jax.training.optimizer import Optimizer
from bert_jax.training.options import TrainOptions
from bert_jax.training.step import TrainState, TrainStep, abstract_state, make_train_step

_AMOUNT = r"([\d.]+)([KMGT]?)"


@dataclasses.dataclass(frozen=True)
class CompiledStep:
    """A step that was compiled.

    Attributes:
        memory_analysis: the compiler's, bytes on one device.
        collectives: what the devices send each other.
        compile_seconds: of this machine.
    """

    memory_analysis: Any
    collectives: list[Collective]
    compile_seconds: float


@dataclasses.dataclass(frozen=True)
class DoesNotFit:
    """A step for which a device has too little memory.

    Attributes:
        needed_bytes: what the compiler would need, None where it does not say.
        available_bytes: what a program may have of a device's memory.
        compile_seconds: until it gave up.
    """

    needed_bytes: int | None
    available_bytes: int | None
    compile_seconds: float


def compile_step(
    step: TrainStep, abstract: TrainState, batch: Mapping[str, jax.ShapeDtypeStruct]
) -> CompiledStep | DoesNotFit:
    """Compiles a step for shapes.

    Args:
        step: from `make_train_step`.
        abstract: the state, from `abstract_state`.
        batch: shapes of a global batch.
    """
    lowered = step.trace(abstract, batch).lower()
    began = time.perf_counter()
    try:
        compiled = lowered.compile()
    except jax.errors.JaxRuntimeError as error:
        seconds = time.perf_counter() - began
        needed = read_out_of_memory(str(error), device_bytes(abstract))
        if needed is None:
            raise
        return DoesNotFit(*needed, seconds)
    seconds = time.perf_counter() - began
    return CompiledStep(compiled.memory_analysis(), collectives_of(compiled.as_text()), seconds)


def read_out_of_memory(message: str, arguments: int) -> tuple[int | None, int | None] | None:
    """Bytes needed and available, from the TPU compiler's message; None for another error.

    Args:
        message: of the error.
        arguments: bytes of state and batch, which the compiler counts in one of its two wordings.
    """
    if "RESOURCE_EXHAUSTED" not in message and "Ran out of memory" not in message:
        return None
    if amounts := re.search(rf"Used {_AMOUNT} of {_AMOUNT} hbm", message):
        return _bytes(*amounts.group(1, 2)), _bytes(*amounts.group(3, 4))
    temporaries = rf"required for HLO temporaries \({_AMOUNT}\) exceeds available HBM \({_AMOUNT}\)"
    if amounts := re.search(temporaries, message):
        return _bytes(*amounts.group(1, 2)) + arguments, _bytes(*amounts.group(3, 4))
    return None, None


def _bytes(number: str, unit: str) -> int:
    return int(float(number) * 1024 ** " KMGT".index(unit or " "))


class TrainingOnMesh:
    """What the training loop would run, as shapes.

    Attributes:
        task, options, topology: the arguments.
        mesh: of the topology's devices.
        name: of the mesh, as on the command line.
        abstract: the state's shapes and shardings.
        step: the step that the training loop would run.
        batch: shapes of the global batch.
        rows: of a micro-batch on one device.
    """

    def __init__(
        self,
        task: Task,
        optimizer: Optimizer,
        options: TrainOptions,
        topology: Topology,
        shape: MeshShape,
    ) -> None:
        """Computes the shapes and shardings of the state.

        Raises:
            UserError: mesh, batch and model do not fit each other.
        """
        self.task, self.options, self.topology = task, options, topology
        self._optimizer = optimizer
        self.mesh = make_mesh(shape, topology.devices)
        self.name = label(MeshShape(**{axis: self.mesh.shape[axis] for axis in AXES}))
        check_batch_size(options.global_batch_size, self.mesh, options.microbatches)
        self.abstract = abstract_state(task, optimizer, self.mesh)
        self.step = make_train_step(
            task,
            optimizer,
            mesh=self.mesh,
            abstract=self.abstract,
            microbatches=options.microbatches,
            seed=0,
        )
        self.batch = task.batch_shapes()
        self.rows = rows_per_device(self.batch, self.mesh, options.microbatches)

    @functools.cached_property
    def activations(self) -> Activations:
        """What the backward pass keeps."""
        return trace_activations(self.task, self._optimizer, self.abstract.params)

    @functools.cached_property
    def estimate(self) -> Memory:
        """The memory of a step, from shapes alone."""
        return estimate(
            self.abstract,
            self.batch,
            self.mesh,
            self.activations,
            microbatches=self.options.microbatches,
        )

    @functools.cached_property
    def model_flops(self) -> float:
        """FLOPs of the model in a step."""
        return flops_of_batch(self.task.description.config, self.batch)

    @functools.cached_property
    def program_flops(self) -> float:
        """FLOPs of the program of a step, with what it computes again."""
        return program_flops(self.step.trace(self.abstract, self.batch).jaxpr.jaxpr)

    def compile(self, rows: int) -> CompiledStep | DoesNotFit:
        """Compiles the step for micro-batches of `rows` rows on each device; reports on stderr."""
        where = f"{self.topology.slice} {self.name}: {rows} rows on each device"
        print(f"{where}: compiling …", file=sys.stderr, flush=True)
        parts = self.mesh.shape["data"] * self.mesh.shape["fsdp"] * self.options.microbatches
        result = compile_step(self.step, self.abstract, with_rows(self.batch, rows * parts))
        fits = "fits" if isinstance(result, CompiledStep) else "does not fit"
        print(f"{where}: {fits} ({result.compile_seconds:.0f} s)", file=sys.stderr, flush=True)
        return result

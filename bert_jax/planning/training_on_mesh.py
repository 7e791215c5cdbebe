"""A training laid out and compiled for a mesh; its devices need not exist locally."""

import dataclasses
import functools
import re
import time
from collections.abc import Mapping
from typing import Any

import jax

from bert_jax.planning.collectives import Collective, collectives_of
from bert_jax.planning.hardware import Topology
from bert_jax.planning.memory import (
    Activations,
    Memory,
    estimate,
    rows_per_device,
    trace_activations,
)
from bert_jax.planning.meshes import label
from bert_jax.planning.roofline import flops_of_batch, program_flops
from bert_jax.sharding.hosts import check_batch_size
from bert_jax.sharding.memory import device_bytes
from bert_jax.sharding.mesh import AXES, MeshShape, make_mesh
from bert_jax.standard_streams import say
from bert_jax.tasks.base.task import Task, with_rows
from bert_jax.training.optimizer import Optimizer
from bert_jax.training.options import TrainOptions
from bert_jax.training.step import TrainState, TrainStep, abstract_state, make_train_step

_AMOUNT = r"([\d.]+)([KMGT]?)"


@dataclasses.dataclass(frozen=True)
class CompiledStep:
    """A compiled step.

    Attributes:
        memory_analysis: the compiler's analysis, bytes on one device.
        collectives: communication between the devices.
        compile_seconds: compile time on this machine.
    """

    memory_analysis: Any
    collectives: list[Collective]
    compile_seconds: float


@dataclasses.dataclass(frozen=True)
class DoesNotFit:
    """A step that needs more memory than a device has.

    Attributes:
        needed_bytes: bytes that the compiler would need, None if it does not report them.
        available_bytes: bytes of a device's memory that a program may use.
        compile_seconds: time until the compiler gave up.
    """

    needed_bytes: int | None
    available_bytes: int | None
    compile_seconds: float


def compile_step(
    step: TrainStep, abstract: TrainState, batch: Mapping[str, jax.ShapeDtypeStruct]
) -> CompiledStep | DoesNotFit:
    """Compiles a step for shapes.

    Args:
        step: the result of `make_train_step`.
        abstract: shapes of the state, from `abstract_state`.
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
        message: message of the error.
        arguments: bytes of state and batch, which only one of the compiler's two messages includes.
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
    """The computation of the training loop, as shapes.

    Attributes:
        task, options, topology: the arguments.
        mesh: mesh of the topology's devices.
        name: name of the mesh, as on the command line.
        abstract: shapes and shardings of the state.
        step: step of the training loop.
        batch: shapes of the global batch.
        rows: rows of a micro-batch on one device.
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
            UserError: mesh, batch and model do not fit together.
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
        """Activations that are kept for the backward pass."""
        return trace_activations(
            self.task, self._optimizer, self.abstract.params, self.step.constants
        )

    @functools.cached_property
    def estimate(self) -> Memory:
        """The memory of a step, from shapes only."""
        return estimate(
            self.abstract,
            self.batch,
            self.mesh,
            self.activations,
            microbatches=self.options.microbatches,
            constants=self.step.constants,
        )

    @functools.cached_property
    def model_flops(self) -> float:
        """FLOPs of the model in a step."""
        return flops_of_batch(self.task.computed_models, self.batch)

    @functools.cached_property
    def program_flops(self) -> float:
        """FLOPs of the program of a step, including recomputation."""
        return program_flops(self.step.trace(self.abstract, self.batch).jaxpr.jaxpr)

    def compile(self, rows: int) -> CompiledStep | DoesNotFit:
        """Compiles the step for micro-batches of `rows` rows on each device; reports on stderr."""
        where = f"{self.topology.slice} {self.name}: {rows} rows on each device"
        say(f"{where}: compiling …")
        parts = self.mesh.shape["data"] * self.mesh.shape["fsdp"] * self.options.microbatches
        result = compile_step(self.step, self.abstract, with_rows(self.batch, rows * parts))
        fits = "fits" if isinstance(result, CompiledStep) else "does not fit"
        say(f"{where}: {fits} ({result.compile_seconds:.0f} s)")
        return result

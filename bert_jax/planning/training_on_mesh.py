"""A training laid out and compiled for a mesh; its devices need not exist locally."""

import dataclasses
import functools
import re
import time
from typing import Any

import jax

from bert_jax.planning.collectives import Collective, collectives_of
from bert_jax.planning.memory import Activations, Memory, trace_activations
from bert_jax.sharding.hosts import check_batch_size
from bert_jax.sharding.mesh import AXES, MeshShape, batch_parts, device_bytes, make_mesh
from bert_jax.tasks.base.task import Task, with_rows
from bert_jax.training.optimizer import Optimizer
from bert_jax.training.step import TrainStep, abstract_state, make_train_step
from bert_jax.training_options import TrainOptions

_AMOUNT = r"\(?([\d.]+)([KMGT]?)\)?"
# The two messages of the TPU compiler; the second does not count state and batch.
_USED = rf"Used {_AMOUNT} of {_AMOUNT} hbm"
_TEMPORARIES = rf"required for HLO temporaries {_AMOUNT} exceeds available HBM {_AMOUNT}"


@dataclasses.dataclass(frozen=True)
class CompiledStep:
    """A compiled step, or a step that needs more memory than a device has.

    Attributes:
        seconds: compile time on this machine.
        memory: memory on one device; None if it does not fit.
        collectives: communication between the devices.
        needed_bytes: bytes at the peak, None if the compiler does not report them.
        available_bytes: bytes of a device's memory that a program may use, if it reports them.
    """

    seconds: float
    memory: Memory | None
    collectives: list[Collective]
    needed_bytes: int | None
    available_bytes: int | None


@dataclasses.dataclass(frozen=True)
class Training:
    """What a training computes, on any mesh: model, batches, optimizer, micro-batches."""

    task: Task
    optimizer: Optimizer
    options: TrainOptions

    @functools.cached_property
    def activations(self) -> Activations:
        """Activations that are kept for the backward pass."""
        return trace_activations(self.task, self.optimizer)


class TrainingOnMesh:
    """The computation of the training loop, as shapes.

    Attributes:
        training: the training.
        mesh: mesh of the devices.
        name: name of the mesh, as on the command line.
        abstract: shapes and shardings of the state.
        frozen_params: shapes and shardings of the parameters of `Task.frozen_inputs`.
        batch: shapes of the global batch.
        rows: rows of a micro-batch on one device.
    """

    def __init__(self, training: Training, shape: MeshShape, devices: list[jax.Device]) -> None:
        """Computes the shapes and shardings of the state.

        Raises:
            UserError: mesh, batch and model do not fit together.
        """
        task, options = training.task, training.options
        self.training, self.mesh = training, make_mesh(shape, devices)
        self.name = label(MeshShape(**{axis: self.mesh.shape[axis] for axis in AXES}))
        check_batch_size(options.global_batch_size, self.mesh, options.microbatches)
        self.abstract = abstract_state(task, training.optimizer, self.mesh)
        self.frozen_params = task.frozen_inputs.abstract_params(self.mesh)
        self.batch = task.batch_shapes()
        rows = next(iter(self.batch.values())).shape[0]
        self.rows = max(1, rows // self._parts)

    @property
    def _parts(self) -> int:
        """The number of parts of a global batch: micro-batches of all devices."""
        return batch_parts(self.mesh) * self.training.options.microbatches

    @functools.cached_property
    def step(self) -> TrainStep:
        """The step of the training loop."""
        return make_train_step(
            self.training.task,
            self.training.optimizer,
            mesh=self.mesh,
            abstract=self.abstract,
            microbatches=self.training.options.microbatches,
            seed=0,
        )

    @functools.cached_property
    def estimate(self) -> Memory:
        """The memory of a step from shapes, without a compiler.

        Gradients take the bytes of the parameters, twice with micro-batches: of one and the sum.
        Parameters split by `fsdp` are gathered for the computation.
        """
        activations, shape = self.training.activations, self.mesh.shape
        parameters = device_bytes(self.abstract.params)
        gathered = activations.parameters // shape["tensor"] if shape["fsdp"] > 1 else 0
        copies = 2 if self.training.options.microbatches > 1 else 1
        return Memory(
            parameters=parameters + device_bytes(self.frozen_params),
            optimizer=device_bytes(self.abstract.opt_state),
            activations=activations.bytes(self.rows, self.mesh, self.training.options.microbatches),
            temporaries=parameters * copies + gathered,
        )

    def compile(self, rows: int) -> CompiledStep:
        """Compiles the step for micro-batches of `rows` rows on each device."""
        batch = with_rows(self.batch, rows * self._parts)
        lowered = self.step.trace(self.abstract, batch).lower()
        began = time.perf_counter()
        try:
            compiled = lowered.compile()
        except jax.errors.JaxRuntimeError as error:
            seconds = time.perf_counter() - began
            amounts = read_out_of_memory(str(error), device_bytes(self.abstract))
            if amounts is None:
                raise
            return CompiledStep(seconds, None, [], *amounts)
        seconds = time.perf_counter() - began
        memory = self._measured(compiled.memory_analysis())
        return CompiledStep(seconds, memory, collectives_of(compiled.as_text()), memory.peak, None)

    def _measured(self, analysis: Any) -> Memory:
        """The memory of a compiled step, from `compiled.memory_analysis()`.

        The compiler reports only the sum of temporaries: activations are estimated.
        """
        parameters = device_bytes((self.abstract.params, self.frozen_params))
        optimizer = device_bytes(self.abstract.opt_state)
        temporary = analysis.temp_size_in_bytes
        activations = min(self.estimate.activations, temporary)
        peak = (
            analysis.argument_size_in_bytes
            + analysis.output_size_in_bytes
            - analysis.alias_size_in_bytes
            + temporary
            + analysis.generated_code_size_in_bytes
        )
        rest = peak - parameters - optimizer - activations
        return Memory(parameters, optimizer, activations, rest)


def label(shape: MeshShape) -> str:
    """A mesh in the form of the command line, without axes of size 1."""
    sizes = zip(AXES, shape.sizes, strict=True)
    return ",".join(f"{axis}={size}" for axis, size in sizes if size != 1) or "data=1"


def read_out_of_memory(message: str, arguments: int) -> tuple[int | None, int | None] | None:
    """Bytes needed and available, from the TPU compiler's message; None for another error.

    Args:
        message: message of the error.
        arguments: bytes of state and batch.
    """
    if "RESOURCE_EXHAUSTED" not in message and "Ran out of memory" not in message:
        return None
    amounts = re.search(_USED, message) or re.search(_TEMPORARIES, message)
    if amounts is None:
        return None, None
    needed, available = (
        int(float(number) * 1024 ** " KMGT".index(unit or " "))
        for number, unit in (amounts.group(1, 2), amounts.group(3, 4))
    )
    return needed + (0 if "Used" in amounts[0] else arguments), available

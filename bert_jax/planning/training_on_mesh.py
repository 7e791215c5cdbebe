"""A training laid out on a mesh whose devices need not be there."""

import functools
import sys

from bert_jax.planning.compilation import CompiledStep, DoesNotFit, compile_step
from bert_jax.planning.flops import flops_of_batch, program_flops
from bert_jax.planning.memory import (
    Activations,
    Memory,
    estimate,
    rows_per_device,
    trace_activations,
)
from bert_jax.planning.meshes import label
from bert_jax.planning.topology import Topology
from bert_jax.sharding.hosts import rows_per_host
from bert_jax.sharding.mesh import AXES, MeshShape, make_mesh
from bert_jax.tasks.base.task import Task, with_rows
from bert_jax.training.optimizer import Optimizer
from bert_jax.training.options import TrainOptions
from bert_jax.training.state import abstract_state
from bert_jax.training.step import make_train_step


class TrainingOnMesh:
    """What the training loop would run, as shapes.

    Attributes:
        task, options, topology: what was given.
        mesh: of the topology's devices.
        name: of the mesh, as on the command line.
        abstract: the state's shapes and shardings.
        step: the very step of the loop.
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
        """Lays out the state.

        Raises:
            UserError: mesh, batch and model do not go together.
        """
        self.task, self.options, self.topology = task, options, topology
        self._optimizer = optimizer
        self.mesh = make_mesh(shape, topology.devices)
        self.name = label(MeshShape(**{axis: self.mesh.shape[axis] for axis in AXES}))
        rows_per_host(options.global_batch_size, self.mesh, options.microbatches)
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
        """Compiles the step for so many rows of a micro-batch on each device; says so on stderr."""
        where = f"{self.topology.slice} {self.name}: {rows} rows on each device"
        print(f"{where}: compiling …", file=sys.stderr, flush=True)
        parts = self.mesh.shape["data"] * self.mesh.shape["fsdp"] * self.options.microbatches
        found = compile_step(self.step, self.abstract, with_rows(self.batch, rows * parts))
        said = "fits" if isinstance(found, CompiledStep) else "does not fit"
        print(f"{where}: {said} ({found.compile_seconds:.0f} s)", file=sys.stderr, flush=True)
        return found

"""Compiles the very step of a training for a mesh, and reads what came out."""

import dataclasses
import re
import time
from collections.abc import Mapping
from typing import Any

import jax

from bert_jax.planning.collectives import Collective, collectives_of
from bert_jax.training.state import TrainState
from bert_jax.training.step import TrainStep


@dataclasses.dataclass(frozen=True)
class CompiledStep:
    """A step that fits.

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
        needed = read_out_of_memory(str(error))
        if needed is None:
            raise
        return DoesNotFit(*needed, seconds)
    seconds = time.perf_counter() - began
    return CompiledStep(compiled.memory_analysis(), collectives_of(compiled.as_text()), seconds)


def read_out_of_memory(message: str) -> tuple[int | None, int | None] | None:
    """Bytes needed and available, from what the compiler says; None if it says something else."""
    if "RESOURCE_EXHAUSTED" not in message and "Ran out of memory" not in message:
        return None
    found = re.search(r"Used ([\d.]+)([KMGT]?) of ([\d.]+)([KMGT]?) hbm", message)
    if found is None:
        return None, None
    units = {"": 1, "K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}
    needed, available = (float(found[i]) * units[found[i + 1]] for i in (1, 3))
    return int(needed), int(available)

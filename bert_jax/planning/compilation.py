"""Compiles the very step of a training for a mesh, and reads what came out."""

import dataclasses
import re
import time
from collections.abc import Mapping
from typing import Any

import jax

from bert_jax.planning.collectives import Collective, collectives_of
from bert_jax.planning.memory import device_bytes
from bert_jax.training.state import TrainState
from bert_jax.training.step import TrainStep

_AMOUNT = r"([\d.]+)([KMGT]?)"


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
        needed = read_out_of_memory(str(error), device_bytes(abstract))
        if needed is None:
            raise
        return DoesNotFit(*needed, seconds)
    seconds = time.perf_counter() - began
    return CompiledStep(compiled.memory_analysis(), collectives_of(compiled.as_text()), seconds)


def read_out_of_memory(message: str, arguments: int) -> tuple[int | None, int | None] | None:
    """Bytes needed and available, from what the TPU compiler says; None if it says something else.

    Args:
        message: of the error.
        arguments: bytes of state and batch, which the compiler counts in one of its two wordings.
    """
    if "RESOURCE_EXHAUSTED" not in message and "Ran out of memory" not in message:
        return None
    if found := re.search(rf"Used {_AMOUNT} of {_AMOUNT} hbm", message):
        return _bytes(*found.group(1, 2)), _bytes(*found.group(3, 4))
    temporaries = rf"required for HLO temporaries \({_AMOUNT}\) exceeds available HBM \({_AMOUNT}\)"
    if found := re.search(temporaries, message):
        return _bytes(*found.group(1, 2)) + arguments, _bytes(*found.group(3, 4))
    return None, None


def _bytes(number: str, unit: str) -> int:
    return int(float(number) * 1024 ** " KMGT".index(unit or " "))

"""The least time that a step can take on given devices, from three published peaks."""

import dataclasses

from jax.sharding import Mesh

from bert_jax.planning.hardware import Hardware
from bert_jax.planning.memory import Memory

# Adam reads gradient, parameter and two moments, and writes the latter three, float32 each.
_OPTIMIZER_BYTES = 28


@dataclasses.dataclass(frozen=True)
class StepTime:
    """Seconds that each part of the hardware is busy at its peak; None where no peak is known.

    Attributes:
        compute: all matrix products of the program, those computed again among them.
        memory: optimizer, parameters and kept activations through the device's memory.
        interconnect: what each device sends.
    """

    compute: float | None
    memory: float | None
    interconnect: float | None

    @property
    def floor(self) -> float | None:
        """The longest of the three: at best, they overlap."""
        parts = (self.compute, self.memory, self.interconnect)
        known = [part for part in parts if part is not None]
        return max(known) if known else None


def step_time(
    hardware: Hardware,
    *,
    devices: int,
    dtype: str,
    program_flops: float,
    moved_bytes: float,
    sent_bytes: float,
) -> StepTime:
    """The floor of a step.

    Args:
        hardware: of each device.
        devices: how many share the FLOPs.
        dtype: of activations.
        program_flops: of the whole step, on all devices.
        moved_bytes: to and from the memory of one device, see `memory_traffic`.
        sent_bytes: by one device.
    """
    return StepTime(
        _ratio(program_flops / devices, hardware.flops(dtype)),
        _ratio(moved_bytes, hardware.memory_bandwidth),
        _ratio(sent_bytes, hardware.interconnect_bandwidth),
    )


def memory_traffic(memory: Memory, mesh: Mesh, *, itemsize: int, microbatches: int) -> float:
    """The least bytes that a step moves through a device's memory.

    The optimizer's arrays once; the parameters for the forward and the backward pass of each
    micro-batch, whole even where `fsdp` keeps only a part; each kept activation written and read.

    Args:
        memory: of a device.
        mesh: its sizes.
        itemsize: bytes of an activation.
        microbatches: of a step.
    """
    own_parameters = memory.parameters / 4  # float32
    used_parameters = own_parameters * mesh.shape["fsdp"]
    return (
        _OPTIMIZER_BYTES * own_parameters
        + microbatches * 2 * itemsize * used_parameters
        + microbatches * 2 * memory.activations
    )


def least_sent_bytes(
    memory: Memory, mesh: Mesh, *, itemsize: int, layer_activations: float, layers: int
) -> float:
    """What a device must send in a step, whatever the program: the analytic minimum.

    Over `data`, an all-reduce of the gradients: 2 (n-1)/n of their bytes. Over `fsdp`, the
    parameters are gathered once and the gradients scattered once: (n-1)/n of the bytes each. Over
    `tensor`, an all-reduce of the hidden states after attention and feed-forward, in both passes.

    Args:
        memory: of a device.
        mesh: its sizes.
        itemsize: bytes of a number on its way.
        layer_activations: numbers of the hidden states of one layer on one device, B·T·D.
        layers: L.
    """
    data, fsdp, tensor = (mesh.shape[axis] for axis in ("data", "fsdp", "tensor"))
    own = memory.parameters / 4 * itemsize
    reduced = own * 2 * (data - 1) / data
    gathered = 2 * own * fsdp * (fsdp - 1) / fsdp
    hidden = 4 * layers * layer_activations * itemsize * 2 * (tensor - 1) / tensor
    return reduced + gathered + hidden


def _ratio(amount: float, rate: float | None) -> float | None:
    return None if rate is None else amount / rate

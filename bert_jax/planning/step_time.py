"""The least time that a step can take on given devices, from three published peaks."""

import dataclasses
import math
from typing import Any

import jax
from jax.sharding import Mesh

from bert_jax.planning.hardware import Hardware

# Adam reads gradient, parameter and two moments, and writes the latter three, float32 each: 28
# bytes for the 8 of the two moments.
_OF_MOMENTS = 28 / 8


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


@dataclasses.dataclass(frozen=True)
class OwnParameters:
    """How many parameters a device keeps.

    Attributes:
        split: of those that `fsdp` splits.
        whole: of all others.
    """

    split: int
    whole: int


def own_parameters(params: Any) -> OwnParameters:
    """Counts the parameters of a device, from their shapes and shardings."""
    split = whole = 0
    for leaf in jax.tree.leaves(params):
        size = math.prod(leaf.sharding.shard_shape(leaf.shape))
        if "fsdp" in leaf.sharding.spec:
            split += size
        else:
            whole += size
    return OwnParameters(split, whole)


def memory_traffic(
    own: OwnParameters,
    moments: int,
    activations: int,
    mesh: Mesh,
    *,
    itemsize: int,
    microbatches: int,
) -> float:
    """The least bytes that a step moves through a device's memory.

    The optimizer's arrays once; the parameters for the forward and the backward pass of each
    micro-batch, whole even where `fsdp` keeps only a part; each kept activation written and read.

    Args:
        own: parameters of the device.
        moments: bytes of the optimizer's state on the device, which are those of the parameters
            that it updates: frozen ones have none, and replicas may share the work.
        activations: bytes that the backward pass of a micro-batch keeps.
        mesh: its sizes.
        itemsize: bytes of an activation.
        microbatches: of a step.
    """
    used = own.whole + own.split * mesh.shape["fsdp"]
    return (
        _OF_MOMENTS * moments + microbatches * 2 * itemsize * used + microbatches * 2 * activations
    )


def least_sent_bytes(
    own: OwnParameters, mesh: Mesh, *, itemsize: int, layer_activations: float, layers: int
) -> float:
    """What a device must send in a step, whatever the program: the analytic minimum.

    Over `data`, an all-reduce of the gradients: 2 (n-1)/n of their bytes. Over `fsdp`, the
    parameters are gathered once and the gradients scattered once: (n-1)/n of the bytes each; what
    is not split is reduced there, too. Over `tensor`, an all-reduce of the hidden states after
    attention and feed-forward, in both passes.

    Args:
        own: parameters of the device.
        mesh: its sizes.
        itemsize: bytes of a number on its way.
        layer_activations: numbers of the hidden states of one layer on one device, B·T·D.
        layers: L.
    """
    data, fsdp, tensor = (mesh.shape[axis] for axis in ("data", "fsdp", "tensor"))
    reduced = own.split * _reduced(data) + own.whole * _reduced(data * fsdp)
    gathered = 2 * own.split * (fsdp - 1)
    hidden = 4 * layers * layer_activations * _reduced(tensor)
    return itemsize * (reduced + gathered + hidden)


def _reduced(devices: int) -> float:
    """What an all-reduce sends, as a share of the array."""
    return 2 * (devices - 1) / devices


def _ratio(amount: float, rate: float | None) -> float | None:
    return None if rate is None else amount / rate

"""Devices of a slice that is not here: those that the compiler knows, or stand-ins."""

import dataclasses
import importlib.metadata
import os
from typing import Any

from bert_jax.errors import UserError
from bert_jax.planning.hardware import Slice
from bert_jax.sharding.libtpu import WITHOUT_TPU

_INSTALL = 'pip install "bert_jax[tpu]"'


@dataclasses.dataclass(frozen=True)
class Topology:
    """A slice with devices to build a mesh from.

    Attributes:
        slice: what it is.
        devices: of JAX.
        compiles: whether programs can be compiled for them here.
    """

    slice: Slice
    devices: list[Any]
    compiles: bool


def prepare_process(wanted: Slice) -> None:
    """Sets what JAX and libtpu read from the environment; to be called before JAX is imported.

    The plan itself runs on the CPU, also where there is a TPU or a GPU.
    """
    os.environ["JAX_PLATFORMS"] = "cpu"
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    if wanted.hardware.platform == "tpu":
        os.environ.update(WITHOUT_TPU)
    if wanted.hardware.platform == "cpu":
        flags = os.environ.get("XLA_FLAGS", "")
        if "xla_force_host_platform_device_count" not in flags:
            count = f"--xla_force_host_platform_device_count={wanted.devices}"
            os.environ["XLA_FLAGS"] = f"{flags} {count}".strip()


def find_topology(wanted: Slice) -> Topology:
    """The devices of a slice.

    GPUs, and more CPU devices than this process has, are stand-ins: shapes can be laid out on
    them, but nothing can be compiled.

    Raises:
        UserError: libtpu is missing, is not the one that goes with this JAX, or knows no such
            slice.
    """
    import jax

    if wanted.hardware.platform == "tpu":
        return Topology(wanted, _tpu_devices(wanted), compiles=True)
    here = jax.devices("cpu")
    if wanted.hardware.platform == "cpu" and len(here) >= wanted.devices:
        return Topology(wanted, here[: wanted.devices], compiles=True)
    return Topology(wanted, here[:1] * wanted.devices, compiles=False)


def _tpu_devices(wanted: Slice) -> list[Any]:
    import jax
    from jax.experimental import topologies

    check_libtpu()
    options: dict[str, Any] = {}
    if wanted.hardware.name == "v4":
        options["chip_config_name"] = "megacore"  # two cores are one device, as on a machine
    if wanted.devices < 4:  # less than a host
        options["chips_per_host_bounds"] = (*wanted.shape, *[1] * (3 - len(wanted.shape)))
    try:
        found = topologies.get_topology_desc(str(wanted), platform="tpu", **options)
    except jax.errors.JaxRuntimeError as error:
        reason = str(error).split("\n")[0]
        if not reason.startswith("INVALID_ARGUMENT"):
            raise UserError(f"--topology {wanted}: libtpu does not start: {reason}") from error
        raise UserError(
            f"--topology {wanted}: there is no such slice ({reason}); choose one of Cloud TPU's"
        ) from error
    return list(found.devices)


def check_libtpu() -> None:
    """Raises UserError unless the libtpu that goes with the installed JAX is there."""
    from packaging.requirements import Requirement

    wanted = next(
        requirement
        for requirement in map(Requirement, importlib.metadata.requires("jax") or ())
        if requirement.name == "libtpu"
    )
    try:
        version = importlib.metadata.version("libtpu")
    except importlib.metadata.PackageNotFoundError as error:
        raise UserError(
            f"a plan for TPUs needs their compiler, libtpu, which is not installed; {_INSTALL}"
        ) from error
    if not wanted.specifier.contains(version):
        raise UserError(
            f"libtpu {version} does not go with JAX {importlib.metadata.version('jax')}, which "
            f"needs {wanted.specifier}; {_INSTALL}"
        )

"""libtpu, the driver and compiler of TPUs, where it is installed but there is no TPU."""

import importlib.util
import os
from pathlib import Path

# What libtpu would ask the network for, and complain on stderr where it finds no answer; and that
# several processes may load it: there is no TPU that they could get hold of at once.
WITHOUT_TPU = {
    "ALLOW_MULTIPLE_LIBTPU_LOAD": "1",
    "TPU_SKIP_MDS_QUERY": "1",
    "TPU_WORKER_HOSTNAMES": "localhost",
    "TPU_ACCELERATOR_TYPE": "v5litepod-8",
    "TPU_LOG_DIR": "disabled",
}
_GOOGLE, _NETWORK_CARD = "0x1ae0", "0x0042"


def calm_libtpu() -> None:
    """Keeps libtpu quiet on a machine without a TPU; to be called before JAX is imported.

    JAX then finds no TPU and takes what else is there.
    """
    if importlib.util.find_spec("libtpu") and not has_tpu():
        for name, value in WITHOUT_TPU.items():
            os.environ.setdefault(name, value)


def has_tpu(devices: Path = Path("/sys/bus/pci/devices")) -> bool:
    """Whether a PCI device of Google's is there that is no network card."""
    return any(
        vendor.read_text().strip() == _GOOGLE
        and (vendor.parent / "device").read_text().strip() != _NETWORK_CARD
        for vendor in devices.glob("*/vendor")
    )

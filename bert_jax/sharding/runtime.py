"""Process settings around JAX: a quiet libtpu, the compilation cache, the C library's memory.

Imports JAX only in functions, so that `quiet_libtpu` can be called before JAX is imported.
"""

import ctypes
import functools
import hashlib
import importlib.util
import os
import platform
import sys
from pathlib import Path

# Values that libtpu would otherwise request from the network, with errors on stderr if nobody
# answers; and permission for several processes to load it, as no TPU needs exclusive access.
WITHOUT_TPU = {
    "ALLOW_MULTIPLE_LIBTPU_LOAD": "1",
    "TPU_SKIP_MDS_QUERY": "1",
    "TPU_WORKER_HOSTNAMES": "localhost",
    "TPU_ACCELERATOR_TYPE": "v5litepod-8",
    "TPU_LOG_DIR": "disabled",
}
_GOOGLE, _NETWORK_CARD = "0x1ae0", "0x0042"

# Parameters of glibc's mallopt, and Linux's advice for pages of 2 MiB.
_M_TRIM_THRESHOLD = -1
_M_MMAP_MAX = -4
_MADV_HUGEPAGE = 14

_HUGE_PAGE = 1 << 21


def quiet_libtpu() -> None:
    """Keeps libtpu quiet on a machine without a TPU; must be called before JAX is imported.

    JAX then finds no TPU and uses the other devices.
    """
    if importlib.util.find_spec("libtpu") and not has_tpu():
        for name, value in WITHOUT_TPU.items():
            os.environ.setdefault(name, value)


def has_tpu(devices: Path = Path("/sys/bus/pci/devices")) -> bool:
    """Whether the machine has a PCI device by Google that is not a network card."""
    return any(
        vendor.read_text().strip() == _GOOGLE
        and (vendor.parent / "device").read_text().strip() != _NETWORK_CARD
        for vendor in devices.glob("*/vendor")
    )


def use_compilation_cache() -> None:
    """Stores compiled programs in the user's cache directory: a second start compiles nothing.

    `JAX_COMPILATION_CACHE_DIR` names another directory, as usual in JAX; set to the empty string,
    it disables the cache. A program for one kind of processor may not run on another that shares
    the home directory, so each kind has its own folder.
    """
    import jax

    from bert_jax.errors import UserError
    from bert_jax.files import user_cache

    if "JAX_COMPILATION_CACHE_DIR" in os.environ:
        return
    try:
        directory = user_cache() / "compiled" / _processor()
        directory.mkdir(parents=True, exist_ok=True)
    except (OSError, UserError):
        return  # the home directory is missing or not writable: compile each time
    jax.config.update("jax_compilation_cache_dir", str(directory))
    # Programs that compile faster than this are not worth a file.
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.5)


def _processor() -> str:
    """8 hex digits that identify the kind of processor."""
    features = " ".join(sorted(cpu_flags())) or platform.processor()
    return hashlib.sha256(f"{platform.machine()} {features}".encode()).hexdigest()[:8]


def multiplies_bfloat16() -> bool:
    """Whether this machine's CPU multiplies bfloat16 faster than float32."""
    return not cpu_flags().isdisjoint(("avx512_bf16", "amx_bf16"))


@functools.cache
def cpu_flags(cpuinfo: Path = Path("/proc/cpuinfo")) -> frozenset[str]:
    """The CPU features of this machine under Linux's names; empty on other systems."""
    try:
        lines = cpuinfo.read_text(encoding="utf-8").splitlines()
    except OSError:
        return frozenset()
    # ARM writes Features.
    line = next((line for line in lines if line.startswith(("flags", "Features"))), "")
    return frozenset(line.partition(":")[2].split())


@functools.cache
def keep_freed_memory() -> None:
    """Keeps freed memory in the process, in pages of 2 MiB where Linux grants them.

    Activations are allocated and freed in each batch. By default the C library returns large blocks
    to the system, and the next batch waits until their pages have been cleared again. The command
    `bert-jax` sets the same by the environment variable GLIBC_TUNABLES; where that is set, to
    anything, nothing is changed here.
    """
    is_glibc = sys.platform == "linux" and platform.libc_ver()[0] == "glibc"
    if not is_glibc or "GLIBC_TUNABLES" in os.environ:
        return
    libc = ctypes.CDLL(None)
    libc.mallopt(_M_MMAP_MAX, 0)
    libc.mallopt(_M_TRIM_THRESHOLD, -1)  # never
    libc.malloc.restype = ctypes.c_void_p
    libc.malloc.argtypes = [ctypes.c_size_t]
    libc.free.argtypes = [ctypes.c_void_p]
    libc.madvise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
    # The advice is for addresses, which later blocks have, too. No page of this block is used.
    size = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2
    block = libc.malloc(size)
    if block:
        start = -(-block // _HUGE_PAGE) * _HUGE_PAGE
        libc.madvise(start, block + size - start, _MADV_HUGEPAGE)
        libc.free(block)

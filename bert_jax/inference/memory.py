"""The C library's memory in a Python program that computes on a CPU."""

import ctypes
import functools
import os
import platform
import sys

# Parameters of glibc's mallopt, and Linux's advice for pages of 2 MiB.
_M_TRIM_THRESHOLD = -1
_M_MMAP_MAX = -4
_MADV_HUGEPAGE = 14

_HUGE_PAGE = 1 << 21


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

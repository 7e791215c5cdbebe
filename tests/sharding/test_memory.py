"""The memory of a program that uses the package."""

import os
import platform
import subprocess
import sys

import pytest

pytestmark = pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="glibc's settings")

# The resident memory, in MiB, before, with and after a block of 256 MiB; its huge pages.
PROGRAM = """
import ctypes, pathlib
from bert_jax.sharding.runtime import keep_freed_memory

def resident():
    status = pathlib.Path("/proc/self/status").read_text()
    return int(status.split("VmRSS:")[1].split()[0]) // 1024

keep_freed_memory()
libc = ctypes.CDLL(None)
libc.malloc.restype = ctypes.c_void_p
libc.malloc.argtypes = libc.free.argtypes = [ctypes.c_size_t]
before = resident()
block = libc.malloc(256 << 20)
ctypes.memset(block, 1, 256 << 20)
used = resident()
libc.free(block)
huge = sum(
    int(line.split()[1])
    for line in pathlib.Path("/proc/self/smaps").read_text().splitlines()
    if line.startswith("AnonHugePages:")
)
print(used - before, resident() - before, huge // 1024)
"""


def sizes(**settings):
    environment = {name: value for name, value in os.environ.items() if name != "GLIBC_TUNABLES"}
    program = [sys.executable, "-c", PROGRAM]
    output = subprocess.check_output(program, env=environment | settings, text=True)
    return tuple(map(int, output.split()))


def test_freed_memory_stays_in_the_process_unless_the_user_sets_another_rule():
    used, after, huge = sizes()
    assert min(used, after) >= 256
    with open("/sys/kernel/mm/transparent_hugepage/enabled") as file:
        is_off = "[never]" in file.read()
    assert is_off or huge > 0
    used, after, _ = sizes(GLIBC_TUNABLES="")
    assert used >= 256 > 50 > after

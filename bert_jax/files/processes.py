"""Processes that outlive their number: which one it was, and whether it still runs."""

import dataclasses
import functools
import os
import socket
import subprocess
from pathlib import Path


@dataclasses.dataclass(frozen=True, slots=True)
class ProcessIdentity:
    """A process, in a form that other processes and hosts can compare.

    Attributes:
        host: name of its host, for messages: containers often share one.
        machine: the running kernel and the space of process numbers, in which `pid` is unique.
        pid: process number, which the kernel uses again after the process has ended.
        started: when it started, in the kernel's own form.
    """

    host: str
    machine: str
    pid: int
    started: str

    @property
    def is_local(self) -> bool:
        """Whether it runs, or ran, where `is_running` can be answered from here."""
        return self.machine == _machine()

    @property
    def is_running(self) -> bool:
        """Whether it still runs; only for a local one."""
        if (started := _start_time(self.pid)) is not None:
            return started == self.started
        try:
            os.kill(self.pid, 0)
        except ProcessLookupError:
            return False
        except PermissionError:
            pass  # of another user, and hidden from this one
        return True


def this_process() -> ProcessIdentity:
    """The calling process."""
    pid = os.getpid()
    return ProcessIdentity(socket.gethostname(), _machine(), pid, _start_time(pid) or "")


@functools.cache
def _machine() -> str:
    """The boot of the kernel and the namespace of process numbers, else the name of the host."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        return f"{boot} {os.readlink('/proc/self/ns/pid')}"
    except OSError:
        return socket.gethostname()


def _start_time(pid: int) -> str | None:
    """When a running process started, "" if it has ended; None if that cannot be seen."""
    try:
        # The second field, the name of the program, may contain spaces and brackets.
        fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
        return "" if fields[0] in "ZX" else fields[19]  # nobody has asked for its exit code yet
    except (OSError, IndexError):
        pass
    try:
        command = ["ps", "-o", "lstart=", "-p", str(pid)]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return None

"""Work in processes of its own, which can be killed, and whose disk can fail.

A process begins as a copy of one that has imported everything, so that it starts in a fraction of
a second; `cold` ones start as a user's do. Under it lies the layer of `faults.c` where a C compiler
is at hand.
"""

import contextlib
import ctypes
import enum
import functools
import json
import multiprocessing
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from typing import NamedTuple

REPOSITORY = Path(__file__).parents[2]
_OF_THE_INTERPRETER = re.compile(
    r"Traceback \(most recent|Exception (in thread|ignored)|never awaited|Fatal Python error"
)
# Seconds after which a process counts as hanging.
PATIENCE = 300.0

_IMPORTED = (
    *("tests.campaign.processes", "bert_jax.cli", "bert_jax.experiment", "bert_jax.workdir"),
    *("bert_jax.inference.loading", "bert_jax.inference.predict", "bert_jax.training.loop"),
    *("tensorflow", "matplotlib.figure", "tensorboardX", "sentencepiece", "tokenizers"),
    "bert_jax.data.pretraining.preparation.prepare",
)


class Mode(enum.IntEnum):
    """What happens to a process at a change of its files; the numbers are those of `faults.c`."""

    COUNT = 0
    KILL = 1
    REFUSE = 2
    READONLY = 3
    FULL = 4


class Fault(NamedTuple):
    """A fault below a directory: at which change, or after how many bytes."""

    mode: Mode = Mode.COUNT
    number: int = 0


NO_FAULT = Fault()


class Ended(NamedTuple):
    """How a process ended.

    Attributes:
        code: exit code; negative for a signal; None if it had to be ended after `PATIENCE`.
        output: its output.
        errors: its messages.
        changes: changes of files below the directory; 0 if it was killed.
        seconds: its duration.
    """

    code: int | None
    output: str
    errors: str
    changes: int
    seconds: float

    @property
    def hangs(self) -> bool:
        return self.code is None

    @property
    def has_traceback(self) -> bool:
        """Whether the interpreter or a library has printed an error or a warning of its own."""
        return _OF_THE_INTERPRETER.search(self.errors) is not None

    @property
    def last_line(self) -> str:
        return self.errors.strip().splitlines()[-1] if self.errors.strip() else ""


class Process:
    """Work that runs in another process."""

    def __init__(self, work: Callable[[], int], place: Path, fault: Fault = NO_FAULT) -> None:
        """Starts it; faults are those of files below `place`."""
        self._record = Path(tempfile.mkdtemp(prefix="bert-jax-campaign-"))
        self._begun = time.monotonic()
        arguments = (work, place, fault, self._record)
        self._process: ForkServerProcess = _context().Process(target=_run, args=arguments)
        self._process.start()

    def kill(self) -> None:
        self._process.kill()

    def is_running(self) -> bool:
        return self._process.is_alive()

    def wait(self, seconds: float = PATIENCE) -> Ended:
        """Waits for the end, and ends a process that hangs."""
        self._process.join(seconds)
        code = self._process.exitcode
        if code is None:
            self.kill()
            self._process.join()
        duration = time.monotonic() - self._begun
        output, errors = (_text(self._record / name) for name in ("output", "errors"))
        changes = json.loads(_text(self._record / "changes") or "0")
        shutil.rmtree(self._record, ignore_errors=True)
        return Ended(code, output, errors, changes, duration)


def run(
    work: Callable[[], int], place: Path, fault: Fault = NO_FAULT, seconds: float = PATIENCE
) -> Ended:
    """Runs work to its end."""
    return Process(work, place, fault).wait(seconds)


def verb(*arguments: object) -> Callable[[], int]:
    """A command line as work."""
    return functools.partial(_verb, [str(argument) for argument in arguments])


def kill_cold(arguments: Sequence[str], seconds: float) -> bool:
    """Starts `python -m bert_jax …` and kills it after a time; False if it ended before."""
    command = [sys.executable, "-m", "bert_jax", *arguments]
    nowhere = subprocess.DEVNULL
    with subprocess.Popen(command, stdout=nowhere, stderr=nowhere, cwd=REPOSITORY) as process:
        try:
            process.wait(seconds)
        except subprocess.TimeoutExpired:
            process.kill()
            return True
    return False


@functools.cache
def layer() -> Path | None:
    """The layer of `faults.c`, compiled; None without a C compiler or on another system."""
    if sys.platform != "linux" or shutil.which("cc") is None:
        return None
    library = Path(tempfile.mkdtemp(prefix="bert-jax-faults-")) / "faults.so"
    source = Path(__file__).with_name("faults.c")
    command = ["cc", "-shared", "-fPIC", "-O1", "-o", str(library), str(source), "-ldl"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return library if done.returncode == 0 else None


@functools.cache
def _context() -> multiprocessing.context.ForkServerContext:
    """The process that others begin as copies of, started at the first use."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "0")
    # All programs are small: each is compiled once.
    os.environ["JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"] = "0"
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(list(_IMPORTED))
    library = layer()
    with contextlib.ExitStack() as after:
        if library is not None:
            before = os.environ.get("LD_PRELOAD")
            os.environ["LD_PRELOAD"] = str(library)
            after.callback(_set, "LD_PRELOAD", before)
        multiprocessing.forkserver.ensure_running()
    return context


def _set(name: str, value: str | None) -> None:
    os.environ.pop(name, None)
    if value is not None:
        os.environ[name] = value


def _run(work: Callable[[], int], place: Path, fault: Fault, record: Path) -> None:
    """The whole life of a process."""
    for name, number in (("output", 1), ("errors", 2)):
        with open(record / name, "wb") as file:
            os.dup2(file.fileno(), number)
    library = ctypes.CDLL(None)
    is_counted = hasattr(library, "faults_begin")
    if is_counted:
        library.faults_begin.argtypes = (ctypes.c_char_p, ctypes.c_int, ctypes.c_long)
        library.faults_begin(os.fsencode(place), int(fault.mode), fault.number)
    try:
        code = work()
    finally:
        if is_counted:
            count = library.faults_count()
            library.faults_begin(b"", 0, 0)
            (record / "changes").write_text(str(count))
    sys.exit(code)


def _verb(arguments: list[str]) -> int:
    from bert_jax import cli

    return cli.main(arguments)


def _text(path: Path) -> str:
    return path.read_text(errors="replace") if path.exists() else ""

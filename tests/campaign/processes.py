"""Work in processes of its own, which can be killed, and whose disk can fail.

A process begins as a copy of one that has imported everything, so that it starts in a fraction of
a second. Under it lies the layer of `faults.c` where a C compiler is at hand.
"""

import ctypes
import enum
import functools
import multiprocessing
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

Work = Callable[[], int]
_OF_THE_INTERPRETER = re.compile(
    r"Traceback \(most recent|Exception (in thread|ignored)|never awaited|Fatal Python error"
)
_PATIENCE = 600.0  # seconds after which a process counts as hanging
_IMPORTED = ["tests.campaign.processes", "bert_jax.cli", "bert_jax.experiment",
             "bert_jax.inference.predict", "bert_jax.data.pretraining.preparation.prepare",
             "tensorflow", "matplotlib.figure", "tensorboardX", "sentencepiece"]  # fmt: skip


class Mode(enum.IntEnum):
    """What happens at a change of a file; the numbers are those of `faults.c`."""

    COUNT = 0
    KILL = 1
    REFUSE = 2
    READONLY = 3
    FULL = 4


class Ended(NamedTuple):
    """How a process ended; `code` is None if it hung, `changes` 0 if it was killed."""

    code: int | None
    output: str
    errors: str
    changes: int
    seconds: float

    def problem(self, *codes: int) -> str:
        """What is wrong with its end unless it has one of these exit codes and no traceback."""
        last = (self.errors.strip().splitlines() or [""])[-1]
        if _OF_THE_INTERPRETER.search(self.errors):
            return f"traceback: {last}"
        return "" if self.code in codes else f"exit code {self.code}: {last}"


def run(
    work: Work, directory: Path, mode: Mode = Mode.COUNT, number: int = 0, *, seconds: float = 0.0
) -> Ended:
    """Runs work to its end, or kills it after some seconds.

    Args:
        work: returns the exit code.
        directory: a fault is one of files below it.
        mode: what happens.
        number: at which change, or after how many bytes.
        seconds: 0 for no kill.
    """
    record = Path(tempfile.mkdtemp(prefix="bert-jax-campaign-"))
    began = time.monotonic()
    process = _context().Process(target=_run, args=(work, directory, mode, number, record))
    process.start()
    process.join(seconds or _PATIENCE)
    is_running = process.exitcode is None
    process.kill()
    process.join()
    code = None if is_running and not seconds else process.exitcode
    duration = time.monotonic() - began
    paths = [record / name for name in ("output", "errors", "changes")]
    texts = [path.read_text(errors="replace") if path.exists() else "" for path in paths]
    shutil.rmtree(record, ignore_errors=True)
    return Ended(code, *texts[:2], int(texts[2] or "0"), duration)


def verb(*arguments: object) -> Work:
    """A command line as work."""
    return functools.partial(_verb, [str(argument) for argument in arguments])


def _verb(arguments: list[str]) -> int:
    from bert_jax import cli
    from bert_jax.files import journal

    journal.RECORD_SECONDS = 0.0  # after every window of 64 texts, or evaluated batch
    return cli.main(arguments)


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
    # All programs are small: each is compiled once.
    os.environ["JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"] = "0"
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(_IMPORTED)
    before = os.environ.get("LD_PRELOAD", "")
    os.environ["LD_PRELOAD"] = str(layer() or before)
    multiprocessing.forkserver.ensure_running()
    os.environ["LD_PRELOAD"] = before
    return context


def _run(work: Work, directory: Path, mode: Mode, number: int, record: Path) -> None:
    """The whole life of a process."""
    for name, descriptor in (("output", 1), ("errors", 2)):
        with open(record / name, "wb") as file:
            os.dup2(file.fileno(), descriptor)
    library = ctypes.CDLL(None)
    if not hasattr(library, "faults_begin"):
        sys.exit(work())
    library.faults_begin.argtypes = (ctypes.c_char_p, ctypes.c_int, ctypes.c_long)
    library.faults_begin(os.fsencode(directory), int(mode), number)
    try:
        code = work()
    finally:
        count = library.faults_count()
        library.faults_begin(b"", 0, 0)
        (record / "changes").write_text(str(count))
    sys.exit(code)

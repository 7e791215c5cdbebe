"""Contenders in alternating rounds, each in a process of its own; results are kept as files."""

import argparse
import contextlib
import dataclasses
import datetime
import json
import os
import platform
import selectors
import shutil
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bert_jax.errors import UserError
from bert_jax.files import write_atomically

ROOT = Path(__file__).parents[1]
# The memory settings of `bert-jax`: all contenders have them.
GLIBC_TUNABLES = (
    "glibc.malloc.hugetlb=1"
    ":glibc.malloc.mmap_threshold=68719476736"
    ":glibc.malloc.trim_threshold=68719476736"
)
Figures = dict[str, Any]


@dataclasses.dataclass(frozen=True)
class Work:
    """What is measured.

    Attributes:
        what: one line.
        contenders: the setup of each, "module:function" or a command line (see `commands.py`); the
            first one is the reference of ratios. A function takes the options and prepares the
            work; it returns a step, which takes the number of its round and may return figures.
        options: their names and default values; a type as value must be replaced.
        rounds: rounds that count; commands have their number, from 0, as a seed.
        fresh: whether every turn has a new process; if not, the first round does not count.
        prepare: a function of `samples.py` that adds options of command lines.
        figures: what is taken of the JSON that command lines print.
        rate: the figure that is shown per second.
        limits: the greatest value of the figures whose names end so.
    """

    what: str
    contenders: Mapping[str, str]
    options: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    rounds: int = 3
    fresh: bool = False
    prepare: str = ""
    figures: tuple[str, ...] = ()
    rate: str = ""
    limits: Mapping[str, float] = dataclasses.field(default_factory=dict)


class ContenderError(Exception):
    """A contender has ended, or takes too long."""


class Contender:
    """A process that does steps on request, see `contender.py`.

    Attributes:
        versions: of the libraries that it has imported.
    """

    def __init__(self, setup: str, options: Figures, python: str, log: Path, end: float) -> None:
        """Starts it and waits until it is prepared; `end` is a time of `time.monotonic`."""
        self._log, self._end = log, end
        spec = json.dumps({"setup": setup, "options": options})
        with log.open("w", encoding="utf-8") as errors:
            self._process = subprocess.Popen(
                [python, "-m", "benchmarks.contender", spec],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                env=environment(),
                start_new_session=True,
            )
        try:
            self.versions: dict[str, str] = self._answer()
        except BaseException:
            self.stop()
            raise

    def turn(self, number: int, steps: int) -> Figures:
        """Its steps in a round: the medians of their figures."""
        assert self._process.stdin is not None
        # To write to a process that has ended is an error, to read nothing from it is none.
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.write(f"{number} {steps}\n".encode())
            self._process.stdin.flush()
        done = self._answer()
        return {name: statistics.median(step[name] for step in done) for name in done[-1]}

    def stop(self) -> None:
        """Ends the process and those that it has started."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.communicate()

    def _answer(self) -> Any:
        output = self._process.stdout
        assert output is not None
        left = self._end - time.monotonic()
        with selectors.DefaultSelector() as selector:
            selector.register(output, selectors.EVENT_READ)
            if not selector.select(None if left == float("inf") else max(0.0, left)):
                raise ContenderError("too slow")
        if line := output.readline():
            return json.loads(line)
        self._process.wait()  # until its last line is in the log
        lines = self._log.read_text(encoding="utf-8", errors="replace").strip().splitlines()
        raise ContenderError(f"{lines[-1] if lines else 'no message'} (see {self._log})")


def environment() -> dict[str, str]:
    """The variables of a contender: parity needs the CPU, too, and contenders share a GPU."""
    variables = {
        "GLIBC_TUNABLES": GLIBC_TUNABLES,
        "HF_HUB_OFFLINE": "1",
        "XLA_PYTHON_CLIENT_PREALLOCATE": "false",
        **os.environ,
    }
    paths = (str(ROOT), variables.get("PYTHONPATH", ""))
    variables["PYTHONPATH"] = os.pathsep.join(filter(None, paths))
    if platforms := variables.get("JAX_PLATFORMS"):
        variables["JAX_PLATFORMS"] = ",".join(dict.fromkeys((*platforms.split(","), "cpu")))
    return variables


def machine() -> dict[str, str]:
    """Processor, GPU, Python, commit and date."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.is_file() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    query = ("nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader")
    return {
        "processor": f"{names[0] if names else platform.processor()}, {os.cpu_count()} cores",
        "gpu": _first_line(*query),
        "python": platform.python_version(),
        "commit": _first_line("git", "-C", str(ROOT), "rev-parse", "--short", "HEAD"),
        "date": datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d"),
    }


def _first_line(*command: str) -> str:
    if shutil.which(command[0]) is None:
        return ""
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=20)
    return (done.stdout.splitlines() or [""])[0]


def measure(
    name: str, work: Work, options: Figures, settings: argparse.Namespace, seconds: float
) -> Any:
    """The result of a work, from its file if it is complete.

    Args:
        name: of the file.
        work: what is measured.
        options: of its contenders.
        settings: of the command line: `output`, `contenders` (None: all), `rounds` (None: the
            work's), `steps` (of a turn; their median counts), `peer_python`, `more` (words).
        seconds: after these it ends.

    Returns:
        `settings`, `machine`, `versions`, `rounds` (for each contender a list of the figures of its
        turns) and `left_out` (for each other contender the reason).

    Raises:
        UserError: the file has other settings.
    """
    output = settings.output.resolve()
    contenders = settings.contenders or list(work.contenders)
    rounds = settings.rounds or work.rounds
    asked = {"options": options, "contenders": contenders, "rounds": rounds}
    asked |= {key: getattr(settings, key) for key in ("steps", "peer_python", "more")}
    path = output / f"{name}.json"
    result: Any = {"settings": asked, "machine": machine(), "versions": {}, "left_out": {}}
    result["rounds"] = {one: [] for one in contenders}
    if path.is_file():
        stored = json.loads(path.read_text(encoding="utf-8"))
        if stored["settings"] != asked:
            raise UserError(f"{path} was made with other settings; use another --output")
        result = stored if contenders[0] not in stored["left_out"] else result
    end = time.monotonic() + seconds
    running: dict[str, Contender] = {}

    def start(one: str) -> Contender:
        setup = work.contenders[one]
        own = options | {"name": name, "contender": one, "output": str(output)}
        if " " in setup:
            own |= {"command": [setup, *settings.more], "prepare": work.prepare}
            own |= {"figures": work.figures, "peer_python": settings.peer_python}
            setup = "benchmarks.commands:command"
        python = settings.peer_python if setup.startswith("benchmarks.peers") else sys.executable
        return Contender(setup, own, python, output / f"{name}-{one}.log", end)

    def turn(one: str, number: int) -> None:
        try:
            running[one] = running.get(one) or start(one)
            figures = running[one].turn(number, settings.steps)
        except ContenderError as error:
            print(f"{name}: {one} is left out: {error}", file=sys.stderr, flush=True)
            result["left_out"][one] = str(error)
        else:
            result["versions"] |= running[one].versions
            result["rounds"][one] += [figures] if number >= 0 else []
        if one in running and (work.fresh or one in result["left_out"]):
            running.pop(one).stop()

    done = len(result["rounds"][contenders[0]])
    try:
        # The first round of processes that live on compiles.
        for number in range(done if work.fresh or done == rounds else -1, rounds):
            print(f"{name}: round {number + 1} of {rounds}", file=sys.stderr, flush=True)
            order = [one for one in contenders if one not in result["left_out"]]
            # Of two equal processes, the first one to start led in the first round.
            for one in order if work.fresh or number % 2 else reversed(order):
                turn(one, number)
            is_last = number + 1 == rounds or contenders[0] in result["left_out"]
            if work.fresh or is_last:
                text = json.dumps(result, indent=1, ensure_ascii=False) + "\n"
                write_atomically(path, text.encode())
            if is_last:
                break
    finally:
        for contender in running.values():
            contender.stop()
    return result

"""Contenders that are whole commands: their time, memory, compiling, and figures of their JSON."""

import argparse
import contextlib
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

from benchmarks import samples
from benchmarks.contender import Step

INTERVAL = 0.25  # seconds between two samples of the memory


def command(options: argparse.Namespace) -> Step:
    """A command line, as `bert-jax train --workdir {run} --config.seed={seed}`.

    Braces stand for options; for `run`, a directory of its own below `output`; and for `seed`, the
    number of the round. Compiled programs are kept in `output`: the first round compiles, the
    others load its programs. The figures are those of the last line of its output, an object of
    JSON; MiB of all its processes, the most and after a tenth of the time; and compiling seconds.
    """
    values = vars(options)
    if options.prepare:
        values |= getattr(samples, options.prepare)(options)

    def step(number: int) -> dict[str, Any]:
        run = Path(options.output, "runs", f"{options.name}-{options.contender}-{number}")
        shutil.rmtree(run, ignore_errors=True)  # what was begun would be timed wrongly
        run.parent.mkdir(parents=True, exist_ok=True)
        template, *more = options.command
        words = shlex.split(template.format(**values, run=run, seed=number))
        program = {"bert-jax": [sys.executable, "-m", "bert_jax"], "peer": [options.peer_python]}
        cache = {"XDG_CACHE_HOME": str(Path(options.output, "cache")), "JAX_LOG_COMPILES": "1"}
        log = Path(f"{run}.log")
        with log.open("w") as errors:
            process = subprocess.Popen(
                [*program[words[0]], *words[1:], *more],
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                env=os.environ | cache,
            )
            output, memory = None, []
            while output is None:
                memory.append(sum(map(resident_bytes, descendants(process.pid))) >> 20)
                with contextlib.suppress(subprocess.TimeoutExpired):
                    output, _ = process.communicate(timeout=INTERVAL)
        text = log.read_text(errors="replace").strip()
        if process.returncode:
            sys.exit(
                f"{shlex.join(words)} ended with {process.returncode}: {text.splitlines()[-1]}"
            )
        shutil.rmtree(run / "checkpoints", ignore_errors=True)
        seconds = re.findall(r"Finished XLA compilation of .* in (\S+) sec", text)
        printed = json.loads((output.strip().splitlines() or ["{}"])[-1]) if options.figures else {}
        figures = {name: printed.get(name) for name in options.figures}
        figures = {name: value for name, value in figures.items() if value is not None}
        figures |= {"MiB": max(memory), "MiB of a tenth": memory[len(memory) // 10]}
        return figures | {"compiling s": round(sum(map(float, seconds)), 1)}

    return step


def descendants(pid: int) -> list[int]:
    """A process and those that it has started, on Linux."""
    try:
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    except OSError:
        return []
    return [pid, *(each for child in children for each in descendants(int(child)))]


def resident_bytes(pid: int) -> int:
    """The resident memory of a process, 0 if it has ended."""
    try:
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, IndexError):
        return 0

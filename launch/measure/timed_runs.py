"""Timed commands, with a JSON file for each result, so that none runs twice."""

import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from bert_jax.errors import UserError
from bert_jax.files import write_atomically

# Lines of a log that are shown when a command fails.
SHOWN = 15


def once(path: Path, settings: Mapping[str, Any], work: Callable[[], dict[str, Any]]) -> Any:
    """The result of `work`, from its file if it has been done.

    Args:
        path: the file; holds the settings, too.
        settings: what the result depends on.
        work: returns an object of JSON.

    Raises:
        UserError: the file was made with other settings.
    """
    settings = json.loads(json.dumps(settings))
    if path.is_file():
        stored = json.loads(path.read_text(encoding="utf-8"))
        if stored["settings"] != settings:
            raise UserError(f"{path} was made with other settings; use another --output")
        return stored
    path.parent.mkdir(parents=True, exist_ok=True)
    result = {"settings": settings, **work()}
    write_atomically(path, (json.dumps(result, indent=2) + "\n").encode())
    return result


def run(
    command: Sequence[str], log: Path, environment: Mapping[str, str] | None = None
) -> tuple[str, dict[str, float]]:
    """Runs a command to its end.

    Args:
        command: program and arguments.
        log: gets what it writes to stderr.
        environment: more variables.

    Returns:
        What it wrote to stdout; and `seconds` of the clock, and `processor_seconds`, which other
        work on the machine changes less.

    Raises:
        UserError: it failed; with the end of the log.
    """
    log.parent.mkdir(parents=True, exist_ok=True)
    before = os.times()
    start = time.perf_counter()
    with log.open("w", encoding="utf-8") as errors:
        process = subprocess.run(
            command,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            env={**os.environ, **(environment or {})},
            check=False,
        )
    seconds = time.perf_counter() - start
    after = os.times()
    if process.returncode:
        print(*log.read_text(encoding="utf-8").splitlines()[-SHOWN:], sep="\n", file=sys.stderr)
        raise UserError(f"{' '.join(command)} ended with {process.returncode}; see {log}")
    used = (after.children_user - before.children_user) + (
        after.children_system - before.children_system
    )
    return process.stdout, {"seconds": seconds, "processor_seconds": used}


def last_json(output: str) -> Any:
    """The last line of a command's output, which is JSON."""
    return json.loads(output.strip().splitlines()[-1])


def mean_and_deviation(values: Sequence[float], digits: int) -> str:
    """As `0.853 ± 0.006`: the mean, and the deviation of a sample where there are several."""
    mean = f"{statistics.fmean(values):.{digits}f}"
    return f"{mean} ± {statistics.stdev(values):.{digits}f}" if len(values) > 1 else mean


def markdown(header: Iterable[str], rows: Iterable[Iterable[str]], *, texts: int = 1) -> str:
    """A table; the first `texts` columns are text, the others are numbers."""
    names = list(header)
    rule = ["---" if column < texts else "---:" for column in range(len(names))]
    lines = [names, rule, *map(list, rows)]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)

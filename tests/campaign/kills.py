"""Kills verbs at random moments and runs them again: the results are those of undisturbed runs.

    python -m tests.campaign.kills --count 100 --seed 0

A kill is a SIGKILL: after a random time, instead of a random change of a file (a write, a rename,
…), or during the start of a real `python -m bert_jax`. The same command is run again, and may be
killed again, until it ends. Prints a line per finding and a summary as JSON; exits with 1 if
there are findings.
"""

import argparse
import collections
import json
import random
import shutil
import socket
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from bert_jax.files.manifest import MANIFEST
from tests.campaign.cases import (
    Case,
    cases,
    differences,
    make_materials,
    pretrain_on_hosts,
    result_of,
)
from tests.campaign.processes import Ended, Fault, Mode, Process, kill_cold, layer, run

NAMES = (
    *("pretrain", "hosts", "finetune", "prepare", "predict", "evaluate", "export", "convert"),
    *("predict again", "evaluate again", "export again", "convert again"),
)
# How often each case is drawn.
_WEIGHTS = {"pretrain": 6, "finetune": 3, "prepare": 3, "predict": 3, "hosts": 2}
_COLD_SECONDS = 12.0
_MOST_KILLS = 6


class Reference(NamedTuple):
    """An undisturbed run."""

    result: dict[str, bytes]
    seconds: float
    changes: int


class Campaign:
    """Kills and what they showed.

    Attributes:
        kills: number of kills, by case and way.
        ends: number of runs to the end, by case.
        findings: lines.
    """

    def __init__(self, root: Path, seed: int, names: Sequence[str]) -> None:
        """Makes what the named cases need, below a directory."""
        self.kills: collections.Counter[str] = collections.Counter()
        self.ends: collections.Counter[str] = collections.Counter()
        self.findings: list[str] = []
        self._root = root
        self._draw = random.Random(seed)
        self._references: dict[str, Reference] = {}
        self._chosen = list(names)
        make_materials(root / "materials", names)

    def run(self, count: int) -> None:
        """Kills at least so many times."""
        known = {case.name: case for case in cases(self._root / "materials")}
        chosen = self._chosen
        weights = [_WEIGHTS.get(name, 1) for name in chosen]
        # Each case once, then at random.
        turns = [*chosen]
        while self.kills.total() < count or turns:
            name = turns.pop(0) if turns else self._draw.choices(chosen, weights)[0]
            place = self._root / "place"
            shutil.rmtree(place, ignore_errors=True)
            place.mkdir()
            if name == "hosts":
                self._kill_host(place)
            else:
                self._kill(known[name], place)
            self.ends[name] += 1
            print(f"{self.kills.total()} kills, {self.ends.total()} ends", file=sys.stderr)

    def _kill(self, case: Case, place: Path) -> None:
        """One place: work, killed some times, and then to its end."""
        reference = self._reference(case)
        if case.again:
            run(case.work(place), place)
        ways = []
        while not ways or (len(ways) < _MOST_KILLS and self._draw.random() < 0.7):
            way = self._kill_once(case, place, reference)
            if way is None:
                break  # it ended before
            ways.append(way)
            self.kills[f"{case.name}: {way.split()[0]}"] += 1
            self._check_complete(case, place, reference, ways)
        self._check_end(case.name, run(case.work(place), place), ways)
        self._check_result(case.name, place, reference, ways)

    def _kill_once(self, case: Case, place: Path, reference: Reference) -> str | None:
        """Starts the work and kills it; how, or None if it ended before."""
        draw = self._draw
        way = draw.choices(("change", "time", "cold"), (6, 4, 1))[0]
        if way == "cold" and case.arguments is not None:
            seconds = draw.uniform(0, _COLD_SECONDS)
            killed = kill_cold(case.arguments(place), seconds)
            return f"cold {seconds:.2f} s" if killed else None
        if way == "change" and layer() is not None:
            number = draw.randint(1, max(reference.changes, 1))
            ended = run(case.work(place), place, Fault(Mode.KILL, number))
            self._check_killed(case.name, ended, f"change {number}")
            return f"change {number}" if ended.code == -9 else None
        seconds = draw.uniform(0, reference.seconds)
        process = Process(case.work(place), place)
        time.sleep(seconds)
        process.kill()
        ended = process.wait()
        return f"time {seconds:.2f} s" if ended.code == -9 else None

    def _check_killed(self, name: str, ended: Ended, way: str) -> None:
        """A process that was not killed in time must have ended well."""
        if ended.code not in (0, -9):
            self._found(name, [way], f"exit code {ended.code}: {ended.last_line}")

    def _check_complete(
        self, case: Case, place: Path, reference: Reference, ways: list[str]
    ) -> None:
        """What looks complete after a kill is complete."""
        for name in case.complete:
            if not (place / name).is_file():
                continue
            folder = name.rpartition("/")[0]
            for other, content in reference.result.items():
                path = place / other
                if path.name == MANIFEST:
                    continue  # it may hold the old and the new state of each file
                if other != name and not (folder and other.startswith(f"{folder}/")):
                    continue
                if "/checkpoints/" in other or other.endswith(("metrics.jsonl", "tensorboard")):
                    continue
                if not path.is_file() or path.read_bytes() != content:
                    self._found(case.name, ways, f"{name} exists, but {other} is not complete")

    def _check_end(self, name: str, ended: Ended, ways: list[str]) -> None:
        if ended.hangs:
            self._found(name, ways, "the next run hangs")
        elif ended.has_traceback:
            self._found(name, ways, f"traceback of the next run: {ended.last_line}")
        elif ended.code != 0:
            self._found(name, ways, f"the next run ends with {ended.code}: {ended.last_line}")

    def _check_result(self, name: str, place: Path, reference: Reference, ways: list[str]) -> None:
        different = differences(result_of(place), reference.result)
        if different:
            self._found(name, ways, "; ".join(different[:5]))

    def _kill_host(self, place: Path) -> None:
        """Two processes of a run, of which one is killed; then both again."""
        if "hosts" not in self._references:
            before = self._root / "hosts"
            before.mkdir()
            ends = [process.wait() for process in self._start_hosts(before)]
            if any(ended.code != 0 for ended in ends):
                raise RuntimeError(f"two processes fail: {[ended.errors for ended in ends]}")
            reference = Reference(result_of(before), ends[0].seconds, ends[0].changes)
            self._references["hosts"] = reference
        reference = self._references["hosts"]
        victim, seconds = self._draw.randrange(2), self._draw.uniform(0, reference.seconds)
        ways = [f"process {victim} after {seconds:.2f} s"]
        processes = self._start_hosts(place)
        time.sleep(seconds)
        processes[victim].kill()
        ends = [process.wait() for process in processes]
        if ends[victim].code != -9:
            return
        self.kills["hosts: time"] += 1
        other = ends[1 - victim]
        # The coordination service of JAX ends a process without it with SIGABRT and its own lines.
        if other.hangs or other.has_traceback or other.code not in (75, 0):
            self._found("hosts", ways, f"the other ends with {other.code}: {other.last_line}")
        for ended in [process.wait() for process in self._start_hosts(place)]:
            self._check_end("hosts", ended, ways)
        self._check_result("hosts", place, reference, ways)

    def _start_hosts(self, place: Path) -> list[Process]:
        with socket.create_server(("127.0.0.1", 0)) as server:
            port = server.getsockname()[1]
        materials = self._root / "materials"
        return [
            Process(pretrain_on_hosts(materials, place, port, number), place) for number in (0, 1)
        ]

    def _reference(self, case: Case) -> Reference:
        if case.name not in self._references:
            place = self._root / "undisturbed"
            shutil.rmtree(place, ignore_errors=True)
            place.mkdir()
            for _ in range(2 if case.again else 1):
                ended = run(case.work(place), place)
            if ended.code != 0:
                raise RuntimeError(f"{case.name} fails: {ended.errors}")
            self._references[case.name] = Reference(result_of(place), ended.seconds, ended.changes)
        return self._references[case.name]

    def _found(self, name: str, ways: list[str], what: str) -> None:
        line = f"{name} killed at {', '.join(ways)}: {what}"
        self.findings.append(line)
        print(line, flush=True)


def main() -> int:
    """Runs the campaign."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--count", type=int, default=100, help="number of kills")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--cases", nargs="*", default=NAMES, choices=NAMES, metavar="NAME")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="bert-jax-kills-") as root:
        campaign = Campaign(Path(root), options.seed, options.cases)
        campaign.run(options.count)
    summary = {
        "seed": options.seed,
        "kills": campaign.kills.total(),
        "runs_to_the_end": campaign.ends.total(),
        "findings": len(campaign.findings),
        "kills_by_way": dict(sorted(campaign.kills.items())),
    }
    print(json.dumps(summary))
    return 1 if campaign.findings else 0


if __name__ == "__main__":
    sys.exit(main())

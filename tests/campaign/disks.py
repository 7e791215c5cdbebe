"""Disks that fail under every verb: one line, exit code 2 or 75, and then the same bytes.

    python -m tests.campaign.disks --count 20 --seed 0

A disk fills up after a random number of bytes, becomes read-only at a random change of a file, or
refuses one change; for root, some are real file systems in memory. A bucket refuses all writes
from a random one on. Then the disk works again, and the same command is run to its end. A single
refused change may also do no harm. Prints a line per finding and a summary as JSON; exits with 1
if there are findings.
"""

import argparse
import collections
import contextlib
import functools
import json
import math
import os
import random
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from tests.campaign.cases import (
    Case,
    cases,
    differences,
    make_materials,
    pretrain_arguments,
    result_of,
    without_times,
)
from tests.campaign.processes import Ended, Fault, Mode, layer, run, verb
from tests.google_storage import Storage, google_storage

NAMES = ("pretrain", "finetune", "prepare", "predict", "export", "convert", "bucket")
_WEIGHTS = {"pretrain": 3, "prepare": 2, "export": 2}
_EXIT_CODES = (2, 75)
_MOUNTED_BYTES = 256 << 20


class Campaign:
    """Disks that fail, and what they showed.

    Attributes:
        tries: number of runs on a disk that fails, by case and way.
        unharmed: number of those that ended well in spite of a refused change.
        findings: lines.
    """

    def __init__(self, root: Path, seed: int, names: Sequence[str]) -> None:
        """Makes what the named cases need, below a directory."""
        self.tries: collections.Counter[str] = collections.Counter()
        self.unharmed = 0
        self.findings: list[str] = []
        self._root, self._names = root, list(names)
        self._draw = random.Random(seed)
        make_materials(root / "materials", ["export" if n == "bucket" else n for n in names])
        self._known = {case.name: case for case in cases(root / "materials")}
        self._references: dict[str, tuple[dict[str, bytes], int, int]] = {}

    def run(self, count: int) -> None:
        """Makes so many runs on a disk that fails: each case once, then at random."""
        turns = self._names[:count]
        while len(turns) < count:
            weights = [_WEIGHTS.get(name, 1) for name in self._names]
            turns.append(self._draw.choices(self._names, weights)[0])
        for name in turns:
            if name == "bucket":
                self._bucket()
            elif can_mount() and self._draw.random() < 0.3:
                self._mounted(self._known[name])
            else:
                self._layered(self._known[name])
            print(f"{self.tries.total()} tries", file=sys.stderr)

    def _layered(self, case: Case) -> None:
        """A disk of the layer in `faults.c`."""
        expected, size, changes = self._reference(case)
        mode = self._draw.choice((Mode.FULL, Mode.READONLY, Mode.REFUSE))
        number = self._draw.randint(0 if mode is Mode.FULL else 1, size if mode is Mode.FULL
                                    else changes)  # fmt: skip
        place = self._empty("place")
        ended = run(case.work(place), place, Fault(mode, number))
        way = f"{mode.name.lower()} {number}"
        self._check(case.name, way, ended, may_succeed=mode is Mode.REFUSE)
        self._check_end(case, place, way, expected)

    def _mounted(self, case: Case) -> None:
        """A file system in memory that is too small."""
        expected, size, _ = self._reference(case)
        place = self._empty("mounted")
        space = self._draw.randint(4096, max(4096, size))
        with mounted(place, space):
            way = f"mounted {space}"
            self._check(case.name, way, run(case.work(place), place), may_succeed=True)
            command = ["mount", "-o", f"remount,size={_MOUNTED_BYTES}", str(place)]
            subprocess.run(command, check=True)
            self._check_end(case, place, way, expected)

    def _bucket(self) -> None:
        """A bucket that refuses all writes from a random one on."""
        materials = self._root / "materials"
        if "bucket" not in self._references:
            storage = Storage("bucket")
            storage.writes_left = 1_000_000
            with google_storage(storage) as address:
                ended = run(bucket_work(address, materials), self._root)
            if ended.code != 0:
                raise RuntimeError(f"bucket fails: {ended.errors}")
            writes = 1_000_000 - int(storage.writes_left)
            self._references["bucket"] = objects_of(storage), 0, writes
        expected, _, writes = self._references["bucket"]
        storage = Storage("bucket")
        storage.writes_left = self._draw.randrange(writes)
        way = f"refused {storage.writes_left}"
        with google_storage(storage) as address:
            ended = run(bucket_work(address, materials), self._root)
            self._check("bucket", way, ended, may_succeed=False)
            storage.writes_left = math.inf
            ended = run(bucket_work(address, materials), self._root)
        if ended.code != 0:
            self._found("bucket", way, f"the next run ends with {ended.code}: {ended.last_line}")
        elif different := differences(objects_of(storage), expected):
            self._found("bucket", way, "; ".join(different[:5]))

    def _check(self, name: str, way: str, ended: Ended, *, may_succeed: bool) -> None:
        """One line, and the right exit code."""
        self.tries[f"{name}: {way.split()[0]}"] += 1
        if ended.code == 0 and may_succeed:
            self.unharmed += 1
            return
        # A progress bar may end with the line that a message begins in.
        lines = [line for line in ended.errors.splitlines() if "bert-jax: " in line]
        if ended.hangs:
            self._found(name, way, "hangs")
        elif ended.has_traceback:
            self._found(name, way, f"traceback: {ended.last_line}")
        elif ended.code not in _EXIT_CODES:
            self._found(name, way, f"exit code {ended.code}: {ended.last_line}")
        elif len(lines) != 1:
            self._found(name, way, f"{len(lines)} lines: {' | '.join(lines)[:300]}")
        else:
            print(f"{name}, {way}: {lines[0]}", file=sys.stderr)

    def _check_end(self, case: Case, place: Path, way: str, expected: dict[str, bytes]) -> None:
        """The same command on the disk that works again."""
        ended = run(case.work(place), place)
        if ended.code != 0:
            self._found(case.name, way, f"the next run ends with {ended.code}: {ended.last_line}")
        elif different := differences(result_of(place), expected):
            self._found(case.name, way, "; ".join(different[:5]))

    def _reference(self, case: Case) -> tuple[dict[str, bytes], int, int]:
        """The result of an undisturbed run, its size in bytes, and the number of changes."""
        if case.name not in self._references:
            place = self._empty("undisturbed")
            ended = run(case.work(place), place)
            if ended.code != 0:
                raise RuntimeError(f"{case.name} fails: {ended.errors}")
            size = sum(path.stat().st_size for path in place.rglob("*") if path.is_file())
            self._references[case.name] = result_of(place), size, ended.changes
        return self._references[case.name]

    def _empty(self, name: str) -> Path:
        place = self._root / name
        shutil.rmtree(place, ignore_errors=True)
        place.mkdir()
        return place

    def _found(self, name: str, way: str, what: str) -> None:
        self.findings.append(f"{name} on a disk that is {way}: {what}")
        print(self.findings[-1], flush=True)


def bucket_work(address: str, materials: Path) -> Callable[[], int]:
    """The pre-training with its work directory in a bucket."""
    return functools.partial(_in_bucket, address, materials)


def _in_bucket(address: str, materials: Path) -> int:
    os.environ |= {
        "STORAGE_EMULATOR_HOST": address,
        "TENSORSTORE_GCS_HTTP_URL": address,
        "GOOGLE_CLOUD_PROJECT": "project",
        "GCSFS_EXPERIMENTAL_ZB_HNS_SUPPORT": "false",
    }
    return verb(*pretrain_arguments(materials, "gs://bucket/run"))()


def objects_of(storage: Storage) -> dict[str, bytes]:
    """The objects of a finished run, without those of orbax and the event files."""
    return {
        name: without_times(stored.content.decode()) if name.endswith(".jsonl") else stored.content
        for (_, name), stored in storage.objects.items()
        if "/checkpoints/" not in name and "/tensorboard/" not in name
    }


@functools.cache
def can_mount() -> bool:
    """Whether file systems in memory can be mounted, as for root on Linux."""
    with tempfile.TemporaryDirectory() as place:
        command = ["mount", "-t", "tmpfs", "-o", "size=1m", "none", place]
        try:
            done = subprocess.run(command, capture_output=True, check=False)
        except FileNotFoundError:
            return False
        if done.returncode == 0:
            subprocess.run(["umount", place], check=True)
        return done.returncode == 0


@contextlib.contextmanager
def mounted(place: Path, size: int) -> Iterator[None]:
    """A file system in memory."""
    command = ["mount", "-t", "tmpfs", "-o", f"size={size}", "none", str(place)]
    subprocess.run(command, check=True)
    try:
        yield
    finally:
        subprocess.run(["umount", str(place)], check=True)


def main() -> int:
    """Runs the campaign."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--count", type=int, default=20, help="number of runs on a failing disk")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--cases", nargs="*", default=NAMES, choices=NAMES, metavar="NAME")
    options = parser.parse_args()
    if layer() is None:
        parser.error("needs Linux and a C compiler")
    with tempfile.TemporaryDirectory(prefix="bert-jax-disks-") as root:
        campaign = Campaign(Path(root), options.seed, options.cases)
        campaign.run(options.count)
    summary = {
        "seed": options.seed,
        "tries": campaign.tries.total(),
        "unharmed": campaign.unharmed,
        "findings": len(campaign.findings),
        "tries_by_way": dict(sorted(campaign.tries.items())),
    }
    print(json.dumps(summary))
    return 1 if campaign.findings else 0


if __name__ == "__main__":
    sys.exit(main())

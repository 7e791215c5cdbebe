"""Kills and failing disks under every verb that writes: the next run gives the same bytes.

A kill is a SIGKILL after a random time, or in place of a random change of a file (a write, a
rename, …). A disk fills up after a random number of bytes, becomes read-only at a random change, or
refuses one change; a bucket refuses all writes from a random one on: that ends in one line and exit
code 2 or 75. `CAMPAIGN=100` makes so many tries of each test, `CAMPAIGN_SEED` other ones.
"""

import functools
import math
import os
import random
import shutil
from pathlib import Path

import pytest

from bert_jax.files.manifest import MANIFEST
from tests.campaign.cases import (
    cases,
    comparable,
    contents,
    differences,
    make_materials,
    pretrain,
)
from tests.campaign.processes import Ended, Mode, layer, run
from tests.google_storage import Storage, google_storage

pytestmark = pytest.mark.slow

TRIES = int(os.environ.get("CAMPAIGN", "1"))
SEED = os.environ.get("CAMPAIGN_SEED", "0")
FAULTS = (Mode.FULL, Mode.READONLY, Mode.REFUSE)


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    directory = tmp_path_factory.mktemp("faults")
    make_materials(directory / "materials")
    return directory


class Disturbed:
    """A case in an empty directory, beside its undisturbed result.

    With " again" the directory has the result already, and the work replaces it.
    """

    def __init__(self, root: Path, name: str) -> None:
        self.case = {case.name: case for case in cases(root / "materials")}[name.split()[0]]
        self.directory, self.initial = root / "disturbed", root / "initial"
        self.draw = random.Random(f"{SEED} {name}")
        for directory in (self.directory, self.initial):
            shutil.rmtree(directory, ignore_errors=True)
            directory.mkdir()
        if name.endswith(" again"):
            assert self.run().problem(0) == ""
            shutil.copytree(self.directory, self.initial, dirs_exist_ok=True)
        self.reference = self.run()
        assert self.reference.problem(0) == ""
        self.expected = contents(self.directory)

    def begin(self) -> None:
        shutil.rmtree(self.directory)
        shutil.copytree(self.initial, self.directory)

    def run(self, *fault: object, seconds: float = 0.0) -> Ended:
        work = self.case.work(self.directory / self.case.name)
        return run(work, self.directory, *fault, seconds=seconds)

    def check_end(self) -> None:
        """The next run ends well, with the undisturbed result."""
        assert self.run().problem(0) == ""
        assert differences(contents(self.directory), self.expected) == []

    def check_complete(self) -> None:
        """What looks complete after a kill is complete."""
        for file in self.case.complete:
            marker = "/".join(filter(None, (self.case.name, file)))
            beside = f"{marker.rpartition('/')[0]}/" if file else marker
            for other, content in self.expected.items():
                # A manifest may hold the old and the new state of each file.
                changes = other.endswith(("metrics.jsonl", MANIFEST))
                if changes or not other.startswith(beside):
                    continue
                if (self.directory / marker).is_file():
                    path = self.directory / other
                    assert path.is_file(), f"{marker} exists, but not {other}"
                    assert path.read_bytes() == content, f"{marker} exists, {other} is incomplete"


@pytest.mark.parametrize("name", ["pretrain", "predict again"])
def test_killed_work_ends_as_undisturbed_work(name, root):
    disturbed = Disturbed(root, name)
    draw, reference = disturbed.draw, disturbed.reference
    for _ in range(TRIES):
        disturbed.begin()
        for _ in range(draw.randint(2, 5)):
            if layer() is not None and draw.random() < 0.6:
                ended = disturbed.run(Mode.KILL, draw.randint(1, reference.changes))
            else:
                ended = disturbed.run(seconds=draw.uniform(0.01, reference.seconds))
            if ended.code != -9:  # it ended before
                assert ended.problem(0) == ""
                break
            disturbed.check_complete()
        disturbed.check_end()


@pytest.mark.skipif(layer() is None, reason="needs Linux and a C compiler")
@pytest.mark.parametrize("name", ["prepare", "export"])
def test_a_disk_that_fails_ends_in_one_line_and_loses_nothing(name, root):
    disturbed = Disturbed(root, name)
    paths = [path for path in disturbed.directory.rglob("*") if path.is_file()]
    size = sum(path.stat().st_size for path in paths)
    for _ in range(TRIES):
        disturbed.begin()
        mode = disturbed.draw.choice(FAULTS)
        most = size if mode is Mode.FULL else disturbed.reference.changes
        ended = disturbed.run(mode, disturbed.draw.randint(1, most))
        if mode is not Mode.REFUSE or ended.code:  # a single refused change may do no harm
            check_refused(ended)
        disturbed.check_end()


def check_refused(ended: Ended) -> None:
    assert ended.problem(2, 75) == ""
    # A progress bar may end with the line that a message begins in.
    assert len([line for line in ended.errors.splitlines() if "bert-jax: " in line]) == 1


def in_bucket(address: str, materials: Path) -> int:
    os.environ |= {"STORAGE_EMULATOR_HOST": address, "TENSORSTORE_GCS_HTTP_URL": address,
                   "GOOGLE_CLOUD_PROJECT": "project",
                   "GCSFS_EXPERIMENTAL_ZB_HNS_SUPPORT": "false"}  # fmt: skip
    return pretrain(materials, "gs://bucket/run")()


def test_a_bucket_that_refuses_writes_ends_in_one_line_and_loses_nothing(root):
    pytest.importorskip("gcsfs")

    def train(storage: Storage, writes: float) -> Ended:
        storage.writes_left = writes
        with google_storage(storage) as address:
            return run(functools.partial(in_bucket, address, root / "materials"), root)

    def objects(storage: Storage) -> dict[str, bytes]:
        return comparable({name: stored.content for (_, name), stored in storage.objects.items()})

    whole, many = Storage("bucket"), 1_000_000
    assert train(whole, many).problem(0) == ""
    for number in range(TRIES):
        storage = Storage("bucket")
        writes = random.Random(f"{SEED} {number}").randrange(many - int(whole.writes_left))
        check_refused(train(storage, writes))
        assert train(storage, math.inf).problem(0) == ""
        assert differences(objects(storage), objects(whole)) == []

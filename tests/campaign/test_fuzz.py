"""Valid files damaged and read: nothing but a UserError of one line may come of it.

Each reader has a process of its own, so that one that aborts is noticed. Changed at random, a file
may need at most 2 GB more than a valid one; `CAMPAIGN=100` tries a hundred times as many. Of files
that are cut, removed, or replaced by a directory, a pipe or a link the error has the name, or
nothing changes.
"""

import contextlib
import faulthandler
import functools
import json
import os
import resource
import shutil
import threading
import time
import traceback
from pathlib import Path

import hypothesis
import hypothesis.strategies as st
import pytest

from bert_jax.errors import UserError
from tests.campaign.fuzz_mutations import changed
from tests.campaign.fuzz_readers import READERS
from tests.campaign.processes import run

pytestmark = pytest.mark.slow

TIMES = int(os.environ.get("CAMPAIGN", "1"))
SEED = int(os.environ.get("CAMPAIGN_SEED", "0"))
MEMORY_BYTES = 2 * 10**9
# Of processor time for a case, and of the clock, for a machine that does other work as well.
CASE_SECONDS, CASE_CLOCK_SECONDS = 10, 60
KINDS = ("remove", "empty", "half", "bit", "directory", "pipe", "link", "device")
USE_SECONDS, USE_BYTES = 60.0, 4 << 30


def fuzz(name: str, folder: Path) -> int:
    """Reads one damaged directory after the other; prints findings and the number of cases."""
    reader = READERS[name]
    seed, work = folder / "seed", folder / "work"
    seed.mkdir()
    reader.make(seed)
    shutil.copytree(seed, work)
    reader.read(work)  # a valid one: imports and compiles
    size = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (size + MEMORY_BYTES, resource.RLIM_INFINITY))
    cases = 0

    @hypothesis.seed(SEED)
    @hypothesis.settings(
        max_examples=reader.cases * TIMES,
        database=None,
        deadline=None,
        derandomize=False,
        phases=[hypothesis.Phase.generate],
        suppress_health_check=list(hypothesis.HealthCheck),
    )
    @hypothesis.given(st.data())
    def attempt(data: st.DataObject) -> None:
        nonlocal cases
        cases += 1
        file = data.draw(st.sampled_from(sorted(reader.files)))
        content = data.draw(changed((seed / file).read_bytes(), file))
        shutil.rmtree(work)
        shutil.copytree(seed, work)
        (work / file).write_bytes(content)
        faulthandler.dump_traceback_later(CASE_CLOCK_SECONDS, exit=True)
        began, finding = time.process_time(), ""
        try:
            with open(os.devnull, "w") as nowhere, contextlib.redirect_stderr(nowhere):
                reader.read(work)
        except UserError as error:
            if "\n" in str(error) or len(str(error)) > 2000:
                finding = f"an error of several lines, or a very long one: {error}"
        except BaseException as error:
            frames = traceback.extract_tb(error.__traceback__)
            own = [frame for frame in frames if "/bert_jax/" in frame.filename] or frames
            finding = f"{own[-1].filename}:{own[-1].lineno}: {type(error).__name__}: {error}"
        faulthandler.cancel_dump_traceback_later()
        if time.process_time() - began > CASE_SECONDS:
            finding = f"slow: {time.process_time() - began:.0f} s"
        if finding:
            print(json.dumps(f"case {cases}, {file}: {finding[:500]}"), flush=True)

    attempt()
    print(cases)
    return 0


@pytest.mark.parametrize("name", [name for name, reader in READERS.items() if reader.files])
def test_damaged_files_are_read_or_refused(name, tmp_path):
    ended = run(functools.partial(fuzz, name, tmp_path), tmp_path)
    *findings, cases = ended.output.splitlines() or ["", "0"]
    assert ended.code == 0, ended.errors[-2000:]
    assert findings == []
    assert int(cases) >= READERS[name].cases


def damage(path: Path, kind: str, outside: Path) -> None:
    content = bytearray(path.read_bytes())
    path.unlink()
    match kind:
        case "empty":
            path.write_bytes(b"")
        case "half":
            path.write_bytes(content[: len(content) // 2])
        case "bit":
            content[len(content) // 3] ^= 8
            path.write_bytes(content)
        case "directory":
            path.mkdir()
        case "pipe":
            os.mkfifo(path)
        case "link":
            path.symlink_to(outside)
        case "device":
            path.symlink_to("/dev/zero")


def try_all(name: str, folder: Path) -> int:
    """Damages each file in turn; prints each try and its outcome, "" if it is right, as JSON."""
    reader, seed, copy = READERS[name], folder / "seed", folder / "copy"
    outside = folder / "outside.txt"
    outside.write_text("a secret\n")
    seed.mkdir()
    reader.make(seed)

    def fresh() -> Path:
        shutil.rmtree(copy, ignore_errors=True)
        return Path(shutil.copytree(seed, copy))

    whole = reader.read(fresh())
    for path in sorted(path for path in seed.rglob("*") if path.stat().st_size and path.is_file()):
        for kind in KINDS:
            damage(fresh() / path.relative_to(seed), kind, outside)
            what, over = f"{path.name} {kind}", threading.Event()
            threading.Thread(target=end_if_stuck, args=(over, what), daemon=True).start()
            try:
                outcome = "" if reader.read(copy) == whole else "wrong"
            except UserError as error:
                # Of two files that no longer fit together, either may be named.
                is_right = str(copy) in str(error) and "\n" not in str(error)
                outcome = "" if is_right else f"not named: {error}"
            except BaseException as error:
                outcome = f"{type(error).__name__}: {str(error)[:300]}"
            over.set()
            print(json.dumps([what, outcome]), flush=True)
    return 0


def end_if_stuck(over: threading.Event, what: str) -> None:
    """Ends the process if it waits for a pipe, or reads a device without end."""
    for _ in range(int(USE_SECONDS / 0.2)):
        if over.wait(0.2):
            return
        if int(Path("/proc/self/statm").read_text().split()[1]) * 4096 > USE_BYTES:
            break
    print(json.dumps([what, "hangs or reads without end"]), flush=True)
    os._exit(3)


@pytest.mark.parametrize(("name", "least"), [("corpus", 60), ("model", 40), ("tf1", 16)])
def test_damaged_files_are_named_or_harmless(name, least, tmp_path):
    ended = run(functools.partial(try_all, name, tmp_path), tmp_path)
    tries = [json.loads(line) for line in ended.output.splitlines() if line.startswith("[")]
    assert [one for one in tries if one[1]] == []
    assert ended.code == 0, ended.errors[-2000:]
    assert len(tries) >= least

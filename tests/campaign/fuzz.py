"""Damages valid files at random and reads them: nothing but a UserError may come of it.

    python -m tests.campaign.fuzz --seconds 3600 --seed 0 [--readers csv tf1] [--coverage]
    python -m tests.campaign.fuzz --readers csv --batch 17        # one batch again

Each batch is a process of its own, so that one that is killed or aborts is noticed: at most 2 GB
beyond what it needs for a valid file, and 10 s of processor time for a case. Hypothesis draws the
changes from the number of the batch; with --coverage, libFuzzer changes bytes toward code that was
not reached before (extra [fuzz]). Prints a line per finding, one for each place in the code, and a
summary as JSON; exits with 1 if there are findings.
"""

import argparse
import collections
import contextlib
import faulthandler
import gc
import json
import os
import re
import resource
import shutil
import subprocess
import sys
import tempfile
import time
import traceback
import types
from collections.abc import Iterator, Sequence
from pathlib import Path

import hypothesis
import hypothesis.strategies as st

from bert_jax.errors import UserError
from tests.campaign.fuzz_mutations import changed
from tests.campaign.fuzz_readers import READERS, Reader

MEMORY_BYTES = 2 * 10**9
# Of processor time, and of the clock, for a machine that does other work as well.
CASE_SECONDS, CASE_CLOCK_SECONDS = 10, 60
BATCH_SECONDS = 600

_FRAME = re.compile(r'File "[^"]*/(bert_jax/[^"]+|site-packages/[^"]+)", line (\d+),? in (\S+)')


class Campaign:
    """Batches of all readers in turn, and what they showed.

    Attributes:
        cases: number of cases of each reader.
        findings: the first finding of each place, by reader and place.
    """

    def __init__(self, names: Sequence[str], *, coverage: bool = False) -> None:
        self.cases: collections.Counter[str] = collections.Counter()
        self.findings: dict[tuple[str, str], str] = {}
        self.names = names
        self._coverage = coverage

    def run(self, seconds: float, seed: int) -> None:
        """Runs at least one batch of every reader; stops after so many seconds."""
        end, number = time.monotonic() + seconds, seed * 100_000
        while True:
            for name in self.names:
                self.run_batch(name, number)
                if time.monotonic() > end and number > seed * 100_000:
                    return
            number += 1
            if time.monotonic() > end:
                return

    def run_batch(self, name: str, number: int, cases: int | None = None) -> None:
        """Runs one batch in a process and collects its findings."""
        command = [sys.executable, "-X", "faulthandler", "-m", __spec__.name, "--child", name]
        command += ["--batch", str(number), "--cases", str(cases or READERS[name].cases)]
        command += ["--coverage"] * self._coverage
        with tempfile.TemporaryDirectory(prefix="fuzz-") as folder:
            environment = os.environ | {"TMPDIR": folder, "JAX_PLATFORMS": "cpu"}
            try:
                ended = subprocess.run(
                    command,
                    capture_output=True,
                    text=True,
                    errors="replace",
                    env=environment | {"TF_CPP_MIN_LOG_LEVEL": "3", "XDG_CACHE_HOME": folder},
                    timeout=BATCH_SECONDS,
                )
                out, errors, code = ended.stdout, ended.stderr, ended.returncode
            except subprocess.TimeoutExpired as expired:
                out = (expired.stdout or b"").decode(errors="replace")
                errors, code = "the batch did not end", -1
        lines = out.splitlines()
        done = [int(line[5:]) for line in lines if line.startswith("case ")]
        self.cases[name] += max(done, default=0)
        for line in lines:
            if line.startswith("finding "):
                finding = json.loads(line[8:])
                self._add(name, number, finding["place"], finding["case"], finding["error"])
        if code != 0:
            place = _place(errors) or "no frame of Python"
            said = [line for line in errors.splitlines() if line.strip()] or [""]
            line = said[-1 if said[0].startswith("Traceback") else 0]
            self._add(name, number, place, max(done, default=0), f"exit code {code}: {line}")

    def _add(self, name: str, number: int, place: str, case: int, error: str) -> None:
        if (name, place) not in self.findings:
            line = f"{name}: batch {number}, case {case}: {place}: {error}"
            self.findings[name, place] = line
            print(line, flush=True)


def run_here(name: str, number: int, cases: int, *, coverage: bool) -> None:
    """The cases of a batch, in this process; prints their numbers and the findings."""
    faulthandler.enable()
    reader = READERS[name]
    with tempfile.TemporaryDirectory() as folder:
        seed = Path(folder, "seed")
        seed.mkdir()
        reader.make(seed)
        work = Path(folder, "work")
        shutil.copytree(seed, work)
        reader.read(work)  # a valid one: imports and compiles
        _limit_memory()
        attempt = _Attempt(reader, seed, work)
        if coverage:
            _follow_coverage(attempt, number, cases)
        else:
            _follow_hypothesis(attempt, number, cases)


class _Attempt:
    """Reads one damaged directory after the other."""

    def __init__(self, reader: Reader, seed: Path, work: Path) -> None:
        self.reader = reader
        self.seed, self.work = seed, work
        self.seeds = {name: (seed / name).read_bytes() for name in reader.files}
        self.case = 0
        self._places: set[str] = set()

    def __call__(self, name: str, content: bytes) -> None:
        """Reads the directory with another content of one file."""
        self.case += 1
        if self.case % 50 == 0 or self.reader.cases < 200:
            print(f"case {self.case}", flush=True)
        shutil.rmtree(self.work)
        shutil.copytree(self.seed, self.work)
        (self.work / name).write_bytes(content)
        faulthandler.dump_traceback_later(CASE_CLOCK_SECONDS, exit=True)
        start = time.process_time()
        try:
            with _quiet():
                self.reader.read(self.work)
        except UserError as error:
            if "\n" in str(error) or len(str(error)) > 2000:
                self._find(error, "an error of several lines, or a very long one: ")
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            self._find(error)
        finally:
            faulthandler.cancel_dump_traceback_later()
        if time.process_time() - start > CASE_SECONDS:
            self._print("too slow", f"{time.process_time() - start:.0f} s")

    def _find(self, error: BaseException, what: str = "") -> None:
        text = "".join(traceback.format_exception(error))
        message = f"{what}{type(error).__name__}: {str(error)[:200]!r}"
        self._print(_place(text) or "no frame", message)

    def _print(self, place: str, message: str) -> None:
        if place not in self._places:
            self._places.add(place)
            record = {"place": place, "case": self.case, "error": message}
            print(f"finding {json.dumps(record)}", flush=True)


def _follow_hypothesis(attempt: _Attempt, number: int, cases: int) -> None:
    @hypothesis.seed(number)
    @hypothesis.settings(
        max_examples=cases,
        database=None,
        deadline=None,
        derandomize=False,
        phases=[hypothesis.Phase.generate],
        suppress_health_check=list(hypothesis.HealthCheck),
    )
    @hypothesis.given(st.data())
    def run(data: st.DataObject) -> None:
        name = data.draw(st.sampled_from(sorted(attempt.seeds)))
        attempt(name, data.draw(changed(attempt.seeds[name], name)))

    run()
    print(f"case {attempt.case}", flush=True)


def _follow_coverage(attempt: _Attempt, number: int, cases: int) -> None:
    import atheris

    for function in gc.get_objects():
        if isinstance(function, types.FunctionType) and "bert_jax" in str(function.__module__):
            atheris.instrument_func(function)
    corpus = attempt.seed.parent / "corpus"
    corpus.mkdir()
    names = sorted(attempt.seeds)
    for index, name in enumerate(names):
        (corpus / str(index)).write_bytes(bytes([index]) + attempt.seeds[name])

    def run(data: bytes) -> None:
        if data:
            attempt(names[data[0] % len(names)], data[1:])

    # -seed=0 would be drawn from the time.
    options = [f"-runs={cases}", f"-seed={number + 1}", "-rss_limit_mb=0", "-verbosity=0"]
    atheris.Setup([sys.argv[0], *options, str(corpus)], run)
    atheris.Fuzz()


def _limit_memory() -> None:
    size = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (size + MEMORY_BYTES, resource.RLIM_INFINITY))


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Drops what the package says on stderr, such as how many tensors are missing."""
    with open(os.devnull, "w") as nowhere, contextlib.redirect_stderr(nowhere):
        yield


def _place(text: str) -> str:
    """The innermost place of a traceback or a dump: in the package, else in a library."""
    frames = [match.groups() for match in _FRAME.finditer(text)]
    if not text.startswith("Traceback") and "most recent call first" in text:
        frames.reverse()
    own = [frame for frame in frames if frame[0].startswith("bert_jax/")] or frames
    return ":".join(own[-1]) if own else ""


def main(arguments: Sequence[str] | None = None) -> int:
    """Parses the arguments and runs the campaign, or one batch."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--readers", nargs="+", choices=READERS, default=list(READERS))
    parser.add_argument("--coverage", action="store_true", help="let libFuzzer choose the changes")
    parser.add_argument("--batch", type=int, help="only this batch")
    parser.add_argument("--cases", type=int, help="cases of a batch")
    parser.add_argument("--child", choices=READERS, help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.child:
        run_here(options.child, options.batch, options.cases, coverage=options.coverage)
        return 0
    campaign = Campaign(options.readers, coverage=options.coverage)
    start = time.monotonic()
    if options.batch is None:
        campaign.run(options.seconds, options.seed)
    else:
        for name in options.readers:
            campaign.run_batch(name, options.batch, options.cases)
    summary = {
        "cases": dict(campaign.cases),
        "findings": list(campaign.findings.values()),
        "seconds": round(time.monotonic() - start, 1),
    }
    print(json.dumps(summary))
    return 1 if campaign.findings else 0


if __name__ == "__main__":
    sys.exit(main())

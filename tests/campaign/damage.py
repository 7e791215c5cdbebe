"""Damages every file of a corpus, a run, a model directory and a tokenizer, and uses the rest.

    python -m tests.campaign.damage --flips 3 --seed 0

Each file is cut, emptied, changed in one bit, removed, or replaced by a directory, a named pipe, a
link to a file outside and a link to an endless device. Right is an error that names the file (or
the folder that it is in), or the same result as before. Prints a line per finding and a summary as
JSON; exits with 1 if there are findings.
"""

import argparse
import collections
import contextlib
import faulthandler
import functools
import hashlib
import json
import os
import random
import shutil
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from tests.campaign.cases import SENTENCES, cases, make_materials, result_of
from tests.campaign.processes import run

KINDS = ("remove", "empty", "half", "directory", "pipe", "link", "device")
OUTCOMES = ("refused", "harmless", "wrong", "traceback", "unnamed", "hang")
# Seconds for one use, and bytes of memory.
_SECONDS, _BYTES = 30.0, 4 << 30
# Files of a run that only people read again, and its model, which is a subject of its own.
_LOGS = ("tensorboard", "metrics.jsonl", "curves.png", "predictions", "model/", "data")


class Plan(NamedTuple):
    """What is done to every file: a number of changed bits, which ones, and other damages."""

    flips: int
    seed: int
    kinds: tuple[str, ...] = KINDS


class Subject(NamedTuple):
    """A directory whose files are damaged.

    Attributes:
        name: its name.
        directory: the directory.
        use: reads the directory, and gives what must not change.
        ignored: beginnings of names of files that nothing reads again.
    """

    name: str
    directory: Path
    use: Callable[[Path], object]
    ignored: tuple[str, ...] = ()


class Try(NamedTuple):
    """One damage, and its outcome: one of `OUTCOMES`, with the message."""

    subject: str
    file: str
    kind: str
    outcome: str
    message: str


def subjects(root: Path) -> list[Subject]:
    """What is damaged; the materials are in a directory."""
    model = root / "run" / "model"
    return [
        Subject("corpus", root / "corpus", _use_corpus),
        Subject("tokenizer", root / "corpus" / "tokenizer", _use_tokenizer),
        Subject("model", model, _use_model),
        Subject("google", root / "google", _use_model),
        Subject("finished", root / "tuned", _use_finished, _LOGS[2:]),
        Subject("unfinished", root / "unfinished", _use_unfinished),
        Subject("export", root / "run", _use_run, _LOGS),
        Subject("evaluate", root / "tuned", _use_evaluation, _LOGS),
    ]


def _use_corpus(directory: Path) -> object:
    from bert_jax.data.pretraining.corpus import Corpus

    corpus = Corpus.open(directory)
    tokenizer = corpus.tokenizer()
    corpus.check_tokenizer(tokenizer)
    arrays = [
        getattr(split, name).tobytes()
        for split in corpus.splits.values()
        for name in ("tokens", "sentence_offsets", "document_offsets", "source_documents")
    ]
    return arrays, _ids(tokenizer)


def _use_tokenizer(directory: Path) -> object:
    from bert_jax.tokenization import load_tokenizer

    return _ids(load_tokenizer(directory))


def _use_model(directory: Path) -> object:
    import bert_jax

    model = bert_jax.load(directory)
    return _digest(model.params), _ids(model.tokenizer), repr(model.description)


def _use_run(directory: Path) -> object:
    from bert_jax.export import export

    with tempfile.TemporaryDirectory() as place:
        export(directory, Path(place) / "model")
        files = sorted((Path(place) / "model").iterdir())
        return [(path.name, path.read_bytes()) for path in files]


def _use_finished(directory: Path) -> object:
    from bert_jax.experiment import Experiment
    from bert_jax.workdir import run_config

    return Experiment.from_config(run_config(directory)).train(directory)


def _use_unfinished(directory: Path) -> object:
    from bert_jax.checkpoints.runs import newest_step

    metrics = _use_finished(directory)  # which first finishes it
    made = (f"checkpoints/{newest_step(directory)}/", "model/")
    return metrics, [item for item in result_of(directory).items() if item[0].startswith(made)]


def _use_evaluation(directory: Path) -> object:
    from bert_jax.experiment import Experiment
    from bert_jax.workdir import run_config

    return Experiment.from_config(run_config(directory)).evaluate(workdir=directory)


def _digest(params: object) -> str:
    import jax
    import numpy as np

    digest = hashlib.sha256()
    for path, value in jax.tree_util.tree_leaves_with_path(params):
        digest.update(jax.tree_util.keystr(path).encode() + np.asarray(value).tobytes())
    return digest.hexdigest()


def _ids(tokenizer: object) -> object:
    return [encoding.ids for encoding in tokenizer.encode_batch(SENTENCES)]  # type: ignore[attr-defined]


def damage(path: Path, kind: str, outside: Path) -> str:
    """Damages a file; "flip 7" changes its seventh bit. Returns "" if it cannot be."""
    content = bytearray(path.read_bytes())
    path.unlink()
    match kind.split():
        case ["empty"]:
            path.write_bytes(b"")
        case ["half"]:
            path.write_bytes(content[: len(content) // 2])
        case ["flip", number]:
            content[int(number) // 8] ^= 1 << int(number) % 8
            path.write_bytes(content)
        case ["directory"]:
            path.mkdir()
        case ["pipe"]:
            os.mkfifo(path)
        case ["link"]:
            path.symlink_to(outside)
        case ["device"]:
            path.symlink_to("/dev/zero")
    return kind


def kinds_of(path: Path, plan: Plan, draw: random.Random) -> list[str]:
    """The damages of a file; an empty one has no bits and no halves."""
    size = path.stat().st_size
    chosen = [kind for kind in plan.kinds if size or kind not in ("empty", "half")]
    bits = [draw.randrange(8 * size) for _ in range(plan.flips)] if size else []
    return [*chosen, *(f"flip {bit}" for bit in bits)]


def try_all(subject: Subject, place: Path, plan: Plan, done: int) -> int:
    """Damages each file in turn, but not the first `done` times; prints each try as JSON."""
    from bert_jax.sharding.runtime import use_compilation_cache

    use_compilation_cache()
    draw = random.Random(f"{plan.seed} {subject.name}")
    outside = place / "outside.txt"
    place.mkdir(exist_ok=True)
    outside.write_text("a secret\n")
    copy = place / "copy"
    shutil.rmtree(copy, ignore_errors=True)
    shutil.copytree(subject.directory, copy)
    whole = subject.use(copy)
    number = 0
    for path in sorted(subject.directory.rglob("*")):
        name = path.relative_to(subject.directory).as_posix()
        if not path.is_file() or name.startswith(subject.ignored or ("\0",)):
            continue
        for kind in kinds_of(path, plan, draw):
            number += 1
            if number <= done:
                continue
            shutil.rmtree(copy, ignore_errors=True)
            shutil.copytree(subject.directory, copy)
            damage(copy / name, kind, outside)
            outcome, message = _outcome(subject, copy, name, kind, whole)
            print(json.dumps(Try(subject.name, name, kind, outcome, message)), flush=True)
    return 0


def _outcome(subject: Subject, copy: Path, name: str, kind: str, whole: object) -> tuple[str, str]:
    from bert_jax.errors import UserError

    try:
        # Ends the process even where a library waits and lets no other thread of Python run.
        faulthandler.dump_traceback_later(2 * _SECONDS, exit=True)
        with _watched(copy / name, Try(subject.name, name, kind, "hang", "")) as late:
            found = subject.use(copy)
        faulthandler.cancel_dump_traceback_later()
    except UserError as error:
        text = str(error)
        # Of two files that no longer fit together, either may be named.
        named = str(copy) in text
        outcome = ("refused" if named and "\n" not in text else "unnamed"), text
    except BaseException as error:
        outcome = "traceback", f"{type(error).__name__}: {error}"[:300]
    else:
        outcome = ("harmless", "") if found == whole else ("wrong", "")
    return ("hang", outcome[1]) if late.is_set() else outcome


@contextlib.contextmanager
def _watched(path: Path, late_try: Try) -> Iterator[threading.Event]:
    """Frees who waits for a named pipe; ends the process if it reads without end."""
    late, over = threading.Event(), threading.Event()

    def watch() -> None:
        began = time.monotonic()
        while not over.wait(0.2):
            resident = int(Path("/proc/self/statm").read_text().split()[1]) * 4096
            waited = time.monotonic() - began
            if waited > _SECONDS and not late.is_set():
                late.set()
                with contextlib.suppress(OSError):  # nobody waits, or it is no pipe
                    os.close(os.open(path, os.O_WRONLY | os.O_NONBLOCK))
            if waited > 2 * _SECONDS or resident > _BYTES:
                print(json.dumps(late_try), flush=True)
                os._exit(3)

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    try:
        yield late
    finally:
        over.set()
        thread.join()


def interrupt(run: Path, place: Path) -> None:
    """Makes a copy of a finished run as it was after the checkpoint before the last."""
    shutil.copytree(run, place)
    for name in ("model", "predictions", "tensorboard"):
        shutil.rmtree(place / name)
    for name in ("result.json", "curves.png"):
        (place / name).unlink()
    steps = sorted((path for path in (place / "checkpoints").iterdir()), key=lambda p: int(p.name))
    shutil.rmtree(steps[-1])
    listed = json.loads((place / "checksums.json").read_text())
    del listed["files"]["result.json"]
    (place / "checksums.json").write_text(json.dumps(listed))


def campaign(root: Path, plan: Plan, names: Sequence[str]) -> list[Try]:
    """All tries of the named subjects; the materials are kept for the next call."""
    materials = root / "materials"
    if not materials.exists():
        make_materials(materials, ("predict",))
        convert = {case.name: case for case in cases(materials)}["convert"]
        (root / "place").mkdir()
        run(convert.work(root / "place"), root)
        (root / "place" / "convert").rename(materials / "google")
        interrupt(materials / "tuned", materials / "unfinished")
    tries: list[Try] = []
    for subject in subjects(materials):
        if names and subject.name not in names:
            continue
        done = 0
        while True:
            work = functools.partial(try_all, subject, root / "damaged", plan, done)
            ended = run(work, root / "nothing", seconds=3600)
            lines = [line for line in ended.output.splitlines() if line.startswith("[")]
            tries += [Try(*json.loads(line)) for line in lines]
            done += len(lines)
            if ended.code == 0:
                break
            if not lines:
                raise RuntimeError(f"{subject.name} cannot be used: {ended.errors}")
            if ended.code != 3:  # a library crashed or waits: nothing was printed about this try
                after = f"the try after {lines[-1][:200]}"
                outcome = "hang" if "Timeout" in ended.errors else "traceback"
                tries.append(Try(subject.name, after, "", outcome, ended.errors[-2000:]))
                done += 1
    return tries


def main() -> int:
    """Runs the campaign."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--flips", type=int, default=3, help="changed bits per file")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--kinds", nargs="*", default=KINDS, choices=KINDS, metavar="KIND")
    parser.add_argument("--subjects", nargs="*", default=[])
    options = parser.parse_args()
    plan = Plan(options.flips, options.seed, tuple(options.kinds))
    with tempfile.TemporaryDirectory(prefix="bert-jax-damage-") as root:
        tries = campaign(Path(root), plan, options.subjects)
    findings = [done for done in tries if done.outcome not in ("refused", "harmless")]
    for done in findings:
        print(*done, flush=True)
    counts = {
        name: dict(collections.Counter(done.outcome for done in tries if done.subject == name))
        for name in dict.fromkeys(done.subject for done in tries)
    }
    print(json.dumps({"seed": options.seed, "tries": len(tries), "outcomes": counts}))
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())

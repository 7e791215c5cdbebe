"""Several runs of one config: with other seeds (the paper's restarts), or over a grid of values.

A work directory of several runs:

several_runs.json    what it holds: {"kind": "seeds" or "sweep"}
seed-1/ …            the run of each seed or of each point of the grid, see `run_directory`
RUN/diverged.txt     why a run ended at a loss that was not finite; remove it to try again
result.json          see `Report.as_dict`
result.md            the same as a table
result.png           the same as a picture
model/               a copy of the best run's
"""

import functools
import gc
import hashlib
import itertools
import json
import re
import shutil
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ml_collections import ConfigDict

from bert_jax import experiment
from bert_jax import workdir as run_directory
from bert_jax.config import override_keys, set_key
from bert_jax.errors import UserError
from bert_jax.files import atomic_directory, fetch, is_remote, reachable, upload, write_atomically
from bert_jax.sharding.hosts import check_batch_size, from_main_host, is_main_host, main_host_first
from bert_jax.sharding.mesh import MeshShape, make_mesh
from bert_jax.sweep_report import Outcome, Report
from bert_jax.training.loop import DivergedError
from bert_jax.training.optimizer import OptimizerOptions, make_optimizer
from bert_jax.training.options import TrainOptions
from bert_jax.training.step import abstract_state

Grid = Mapping[str, Sequence[Any]]

# Appendix A.3: "the following range of possible values to work well across all tasks".
PAPER_GRID: Grid = {
    "optimizer.learning_rate": (5e-5, 3e-5, 2e-5),
    "train.global_batch_size": (16, 32),
    "train.epochs": (2.0, 3.0, 4.0),
}

KIND = run_directory.SEVERAL_RUNS
KINDS = ("seeds", "sweep")
DIVERGED = "diverged.txt"


def train_seeds(config: ConfigDict, workdir: Path) -> dict[str, Any]:
    """A run for each of `train.seeds`, in `WORKDIR/seed-N`; what is done already stays as it is.

    With few examples some runs end no better than guessing (paper, section 4.1; Mosbach et al.,
    2021), so the best of several on the validation set is taken, and the failed ones are named.

    Returns:
        See `Report.as_dict`.

    Raises:
        UserError: a run was refused. One that diverges only fails.
    """
    return _train_seeds(config, workdir).as_dict()


def sweep(config: ConfigDict, workdir: Path, grid: Grid) -> dict[str, Any]:
    """A run for each combination of the values of a grid, in `WORKDIR/KEY=VALUE,…`.

    Where the config has `train.seeds`, each combination has these, and its mean counts.

    Returns:
        See `Report.as_dict`.

    Raises:
        UserError: as in `train_seeds`, or a combination makes no sense.
    """
    points = [dict(zip(grid, values, strict=True)) for values in itertools.product(*grid.values())]
    names = [name_of(point, grid) for point in points]
    configs = {}
    for name, point in zip(names, points, strict=True):
        configs[name] = _changed(config, point, where="--sweep")
        _check(configs[name])
    return _train_all(configs, workdir, "sweep").as_dict()


def parse_grid(texts: Sequence[str], config: ConfigDict) -> Grid:
    """A grid from `KEY=V,V` texts; none of them: `PAPER_GRID`.

    A value that is itself a list is written as one: `data.labels=['a','b'],['b','a']`.

    Raises:
        UserError: a text has another form, or a key or a value is wrong.
    """
    if not texts:
        return PAPER_GRID
    grid: dict[str, tuple[Any, ...]] = {}
    for text in texts:
        key, equals, values = text.partition("=")
        if not equals or not values.strip():
            raise UserError(f"--sweep {text!r} is not KEY=VALUE,VALUE, as train.epochs=2,3,4")
        if key in grid:
            raise UserError(f"--sweep {text!r}: {key} is given twice; put all its values in one")
        if key == "train.seeds":
            raise UserError("--sweep train.seeds: give --config.train.seeds, or sweep over seed")
        found = []
        for value in re.findall(r"\[[^\]]*\]|[^,]+", values):
            trial = override_keys(_copy(config), [(key, value.strip())])
            found.append(_get(trial, key))
        if len(set(map(repr, found))) < len(found):
            raise UserError(f"--sweep {text!r}: a value is given twice; leave one out")
        grid[key] = tuple(found)
    return grid


def name_of(point: Mapping[str, Any], grid: Grid) -> str:
    """The directory of a combination: `learning_rate=5e-05,global_batch_size=16,epochs=2`."""
    lasts = [key.rpartition(".")[2] for key in grid]
    short = dict(zip(grid, lasts, strict=True)) if len(set(lasts)) == len(lasts) else {}
    values = {key: str(value).removesuffix(".0") for key, value in point.items()}
    whole = ",".join(f"{short.get(key, key)}={value}" for key, value in values.items())
    name = re.sub(r"[^\w.,=+-]", "_", whole)[:100]
    if name == whole:
        return name
    return f"{name}-{hashlib.sha256(whole.encode()).hexdigest()[:8]}"


def _train_seeds(config: ConfigDict, workdir: Path) -> Report:
    seeds = TrainOptions(**config.train).seeds
    configs = {
        f"seed-{seed}": _changed(config, {"seed": seed, "train.seeds": ()}, where="train.seeds")
        for seed in seeds
    }
    return _train_all(configs, workdir, "seeds")


def _check(config: ConfigDict) -> None:
    """Refuses what a run would refuse, before other runs have taken their hours."""
    options = TrainOptions(**config.train)
    OptimizerOptions(**config.optimizer)
    shape = MeshShape(**config.mesh)
    mesh = make_mesh(shape)
    if not shape.auto:
        check_batch_size(options.global_batch_size, mesh, options.microbatches)


def _train_all(configs: Mapping[str, ConfigDict], workdir: Path, kind: str) -> Report:
    """Trains all runs, or goes on with them; then reports and copies the best model."""
    best_metric, baselines = _common_metric(configs)
    report = functools.partial(Report, best_metric=best_metric, baselines=baselines, kind=kind)
    with main_host_first():
        _claim(workdir, kind)
    outcomes = []
    for number, (name, config) in enumerate(configs.items(), start=1):
        if is_main_host():
            print(f"run {number} of {len(configs)}: {workdir / name}", file=sys.stderr)
        outcomes.append(_outcome(config, workdir, name))
        gc.collect()  # the programs and arrays of a run hang together in circles
    found = report(outcomes)
    if is_main_host():
        _finish(found, workdir)
    return found


def _common_metric(
    configs: Mapping[str, ConfigDict],
) -> tuple[tuple[str, bool], dict[str, float]]:
    """What the best of the runs is chosen by, and the baselines of the first.

    Each run's task is made, so that none is refused after others have trained.

    Raises:
        UserError: of a task, of an optimizer that does not suit it, or they are judged by different
            metrics.
    """
    seen: set[str] = set()
    best_metric: tuple[str, bool] | None = None
    baselines: dict[str, float] = {}
    for name, config in configs.items():
        # What else a config says, is nothing that tasks and frozen layers depend on.
        sections = [config[key] for key in ("task", "data", "model", "tokenizer", "init_from")]
        frozen = config.optimizer.freeze_encoder, config.optimizer.freeze_layers
        read = str([*sections, config.train.microbatches, *frozen])
        if read in seen:
            continue
        seen.add(read)
        task = experiment.make_task(config)
        steps = TrainOptions(**config.train).resolved(task.examples_per_epoch).steps
        optimizer = make_optimizer(OptimizerOptions(**config.optimizer), steps)
        abstract_state(task, optimizer, make_mesh(MeshShape(**config.mesh)))
        if best_metric is None:
            best_metric, baselines = task.best_metric, task.baselines()
        elif task.best_metric != best_metric:
            raise UserError(
                f"run {name} is judged by {task.best_metric[0]} and the first by {best_metric[0]}; "
                "compare what is judged alike, or set data.best_metric"
            )
    assert best_metric is not None, "there are runs"
    return best_metric, baselines


def _outcome(config: ConfigDict, workdir: Path, name: str) -> Outcome:
    """Trains one run, unless it has diverged before with the same config."""
    directory = workdir / name
    note = directory / DIVERGED
    if from_main_host(note.is_file()):
        run_directory.init_workdir(directory, config)  # of another config, it says nothing
        return Outcome(name, {}, note.read_text(encoding="utf-8").strip())
    if config.train.seeds:
        inner = _train_seeds(config, directory)
        return Outcome(name, inner.means, "" if inner.means else "no run of any seed has ended")
    try:
        return Outcome(name, experiment.train(config, directory), "")
    except DivergedError as error:
        if is_main_host():
            write_atomically(note, f"{error}\n".encode())
        return Outcome(name, {}, str(error))


def _claim(workdir: Path, kind: str) -> None:
    """Makes a work directory of several runs, or checks that it is one; each run checks itself.

    Raises:
        UserError: it is something else, is damaged, or cannot be made.
    """
    path = workdir / KIND
    if path.is_file():
        other = _kind(path)
        if other != kind:
            raise UserError(f"{workdir} holds the runs of {other}; use another --workdir")
    elif (workdir / "config.json").exists():
        raise UserError(f"{workdir} is a single run; use another --workdir for several")
    try:
        with reachable(workdir):
            workdir.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(
            f"cannot make {workdir}: {error.strerror}; choose another --workdir"
        ) from error
    if is_main_host():
        write_atomically(path, (json.dumps({"kind": kind}) + "\n").encode())


def _kind(path: Path) -> str:
    """What a work directory holds, from its `several_runs.json`.

    Raises:
        UserError: it is damaged.
    """
    try:
        kind = json.loads(path.read_text(encoding="utf-8"))["kind"]
    except (ValueError, LookupError, TypeError):
        kind = None
    if kind not in KINDS:
        raise UserError(
            f"{path} is damaged; remove it to go on with the runs beside it, or use another "
            "--workdir"
        )
    return str(kind)


def _finish(report: Report, workdir: Path) -> None:
    """Shows the report, and writes it and the best model; `result.json` is written last."""
    print(report.as_text(), flush=True)
    write_atomically(workdir / "result.md", report.as_markdown().encode())
    with atomic_directory(workdir) as place:
        report.draw(place / "result.png")
    if report.best is not None:
        _copy_model(workdir / report.best.name / "model", workdir / "model")
    result = json.dumps(report.as_dict(), indent=2) + "\n"
    write_atomically(workdir / "result.json", result.encode())


def _copy_model(source: Path, target: Path) -> None:
    """A copy that is whole or not there at all.

    Raises:
        UserError: it cannot be written.
    """
    if is_remote(target):
        upload(fetch(source), target)
        return
    partial, old = (target.with_name(f".{target.name}.{state}") for state in ("partial", "old"))
    try:
        for unexpected_keys in (partial, old):
            shutil.rmtree(unexpected_keys, ignore_errors=True)
        shutil.copytree(source, partial)
        if target.exists():
            target.rename(old)
        partial.rename(target)
    except OSError as error:
        raise UserError(
            f"cannot copy {source} to {target}: {error.strerror or error}; free space and run the "
            "same command again"
        ) from error
    finally:
        for unexpected_keys in (partial, old):
            shutil.rmtree(unexpected_keys, ignore_errors=True)


def _changed(config: ConfigDict, values: Mapping[str, Any], *, where: str) -> ConfigDict:
    """A copy of a config with other values."""
    changed = _copy(config)
    for key, value in values.items():
        set_key(changed, key, value, where=where)
    return changed


def _copy(config: ConfigDict) -> ConfigDict:
    return ConfigDict(config.to_dict())


def _get(config: ConfigDict, key: str) -> Any:
    return functools.reduce(lambda section, name: section[name], key.split("."), config)

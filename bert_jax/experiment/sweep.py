"""Several runs of one config: with several seeds (the paper's restarts), or over a grid of values.

A work directory of several runs:

several_runs.json    kind of the directory: {"kind": "seeds" or "sweep"}
seed-1/ …            the run of each seed or of each grid point, see `workdir`
RUN/diverged.txt     the error of a run with a loss that was not finite; remove it to try again
result.json          see `Report.as_dict`
result.md            the same as a table
result.png           the same as a picture
model/               a copy of the best run's model
"""

import dataclasses
import gc
import hashlib
import itertools
import json
import re
import shutil
from collections.abc import Hashable, Mapping, Sequence
from pathlib import Path
from typing import Any

from ml_collections import ConfigDict

from bert_jax.checkpoints.tensors import SAFETENSORS
from bert_jax.config import announce_replaced, get_key, parse_value, set_keys
from bert_jax.errors import OptionError, UserError
from bert_jax.experiment import Experiment
from bert_jax.experiment import workdir as run_directory
from bert_jax.experiment.sweep_report import Outcome, Report
from bert_jax.files import atomic_directory, fetch, is_there, read_json_object, write_atomically
from bert_jax.files.paths import DESCRIPTION, MODEL, RESULT, RUN_CONFIG, SEVERAL_RUNS
from bert_jax.process import say, show
from bert_jax.sharding.hosts import from_main_host, is_main_host, main_host_first
from bert_jax.training.loop import DivergedError

Grid = Mapping[str, Sequence[Any]]

# Appendix A.3: "the following range of possible values to work well across all tasks".
PAPER_GRID: Grid = {
    "optimizer.learning_rate": (5e-5, 3e-5, 2e-5),
    "train.global_batch_size": (16, 32),
    "train.epochs": (2.0, 3.0, 4.0),
}

KINDS = ("seeds", "sweep")
DIVERGED = "diverged.txt"


def train_seeds(config: ConfigDict, workdir: Path) -> dict[str, Any]:
    """Trains a run for each of `train.seeds` in `WORKDIR/seed-N`; finished runs are kept.

    With few examples some runs end no better than guessing (paper, section 4.1; Mosbach et al.,
    2021), so the best run on the validation set is taken, and the failed ones are reported.

    Returns:
        See `Report.as_dict`.

    Raises:
        UserError: a run was refused. A run that diverges is only reported as failed.
    """
    return _train_all(_seeds(Experiment.from_config(config)), workdir, "seeds").as_dict()


def sweep(config: ConfigDict, workdir: Path, grid: Grid) -> dict[str, Any]:
    """Trains a run for each combination of the values of a grid, in `WORKDIR/KEY=VALUE,…`.

    If the config has `train.seeds`, each combination is run with each seed and ranked by its mean.

    Returns:
        See `Report.as_dict`.

    Raises:
        UserError: see `train_seeds`; or a combination is invalid.
    """
    points = [dict(zip(grid, values, strict=True)) for values in itertools.product(*grid.values())]
    announce_replaced(config, grid, flag="--sweep ", source="the config")
    configs = {name_of(point, grid): _changed(config, point) for point in points}
    return _train_all(configs, workdir, "sweep").as_dict()


def parse_grid(texts: Sequence[str], config: ConfigDict) -> Grid:
    """A grid from texts of the form `KEY=V,V`; without any, `PAPER_GRID`.

    A value that is a list is written as one: `data.labels=['a','b'],['b','a']`.

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
            raise UserError(f"--sweep {text!r}: {key} appears twice; put all its values in one")
        if key == "train.seeds":
            raise UserError("--sweep train.seeds: give --config.train.seeds, or sweep over seed")
        grid[key] = tuple(
            get_key(_changed(config, {key: parse_value(key, value.strip(), config.task)}), key)
            for value in re.findall(r"\[[^\]]*\]|[^,]+", values)
        )
        if len(set(map(repr, grid[key]))) < len(grid[key]):
            raise UserError(f"--sweep {text!r}: a value appears twice; leave one out")
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


def _seeds(experiment: Experiment) -> dict[str, ConfigDict]:
    """The config of each seed."""
    return {
        f"seed-{seed}": _changed(
            ConfigDict(experiment.sections.keys), {"seed": seed, "train.seeds": ()}
        )
        for seed in experiment.sections.train.seeds
    }


def _train_all(configs: Mapping[str, ConfigDict], workdir: Path, kind: str) -> Report:
    """Trains all runs, or continues them; then writes the report and copies the best model."""
    experiments = {name: Experiment.from_config(config) for name, config in configs.items()}
    best_metric, baselines = _check_all(experiments)
    with run_directory.writing(workdir):
        with main_host_first():
            _init_workdir(workdir, kind)
        outcomes = []
        for number, (name, experiment) in enumerate(experiments.items(), start=1):
            if is_main_host():
                say(f"run {number} of {len(experiments)}: {workdir / name}")
            outcomes.append(_train_one(dataclasses.replace(experiment), workdir, name))
            gc.collect()  # programs and arrays of a run refer to each other in cycles
        report = Report(outcomes, best_metric, baselines, kind)
        if is_main_host():
            _finish(report, workdir)
    return report


def check_key(experiment: Experiment) -> Hashable:
    """Among experiments with equal keys, `check` runs for one, `check_options` for the rest."""
    sections = experiment.sections
    train, optimizer = sections.train, sections.optimizer
    # `check` does not read the seed, and reads of these sections what follows.
    names = sections.keys.keys() - {"seed", "train", "optimizer", "mesh"}
    return (
        json.dumps({name: sections.keys[name] for name in names}, sort_keys=True),
        train.microbatches,
        train.global_batch_size if sections.mesh.auto else None,
        sections.mesh,
        optimizer.freeze_encoder,
        optimizer.freeze_layers,
        optimizer.shard_over_data,
    )


def _check_all(experiments: Mapping[str, Experiment]) -> tuple[tuple[str, bool], dict[str, float]]:
    """The metric that chooses the best run, and the baselines of the first run.

    All runs are checked first, so that none is refused after others have trained for hours; the
    data of experiments with the same task are read once.

    Raises:
        UserError: an experiment is refused, or they are evaluated by different metrics.
    """
    for experiment in experiments.values():
        experiment.check_devices()
    examples: dict[Hashable, int] = {}  # examples per epoch of each task
    best_metric: tuple[str, bool] | None = None
    baselines: dict[str, float] = {}
    for name, experiment in experiments.items():
        experiment = dataclasses.replace(experiment)  # its data and programs are freed after it
        key = check_key(experiment)
        if key in examples:
            experiment.check_options(examples[key])
            continue
        experiment.check()
        examples[key] = experiment.task.examples_per_epoch
        experiment.describe_data()
        evaluator = experiment.task.evaluator
        if best_metric is None:
            best_metric, baselines = evaluator.best_metric, evaluator.baselines()
        elif evaluator.best_metric != best_metric:
            raise OptionError(
                "data.best_metric",
                evaluator.best_metric[0],
                "compare runs by one metric: set {data.best_metric}",
                problem=f"run {name} is evaluated by {evaluator.best_metric[0]} and the first by "
                f"{best_metric[0]}",
            )
    assert best_metric is not None, "there are runs"
    return best_metric, baselines


def _train_one(experiment: Experiment, workdir: Path, name: str) -> Outcome:
    """Trains one run, unless it has already diverged with the same config."""
    directory = workdir / name
    note = directory / DIVERGED
    if from_main_host(note.is_file()):
        run_directory.check_config(directory, experiment.sections.keys)
        return Outcome(name, {}, note.read_text(encoding="utf-8").strip())
    if experiment.sections.train.seeds:
        inner = _train_all(_seeds(experiment), directory, "seeds")
        diverged = [outcome for outcome in inner.outcomes if not outcome.metrics]
        why = f"{len(diverged)} of {len(inner.outcomes)} seeds diverged" if diverged else ""
        return Outcome(name, inner.means, why, len(diverged))
    try:
        return Outcome(name, experiment.train(directory, describe=False), "")
    except DivergedError as error:
        if is_main_host():
            write_atomically(note, f"{error}\n".encode())
        return Outcome(name, {}, str(error))


def _init_workdir(workdir: Path, kind: str) -> None:
    """Creates a work directory of several runs, or checks that it is one; each run checks itself.

    Raises:
        UserError: it is something else, is damaged, or cannot be created.
    """
    path = workdir / SEVERAL_RUNS
    if is_there(path):
        try:
            old = str(read_json_object(path).get("kind"))
        except UserError:
            old = ""
        if old not in KINDS:
            raise UserError(
                f"{path} is damaged; remove it to continue the runs beside it, or use another "
                "--workdir"
            )
        if old != kind:
            raise UserError(f"{workdir} holds the runs of {old}; use another --workdir")
    elif (workdir / RUN_CONFIG).exists():
        raise UserError(f"{workdir} is a single run; use another --workdir for several")
    if is_main_host():
        write_atomically(path, (json.dumps({"kind": kind}) + "\n").encode())


def _finish(report: Report, workdir: Path) -> None:
    """Prints the report, and writes it and the best model; `result.json` is written last."""
    show(report.as_text())
    write_atomically(workdir / "result.md", report.as_markdown().encode())
    report.draw(workdir / "result.png")
    if report.best is not None:
        _copy_model(workdir / report.best.name / MODEL, workdir / MODEL)
    result = json.dumps(report.as_dict(), indent=2) + "\n"
    write_atomically(workdir / RESULT, result.encode())


def _copy_model(source: Path, target: Path) -> None:
    """Replaces an older copy of the model; the tensors are copied last.

    Raises:
        UserError: the copy cannot be written.
    """
    with atomic_directory(target, marker=DESCRIPTION, last=SAFETENSORS, obsolete=("*",)) as partial:
        shutil.copytree(fetch(source), partial, dirs_exist_ok=True)


def _changed(config: ConfigDict, values: Mapping[str, Any]) -> ConfigDict:
    """A copy of a config with some values replaced."""
    return set_keys(ConfigDict(config.to_dict()), values, where="--sweep")

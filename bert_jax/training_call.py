"""`bert_jax.train`: a training from Python, of records, with the keys of a config as arguments."""

import contextlib
import dataclasses
import filecmp
import itertools
import re
import shutil
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from bert_jax.config import config_with
from bert_jax.data.record_files import write_records
from bert_jax.errors import UserError
from bert_jax.experiment import Experiment
from bert_jax.experiment.sweep import train_seeds
from bert_jax.files import as_path, fetch, is_remote, is_there, reachable, read_json_object
from bert_jax.files.paths import MODEL, RESULT, RUN_CONFIG, SEVERAL_RUNS
from bert_jax.inference.loading import load
from bert_jax.inference.model import LoadedModel
from bert_jax.pictures.page import Page
from bert_jax.process import say
from bert_jax.reports import report
from bert_jax.sharding.hosts import is_main_host, main_host_first
from bert_jax.sharding.runtime import use_compilation_cache
from bert_jax.sharding.stopping import Interrupted

RECORDS = "records"
"""The folder of a run with the files of the records that it was given."""
# The folder of runs without a name of their own.
_RUNS = "runs"

Records = str | Path | Iterable[Any]
"""A file, several files, or records: dicts, a frame of pandas or polars, a data set."""


@dataclasses.dataclass(frozen=True)
class FinishedRun:
    """A training that has ended; a notebook shows its report.

    Attributes:
        model: the exported model, loaded.
        result: the content of `result.json`: metrics, baselines, and the list `warnings`; with
            `seeds` see `sweep_report.Report.as_dict`.
        workdir: directory of the run, with `model/`, `curves.png`, `predictions/` and the logs.
    """

    model: LoadedModel
    result: Mapping[str, Any]
    workdir: Path

    def report(self) -> Page:
        """Results, curves, confusion matrices and the worst mistakes, see `bert-jax report`."""
        return report([self.workdir])

    def _repr_html_(self) -> str:
        """For notebooks."""
        return self.report()._repr_html_()


def train(
    task: str,
    model: str | Path = "",
    train: Records | None = None,
    validation: Records | None = None,
    test: Records | None = None,
    *,
    workdir: str | Path | None = None,
    **keys: Any,
) -> FinishedRun:
    """Trains a model, as `bert-jax train` does, and loads it.

        run = bert_jax.train("classification", "MODEL", records, epochs=3, learning_rate=5e-5)
        run.model.classify(texts)

    Records are written to `WORKDIR/records/` as JSON lines, with the keys of the dicts or the
    columns of the frame, and read as such a file: for the keys of each task see "Fine-tuning". The
    same call with the same `workdir` continues a run that was stopped; one that is finished is
    loaded.

    Args:
        task: the name of a config of the package, which most tasks have under their own name
            ("classification", "tagging", "squad", "retrieval", "glue:task=mrpc"); a config file; or
            another task, for its defaults.
        model: the model to start from: a model directory, a run or a hub id.
        train: examples to train on: a file, or records: an iterable of dicts, a frame of pandas or
            polars, a `datasets.Dataset`. Pre-training takes a corpus instead, `corpus="DIR"`.
        validation: the same to evaluate on, or several files; None: a tenth of the training
            examples.
        test: the same to predict at the end.
        workdir: directory of the run; None: a new one, `runs/TASK-N`.
        **keys: arguments of the config file and keys of the config, by the last part of their name
            (`learning_rate=5e-5`, `steps=100`, `global_batch_size=16`, `seeds=(1, 2, 3)`) or by all
            of it (`**{"mesh.data": 2}`).

    Raises:
        UserError: a key, a record or a file is wrong, or `workdir` belongs to another run.
        KeyboardInterrupt: Ctrl-C, or the notebook's stop; what was trained is saved.
    """
    if not isinstance(model, str | Path):
        kind = type(model).__name__
        raise UserError(f"model is of type {kind}; save it, and give the directory or a hub id")
    values = {name: str(v) if isinstance(v, Path) else v for name, v in keys.items()}
    if model:
        values["model"] = str(model)
    use_compilation_cache()
    with _directory(task, workdir) as directory, _named_records(directory):
        for split, source in (("train", train), ("validation", validation), ("test", test)):
            if source is not None:
                files = _files(directory, split, source)
                values |= {split: files} if isinstance(files, str) else {f"data.{split}": files}
        config = config_with(task, values, where="train")
        try:
            if config.train.seeds:
                train_seeds(config, directory)
            else:
                Experiment.from_config(config).train(directory)
        except Interrupted as stop:
            raise KeyboardInterrupt(
                f"{stop}; the same call with workdir={str(directory)!r} continues"
            ) from stop
    result = read_json_object(directory / RESULT)
    return FinishedRun(load(directory / MODEL), result, directory)


def _files(directory: Path, split: str, source: Any) -> str | list[str]:
    """The file of a split, or its files; those of records are written."""
    if isinstance(source, str | Path):
        return str(source)
    if isinstance(source, list | tuple) and source and isinstance(source[0], str | Path):
        return [*map(str, source)]
    path = directory / RECORDS / f"{split}.jsonl"
    with main_host_first():
        if is_main_host():
            _write(path, source, split, is_begun=_is_begun(directory))
    return str(path)


def _write(path: Path, records: Any, name: str, *, is_begun: bool) -> None:
    """Writes records; those of a run that has begun must be the same.

    Raises:
        UserError: they are not, or cannot be written.
    """
    with reachable(path):
        path.parent.mkdir(parents=True, exist_ok=True)
    if not is_begun:
        write_records(path, records, name)
        return
    with tempfile.TemporaryDirectory(prefix="bert-jax-") as folder:
        new = Path(folder, path.name)
        write_records(new, records, name)
        if not is_there(path) or not filecmp.cmp(fetch(path), new, shallow=False):
            raise UserError(
                f"{path.parents[1]} was started with other records for {name}; use another "
                "workdir, or the old records"
            )


@contextlib.contextmanager
def _named_records(directory: Path) -> Iterator[None]:
    """Names the third record in errors as "train:3": the file may be gone with the directory."""
    try:
        yield
    except UserError as error:
        folder = re.escape(f"{directory / RECORDS}/")
        named = re.sub(rf"{folder}(\w+)\.jsonl", r"\1", message := str(error))
        if named == message:
            raise
        raise UserError(named) from error


def _is_begun(directory: Path) -> bool:
    return is_there(directory / RUN_CONFIG) or is_there(directory / SEVERAL_RUNS)


@contextlib.contextmanager
def _directory(task: str, workdir: str | Path | None) -> Iterator[Path]:
    """The directory of the run; a new one without a name is removed if the run does not begin."""
    if workdir is not None:
        path = as_path(workdir)
        yield path if is_remote(path) else path.expanduser().absolute()
        return
    name = Path(task.partition(":")[0]).stem
    for number in itertools.count(1):
        path = Path(_RUNS, f"{name}-{number}").absolute()
        try:
            path.mkdir(parents=True)
            break
        except FileExistsError:
            continue
    say(f"the run is in {path}")
    try:
        yield path
    finally:
        if not _is_begun(path):
            shutil.rmtree(path)

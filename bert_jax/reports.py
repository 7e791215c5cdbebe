"""Reports of training runs: what their work directories say, as one HTML page."""

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from bert_jax.config import flat_keys
from bert_jax.errors import UserError
from bert_jax.experiment.workdir import (
    PREDICTIONS,
    WARNINGS,
    finished_result,
    metrics_in,
    run_sections,
)
from bert_jax.files import as_path, is_there, open_regular, reachable
from bert_jax.files.paths import MODEL, RUN_CONFIG, SEVERAL_RUNS
from bert_jax.pictures.mistakes import mistakes
from bert_jax.pictures.page import Page
from bert_jax.pictures.run_report import Run, report_page
from bert_jax.training.logs import RESUMED, read_metrics


def report(workdirs: Sequence[str | Path]) -> Page:
    """The report of some runs, finished or not; a directory of several runs stands for them.

    Raises:
        UserError: a directory is not a run, or a file in it is damaged.
    """
    paths = runs_in(workdirs)
    names = [path.name for path in paths]
    if len(set(names)) < len(names):
        names = [*map(str, paths)]
    return report_page([*map(_run, paths, names)])


def runs_in(workdirs: Sequence[str | Path]) -> list[Path]:
    """The runs of these directories, see `report`."""
    return [path for workdir in workdirs for path in _runs_in(as_path(workdir))]


def _runs_in(workdir: Path) -> list[Path]:
    """The run of a directory, or the runs of several seeds or of a sweep.

    Raises:
        UserError: there are none yet.
    """
    if not is_there(workdir / SEVERAL_RUNS):
        return [workdir]
    with reachable(workdir):
        folders = [path for path in sorted(workdir.iterdir()) if path.is_dir()]
    runs = [
        run
        for folder in folders
        if folder.name != MODEL
        and any(is_there(folder / name) for name in (RUN_CONFIG, SEVERAL_RUNS))
        for run in _runs_in(folder)
    ]
    if not runs:
        raise UserError(f"{workdir}: none of its runs has begun; train first")
    return runs


def _run(workdir: Path, name: str) -> Run:
    sections = run_sections(workdir)
    result = finished_result(workdir) or {}
    return Run(
        name,
        dict(flat_keys(sections.keys)),
        read_metrics(workdir, "train"),
        read_metrics(workdir, "validation"),
        metrics_in(result),
        [line["step"] for line in read_metrics(workdir, RESUMED)],
        result.get(WARNINGS, ()),
        dict(_mistakes(workdir / PREDICTIONS)),
    )


def _mistakes(directory: Path) -> Iterator[tuple[str, str]]:
    """The mistakes of each set by its name."""
    if not is_there(directory):
        return
    with reachable(directory):
        files = sorted(directory.glob("*.jsonl"))
    for file in files:
        try:
            yield file.stem, mistakes(_records(file))
        except (LookupError, TypeError, ValueError) as error:
            raise UserError(f"{file} is damaged; evaluate the run again") from error


def _records(file: Path) -> Iterator[dict[str, Any]]:
    with open_regular(file, remedy="evaluate the run again") as content, reachable(file):
        yield from map(json.loads, content.read().splitlines())

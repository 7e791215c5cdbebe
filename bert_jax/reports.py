"""Reports of training runs: what their work directories say, as one HTML page."""

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from bert_jax.errors import UserError
from bert_jax.files import as_path, is_there, open_regular, reachable
from bert_jax.pictures.mistakes import mistakes
from bert_jax.pictures.page import Page
from bert_jax.pictures.run_report import Run, report_page
from bert_jax.training.logs import RESUMED, read_metrics
from bert_jax.workdir import finished_result, run_sections

_PREDICTIONS, _WARNINGS = "predictions", "warnings"


def report(workdirs: Sequence[str | Path]) -> Page:
    """The report of some runs, finished or not.

    Raises:
        UserError: a directory is not a run, or a file in it is damaged.
    """
    paths = [as_path(workdir) for workdir in workdirs]
    names = [path.name for path in paths]
    if len(set(names)) < len(names):
        names = [*map(str, paths)]
    return report_page([*map(_run, paths, names)])


def _run(workdir: Path, name: str) -> Run:
    sections = run_sections(workdir)
    result = finished_result(workdir) or {}
    warnings = result.pop(_WARNINGS, ())
    return Run(
        name,
        dict(_flat(sections.keys)),
        read_metrics(workdir, "train"),
        read_metrics(workdir, "validation"),
        result,
        [line["step"] for line in read_metrics(workdir, RESUMED)],
        warnings,
        dict(_mistakes(workdir / _PREDICTIONS)),
    )


def _flat(keys: Mapping[str, Any], before: str = "") -> Iterator[tuple[str, Any]]:
    """The keys of a config and of its sections, "train.steps"."""
    for key, value in keys.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{before}{key}.")
        else:
            yield f"{before}{key}", value


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

"""Runs: results of searches in the format of TREC, which trec_eval and its relatives read.

    QUERY Q0 DOCUMENT RANK SCORE TAG

Blanks separate the columns.
"""

import math
from collections.abc import Iterable, Mapping
from pathlib import Path

from bert_jax.data.readers.lines import open_lines
from bert_jax.errors import UserError
from bert_jax.files import as_path, atomic_file
from bert_jax.metrics.ranking import Run, ranked

_TAG = "bert_jax"


def read_run(source: str | Path) -> dict[str, dict[str, float]]:
    """Query id → document id → score; as for trec_eval, the rank of a line does not matter.

    Raises:
        UserError: the file cannot be read; or a line does not have six columns or a finite score,
            or repeats a document of its query.
    """
    run: dict[str, dict[str, float]] = {}
    with open_lines(source) as lines:
        for number, line in lines:
            location, columns = f"{lines.name}:{number}", line.split()
            if not columns:
                continue
            if len(columns) != 6:
                raise UserError(
                    f"{location}: {len(columns)} columns; a line of a run is query, Q0, document, "
                    "rank, score, tag"
                )
            query, _, document, _, text, _ = columns
            try:
                score = float(text)
            except ValueError:
                score = math.nan
            if not math.isfinite(score):
                raise UserError(f"{location}: the score is {text!r:.40}; give a finite number")
            scores = run.setdefault(query, {})
            if document in scores:
                raise UserError(
                    f"{location}: the document {document!r:.80} of query {query!r:.80} occurs "
                    "twice; keep one of the lines"
                )
            scores[document] = score
    return run


def write_run(path: str | Path, run: Run) -> None:
    """Writes a run to a file, which is replaced.

    Raises:
        UserError: the file cannot be written; see also `run_lines`.
    """
    content = "".join(run_lines(query, scores) for query, scores in run.items())
    with atomic_file(as_path(path)) as file:
        file.write(content.encode())


def check_names(names: Iterable[str], remedy: str = "rename it") -> None:
    """Raises UserError if a name is empty or has a blank, so that no run can have it."""
    for name in names:
        if len(name.split()) != 1 or name != name.strip():
            raise UserError(
                f"{name!r:.80} cannot be written to a run, whose columns have blanks between them; "
                f"{remedy}"
            )


def run_lines(query: str, scores: Mapping[str, float]) -> str:
    """The lines of a query, ranked as by trec_eval, with scores that are read back exactly.

    Args:
        query: id of the query.
        scores: document id → score.

    Raises:
        UserError: a name is empty or has a blank, or a score is not finite.
    """
    check_names((query, *scores), "rename it, or give an output with the ending .jsonl")
    if not all(map(math.isfinite, scores.values())):
        raise UserError(f"a score of query {query!r:.80} is not finite; a run has finite scores")
    return "".join(
        f"{query} Q0 {document} {rank} {float(scores[document])!r} {_TAG}\n"
        for rank, document in enumerate(ranked(scores), 1)
    )

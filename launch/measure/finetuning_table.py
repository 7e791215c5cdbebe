r"""validation scores of many labelled tasks, each with the command that gives them.

    python launch/measure/finetuning_table.py --data DIR --model DIR --output DIR [--rows mrpc …]
    python launch/measure/finetuning_table.py --commands

Below `--data` are looked for: glue/{MRPC,CoLA,SST-2,QNLI,WNLI,SICK}, classification/TREC.*,
squad/, ner/{conll2003,wnut17}, multiple_choice/openbookqa; `finetuning_rows.py` names the files of
each row. A row is trained with further seeds if the first takes less than ten minutes.

A run that is finished is not repeated. Writes `ROW.json` for each row and `table.md` to `--output`;
the runs are in `runs/`, without their checkpoints.
"""

import argparse
import json
import shlex
import shutil
import statistics
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from finetuning_rows import ROWS, Row
from timed_runs import last_json, markdown, mean_and_deviation, once, run

from bert_jax.errors import UserError
from bert_jax.files import write_atomically

CONFIGS = Path(__file__).parents[2] / "configs"

# A run that takes longer is made with one seed alone.
SECONDS = 600


def command(row: Row, data: str, made: str, model: str, seed: str, workdir: str) -> list[str]:
    """`bert-jax train` and its arguments."""
    keys = {name: value.format(data=data, made=made) for name, value in row.keys.items()}
    return [
        *("train", "--config", f"configs/{row.config}", "--workdir", workdir),
        *(f"--config.{name}={value}" for name, value in {"init_from": model, **keys}.items()),
        f"--config.seed={seed}",
    ]


def shown_command(key: str, more: Sequence[str] = ()) -> str:
    """As a person would write it, with DATA, MADE and MODEL for the places."""
    words = command(ROWS[key], "DATA", "MADE", "MODEL", "0", f"runs/{key}-0")
    return shlex.join(["bert-jax", *words, *(f"--config.{override}" for override in more)])


def run_seed(key: str, seed: int, options: argparse.Namespace) -> Any:
    """One training, or what it gave when it ran."""
    row = ROWS[key]
    folder, made = options.output / "runs" / f"{key}-{seed}", options.output / "made"
    words = command(row, str(options.data), str(made), str(options.model), str(seed), str(folder))
    words[2] = str(CONFIGS / row.config)
    words += [f"--config.{override}" for override in options.set]

    def work() -> dict[str, Any]:
        shutil.rmtree(folder, ignore_errors=True)  # what was begun would be timed wrongly
        if row.make:
            made.mkdir(parents=True, exist_ok=True)
            row.make(options.data, made)
        print(f"{row.name}, seed {seed} …", file=sys.stderr, flush=True)
        log = options.output / "runs" / f"{key}-{seed}.log"
        output, times = run([sys.executable, "-m", "bert_jax", *words], log)
        shutil.rmtree(folder / "checkpoints", ignore_errors=True)
        return {"scores": last_json(output), **times}

    return once(options.output / "runs" / f"{key}-{seed}.json", {"arguments": words}, work)


def run_row(key: str, options: argparse.Namespace) -> dict[str, Any]:
    """All seeds of a row; also written to its file."""
    results = {}
    for seed in options.seeds:
        results[seed] = run_seed(key, seed, options)
        if results[options.seeds[0]]["seconds"] >= SECONDS:
            break
    found = {
        "name": ROWS[key].name,
        "command": shown_command(key, options.set),
        "seeds": list(results),
        "scores": [result["scores"] for result in results.values()],
        "seconds": [result["seconds"] for result in results.values()],
    }
    write_atomically(options.output / f"{key}.json", (json.dumps(found, indent=2) + "\n").encode())
    return found


def as_markdown(found: dict[str, dict[str, Any]]) -> str:
    """The table, and the commands below it."""
    lines = []
    for key, of_row in found.items():
        row = ROWS[key]
        scores = ", ".join(
            f"{label} {mean_and_deviation([row.scale * one[name] for one in of_row['scores']], 1)}"
            for name, label in row.metrics.items()
        )
        # Those of SQuAD are percents in any case.
        baseline = f"{row.scale * of_row['scores'][0][row.baseline]:.1f}" if row.baseline else "–"
        seconds = f"{statistics.median(of_row['seconds']):.0f}"
        seeds = str(len(of_row["seeds"]))
        lines.append([row.name, f"`{row.config}`", row.judged, scores, baseline, seeds, seconds])
    head = [
        *("data set", "config", "judged on", "scores, % (mean ± deviation)"),
        *("baseline", "seeds", "seconds of a run"),
    ]
    commands = "".join(f"{of_row['command']}\n" for of_row in found.values())
    return f"{markdown(head, lines, texts=4)}\n```sh\n{commands}```\n"


def main(arguments: list[str] | None = None) -> None:
    """Parses the arguments and trains row after row."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, help="directory, see the source")
    parser.add_argument("--model", type=Path, help="directory of Hugging Face")
    parser.add_argument("--output", type=Path, help="directory of the results")
    parser.add_argument("--rows", nargs="+", choices=ROWS, default=list(ROWS), metavar="ROW")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--commands", action="store_true", help="print them; train nothing")
    parser.add_argument(
        "--set", nargs="+", default=[], metavar="KEY=VALUE", help="more keys, for a trial"
    )
    options = parser.parse_args(arguments)
    if options.commands:
        print("\n".join(shown_command(key, options.set) for key in options.rows))
        return
    for name in ("data", "model", "output"):
        if getattr(options, name) is None:
            parser.error(f"--{name} is needed")
        setattr(options, name, getattr(options, name).resolve())
    try:
        found: dict[str, dict[str, Any]] = {}
        for key in options.rows:
            found[key] = run_row(key, options)
            text = as_markdown(found)
            write_atomically(options.output / "table.md", text.encode())
        print(text)
    except UserError as error:
        raise SystemExit(f"finetuning_table: {error}") from None


if __name__ == "__main__":
    main()

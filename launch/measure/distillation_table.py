"""Scores of small students with and without a teacher, each with the command that gives them.

    python launch/measure/distillation_table.py --data DIR --model DIR --output DIR \
        [--rows trec …] [--layers 3 2] [--seeds 0 1 2] [--set KEY=VALUE …]

The rows are those of `finetuning_table.py`. The teacher is the model fine-tuned on the row, with
the first seed. A student begins with some of its layers and learns its scores and the labels;
without a teacher a student begins with the same layers of the model itself and learns the labels.

The seconds are those that `result.json` has: teacher and student take turns within a run.

A run that is finished is not repeated. Writes `table.md` to `--output`.
"""

import argparse
import dataclasses
import statistics
from pathlib import Path
from typing import Any

from finetuning_table import ROWS, run_seed, shown_command
from timed_runs import markdown, mean_and_deviation

from bert_jax.errors import UserError
from bert_jax.files import write_atomically

# As configs/distill.py has them.
WEIGHTS = ("distillation.soft_weight=0.5", "distillation.task_weight=0.5")


@dataclasses.dataclass(frozen=True)
class Variant:
    """A model of the table.

    Attributes:
        name: its column, and its directory.
        model: what it begins with.
        keys: `KEY=VALUE` of the config.
    """

    name: str
    model: Path
    keys: tuple[str, ...] = ()


def students(model: Path, teacher: Path, layers: list[int]) -> list[Variant]:
    """The students of each number of layers, with and without their teacher."""
    found = []
    for count in layers:
        keep = f"model.keep_layers={count}"
        taught = (keep, f"distillation.teacher={teacher}", *WEIGHTS)
        found += [
            Variant(f"{count} layers, teacher", teacher, taught),
            Variant(f"{count} layers, alone", model, (keep,)),
        ]
    return found


def run_variant(key: str, variant: Variant, seeds: list[int], options: argparse.Namespace) -> Any:
    """The results of all seeds."""
    settings = argparse.Namespace(
        data=options.data,
        model=variant.model,
        output=options.output / variant.name.replace(", ", "-").replace(" ", "-"),
        set=[*options.set, *variant.keys],
    )
    return [run_seed(key, seed, settings) for seed in seeds]


def run_row(key: str, options: argparse.Namespace) -> list[str]:
    """The cells of a row."""
    row = ROWS[key]
    metric, label = next(iter(row.metrics.items()))
    (teacher,) = run_variant(key, Variant("teacher", options.model), options.seeds[:1], options)
    folder = options.output / "teacher" / "runs" / f"{key}-{options.seeds[0]}" / "model"
    cells = [row.name, label, f"{row.scale * teacher['scores'][metric]:.1f}"]
    teacher_times: list[float] = []  # milliseconds per text are seconds per 1,000
    for variant in students(options.model, folder, options.layers):
        results = run_variant(key, variant, options.seeds, options)
        scores = [row.scale * result["scores"][metric] for result in results]
        cells.append(mean_and_deviation(scores, 1))
        if "teacher" in variant.name:
            times = [result["scores"]["student_ms_per_text"] for result in results]
            cells.append(f"{statistics.median(times):.2f}")
            teacher_times += [result["scores"]["teacher_ms_per_text"] for result in results]
    cells.insert(3, f"{statistics.median(teacher_times):.2f}")
    return cells


def as_markdown(rows: list[list[str]], options: argparse.Namespace) -> str:
    """The table, and the command of each row's teacher below it."""
    head = ["data set", "metric", "teacher", "s per 1,000 texts"]
    for count in options.layers:
        head += [f"{count} layers, with the teacher", "s per 1,000", f"{count} layers, without"]
    commands = "".join(f"{shown_command(key, options.set)}\n" for key in options.rows)
    return f"{markdown(head, rows, texts=2)}\n```sh\n{commands}```\n"


def main(arguments: list[str] | None = None) -> None:
    """Parses the arguments and trains row after row."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True, help="see finetuning_table.py")
    parser.add_argument("--model", type=Path, required=True, help="directory of Hugging Face")
    parser.add_argument("--output", type=Path, required=True, help="directory of the results")
    rows = ["mrpc", "sst2", "trec", "conll2003"]
    parser.add_argument("--rows", nargs="+", choices=ROWS, default=rows, metavar="ROW")
    parser.add_argument("--layers", type=int, nargs="+", default=[3, 2])
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--set", nargs="+", default=[], metavar="KEY=VALUE", help="more keys")
    options = parser.parse_args(arguments)
    for name in ("data", "model", "output"):
        setattr(options, name, getattr(options, name).resolve())
    try:
        done: list[list[str]] = []
        for key in options.rows:
            done.append(run_row(key, options))
            text = as_markdown(done, options)
            write_atomically(options.output / "table.md", text.encode())
        print(text)
    except UserError as error:
        raise SystemExit(f"distillation_table: {error}") from None


if __name__ == "__main__":
    main()

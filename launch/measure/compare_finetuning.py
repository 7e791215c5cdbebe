r"""Fine-tuning side by side with PyTorch and transformers: scores and wall time, the same task.

    python launch/measure/compare_finetuning.py --task mrpc --data DIR --model DIR --output DIR
    python launch/measure/compare_finetuning.py --task all --data DIR --model DIR --output DIR

Tasks, with their files below `--data`:

    mrpc        glue/MRPC/train.tsv, dev.tsv (GLUE's)
    conll2003   ner/conll2003/eng.train, eng.testa; 4,000 sentences to train on
    squad       squad/train-v1.1.json, dev-v1.1.json (or .gz, or dev-v1.1.part-public.json); 4,000
                questions to train on

For each seed, `bert-jax train` and `finetuning_peer.py` run one after the other, each as a user
would run it: a whole process, with import, reading, tokenising, compiling, training and
evaluation; bert_jax saves its model, too. Both read the same files (the subsets are drawn once and
written to `--output`), have the same recipe, and evaluate the weights of the last step. Both
compute with their defaults: bert_jax in bfloat16 where the processor multiplies it, with huge pages
where Linux has them; the peer in float32. `--precision` sets that of both. The predictions of both
are scored by `bert_jax.metrics`.

A run that is finished is not repeated. Writes `comparison.md` and `comparison.png` to `--output`.
Compiled programs are kept in `--output`, too: the first seed of a task compiles, as a user's
first run does, and the others load its programs. `--examples`, `--evaluated`, `--epochs` and
`--length` shrink everything for a trial.
"""

import argparse
import dataclasses
import json
import re
import shutil
import statistics
import sys
from pathlib import Path
from typing import Any

from comparison_tasks import COMPARISONS, Recipe, choose
from timed_runs import last_json, markdown, mean_and_deviation, once, run

from bert_jax.errors import UserError
from bert_jax.files import write_atomically

HERE = Path(__file__).parent
SIDES = {"bert_jax": "bert_jax", "peer": "PyTorch + transformers"}


@dataclasses.dataclass(frozen=True)
class Job:
    """A comparison with its files.

    Attributes:
        task: its name.
        recipe: of both sides.
        train: the chosen examples.
        validation: those that are evaluated.
        model: the directory that both begin with.
        output: of this task.
    """

    task: str
    recipe: Recipe
    train: Path
    validation: Path
    model: Path
    output: Path

    def settings(self, side: str, seed: int) -> dict[str, Any]:
        """What a result depends on."""
        files = {"train": self.train.name, "validation": self.validation.name}
        files["model"] = str(self.model)
        return {"side": side, "seed": seed, **files, **dataclasses.asdict(self.recipe)}

    def result(self, side: str, seed: int) -> Any:
        """Runs a side, or reads its result from the file."""
        work = {"bert_jax": self.run_bert_jax, "peer": self.run_peer}[side]
        path = self.output / f"{side}-{seed}.json"
        return once(path, self.settings(side, seed), lambda: work(seed))

    def run_bert_jax(self, seed: int) -> dict[str, Any]:
        """`bert-jax train`."""
        workdir = self.output / f"run-{seed}"
        shutil.rmtree(workdir, ignore_errors=True)  # what was begun would be timed wrongly
        recipe = self.recipe
        keys = {
            "init_from": self.model,
            "seed": seed,
            "data.train": self.train,
            "data.validation": self.validation,
            "data.length": recipe.length,
            "optimizer.learning_rate": recipe.learning_rate,
            "precision": recipe.precision,
            "train.epochs": recipe.epochs,
            "train.global_batch_size": recipe.batch_size,
            "train.evaluate_per_epoch": 0,
            "train.eval_every": 0,
            "train.checkpoint_every": 0,
            "train.export": "latest",
        }
        config = HERE.parents[1] / "configs" / COMPARISONS[self.task].config
        command = [sys.executable, "-m", "bert_jax", "train", "--config", str(config)]
        command += ["--workdir", str(workdir)]
        command += [f"--config.{key}={value}" for key, value in keys.items()]
        name = f"bert_jax-{seed}"
        output, times = self.timed(command, name)
        log = (self.output / f"{name}.log").read_text(encoding="utf-8", errors="replace")
        times["compile_seconds"] = compile_seconds(log)
        shutil.rmtree(workdir / "checkpoints", ignore_errors=True)
        predictions = COMPARISONS[self.task].predictions(workdir / "predictions")
        return self.scored(predictions, times) | {"own": last_json(output), "command": command}

    def run_peer(self, seed: int) -> dict[str, Any]:
        """PyTorch and transformers."""
        predictions = self.output / f"peer-{seed}.predictions.json"
        recipe = self.recipe
        options = {
            "--train": self.train,
            "--validation": self.validation,
            "--model": self.model,
            "--predictions": predictions,
            "--seed": seed,
            "--epochs": recipe.epochs,
            "--batch-size": recipe.batch_size,
            "--learning-rate": recipe.learning_rate,
            "--length": recipe.length,
            "--precision": recipe.precision,
        }
        command = [sys.executable, str(HERE / "finetuning_peer.py"), self.task]
        for name, value in options.items():
            command += [name, str(value)]
        output, times = self.timed(command, f"peer-{seed}")
        content = json.loads(predictions.read_text(encoding="utf-8"))
        return self.scored(content, times) | {"own": last_json(output), "command": command}

    def timed(self, command: list[str], name: str) -> tuple[str, dict[str, float]]:
        """Runs a command with a cache of this task, and without the hub."""
        environment = {"XDG_CACHE_HOME": str(self.output / "cache"), "HF_HUB_OFFLINE": "1"}
        environment["JAX_LOG_COMPILES"] = "1"
        print(f"{self.task}: {name} …", file=sys.stderr, flush=True)
        return run(command, self.output / f"{name}.log", environment)

    def scored(self, predictions: Any, times: dict[str, float]) -> dict[str, Any]:
        """Scores and times."""
        return {"scores": COMPARISONS[self.task].score(self.validation, predictions), **times}


def compile_seconds(log: str) -> float:
    """The sum of what JAX logs of its compilations; programs read from the cache take little."""
    return sum(map(float, re.findall(r"Finished XLA compilation of .* in (\S+) sec", log)))


Results = dict[str, list[Any]]


def table(by_task: dict[str, Results]) -> str:
    """All tasks and sides: scores over the seeds, median times, and times by those of the peer."""
    rows = []
    for task, sides in by_task.items():
        medians = {
            side: statistics.median(result["seconds"] for result in results)
            for side, results in sides.items()
        }
        for side, results in sides.items():
            scores = ", ".join(
                f"{name} {mean_and_deviation([one['scores'][name] for one in results], 2)}"
                for name in results[0]["scores"]
            )
            times, compiled = (
                ", ".join(f"{one[name]:.0f}" if name in one else "–" for one in results)
                for name in ("seconds", "compile_seconds")
            )
            processor = statistics.median(one["processor_seconds"] for one in results)
            ratio = f"{medians[side] / medians['peer']:.2f}" if "peer" in medians else "–"
            rows.append(
                [
                    task,
                    SIDES[side],
                    scores,
                    times,
                    compiled,
                    f"{medians[side]:.0f}",
                    ratio,
                    f"{processor:.0f}",
                ]
            )
    head = ["task", "side", "validation scores, %", "wall s of the seeds", "compiling, s"]
    return markdown([*head, "median s", "of the peer's", "processor s"], rows, texts=3)


def draw(by_task: dict[str, Results], path: Path) -> None:
    """A column for each task: the scores of all seeds above, the seconds below."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(
        2, len(by_task), figsize=(4 * len(by_task), 6), squeeze=False, layout="constrained"
    )
    for column, (task, sides) in enumerate(by_task.items()):
        above, below = axes[:, column]
        for number, (side, results) in enumerate(sides.items()):
            names = list(results[0]["scores"])
            for place, name in enumerate(names):
                scores = [one["scores"][name] for one in results]
                places = [place + 0.3 * (number - 0.5)] * len(scores)
                label = SIDES[side] if place == 0 else None
                above.plot(places, scores, "o", color=f"C{number}", alpha=0.7, label=label)
            above.set_xticks(range(len(names)), names)
            above.set_xlim(-0.5, len(names) - 0.5)
            seconds = [one["seconds"] for one in results]
            below.bar(number, statistics.median(seconds), width=0.6, color=f"C{number}", alpha=0.4)
            below.plot([number] * len(seconds), seconds, "o", color=f"C{number}")
        above.set_title(task)
        below.set_xticks(range(len(sides)), [SIDES[side] for side in sides])
    axes[0, 0].set_ylabel("score on the validation set, %")
    axes[1, 0].set_ylabel("whole process, s (points: seeds)")
    axes[0, 0].legend()
    figure.savefig(path, dpi=150)
    pyplot.close(figure)


def make_job(task: str, options: argparse.Namespace) -> Job:
    """The files of a comparison, drawn and written."""
    comparison = COMPARISONS[task]
    recipe = comparison.recipe
    overrides = {name: getattr(options, name) for name in ("epochs", "length", "precision")}
    changed = {name: value for name, value in overrides.items() if value is not None}
    recipe = dataclasses.replace(recipe, **changed)
    output = options.output / task
    examples = comparison.examples if options.examples is None else options.examples
    train = choose(comparison, comparison.train, options.data, examples, output / "data")
    evaluated = choose(
        comparison, comparison.validation, options.data, options.evaluated, output / "data"
    )
    return Job(task, recipe, train, evaluated, options.model.resolve(), output)


def main(arguments: list[str] | None = None) -> None:
    """Parses the arguments and compares."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--task", choices=(*COMPARISONS, "all"), required=True)
    parser.add_argument("--data", type=Path, required=True, help="directory, see the source")
    parser.add_argument("--model", type=Path, required=True, help="directory of Hugging Face")
    parser.add_argument("--output", type=Path, required=True, help="directory of the results")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--only", choices=SIDES, help="this side alone")
    parser.add_argument("--examples", type=int, help="to train on, in place of the task's number")
    parser.add_argument("--evaluated", type=int, default=0, help="validation examples (0: all)")
    parser.add_argument("--epochs", type=float, help="in place of the task's number")
    parser.add_argument("--length", type=int, help="the most tokens of a row, likewise")
    parser.add_argument("--precision", help="of both: float32 or bfloat16 (default: each its own)")
    options = parser.parse_args(arguments)
    options.output = options.output.resolve()
    sides = [options.only] if options.only else list(SIDES)
    try:
        by_task: dict[str, Results] = {}
        for task in COMPARISONS if options.task == "all" else [options.task]:
            job = make_job(task, options)
            results: Results = {side: [] for side in sides}
            for seed in options.seeds:
                for side in sides:
                    results[side].append(job.result(side, seed))
            by_task[task] = results
            text = table(by_task)
            write_atomically(options.output / "comparison.md", text.encode())
            draw(by_task, options.output / "comparison.png")
        print(text)
    except UserError as error:
        raise SystemExit(f"compare_finetuning: {error}") from None


if __name__ == "__main__":
    main()

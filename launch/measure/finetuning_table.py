r"""Validation scores of many labelled tasks, each with the command that gives them.

    python launch/measure/finetuning_table.py --data DIR --model DIR --output DIR [--rows mrpc …]
    python launch/measure/finetuning_table.py --commands

Files below `--data`: glue/{MRPC,CoLA,SST-2,QNLI,WNLI,SICK}, classification/TREC.*, squad/,
ner/{conll2003,wnut17}, multiple_choice/openbookqa; `ROWS` names the files of each row. A row is
trained with more seeds if the first run takes less than ten minutes.

A run that is finished is not repeated. Writes `ROW.json` for each row and `table.md` to `--output`;
the runs are in `runs/`, without their checkpoints.
"""

import argparse
import dataclasses
import gzip
import json
import random
import shlex
import shutil
import statistics
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from timed_runs import last_json, markdown, mean_and_deviation, once, run

from bert_jax.errors import UserError
from bert_jax.files import write_atomically

CONFIGS = Path(__file__).parents[2] / "configs"

# A run that takes longer is made with one seed alone.
SECONDS = 600


# Of the articles of the public part of SQuAD 2.0, each fourth one is evaluated. Two thirds of its
# questions are few, so that questions of 1.1 are added to those that are trained on.
EVALUATED_EVERY = 4
ADDED_QUESTIONS = 4000
DRAWN_BY = 2018

# Evaluated once, at the end, with the last weights: where evaluation takes long, or on a test set.
AT_THE_END = {
    "train.evaluate_per_epoch": "0",
    "train.eval_every": "0",
    "train.checkpoint_every": "0",
    "train.export": "latest",
}


@dataclasses.dataclass(frozen=True)
class Row:
    """A data set.

    Attributes:
        name: as people call it.
        config: below `configs/`.
        keys: of the config; {data} stands for `--data`, {made} for the files that are made.
        metrics: what is shown, by the name in `result.json`.
        baseline: what a model that learns nothing gets in the first metric, by its name there.
        evaluated_on: what the scores are for.
        scale: makes percent of a metric.
        make: writes files; takes `--data` and their directory.
    """

    name: str
    config: str
    keys: dict[str, str]
    metrics: dict[str, str]
    baseline: str = ""
    evaluated_on: str = "validation set"
    scale: float = 100.0
    make: Callable[[Path, Path], None] | None = None


def make_trec(data: Path, made: Path) -> None:
    """`LABEL text` as a table."""
    for split in ("train", "test"):
        lines = (data / f"classification/TREC.{split}.all").read_text(encoding="utf-8").splitlines()
        rows = [line.split(" ", 1) for line in lines if line.strip()]
        text = "".join(f"{label}\t{text}\n" for label, text in [("label", "text"), *rows])
        write_atomically(made / f"trec-{split}.tsv", text.encode())


def make_squad2(data: Path, made: Path) -> None:
    """Some public articles of 2.0 to evaluate on; the others and questions of 1.1 to train on."""
    articles = read_json(data / "squad/dev-v2.0.part-public.json")["data"]
    evaluated = articles[EVALUATED_EVERY - 1 :: EVALUATED_EVERY]
    trained = [
        article
        for number, article in enumerate(articles)
        if number % EVALUATED_EVERY != EVALUATED_EVERY - 1
    ]
    questions = [
        (paragraph["context"], question)
        for article in read_json(data / "squad/train-v1.1.json.gz")["data"]
        for paragraph in article["paragraphs"]
        for question in paragraph["qas"]
    ]
    added = random.Random(DRAWN_BY).sample(questions, ADDED_QUESTIONS)
    paragraphs = [
        {"context": context, "qas": [{**question, "is_impossible": False}]}
        for context, question in added
    ]
    trained.append({"title": "SQuAD 1.1", "paragraphs": paragraphs})
    for name, chosen in (("train", trained), ("validation", evaluated)):
        content = json.dumps({"version": "v2.0", "data": chosen})
        write_atomically(made / f"squad2-{name}.json", content.encode())


def read_json(path: Path) -> Any:
    """A file of JSON, compressed or not."""
    content = path.read_bytes()
    return json.loads(gzip.decompress(content) if path.suffix == ".gz" else content)


def glue(name: str, folder: str, metrics: dict[str, str], **keys: str) -> Row:
    """A task of GLUE; keys are those of section `data`."""
    all_keys = {"data.directory": f"{{data}}/glue/{folder}", "optimizer.learning_rate": "5e-5"}
    all_keys |= {f"data.{key}": value for key, value in keys.items()}
    baseline = f"{next(iter(metrics))}_majority"
    return Row(folder, f"glue.py:task={name}", all_keys, metrics, baseline)


def sick(name: str, config: str, metrics: dict[str, str], baseline: str, **keys: str) -> Row:
    """The pairs of SICK; keys are those of section `data`."""
    all_keys = {
        "data.train": "{data}/glue/SICK/SICK_train.txt",
        "data.validation": "{data}/glue/SICK/SICK_trial.txt",
        "data.format": "tsv",
        "data.text_column": "sentence_A",
        "data.pair_column": "sentence_B",
        "optimizer.learning_rate": "5e-5",
    }
    all_keys |= {f"data.{key}": value for key, value in keys.items()}
    return Row(name, config, all_keys, metrics, baseline, evaluated_on="trial set")


ACCURACY = {"accuracy": "accuracy"}
CORRELATION = {"pearson": "Pearson", "spearman": "Spearman"}
ENTITIES = {"f1": "entity F1"}
ANSWERS = {"f1": "F1", "exact_match": "exact match"}

ROWS = {
    "mrpc": glue("mrpc", "MRPC", {**ACCURACY, "f1": "F1"}),
    "cola": glue(
        "cola",
        "CoLA",
        {"matthews_correlation": "Matthews", **ACCURACY},
        validation="in_domain_dev.tsv",
    ),
    "sst2": glue("sst2", "SST-2", ACCURACY, limit="10000"),
    "qnli": dataclasses.replace(
        glue("qnli", "QNLI", ACCURACY, train="train_from_dev.tsv"), evaluated_on="validation tenth"
    ),
    "wnli": glue("wnli", "WNLI", ACCURACY),
    "sick_relatedness": sick(
        "SICK, relatedness",
        "classification.py",
        CORRELATION,
        "",
        label_column="relatedness_score",
        problem_type="regression",
    ),
    "sick_embeddings": sick(
        "SICK, relatedness by embeddings",
        "similarity.py:loss=cosine",
        {"spearman": "Spearman", "pearson": "Pearson"},
        "spearman_overlap",
        label_column="relatedness_score",
        label_range="1,5",
    ),
    "sick_entailment": sick(
        "SICK, entailment",
        "classification.py",
        ACCURACY,
        "accuracy_majority",
        label_column="entailment_judgment",
    ),
    "trec": Row(
        "TREC",
        "classification.py",
        {
            "data.train": "{made}/trec-train.tsv",
            "data.validation": "{made}/trec-test.tsv",
            "data.quotes": "none",
            "optimizer.learning_rate": "5e-5",
            **AT_THE_END,
        },
        {**ACCURACY, "macro_f1": "macro F1"},
        "accuracy_majority",
        evaluated_on="test set",
        make=make_trec,
    ),
    "squad1": Row(
        "SQuAD 1.1, 8,000 questions",
        "squad.py:version=1.1",
        {
            "data.train": "{data}/squad/train-v1.1.json.gz",
            "data.validation": "{data}/squad/dev-v1.1.part-public.json",
            "data.limit": "8000",
            **AT_THE_END,
        },
        ANSWERS,
        evaluated_on="validation set, public half",
        scale=1.0,
    ),
    "squad2": Row(
        "SQuAD 2.0, public articles",
        "squad.py:version=2.0",
        {
            "data.train": "{made}/squad2-train.json",
            "data.validation": "{made}/squad2-validation.json",
            **AT_THE_END,
        },
        {**ANSWERS, "has_answer_f1": "F1 with answers", "no_answer_f1": "F1 without"},
        "f1_no_answer",
        evaluated_on="each fourth article",
        scale=1.0,
        make=make_squad2,
    ),
    "conll2003": Row(
        "CoNLL-2003",
        "tagging.py",
        {
            "data.train": "{data}/ner/conll2003/eng.train",
            "data.validation": "{data}/ner/conll2003/eng.testa",
        },
        ENTITIES,
        "f1_lexicon",
    ),
    "wnut17": Row(
        "WNUT-17",
        "tagging.py",
        {
            "data.train": "{data}/ner/wnut17/train.conll",
            "data.validation": "{data}/ner/wnut17/dev.conll",
            "train.epochs": "5",
        },
        ENTITIES,
        "f1_lexicon",
    ),
    "openbookqa": Row(
        "OpenBookQA",
        "multiple_choice.py",
        {
            "data.train": "{data}/multiple_choice/openbookqa/train.jsonl",
            "optimizer.learning_rate": "5e-5",
        },
        ACCURACY,
        "accuracy_chance",
        evaluated_on="validation tenth",
    ),
}


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
    """One training, or its result from the file."""
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
    result = {
        "name": ROWS[key].name,
        "command": shown_command(key, options.set),
        "seeds": list(results),
        "scores": [result["scores"] for result in results.values()],
        "seconds": [result["seconds"] for result in results.values()],
    }
    write_atomically(options.output / f"{key}.json", (json.dumps(result, indent=2) + "\n").encode())
    return result


def as_markdown(results: dict[str, dict[str, Any]]) -> str:
    """The table, and the commands below it."""
    lines = []
    for key, of_row in results.items():
        row = ROWS[key]
        scores = ", ".join(
            f"{label} {mean_and_deviation([row.scale * one[name] for one in of_row['scores']], 1)}"
            for name, label in row.metrics.items()
        )
        # Those of SQuAD are percents in any case.
        baseline = f"{row.scale * of_row['scores'][0][row.baseline]:.1f}" if row.baseline else "–"
        seconds = f"{statistics.median(of_row['seconds']):.0f}"
        seeds = str(len(of_row["seeds"]))
        lines.append(
            [row.name, f"`{row.config}`", row.evaluated_on, scores, baseline, seeds, seconds]
        )
    head = [
        *("data set", "config", "evaluated on", "scores, % (mean ± deviation)"),
        *("baseline", "seeds", "seconds of a run"),
    ]
    commands = "".join(f"{of_row['command']}\n" for of_row in results.values())
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
        results: dict[str, dict[str, Any]] = {}
        for key in options.rows:
            results[key] = run_row(key, options)
            text = as_markdown(results)
            write_atomically(options.output / "table.md", text.encode())
        print(text)
    except UserError as error:
        raise SystemExit(f"finetuning_table: {error}") from None


if __name__ == "__main__":
    main()

"""The rows of `finetuning_table.py`: data sets, and how they are trained on."""

import dataclasses
import gzip
import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bert_jax.files import write_atomically

# Of the articles of the public part of SQuAD 2.0, each fourth one is judged. Two thirds of its
# questions are few, so that questions of 1.1 are added to those that are trained on.
JUDGED_EVERY = 4
ADDED_QUESTIONS = 4000
DRAWN_BY = 2018

# Judged once, at the end, by the last weights: where judging takes long, or on a test set.
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
        judged: what the scores are for.
        scale: makes percent of a metric.
        make: writes files, given `--data` and their directory.
    """

    name: str
    config: str
    keys: dict[str, str]
    metrics: dict[str, str]
    baseline: str = ""
    judged: str = "validation set"
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
    """Articles of the public part of 2.0 to judge; the others and questions of 1.1 to train on."""
    articles = read_json(data / "squad/dev-v2.0.part-public.json")["data"]
    judged = articles[JUDGED_EVERY - 1 :: JUDGED_EVERY]
    trained = [
        article
        for number, article in enumerate(articles)
        if number % JUDGED_EVERY != JUDGED_EVERY - 1
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
    for name, found in (("train", trained), ("validation", judged)):
        content = json.dumps({"version": "v2.0", "data": found})
        write_atomically(made / f"squad2-{name}.json", content.encode())


def read_json(path: Path) -> Any:
    """A file of JSON, compressed or not."""
    content = path.read_bytes()
    return json.loads(gzip.decompress(content) if path.suffix == ".gz" else content)


def glue(name: str, folder: str, metrics: dict[str, str], **keys: str) -> Row:
    """A task of GLUE; keys are those of section `data`."""
    found = {"data.directory": f"{{data}}/glue/{folder}", "optimizer.learning_rate": "5e-5"}
    found |= {f"data.{key}": value for key, value in keys.items()}
    baseline = f"{next(iter(metrics))}_majority"
    return Row(folder, f"glue.py:task={name}", found, metrics, baseline)


def sick(name: str, config: str, metrics: dict[str, str], baseline: str, **keys: str) -> Row:
    """The pairs of SICK; keys are those of section `data`."""
    found = {
        "data.train": "{data}/glue/SICK/SICK_train.txt",
        "data.validation": "{data}/glue/SICK/SICK_trial.txt",
        "data.format": "tsv",
        "data.text_column": "sentence_A",
        "data.pair_column": "sentence_B",
        "optimizer.learning_rate": "5e-5",
    }
    found |= {f"data.{key}": value for key, value in keys.items()}
    return Row(name, config, found, metrics, baseline, judged="trial set")


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
        glue("qnli", "QNLI", ACCURACY, train="train_from_dev.tsv"), judged="validation tenth"
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
        judged="test set",
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
        judged="validation set, public half",
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
        judged="each fourth article",
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
        judged="validation tenth",
    ),
}

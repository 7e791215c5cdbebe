"""Collections with queries, judgements and training data, for the works of search.

SQuAD: the questions of the first half of the articles train, questions of the others are searched
in the paragraphs of all articles. WikiQA and TrecQA: the questions of the development set that have
an answer, each with its list of candidates. Cranfield has nothing to train on: models are trained
on SQuAD.
"""

import argparse
import csv
import io
import json
import random
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.samples import SEED, read_text, write

LISTS = {"wikiqa": ("train.tsv.gz", "dev.tsv"), "trecqa": ("train.csv", "dev.csv")}


class Collection(NamedTuple):
    """Paths: documents, queries and judgements in one; training data; its name."""

    searched: str
    train: str
    trained_on: str
    has_lists: bool = False


def collection(options: argparse.Namespace) -> Collection:
    """The files of `set`; `examples` questions of SQuAD train, `evaluated` others are asked."""
    directory = Path(options.data, "retrieval", options.set)
    if options.set in LISTS:
        train, evaluated = LISTS[options.set]
        folder = candidate_folder(options, directory / evaluated)
        return Collection(folder, str(directory / train), options.set, has_lists=True)
    searched, train = squad(options)
    return Collection(searched if options.set == "squad" else str(directory), train, "squad")


def squad(options: argparse.Namespace) -> tuple[str, str]:
    """SQuAD with drawn questions of the second half of the articles; the first half, likewise."""
    articles = json.loads(read_text(Path(options.data, "squad/train-v1.1.json.gz")))["data"]
    half = len(articles) // 2
    first = articles[:half]
    asked = with_questions(articles[half:], options.evaluated)
    searched = [*with_questions(first, 0), *asked]

    def written(name: str, data: list[Any]) -> str:
        return write(options, f"squad-{name}.json", json.dumps({"version": "1.1", "data": data}))

    train = written(f"train-{options.examples}", with_questions(first, options.examples))
    return written(f"searched-{options.evaluated}", searched), train


def texts_of(options: argparse.Namespace) -> str:
    """The paragraphs of SQuAD as documents of a text file."""
    articles = json.loads(read_text(Path(options.data, "squad/train-v1.1.json.gz")))["data"]
    paragraphs = [each["context"] for article in articles for each in article["paragraphs"]]
    return write(options, "squad.txt", "\n\n".join(paragraphs))


def with_questions(articles: list[Any], count: int) -> list[Any]:
    """The articles with so many of their questions, drawn at random."""
    ids = [
        question["id"]
        for article in articles
        for paragraph in article["paragraphs"]
        for question in paragraph["qas"]
    ]
    kept = set(random.Random(SEED).sample(ids, min(count, len(ids))))
    return [
        {
            **article,
            "paragraphs": [
                {**paragraph, "qas": [each for each in paragraph["qas"] if each["id"] in kept]}
                for paragraph in article["paragraphs"]
            ],
        }
        for article in articles
    ]


def candidate_folder(options: argparse.Namespace, path: Path) -> str:
    """A BEIR folder of the questions that have an answer; all their candidates are judged."""
    text = read_text(path)
    rows: list[Any]
    if path.suffix == ".csv":
        rows = [
            (row["qtext"], row["atext"], row["label"]) for row in csv.DictReader(io.StringIO(text))
        ]
    else:
        rows = [tuple(line.split("\t")) for line in text.splitlines()]
    answered = {query for query, _, label in rows if label == "1"}
    queries = {query: f"q{n}" for n, query in enumerate(dict.fromkeys(row[0] for row in rows))
               if query in answered}  # fmt: skip
    documents = {text: f"d{n}" for n, text in enumerate(dict.fromkeys(row[1] for row in rows))}
    grades = {
        (queries[query], documents[document]): label
        for query, document, label in sorted(rows, key=lambda row: row[2])
        if query in answered
    }

    def lines(texts: dict[str, str]) -> str:
        return "".join(json.dumps({"_id": id, "text": text}) + "\n" for text, id in texts.items())

    judged = "".join(
        f"{query}\t{document}\t{label}\n" for (query, document), label in grades.items()
    )
    files = {
        "corpus.jsonl": lines(documents),
        "queries.jsonl": lines(queries),
        "qrels.tsv": f"query-id\tcorpus-id\tscore\n{judged}",
    }
    paths = [write(options, f"{options.set}/{name}", content) for name, content in files.items()]
    return str(Path(paths[0]).parent)

"""The tasks of `compare_finetuning.py`: their files, what is drawn from them, and their scores."""

import dataclasses
import gzip
import json
import random
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np

from bert_jax.data.examples import Question, TaggedSentence
from bert_jax.data.readers.conll import as_columns
from bert_jax.data.readers.squad import read_questions
from bert_jax.data.readers.tagged import TaggedOptions, read_tagged
from bert_jax.data.readers.texts import TextOptions, read_texts
from bert_jax.errors import UserError
from bert_jax.files import write_atomically
from bert_jax.metrics.classification import ConfusionMatrix
from bert_jax.metrics.entities import EntityCounts, convert
from bert_jax.metrics.squad import score_v1

# Which examples are drawn is the same for all seeds and both sides.
DRAWN_BY = 2018


@dataclasses.dataclass(frozen=True)
class Recipe:
    """The settings of both sides.

    Attributes:
        epochs: passes over the training examples.
        learning_rate: the peak, after a warm-up of a tenth of the steps.
        length: the most tokens of a row.
        batch_size: rows.
        precision: "auto": the default of each side, which is float32 for the peer; else that
            of both.
    """

    epochs: float = 3.0
    learning_rate: float = 5e-5
    length: int = 128
    batch_size: int = 32
    precision: str = "auto"


@dataclasses.dataclass(frozen=True)
class Comparison:
    """A task.

    Attributes:
        config: of bert_jax, below `configs/`.
        train: names of files, the first that exists counts.
        validation: likewise.
        examples: how many are drawn to train on; 0: all.
        recipe: of the training.
        units: what may be drawn from a file.
        whole: makes a text of what was drawn.
        score: metrics of predictions for a file.
        predictions: reads those of a run of bert_jax.
    """

    config: str
    train: tuple[str, ...]
    validation: tuple[str, ...]
    examples: int
    recipe: Recipe
    units: Callable[[Path], list[Any]]
    whole: Callable[[list[Any]], str]
    score: Callable[[Path, Any], dict[str, float]]
    predictions: Callable[[Path], Any]


def table_units(path: Path) -> list[str]:
    """Lines, without the first one, which names the columns."""
    return [line for line in read_text(path).split("\n")[1:] if line]


def mrpc_whole(lines: list[str]) -> str:
    """Lines under the head that MRPC has."""
    head = "Quality\t#1 ID\t#2 ID\t#1 String\t#2 String"
    return "".join(f"{line}\n" for line in [head, *lines])


def sentence_units(path: Path) -> list[TaggedSentence]:
    """Sentences of a file in columns."""
    return list(read_tagged(path, TaggedOptions(format="conll"), needs_tags=True))


def sentences_whole(sentences: list[TaggedSentence]) -> str:
    """Words and tags, a blank line behind each sentence.

    The tags become those of IOB2, as Hugging Face's data set of CoNLL-2003 has them.
    """
    return "".join(as_columns(one.words, convert(one.tags or (), "iob2")) for one in sentences)


def question_units(path: Path) -> list[dict[str, Any]]:
    """Questions, each with its passage."""
    return [
        {"context": paragraph["context"], "qas": [question]}
        for article in json.loads(read_text(path))["data"]
        for paragraph in article["paragraphs"]
        for question in paragraph["qas"]
    ]


def questions_whole(paragraphs: list[dict[str, Any]]) -> str:
    """SQuAD's JSON, all in one article."""
    return json.dumps({"version": "1.1", "data": [{"title": "", "paragraphs": paragraphs}]})


def mrpc_score(validation: Path, predictions: list[str]) -> dict[str, float]:
    """Accuracy, and F1 of the paraphrases, in percent."""
    gold = [one.label for one in read_texts(validation, TextOptions(format="glue:mrpc"))]
    labels = ("0", "1")
    matrix = ConfusionMatrix(
        labels,
        np.array([labels.index(str(label)) for label in gold]),
        np.array([labels.index(label) for label in predictions]),
    )
    return {"accuracy": 100 * matrix.accuracy, "F1": 100 * matrix.f1("1")}


def conll_score(validation: Path, predictions: list[list[str]]) -> dict[str, float]:
    """F1 of entities, in percent."""
    gold = [sentence.tags or () for sentence in read_tagged(validation, needs_tags=True)]
    return {"entity F1": 100 * EntityCounts.of(gold, predictions).overall.f1}


def squad_score(validation: Path, predictions: dict[str, str]) -> dict[str, float]:
    """Of the official script, in percent."""
    scores = score_v1(gold_answers(read_questions(validation)), predictions)
    return {"exact match": scores["exact_match"], "F1": scores["f1"]}


def gold_answers(questions: Iterable[Question]) -> dict[str, list[str]]:
    """The accepted answers by id."""
    return {one.id: [answer.text for answer in one.answers or ()] for one in questions}


def field_of_records(name: str) -> Callable[[Path], list[Any]]:
    """Reads a field of each line of the predictions of a run."""

    def read(directory: Path) -> list[Any]:
        lines = (directory / "validation.jsonl").read_text(encoding="utf-8").splitlines()
        return [json.loads(line)[name] for line in lines]

    return read


def squad_predictions(directory: Path) -> dict[str, str]:
    """The file that the official script reads."""
    return json.loads((directory / "validation.json").read_text(encoding="utf-8"))


COMPARISONS = {
    "mrpc": Comparison(
        "glue.py:task=mrpc",
        ("glue/MRPC/train.tsv",),
        ("glue/MRPC/dev.tsv",),
        0,
        Recipe(),
        table_units,
        mrpc_whole,
        mrpc_score,
        field_of_records("label"),
    ),
    "conll2003": Comparison(
        "tagging.py",
        ("ner/conll2003/eng.train",),
        ("ner/conll2003/eng.testa",),
        4000,
        Recipe(),
        sentence_units,
        sentences_whole,
        conll_score,
        field_of_records("tags"),
    ),
    "squad": Comparison(
        "squad.py:version=1.1",
        ("squad/train-v1.1.json", "squad/train-v1.1.json.gz"),
        ("squad/dev-v1.1.json", "squad/dev-v1.1.json.gz", "squad/dev-v1.1.part-public.json"),
        4000,
        Recipe(epochs=2.0, length=384),
        question_units,
        questions_whole,
        squad_score,
        squad_predictions,
    ),
}


def choose(
    comparison: Comparison, names: tuple[str, ...], data: Path, count: int, output: Path
) -> Path:
    """Writes the examples that both sides get, `count` of them or all, in the file's order."""
    paths = [data / name for name in names]
    path = next((path for path in paths if path.is_file()), None)
    if path is None:
        raise UserError(f"--data {data} has none of {', '.join(names)}; give another directory")
    units = comparison.units(path)
    if 0 < count < len(units):
        kept = sorted(random.Random(DRAWN_BY).sample(range(len(units)), count))
        units = [units[place] for place in kept]
    chosen = output / f"{path.name.partition('.')[0]}-{len(units)}{_ending(path)}"
    if not chosen.is_file():
        output.mkdir(parents=True, exist_ok=True)
        write_atomically(chosen, comparison.whole(units).encode())
    return chosen


def read_text(path: Path) -> str:
    """A file, compressed or not, with line ends of Unix."""
    content = path.read_bytes()
    text = (gzip.decompress(content) if path.suffix == ".gz" else content).decode("utf-8-sig")
    return text.replace("\r\n", "\n")


def _ending(path: Path) -> str:
    """Of a file's name, as readers go by it."""
    name = path.name.removesuffix(".gz")
    return ".json" if name.endswith(".json") else Path(name).suffix

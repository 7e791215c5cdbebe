"""Data sets: their configs, and the files that both sides of a comparison read.

Only the standard library is imported, as in `contender.py`. Files of data sets are below `data`,
the samples and tables that are made of them below `output`.
"""

import argparse
import gzip
import json
import random
from pathlib import Path
from typing import Any

from benchmarks.texts import uneven_texts

SEED = 2018
# Of SQuAD 2.0's public articles each fourth one is evaluated; to the others, which have few
# questions, some of 1.1 are added.
EVALUATED_EVERY, ADDED_QUESTIONS = 4, 4000
RATE = " --config.optimizer.learning_rate=5e-5"
AT_THE_END = (
    " --config.train.evaluate_per_epoch=0 --config.train.eval_every=0"
    " --config.train.checkpoint_every=0 --config.train.export=latest"
)
SICK = (
    ":train={data}/glue/SICK/SICK_train.txt,validation={data}/glue/SICK/SICK_trial.txt"
    " --config.data.format=tsv --config.data.text_column=sentence_A"
    " --config.data.pair_column=sentence_B --config.data.label_column="
)
GLUE = "glue:task={set},directory={data}/glue/"
# Configs with their keys; {train} and {validation} are made by `config`.
CONFIGS = {
    "mrpc": GLUE + "MRPC" + RATE,
    "cola": GLUE + "CoLA --config.data.validation=in_domain_dev.tsv" + RATE,
    "sst2": GLUE + "SST-2 --config.data.limit=10000" + RATE,
    "qnli": GLUE + "QNLI --config.data.train=train_from_dev.tsv" + RATE,
    "wnli": GLUE + "WNLI" + RATE,
    "sick_relatedness": "classification" + SICK
    + "relatedness_score --config.data.problem_type=regression" + RATE,
    "sick_embeddings": "similarity" + SICK
    + "relatedness_score --config.data.label_range=1,5" + RATE,
    "sick_entailment": "classification" + SICK + "entailment_judgment" + RATE,
    "trec": "classification:train={train},validation={validation} --config.data.quotes=none"
    + RATE + AT_THE_END,
    "squad1": "squad:version=1.1,train={data}/squad/train-v1.1.json.gz,"
    "validation={data}/squad/dev-v1.1.part-public.json --config.data.limit=8000" + AT_THE_END,
    "squad2": "squad:version=2.0,train={train},validation={validation}" + AT_THE_END,
    "conll2003": "tagging:train={data}/ner/conll2003/eng.train,"
    "validation={data}/ner/conll2003/eng.testa",
    "wnut17": "tagging:train={data}/ner/wnut17/train.conll,"
    "validation={data}/ner/wnut17/dev.conll,epochs=5",
    "openbookqa": "multiple_choice:train={data}/multiple_choice/openbookqa/train.jsonl" + RATE,
}  # fmt: skip


def config(options: argparse.Namespace) -> dict[str, str]:
    """`config` of the data set `set`; files are made for it."""
    made = {"trec": trec, "squad2": squad2}.get(options.set, lambda options: {})(options)
    return {"config": CONFIGS[options.set].format(**vars(options), **made)}


def trec(options: argparse.Namespace) -> dict[str, str]:
    """`LABEL text` as tables."""
    made = {}
    for split, file in (("train", "train"), ("validation", "test")):
        lines = read_text(Path(options.data, f"classification/TREC.{file}.all")).splitlines()
        rows = [("label", "text"), *(line.split(" ", 1) for line in lines if line.strip())]
        made[split] = write(options, f"trec-{split}.tsv", "".join(f"{a}\t{b}\n" for a, b in rows))
    return made


def squad2(options: argparse.Namespace) -> dict[str, str]:
    """Some public articles of 2.0 to evaluate, the others and questions of 1.1 to train."""
    directory = Path(options.data, "squad")
    articles = json.loads(read_text(directory / "dev-v2.0.part-public.json"))["data"]
    questions = [
        {"context": paragraph["context"], "qas": [{**question, "is_impossible": False}]}
        for article in json.loads(read_text(directory / "train-v1.1.json.gz"))["data"]
        for paragraph in article["paragraphs"]
        for question in paragraph["qas"]
    ]
    evaluated = articles[EVALUATED_EVERY - 1 :: EVALUATED_EVERY]
    trained = [article for article in articles if article not in evaluated]
    added = random.Random(SEED).sample(questions, ADDED_QUESTIONS)
    trained.append({"title": "SQuAD 1.1", "paragraphs": added})
    return {
        split: write(options, f"squad2-{split}.json", json.dumps({"version": "v2.0", "data": data}))
        for split, data in (("train", trained), ("validation", evaluated))
    }


DRAWN = {
    "mrpc": ("glue:task=mrpc", "glue/MRPC/train.tsv", "glue/MRPC/dev.tsv"),
    "conll2003": ("tagging", "ner/conll2003/eng.train", "ner/conll2003/eng.testa"),
}


def drawn(options: argparse.Namespace) -> dict[str, str]:
    """`train` and `validation` of MRPC or CoNLL-2003: so many examples (0: all), in order."""
    config, *files = DRAWN[options.set]
    made = {"config": config}
    counts = (options.examples, options.evaluated)
    for split, file, count in zip(("train", "validation"), files, counts, strict=True):
        path, head = Path(options.data, file), ""
        if options.set == "mrpc":
            head, *units = (f"{line}\n" for line in read_text(path).split("\n") if line)
        else:
            units = [f"{sentence}\n" for sentence in sentences(path)]
        if 0 < count < len(units):
            chosen = random.Random(SEED).sample(range(len(units)), count)
            units = [units[number] for number in sorted(chosen)]
        ending = ".tsv" if head else ".conll"
        name = f"{options.set}-{split}-{count}{ending}"
        made[split] = write(options, name, "".join([head, *units]))
    return made


def passages(options: argparse.Namespace) -> dict[str, str]:
    """A collection of so many texts of uneven lengths."""
    lines = [json.dumps({"text": text}) for text in uneven_texts(options.passages)]
    name = f"passages-{options.passages}.jsonl"
    return {"passages_file": write(options, name, "\n".join(lines))}


def sentences(path: Path) -> list[str]:
    """Words and tags of sentences in columns; the tags become those of IOB2, as on the hub."""
    found = []
    for block in read_text(path).split("\n\n"):
        before, lines = "O", []
        for word, *_, tag in (line.split() for line in block.split("\n") if line.strip()):
            starts = tag.startswith("I-") and before[2:] != tag[2:]
            lines.append(f"{word}\t{'B' + tag[1:] if starts else tag}\n")
            before = tag
        if lines and not lines[0].startswith("-DOCSTART-"):
            found.append("".join(lines))
    return found


# How both sides translate: beams of each search, and the maximum number of tokens.
BEAMS, LONGEST = (1, 4), 60


def captions(data: Path, count: int) -> tuple[list[str], list[str]]:
    """The first captions of the test of 2016 of multi30k, in English and in German."""
    english, german = (
        read_text(data / f"translation/multi30k/test_2016_flickr.{language}.gz").splitlines()
        for language in ("en", "de")
    )
    return english[:count], german[:count]


def read_text(path: Path) -> str:
    """A file, compressed or not, with line ends of Unix."""
    content: Any = path.read_bytes()
    text = (gzip.decompress(content) if path.suffix == ".gz" else content).decode("utf-8-sig")
    return text.replace("\r\n", "\n")


def write(options: argparse.Namespace, name: str, text: str) -> str:
    """Writes a file below `output`; its path."""
    path = Path(options.output, "data", name)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return str(path)

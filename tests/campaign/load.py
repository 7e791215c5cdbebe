"""Large inputs: rows, characters, labels, documents, threads, checkpoints; memory and disk use.

    python -m tests.campaign.load predict --size 1000000 --directory DIR
    python -m tests.campaign.load prepare --size 1000000000 --directory DIR
    python -m tests.campaign.load labels --size 100000 --directory DIR
    python -m tests.campaign.load document --size 1000000 --directory DIR
    python -m tests.campaign.load threads --size 100 --directory DIR
    python -m tests.campaign.load checkpoints --size 1440 --directory DIR

Everything is generated, the same each time; models are tiny and random. Prints a line per finding
and, last, a JSON object with the figures. Exit code 1 if there is a finding.
"""

import argparse
import dataclasses
import json
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jax
import numpy as np

import bert_jax
from bert_jax.checkpoints import model_directory
from bert_jax.checkpoints.config_file import ModelDescription
from bert_jax.models.config import EncoderConfig, Head
from bert_jax.models.encoder import init_params
from bert_jax.models.execution import Execution
from bert_jax.tokenization import BertSwitches, WordPieceTokenizer
from tests.campaign.resources import Usage, disk_bytes, run

WORDS = 2000
"""Words of the generated text, each a piece of the vocabulary."""

KINDS = ("classification", "tagging", "question_answering")
# Memory may grow by this much from the first quarter of a run to its end: buffers and allocators.
GROWTH = 0.1
# Below these sizes a run is mostly its start.
LARGE = {"predict": 100_000, "prepare": 50_000_000, "checkpoints": 500}


@dataclasses.dataclass
class Findings:
    """What is wrong, printed as it is found."""

    found: list[str] = dataclasses.field(default_factory=list)

    def check(self, holds: bool, finding: str) -> None:
        """Adds a finding unless a condition holds."""
        if not holds:
            self.found.append(finding)
            print(f"finding: {finding}", flush=True)

    def check_flat(self, name: str, usage: Usage) -> None:
        """Memory in the second half of a run is about that of the second quarter."""
        early, late = usage.memory_between(0.25, 0.5), usage.memory_between(0.5, 1.0)
        self.check(
            late <= (1 + GROWTH) * early,
            f"{name}: memory grew from {early >> 20} to {late >> 20} MiB",
        )


def words() -> list[str]:
    """Distinct words of two to ten letters."""
    rng = np.random.default_rng(0)
    letters = np.array(list("abcdefghijklmnopqrstuvwxyz"))
    drawn: dict[str, None] = {}
    while len(drawn) < WORDS:
        drawn["".join(rng.choice(letters, rng.integers(2, 11)))] = None
    return list(drawn)


def pieces() -> list[str]:
    """A vocabulary with a piece for each word."""
    return ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", ".", *words()]


def write_vocabulary(directory: Path) -> Path:
    """Writes `pieces` as a `vocab.txt`."""
    return write_lines(directory / "vocab.txt", iter(pieces()))


def sentences(count: int) -> list[str]:
    """Random sentences of 5 to 24 words."""
    rng = np.random.default_rng(1)
    all_words = np.array(words())
    return [" ".join(rng.choice(all_words, rng.integers(5, 25))) + " ." for _ in range(count)]


def save_model(directory: Path, head: Head, labels: tuple[str, ...] = ()) -> Path:
    """A random model of two layers of width 16."""
    config = EncoderConfig(
        vocab_size=WORDS + 6,
        hidden_size=16,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=32,
        max_position_embeddings=128,
        num_labels=max(2, len(labels)),
    )
    description = ModelDescription(config, head, labels)
    tokenizer = WordPieceTokenizer.from_vocabulary(pieces(), BertSwitches(True, None, True))
    params = init_params(description.make_module(Execution()), jax.random.key(0))
    model_directory.save(directory, description, params, tokenizer)
    return directory


def write_lines(path: Path, lines: Iterator[str]) -> Path:
    """Writes lines one after the other."""
    with path.open("w", encoding="utf-8") as file:
        for line in lines:
            file.write(line + "\n")
    return path


def load_predict(size: int, directory: Path, findings: Findings) -> dict[str, Any]:
    """`predict` on many rows."""
    model = save_model(directory / "model", Head.CLASSIFICATION, ("no", "yes"))
    pool = sentences(10_000)
    rng = np.random.default_rng(2)
    rows = write_lines(directory / "rows.txt", (pool[rng.integers(10_000)] for _ in range(size)))
    output = directory / "predictions.jsonl"
    usage = run(
        ["predict", "--model", str(model), "--input", str(rows), "--output", str(output)],
        directory / "predict.log",
    )
    findings.check(usage.code == 0, f"predict ended with {usage.code}: {usage.error}")
    with output.open("rb") as file:
        lines = sum(1 for _ in file)
    findings.check(lines == size, f"{lines} predictions for {size} rows")
    if size >= LARGE["predict"]:
        findings.check_flat("predict", usage)
    return {"rows": size, "rows_per_s": size / usage.seconds, **usage.as_json()}


def load_prepare(size: int, directory: Path, findings: Findings) -> dict[str, Any]:
    """`prepare` on many characters, in documents of 20 sentences."""
    vocabulary = write_vocabulary(directory)
    pool = sentences(10_000)
    rng = np.random.default_rng(3)
    written = 0

    def lines() -> Iterator[str]:
        nonlocal written
        while written < size:
            document = [pool[number] for number in rng.integers(10_000, size=20)]
            written += sum(len(sentence) + 1 for sentence in document) + 1
            yield from (*document, "")

    text = write_lines(directory / "text.txt", lines())
    config = f"pretrain:source=text:{text},tokenizer={vocabulary}"
    usage = run(
        ["prepare", "--config", config, "--output", str(directory / "corpus"), "--workers", "2"],
        directory / "prepare.log",
    )
    findings.check(usage.code == 0, f"prepare ended with {usage.code}: {usage.error}")
    if size >= LARGE["prepare"]:
        findings.check_flat("prepare", usage)
    return {
        "characters": written,
        "characters_per_s": written / usage.seconds,
        "corpus_bytes": disk_bytes(directory / "corpus"),
        **usage.as_json(),
    }


def load_labels(size: int, directory: Path, findings: Findings) -> dict[str, Any]:
    """Training on a table where each text has a label of its own, and evaluating a tenth."""
    model = save_model(directory / "model", Head.ENCODER)
    pool = sentences(10_000)
    rows = (f"{pool[n % len(pool)]}\tlabel-{n}" for n in range(size))
    table = write_lines(directory / "table.tsv", iter(["text\tlabel", *rows]))
    run_directory = directory / "run"
    usage = run(
        [
            *["train", "--config", f"classification:train={table},init_from={model},length=32"],
            *["--workdir", str(run_directory), "--config.train.epochs=0"],
            *["--config.train.steps=3", "--config.optimizer.warmup_steps=0"],
        ],
        directory / "train.log",
    )
    findings.check(usage.code == 0, f"train ended with {usage.code}: {usage.error}")
    log_bytes = (directory / "train.log").stat().st_size
    findings.check(log_bytes < 100_000, f"train printed {log_bytes} bytes")
    files = (
        {
            str(path.relative_to(run_directory)): path.stat().st_size
            for path in run_directory.rglob("*")
            if path.is_file()
        }
        if run_directory.is_dir()
        else {}
    )
    large = sorted(files.items(), key=lambda item: -item[1])[:5]
    findings.check(
        sum(files.values()) < 10_000 * size + 10**8,
        f"the run has {sum(files.values())} bytes: {large}",
    )
    return {"labels": size, "log_bytes": log_bytes, "largest_files": large, **usage.as_json()}


def load_document(size: int, directory: Path, findings: Findings) -> dict[str, Any]:
    """One document of many tokens: prepared, learned from, and predicted, by each task."""
    rng = np.random.default_rng(4)
    text = " ".join(np.array(words())[rng.integers(WORDS, size=size)])
    figures = {}
    for name, arguments, output in _document_commands(text, directory):
        usage = run(arguments, directory / f"{name}.log")
        findings.check(usage.code == 0, f"{name} ended with {usage.code}: {usage.error}")
        findings.check(output.exists(), f"{name} wrote nothing")
        figures[name] = usage.as_json()
    return {"tokens": size, **figures}


def _document_commands(text: str, directory: Path) -> Iterator[tuple[str, list[str], Path]]:
    """Names, arguments of `bert-jax`, and outputs."""
    vocabulary = write_vocabulary(directory)
    encoder = save_model(directory / "encoder", Head.ENCODER)
    short = sentences(20)
    answer = " ".join(text.split(" ", 1003)[1000:1003])
    questions = [
        {
            "context": context,
            "qas": [
                {
                    "id": str(number),
                    "question": "what ?",
                    "answers": [{"text": found, "answer_start": context.index(found)}],
                }
            ],
        }
        for number, (context, found) in enumerate(
            [(text, answer), *((sentence, sentence.split()[2]) for sentence in short)]
        )
    ]
    files = {
        "classification": "text\tlabel\n"
        + "".join(f"{line}\t{'ab'[n % 2]}\n" for n, line in enumerate([text, *short])),
        "tagging": "".join(
            "".join(f"{word} {'O' if n % 7 else 'B-X'}\n" for n, word in enumerate(line.split()))
            + "\n"
            for line in [text, *short]
        ),
        "question_answering": json.dumps(
            {"version": "1.1", "data": [{"title": "t", "paragraphs": questions}]}
        ),
        "one_line": text + "\n",
    }
    endings = {"classification": "tsv", "tagging": "conll", "question_answering": "json"}
    paths = {name: directory / f"{name}.{endings.get(name, 'txt')}" for name in files}
    for name, content in files.items():
        paths[name].write_text(content, encoding="utf-8")
    config = f"pretrain:source=text:{paths['one_line']},tokenizer={vocabulary}"
    corpus = directory / "corpus"
    yield "prepare", ["prepare", "--config", config, "--output", str(corpus)], corpus
    names = {"question_answering": "squad"}
    for kind in KINDS:
        path, workdir, output = paths[kind], directory / f"{kind}-run", directory / f"{kind}.out"
        arguments = f"train={path},validation={path},init_from={encoder}"
        schedule = ["--config.train.epochs=0", "--config.train.steps=2"]
        schedule += ["--config.optimizer.warmup_steps=0", "--config.data.length=64"]
        command = ["train", "--config", f"{names.get(kind, kind)}:{arguments}", *schedule]
        yield f"train {kind}", [*command, "--workdir", str(workdir)], workdir / "model"
        command = ["predict", "--model", str(workdir / "model"), "--input", str(path)]
        yield f"predict {kind}", [*command, "--output", str(output)], output
    command = ["predict", "--model", str(encoder), "--task", "embed", "--input"]
    output = directory / "embed.npy"
    yield "predict embed", [*command, str(paths["one_line"]), "--output", str(output)], output


def load_threads(size: int, directory: Path, findings: Findings) -> dict[str, Any]:
    """16 threads over one model: each answer is that of a single thread."""
    model = bert_jax.load(str(save_model(directory / "model", Head.CLASSIFICATION, ("no", "yes"))))
    texts = sentences(64)
    expected = (model.embed(texts), model.classify(texts))
    wrong: list[str] = []

    def work(number: int) -> None:
        rng = np.random.default_rng(number)
        for _ in range(size):
            chosen = rng.integers(64, size=5)
            mine = [texts[index] for index in chosen]
            if not np.allclose(model.embed(mine), expected[0][chosen], atol=1e-5):
                wrong.append("embed")
            for found, index in zip(model.classify(mine), chosen, strict=True):
                truth = expected[1][index]
                if found.label != truth.label or abs(found.score - truth.score) > 1e-5:
                    wrong.append("classify")

    began = time.perf_counter()
    threads = [threading.Thread(target=work, args=(number,)) for number in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    findings.check(not wrong, f"{len(wrong)} of {2 * 16 * size} calls were wrong")
    return {"threads": 16, "calls": 2 * 16 * size, "seconds": time.perf_counter() - began}


def load_checkpoints(size: int, directory: Path, findings: Findings) -> dict[str, Any]:
    """A checkpoint after every step, as many as one a minute makes in a day (1,440)."""
    corpus = directory / "corpus"
    load_prepare(100_000, directory, Findings())
    workdir = directory / "run"
    config = f"pretrain:size=tiny,corpus={corpus},length=16"
    keys = {
        "model.hidden_size": 16,
        "model.num_hidden_layers": 1,
        "model.intermediate_size": 32,
        "train.steps": size,
        "train.global_batch_size": 4,
        "train.log_every": 100,
        "train.eval_every": 10,
        "data.evaluation_batches": 1,
        "train.checkpoint_every": 1,
        "train.keep_checkpoints": 2,
        "optimizer.warmup_steps": 0,
    }
    usage = run(
        ["train", "--config", config, "--workdir", str(workdir)]
        + [f"--config.{key}={value}" for key, value in keys.items()],
        directory / "train.log",
        watched=workdir / "checkpoints",
    )
    findings.check(usage.code == 0, f"train ended with {usage.code}: {usage.error}")
    kept = sorted(int(path.name) for path in (workdir / "checkpoints").glob("*[0-9]"))
    findings.check(kept[-1:] == [size], f"the newest of {kept} is not {size}")
    findings.check(len(kept) <= 3, f"{len(kept)} checkpoints are kept: {kept[:10]} …")
    one = disk_bytes(workdir / "checkpoints" / str(kept[-1])) if kept else 0
    peak = max(usage.disk, default=0)
    # Two that are kept, the best, one that is written and one that is not yet removed.
    findings.check(peak <= 6 * one, f"checkpoints of {one} bytes took {peak} on the disk")
    if size >= LARGE["checkpoints"]:
        findings.check_flat("checkpoints", usage)
    return {"checkpoints": size, "kept": kept, "one": one, "peak_disk": peak, **usage.as_json()}


PARTS: dict[str, Callable[[int, Path, Findings], dict[str, Any]]] = {
    "predict": load_predict,
    "prepare": load_prepare,
    "labels": load_labels,
    "document": load_document,
    "threads": load_threads,
    "checkpoints": load_checkpoints,
}


def main(arguments: list[str] | None = None) -> int:
    """Runs one part; its figures are the last line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("part", choices=PARTS)
    parser.add_argument("--size", type=int, required=True)
    parser.add_argument("--directory", type=Path, required=True, help="an empty directory")
    options = parser.parse_args(arguments)
    directory = options.directory.absolute()
    directory.mkdir(parents=True, exist_ok=True)
    findings = Findings()
    figures = PARTS[options.part](options.size, directory, findings)
    print(json.dumps({"part": options.part, **figures, "findings": findings.found}))
    return 1 if findings.found else 0


if __name__ == "__main__":
    sys.exit(main())

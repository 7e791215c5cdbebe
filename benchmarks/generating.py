"""Generating models, trained by bert_jax and by PyTorch on the same batches in the same order.

    python -m benchmarks.generating translate --data DATA --output runs/translate --steps 3600
    python -m benchmarks.generating gpt --data DATA --output runs/gpt --steps 1500
    python -m benchmarks.generating span --data DATA --output runs/span --steps 1500

Both begin with the same parameters. A command that was stopped continues where it was when it is
given again. PyTorch scores both models on the same held-out batches; of translations each side
writes its own, greedily and with 4 beams, and sacrebleu scores them. The results are
`results.json` in the output.
"""

import argparse
import gzip
import itertools
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import jax
import numpy as np

import bert_jax
from benchmarks.ours import search_of_peer
from benchmarks.samples import BEAMS, LONGEST, captions
from bert_jax.checkpoints import model_directory
from bert_jax.config import load_config
from bert_jax.experiment import Experiment
from bert_jax.models.encoder import init_params
from bert_jax.models.execution import Execution

# The rest is the same on both sides.
OPTIMIZER = {"beta2": 0.98, "epsilon": 1e-9, "weight_decay": 0.0, "max_grad_norm": 1.0}
CONFIGS = {"translate": "translation", "gpt": "gpt", "span": "t5"}
BOOKS = "pretrain/classic_books_en.jsonl.gz"


def config_of(options: argparse.Namespace) -> tuple[str, dict[str, Any]]:
    """The config of a work without its vocabulary or corpus, and its keys."""
    data = Path(options.data, "translation/multi30k")
    files: dict[str, str | Path] = {}
    keys = {
        "optimizer.name": "adamw",
        "optimizer.learning_rate": options.rate,
        "optimizer.warmup_ratio": 0.1,
        "optimizer.decay": "inverse_sqrt",
        "optimizer.bias_correction": True,
        **{f"optimizer.{name}": value for name, value in OPTIMIZER.items()},
        "train.steps": options.steps,
        "train.global_batch_size": options.batch,
        "train.eval_every": 0,
        "train.checkpoint_every": options.checkpoint_every,
        "data.length": options.length,
        "tokenizer.vocab_size": options.vocabulary,
        "precision": options.precision,
    }
    if options.work == "translate":
        files = {name: data / f"{file}.en.gz" for name, file in
                 (("train", "train"), ("validation", "val"))}  # fmt: skip
        files |= {"source": "en", "target": "de"}
        keys |= {"data.packing": False, "train.average_checkpoints": 1, "train.export": "latest"}
    else:
        files["source"] = f"text:{books(options)}"
        keys["data.validation_fraction"] = 0.05
    arguments = {"size": options.size} | files
    shown = ",".join(f"{name}={value}" for name, value in arguments.items())
    return f"{CONFIGS[options.work]}:{shown}", keys


def books(options: argparse.Namespace) -> Path:
    """So many characters of books: a paragraph a line, and an empty line between chapters."""
    path = options.output / "books.txt"
    if not path.exists():
        chapters, left = [], options.characters
        with gzip.open(Path(options.data, BOOKS), "rt", encoding="utf-8") as lines:
            for chapter in (
                part for line in lines for part in json.loads(line)["text"].split("###")
            ):
                paragraphs = [" ".join(part.split()) for part in chapter[:left].split("\n\n")]
                chapters.append("\n".join(filter(None, paragraphs)))
                left -= len(chapter)
                if left <= 0:
                    break
        path.write_text("\n\n".join(filter(None, chapters)), encoding="utf-8")
    return path


def arguments_of(keys: dict[str, Any]) -> list[str]:
    """The keys as arguments of a command."""
    return [f"--config.{name}={value}" for name, value in keys.items()]


def run(*arguments: str | Path) -> None:
    """A command that must succeed."""
    print("$", *arguments, file=sys.stderr, flush=True)
    subprocess.run(list(map(str, arguments)), check=True)


def command(verb: str) -> tuple[str, ...]:
    """`bert-jax` of this environment."""
    return (sys.executable, "-m", "bert_jax", verb)


def write_batches(options: argparse.Namespace, name: str, keys: dict[str, Any]) -> None:
    """The first parameters as a model, and all batches: `batches/N.npz`, `held_out/N.npz`."""
    initial = options.output / "initial"
    if initial.exists():
        return
    config = load_config(name, [(key, str(value)) for key, value in keys.items()])
    task = Experiment.from_config(config).workload.task
    for kind, batches in (
        ("batches", task.train_batches(0, options.steps, host=0, hosts=1)),
        ("held_out", held_out(task)),
    ):
        directory = options.output / kind
        directory.mkdir(exist_ok=True)
        for number, batch in enumerate(itertools.islice(batches, options.steps)):
            np.savez(directory / f"{number}.npz", **{k.replace("/", "."): v
                                                     for k, v in batch.items()})  # fmt: skip
    module = task.description.make_module(Execution())
    params = jax.jit(lambda key: init_params(module, key))(jax.random.key(0))
    model_directory.save(initial, task.description, params, task.tokenizer)


def held_out(task: Any) -> Any:
    """The batches of an evaluation; of translations there are none, their text is scored."""
    make = getattr(task, "evaluation_batches", None)
    return make(host=0, hosts=1) if make else ()


def translated(options: argparse.Namespace) -> dict[str, Any]:
    """BLEU and seconds of our translations of the test set."""
    import sacrebleu

    texts, targets = captions(options.data, options.evaluated)
    model = bert_jax.load(options.output / "ours/model", precision="float32")
    found: dict[str, Any] = {}
    for beams in BEAMS:
        start = time.perf_counter()
        made = model.generate(texts, options=search_of_peer(LONGEST, beams))
        seconds = time.perf_counter() - start
        lines = [generations[0].text for generations in made]
        (options.output / f"ours-{beams}.txt").write_text("\n".join(lines), encoding="utf-8")
        found[f"bleu of {beams}"] = round(sacrebleu.corpus_bleu(lines, [targets]).score, 2)
        found[f"seconds of {beams}"] = round(seconds, 1)
    return found


def main() -> None:
    """Prepares, trains both sides, and scores them."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("work", choices=CONFIGS)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--peer-python", default=sys.executable)
    defaults: dict[str, Any] = {"size": "small", "steps": 3000, "batch": 64, "length": 128,
                                "rate": 1e-3, "vocabulary": 8000, "checkpoint_every": 200,
                                "characters": 20_000_000, "evaluated": 1000,
                                "precision": "float32"}  # fmt: skip
    for name, value in defaults.items():
        parser.add_argument(f"--{name.replace('_', '-')}", type=type(value), default=value)
    options = parser.parse_args()
    options.output.mkdir(parents=True, exist_ok=True)
    name, keys = config_of(options)
    made = options.output / "prepared"
    if not made.exists():
        run(*command("prepare"), "--config", name, *arguments_of(keys), "--output", made)
    name += f",{'tokenizer' if options.work == 'translate' else 'corpus'}={made}"
    write_batches(options, name, keys)
    initial, ours = options.output / "initial", options.output / "ours"
    start = time.perf_counter()
    run(*command("train"), "--config", name, *arguments_of(keys), f"--config.init_from={initial}",
        "--workdir", ours)  # fmt: skip
    seconds = round(time.perf_counter() - start, 1)
    os.environ["PYTHONPATH"] = os.pathsep.join([str(Path(__file__).parents[1]),
                                                os.environ.get("PYTHONPATH", "")])  # fmt: skip
    common = ("--work", options.work, "--output", options.output, "--data", options.data,
              "--evaluated", str(options.evaluated))  # fmt: skip
    module = (options.peer_python, "-m", "benchmarks.peers_generating")
    run(*module, "train", *common, "--rate", str(options.rate), "--checkpoint-every",
        str(options.checkpoint_every))  # fmt: skip
    run(*module, "score", *common)
    results = json.loads((options.output / "peer.json").read_text())
    results["bert_jax"]["seconds of the last command"] = seconds
    if options.work == "translate":
        results["bert_jax"] |= translated(options)
    path = options.output / "results.json"
    path.write_text(json.dumps(results | {"options": vars(options)}, indent=1, default=str))
    print(path.read_text())


if __name__ == "__main__":
    main()

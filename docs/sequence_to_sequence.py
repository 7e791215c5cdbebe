"""Sequence to sequence with and without attention: the runs and pictures of docs/before_bert.md.

    python docs/sequence_to_sequence.py copy RUNS PICTURES
    python docs/sequence_to_sequence.py translate RUNS PICTURES DATA

train the models (a finished run is not trained again), print a line for each, and draw. DATA has
train, val and test_2016_flickr of multi30k, .en.gz and .de.gz.
"""

import gzip
import json
import sys
from pathlib import Path
from typing import Any

import jax
import numpy as np
from matplotlib.figure import Figure

import bert_jax
from bert_jax import cli
from bert_jax.files.figures import save_figure
from bert_jax.metrics.generated_texts import bleu

# Keys of section `model`: of all recurrent models here, and of each.
RECURRENT: dict[str, Any] = {"family": "lstm"}
MODELS: dict[str, dict[str, Any]] = {
    "plain": {},
    "reversed": {"reverse_input": True},
    "attention": {"decoder_attention": "general"},
}

LETTERS = "abcdefghijklmnopqrst"
LENGTHS = (5, 10, 15, 20, 25, 30)
TRAINED = 40_000  # texts of 1 to 30 letters
TEXTS = 50  # of each length
SEEDS = (0, 1, 2)
COPY_KEYS: dict[str, Any] = {
    "steps": 600,
    "global_batch_size": 32,
    "learning_rate": 5e-3,
    "max_grad_norm": 1.0,
    "length": 33,
    "hidden_size": 64,
    "num_hidden_layers": 1,
    "tie_word_embeddings": False,
    "hidden_dropout_prob": 0.0,
    "label_smoothing": 0.0,
    "data.metrics": ("exact_match",),
    "num_beams": 1,
}

# The Transformer has as many parameters as the LSTMs.
TRANSFORMER = {
    "family": "marian",
    "intermediate_size": 96,
    "decoder_ffn_dim": 96,
    "decoder_layers": 1,
}
TRANSLATION_KEYS: dict[str, Any] = {
    "vocab_size": 1000,
    "steps": 600,
    "global_batch_size": 32,
    "learning_rate": 4e-3,
    "length": 48,
    "packing": False,
    "hidden_size": 64,
    "num_hidden_layers": 1,
    "hidden_dropout_prob": 0.1,
    "data.metrics": ("bleu",),
    "num_beams": 1,
}
# Numbers of words: the last of each group.
WORDS = (8, 10, 12, 14, 17, 40)
ALIGNED = 9  # the caption of the test whose alignment is drawn


def train(runs: Path, name: str, files: dict[str, Any], **keys: Any) -> bert_jax.FinishedRun:
    """A run of the config of translation, with its last checkpoint as the model."""
    once = {"eval_every": 0, "average_checkpoints": 1, "checkpoint_every": keys["steps"]}
    keys = {"size": "tiny", "precision": "float32", **once, **files, **keys}
    return bert_jax.train("translation", workdir=runs / name, **keys)


def vocabulary(runs: Path, files: dict[str, Any], size: int) -> str:
    """The directory of a vocabulary of both sides of the training pairs."""
    path = runs / "vocabulary"
    if not path.exists():
        arguments = ",".join(f"{key}={value}" for key, value in files.items())
        config = f"translation:{arguments},vocab_size={size}"
        assert cli.main(["prepare", "--config", config, "--output", str(path)]) == 0
    return str(path)


def predictions(run: Path, split: str) -> list[dict[str, Any]]:
    """The lines of a file of predictions."""
    lines = (run / "predictions" / f"{split}.jsonl").read_text(encoding="utf-8").splitlines()
    return [json.loads(line) for line in lines]


def write_copies(runs: Path) -> dict[str, Any]:
    """Files of random texts to copy: of 1 to 30 letters, and 50 of each of `LENGTHS`."""
    random = np.random.default_rng(0)
    lengths = {
        "train": random.integers(1, LENGTHS[-1] + 1, TRAINED),
        "val": np.repeat(LENGTHS, TEXTS),
    }
    files = {}
    for split, counts in lengths.items():
        texts = ["".join(random.choice([*LETTERS], count)) for count in counts]
        lines = (json.dumps({"source": text, "target": text}) + "\n" for text in texts)
        files[split] = runs / f"{split}.jsonl"
        files[split].parent.mkdir(parents=True, exist_ok=True)
        files[split].write_text("".join(lines))
    return {"train": str(files["train"]), "validation": str(files["val"])}


def copied(run: Path) -> dict[int, float]:
    """The share of the letters that greedy search writes at their place, by the text's length."""
    shares: dict[int, list[float]] = {length: [] for length in LENGTHS}
    for row in predictions(run, "validation"):
        (expected,) = row["expected"]
        written = row["generations"][0]["text"].ljust(len(expected))
        equal = [one == other for one, other in zip(expected, written, strict=False)]
        shares[len(expected)].append(float(np.mean(equal)))
    return {length: float(np.mean(values)) for length, values in shares.items()}


def copy(runs: Path, pictures: Path) -> None:
    """Trains all models to copy, prints the share of correct letters, and draws it."""
    files = write_copies(runs)
    # The letters, the blank, and three special tokens.
    files["tokenizer"] = vocabulary(runs, files, len(LETTERS) + 4)
    for name, fields in MODELS.items():
        for seed in SEEDS:
            keys = RECURRENT | fields | COPY_KEYS | {"seed": seed}
            run = train(runs, f"{name}-{seed}", files, **keys)
            shares = {key: round(value, 3) for key, value in copied(run.workdir).items()}
            print(name, seed, parameters(run), shares, flush=True)
    save_figure(pictures / "before_bert_copy.png", draw_copies(runs), dpi=80)


def parameters(run: bert_jax.FinishedRun) -> int:
    """The number of parameters of a model."""
    return sum(leaf.size for leaf in jax.tree.leaves(run.model.params))


def translate(runs: Path, pictures: Path, data: Path) -> None:
    """Trains the LSTMs and a Transformer to translate; prints and draws BLEU by the length."""
    files = {"train": str(data / "train.en.gz"), "test": str(data / "test_2016_flickr.en.gz")}
    files |= {"validation": str(runs / "val.en"), "source": "en", "target": "de"}
    runs.mkdir(parents=True, exist_ok=True)
    for language in ("en", "de"):  # fewer texts to write after each training
        lines = lines_of(data / f"val.{language}.gz")[:100]
        (runs / f"val.{language}").write_text("\n".join(lines) + "\n", encoding="utf-8")
    files["tokenizer"] = vocabulary(runs, files, TRANSLATION_KEYS["vocab_size"])
    models = {name: RECURRENT | fields for name, fields in MODELS.items()}
    by_model = {}
    for name, fields in (models | {"Transformer": TRANSFORMER}).items():
        run = train(runs, name, files, **TRANSLATION_KEYS, **fields)
        by_model[name] = scores = by_length(run.workdir)
        found = {"bleu": run.result["test_bleu"], "perplexity": run.result["test_perplexity"]}
        rounded = {key: round(value, 2) for key, value in (found | scores).items()}
        print(name, parameters(run), rounded, flush=True)
        if name == "attention":
            figure = draw_alignment(run.model, lines_of(Path(files["test"]))[ALIGNED])
            save_figure(pictures / "before_bert_alignment.png", figure, dpi=80)
    save_figure(pictures / "before_bert_lengths.png", draw_lengths(by_model), dpi=80)


def lines_of(path: Path) -> list[str]:
    """The lines of a compressed file."""
    with gzip.open(path, "rt", encoding="utf-8") as file:
        return file.read().splitlines()


def by_length(run: Path) -> dict[str, float]:
    """BLEU of the test, by the number of words of the source."""
    rows = predictions(run, "test")
    counts = np.array([len(row["text"].split()) for row in rows])
    scores, least = {}, 1
    for most in WORDS:
        chosen = np.flatnonzero((counts >= least) & (counts <= most))
        references = [rows[number]["expected"] for number in chosen]
        texts = [rows[number]["generations"][0]["text"] for number in chosen]
        scores[f"{least}–{most}"] = bleu(references, texts).value
        least = most + 1
    return scores


def draw_copies(runs: Path) -> Figure:
    """The share of correct letters over the length of a text: means of the seeds, and each."""
    figure = Figure(figsize=(6, 3), layout="constrained")
    axes = figure.subplots()
    for number, name in enumerate(MODELS):
        shares = np.array([[*copied(runs / f"{name}-{seed}").values()] for seed in SEEDS])
        axes.plot(LENGTHS, shares.mean(axis=0), label=name, color=f"C{number}", marker="o")
        axes.plot(LENGTHS, shares.T, color=f"C{number}", linewidth=0.5)
    axes.axhline(1 / len(LETTERS), color="grey", linestyle=":", label="a guess")
    axes.set_xlabel("letters of the text")
    axes.set_ylabel("correct letters")
    axes.set_ylim(0)
    axes.legend(fontsize=8)
    return figure


def draw_lengths(scores: dict[str, dict[str, float]]) -> Figure:
    """BLEU of each model over the number of words of the source."""
    figure = Figure(figsize=(6, 3), layout="constrained")
    axes = figure.subplots()
    for name, values in scores.items():
        axes.plot([*values], [*values.values()], label=name, marker="o")
    axes.set_xlabel("words of the source")
    axes.set_ylabel("BLEU")
    axes.set_ylim(0)
    axes.legend(fontsize=8)
    return figure


def draw_alignment(model: Any, text: str) -> Figure:
    """The attention weights of a translation: a row for each token that is written."""
    (alignment,) = model.alignments([text])
    figure = Figure(figsize=(5, 4.5), layout="constrained")
    axes = figure.subplots()
    axes.imshow(alignment.weights[0, 0], cmap="Blues", vmin=0)
    axes.set_xticks(range(len(alignment.source_tokens)), alignment.source_tokens, rotation=90)
    axes.set_yticks(range(len(alignment.tokens)), alignment.tokens)
    axes.tick_params(labelsize=8)
    return figure


if __name__ == "__main__":
    verb, runs_directory, pictures, *data_directory = sys.argv[1:]
    Path(pictures).mkdir(parents=True, exist_ok=True)
    if verb == "copy":
        copy(Path(runs_directory), Path(pictures))
    else:
        translate(Path(runs_directory), Path(pictures), Path(*data_directory))

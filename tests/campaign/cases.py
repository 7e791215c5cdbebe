"""Four verbs that write files, on data and models that are as small as can be.

`finetune` writes as `pretrain` does, `evaluate` as `predict`, and `convert` as `export`.
"""

import functools
import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from tests.campaign.processes import Work, run, verb

PIECES = (
    *("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", ".", "the", "a", "it", "was", "cat", "dog"),
    *("bird", "boy", "mat", "tree", "sea", "sat", "ran", "on", "to", "and", "up", "down", "warm"),
    *("long", "low", "##s", "##ed", "##er"),
)
_KEYS = {
    "precision": "float32",
    "model.hidden_size": 16,
    "model.num_hidden_layers": 2,
    "model.num_attention_heads": 2,
    "model.intermediate_size": 32,
    "model.max_position_embeddings": 16,
    "data.length": 16,
    "data.max_predictions": 3,
    "optimizer.learning_rate": 3e-3,
    "optimizer.warmup_steps": 3,
    "train.global_batch_size": 8,
    "train.steps": 8,
    "train.log_every": 1,
    "train.eval_every": 4,
    "train.checkpoint_every": 2,
}


class Case(NamedTuple):
    """One kind of work, for an output; `complete` files exist only when all of it is complete."""

    name: str
    work: Callable[[Path], Work]
    complete: tuple[str, ...]


def make_materials(root: Path) -> None:
    """Texts, a corpus, and a pre-trained run."""
    root.mkdir(parents=True)
    draw = random.Random(0)
    words = [piece for piece in PIECES[6:] if not piece.startswith("#")]
    sentences = [" ".join(draw.choices(words, k=draw.randint(3, 9))) + " ." for _ in range(760)]
    documents = ["\n".join(sentences[start : start + 6]) for start in range(0, 360, 6)]
    (root / "vocab.txt").write_text("".join(f"{piece}\n" for piece in PIECES))
    (root / "text.txt").write_text("\n\n".join(documents) + "\n")
    (root / "questions.txt").write_text("".join(f"{one}\n" for one in sentences[360:]))
    for work in (functools.partial(prepare, root, root / "corpus"), pretrain(root, root / "run")):
        ended = run(work, root)
        assert ended.code == 0, ended.errors


def cases(root: Path) -> list[Case]:
    """All cases, with the materials in a directory."""
    predicted = ("--model", root / "run" / "model", "--input", root / "questions.txt")

    def predict(output: Path) -> Work:
        options = ("--task", "embed", "--output-format", "jsonl", "--batch-size", 1)
        return verb("predict", *predicted, "--output", output, *options)

    def export(output: Path) -> Work:
        return verb("export", "--workdir", root / "run", "--output", output)

    return [
        Case("pretrain", functools.partial(pretrain, root), ("result.json", "model/config.json")),
        Case(
            "prepare", lambda output: functools.partial(prepare, root, output), ("manifest.json",)
        ),
        Case("predict", predict, ("",)),
        Case("export", export, ("model.safetensors",)),
    ]


def pretrain(root: Path, output: Path | str) -> Work:
    """A pre-training; the work directory may be in a bucket."""
    keys = _KEYS | {"data.corpus": root / "corpus"}
    overrides = [f"--config.{key}={value}" for key, value in keys.items()]
    return verb("train", "--config", "pretrain", "--workdir", output, *overrides)


def prepare(root: Path, output: Path) -> int:
    """The corpus, in batches of a few sentences."""
    from bert_jax.data.pretraining.options import PrepareOptions
    from bert_jax.data.pretraining.preparation.prepare import prepare as prepare_corpus
    from bert_jax.data.pretraining.sources import SourceSpec
    from bert_jax.errors import UserError
    from bert_jax.process import BAD_INPUT, say

    options = PrepareOptions(
        (SourceSpec(f"text:{root}/text.txt"),),
        tokenizer=str(root / "vocab.txt"),
        validation_fraction=0.1,
        sentences="lines",
    )
    try:
        prepare_corpus(options, output, workers=1, progress=False, batch_characters=500)
    except UserError as error:
        say(f"bert-jax: {error}")
        return BAD_INPUT
    return 0


def contents(directory: Path) -> dict[str, bytes]:
    """The comparable files of a directory by their names."""
    paths = (path for path in sorted(directory.rglob("*")) if path.is_file())
    files = {path.relative_to(directory).as_posix(): path.read_bytes() for path in paths}
    return comparable(files)


def comparable(files: dict[str, bytes]) -> dict[str, bytes]:
    """Files without those that may differ between runs.

    They are the checkpoints, the events, and the picture that shows where a run was resumed.
    """
    return {
        name: without_times(content) if name.endswith("metrics.jsonl") else content
        for name, content in files.items()
        if not any(part in name for part in ("checkpoints/", "tensorboard/", "curves.png"))
    }


def differences(found: dict[str, bytes], expected: dict[str, bytes]) -> list[str]:
    """The names of what differs, is missing or is left over."""
    return sorted(name for name in {*found, *expected} if found.get(name) != expected.get(name))


def without_times(content: bytes) -> bytes:
    """The lines of `metrics.jsonl` but those that say where the run was resumed."""
    records = [json.loads(line) for line in content.splitlines()]
    records = [record for record in records if record["split"] != "resumed"]
    for record in records:
        for name in ("tokens_per_second", "real_tokens_per_second"):
            record.pop(name, None)
    return json.dumps(records).encode()

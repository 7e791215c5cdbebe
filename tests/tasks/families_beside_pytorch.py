"""Fine-tuning of random small models, by bert_jax and by PyTorch with `transformers`' classes.

    python -m tests.tasks.families_beside_pytorch DATA [FAMILY …]

Both begin with the same weights and take the same steps, without dropout. DATA has
`classification/TREC.{train,test}.all` and `ner/conll2003/eng.{train,testa}`. Prints a line of JSON
for each family and set.
"""

import inspect
import json
import sys
import tempfile
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from bert_jax.checkpoints import model_directory
from bert_jax.checkpoints.config_file import ModelDescription
from bert_jax.config import complete_config, set_keys
from bert_jax.data.pipeline import Batch
from bert_jax.experiment import Experiment
from bert_jax.families.family import find_family
from bert_jax.models.encoder import init_params
from bert_jax.models.execution import Execution
from bert_jax.tokenization import ByteLevelBPETokenizer, train_byte_level_bpe
from tests.training.trajectory import torch_adamw, trained

SIZES = {
    "hidden_size": 64,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "intermediate_size": 128,
    "hidden_dropout_prob": 0.0,
    "attention_probs_dropout_prob": 0.0,
}
# Windows and distances that texts of 32 tokens exceed.
FAMILIES: dict[str, dict[str, Any]] = {
    "mpnet": {"max_position_embeddings": 66},
    "modernbert": {"max_position_embeddings": 64, "local_attention": 16},
    "nomic_bert": {"max_position_embeddings": 64},
    "gte": {"max_position_embeddings": 64, "type_vocab_size": 1},
    "longformer": {"max_position_embeddings": 66, "attention_window": (8, 16, 8, 16)},
}
SETS = {
    "classification": ("classification/TREC.train.all", "classification/TREC.test.all"),
    "tagging": ("ner/conll2003/eng.train", "ner/conll2003/eng.testa"),
}
FORMATS = {"classification": {"data.format": "label_text"}, "tagging": {}}
WARMUP = 10
EVALUATED = 30  # the most batches
IGNORED = -100  # a label of transformers that takes no part in the loss


class Sides(NamedTuple):
    """What a side computes.

    Attributes:
        losses: float64 [steps], of each step.
        accuracy: share of the held-out texts or words that have the right label.
    """

    losses: np.ndarray
    accuracy: float


def compare(
    family: str,
    task: str,
    files: tuple[Path, Path],
    directory: Path,
    tokenizer: ByteLevelBPETokenizer,
    **keys: Any,
) -> tuple[Sides, Sides]:
    """Ours, and PyTorch's.

    Args:
        family: one of `FAMILIES`.
        task: "classification" or "tagging".
        files: training and held-out examples.
        directory: empty; models are written to it.
        tokenizer: of the new model.
        **keys: keys of the config with `__` for the dot, such as `train__steps`.
    """
    known = find_family(family)
    fields = {"vocab_size": tokenizer.vocab_size, **SIZES, **FAMILIES[family]}
    if "pad_token_id" not in known.fixed_fields:
        fields["pad_token_id"] = tokenizer.special_ids.pad
    new = ModelDescription(known.new_config("tiny", **fields), "encoder", family=known)
    base = _save(directory / "base", new, tokenizer)
    settings = {key.replace("__", "."): value for key, value in keys.items()} | FORMATS[task]
    training = _experiment(task, base, files[0], settings)
    labels = training.task.description.labels
    held_out = _experiment(task, base, files[1], settings | {"data.labels": labels})
    initial = _save(directory / "initial", training.task.description, tokenizer)
    steps = training.sections.train.steps
    batches = list(training.task.train_batches(0, steps, host=0, hosts=1))
    whole = len(held_out.task.splits.train) // training.sections.train.global_batch_size
    whole = min(whole, EVALUATED)
    evaluated = list(held_out.task.train_batches(0, whole, host=0, hosts=1))

    metrics, params = trained(training.task, batches, training.sections.optimizer, initial)
    right = jax.jit(lambda batch: _right(training.task, params, batch))
    count = sum(batch["weights"].sum() for batch in evaluated)
    ours = Sides(metrics["loss"], float(sum(map(right, evaluated)) / count))
    return ours, _pytorch(initial, batches, evaluated, training.sections.optimizer)


def _experiment(task: str, base: Path, train: Path, settings: dict[str, Any]) -> Experiment:
    config = complete_config({"task": task, "init_from": str(base)}, where="test")
    common = {
        "data.train": str(train),
        "data.validation": (str(train),),
        "data.length": 64,
        "train.steps": 150,
        "train.global_batch_size": 16,
        "optimizer.learning_rate": 1e-3,
        "optimizer.warmup_steps": WARMUP,
        "optimizer.warmup_ratio": 0.0,
        "optimizer.decay_from": "warmup",
        "optimizer.bias_correction": True,
        "optimizer.weight_decay": 0.1,
        "precision": "float32",
    }
    return Experiment.from_config(set_keys(config, common | settings, where="test"))


def _save(directory: Path, description: ModelDescription, tokenizer: ByteLevelBPETokenizer) -> Path:
    """A new model in a directory."""
    module = description.make_module(Execution())
    params = jax.jit(lambda key: init_params(module, key))(jax.random.key(0))
    model_directory.save(directory, description, params, tokenizer)
    return directory


def _right(task: Any, params: Any, batch: dict[str, jax.Array]) -> jax.Array:
    """The number of right labels."""
    return task.loss(params, task.forward(params, batch), batch)[""]["accuracy"]


def _labels(batch: Batch) -> np.ndarray:
    """Labels of texts [B], or of tokens [B, T]."""
    if "word_positions" not in batch:
        return batch["labels"]
    labels = np.full(batch["input_ids"].shape, IGNORED)
    rows, words = np.nonzero(batch["weights"])
    labels[rows, batch["word_positions"][rows, words]] = batch["labels"][rows, words]
    return labels


def _pytorch(directory: Path, batches: list[Batch], evaluated: list[Batch], options: Any) -> Sides:
    import torch
    import transformers

    torch.set_num_threads(1)
    fields = json.loads((directory / "config.json").read_text())
    model = getattr(transformers, fields["architectures"][0]).from_pretrained(directory).train()
    known = inspect.signature(model.forward).parameters
    optimizer = torch_adamw(model, options)
    schedule = transformers.get_linear_schedule_with_warmup(optimizer, WARMUP, len(batches))

    def output(batch: Batch) -> Any:
        names = ("input_ids", "attention_mask", "token_type_ids")
        arrays = {name: batch[name] for name in names if name in batch and name in known}
        arrays["labels"] = _labels(batch)
        return model(**{k: torch.from_numpy(v.astype(np.int64)) for k, v in arrays.items()})

    losses = []
    for batch in batches:
        loss = output(batch).loss
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), options.max_grad_norm)
        optimizer.step()
        schedule.step()
        losses.append(loss.item())
    right = []
    with torch.no_grad():
        for batch in evaluated:
            labels, found = _labels(batch), output(batch).logits.argmax(-1).numpy()
            right += (found == labels)[labels != IGNORED].tolist()
    return Sides(np.array(losses), float(np.mean(right)))


def main() -> None:
    """Prints a line of JSON for each family and set."""
    data, *names = sys.argv[1:]
    for task, files in SETS.items():
        paths = tuple(Path(data, file) for file in files)
        with paths[0].open(encoding="utf-8") as lines:
            words = (line.split(maxsplit=1)[-1] if task == "classification" else line.split(" ")[0]
                     for line in lines)  # fmt: skip
            tokenizer = train_byte_level_bpe(words, vocab_size=4000)
        for family in names or FAMILIES:
            with tempfile.TemporaryDirectory() as directory:
                ours, theirs = compare(family, task, paths, Path(directory), tokenizer)
            difference = np.abs(ours.losses - theirs.losses)
            found = {
                "family": family,
                "task": task,
                "steps": len(difference),
                "losses": [round(float(ours.losses[part].mean()), 3)
                           for part in (slice(10), slice(-10, None))],
                "difference": float(f"{difference.max():.2g}"),
                "accuracy": [round(side.accuracy, 4) for side in (ours, theirs)],
            }  # fmt: skip
            print(json.dumps(found), flush=True)


if __name__ == "__main__":
    main()

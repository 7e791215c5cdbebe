r"""The training of a run of images again, by PyTorch and transformers.

    python -m benchmarks.peers_images runs/digits/seed-1 runs/digits/seed-2 runs/digits/seed-3

transformers' model of the same `config.json`, with its own initial values, gets the batches of the
run in their order; AdamW, the parameters that decay, the learning rate of each step and the limit
of the gradient's norm are those of the run. Prints the validation accuracy of each, in float32.
"""

import argparse
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers

from bert_jax.experiment import Experiment
from bert_jax.experiment.workdir import run_sections

_NO_DECAY = ("bias", "layernorm", "cls_token", "position_embeddings")


def train(workdir: Path, model: Any) -> tuple[list[float], float]:
    """Trains a model of transformers as a run was; returns the loss of each step, and accuracy."""
    experiment = Experiment(run_sections(workdir))
    task: Any = experiment.task
    options, schedule = experiment.optimizer.options, experiment.optimizer.schedule
    groups: list[dict[str, Any]] = [
        {"params": [], "weight_decay": options.weight_decay},
        {"params": [], "weight_decay": 0.0},
    ]
    for name, parameter in model.named_parameters():
        groups[any(part in name for part in _NO_DECAY)]["params"].append(parameter)
    betas = options.beta1, options.beta2
    optimizer = torch.optim.AdamW(groups, lr=0.0, betas=betas, eps=options.epsilon)
    losses = []
    batches: Iterator[dict[str, np.ndarray]] = task.train_batches(
        0, experiment.options.steps, host=0, hosts=1
    )
    for step, batch in enumerate(batches):
        for group in optimizer.param_groups:
            group["lr"] = float(schedule(step))
        logits = model(pixels_of(batch["pixel_values"])).logits
        each = torch.nn.functional.cross_entropy(
            logits, torch.tensor(batch["labels"]).long(), reduction="none"
        )
        weights = torch.tensor(batch["weights"])
        loss = (each * weights).sum() / weights.sum()
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), options.max_grad_norm or np.inf)
        optimizer.step()
        losses.append(loss.item())
    return losses, accuracy(task, model)


def pixels_of(values: np.ndarray) -> torch.Tensor:
    """Our axes, [batch, height, width, colours] → PyTorch's."""
    return torch.tensor(values).permute(0, 3, 1, 2)


def accuracy(task: Any, model: Any) -> float:
    """The accuracy on the validation images of a task."""
    examples = task.splits.validation[0].examples
    predictor: Any = task.evaluator.predictor(task.model({}, None))
    rows = [encoded.rows[0].pixels for encoded in predictor.encode([e.input for e in examples])]
    model.eval()
    with torch.no_grad():
        found = model(pixels_of(np.stack(rows))).logits.argmax(dim=-1)
    labels = task.description.labels
    expected = [labels.index(example.label) for example in examples]
    return float(np.mean(found.numpy() == np.array(expected)))


def main(arguments: list[str]) -> None:
    """Prints the accuracy of each run."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("runs", nargs="+", type=Path)
    for workdir in parser.parse_args(arguments).runs:
        torch.manual_seed(run_sections(workdir).task.seed)
        config = transformers.AutoConfig.from_pretrained(workdir / "model")
        model = transformers.AutoModelForImageClassification.from_config(config)
        _, score = train(workdir, model)
        print(json.dumps({"run": str(workdir), "accuracy": score}))


if __name__ == "__main__":
    main(sys.argv[1:])

"""The steps of a training from a model of transformers: ours, and the optimizer of PyTorch's."""

from collections.abc import Collection, Iterable
from pathlib import Path
from typing import Any

import jax
import numpy as np

from bert_jax.checkpoints import model_directory
from bert_jax.data.pipeline import Batch
from bert_jax.sharding.hosts import to_global
from bert_jax.sharding.mesh import MeshShape, make_mesh
from bert_jax.tasks.base.task import Task
from bert_jax.training.optimizer import make_optimizer
from bert_jax.training.step import abstract_state, make_train_step, new_state
from bert_jax.training_options import OptimizerOptions


def metrics_of_bert_jax(
    task: Task,
    batches: list[Batch],
    options: OptimizerOptions,
    directory: Path,
    *,
    microbatches: int = 1,
    new: Collection[str] = (),
) -> dict[str, np.ndarray]:
    """The metrics of every step that `bert-jax train` takes from the model in a directory.

    `new` are the parameters that the directory does not have.
    """
    return trained(task, batches, options, directory, microbatches=microbatches, new=new)[0]


def trained(
    task: Task,
    batches: list[Batch],
    options: OptimizerOptions,
    directory: Path,
    *,
    microbatches: int = 1,
    new: Collection[str] = (),
) -> tuple[dict[str, np.ndarray], Any]:
    """`metrics_of_bert_jax`, and the parameters after the last step."""
    mesh = make_mesh(MeshShape(), jax.local_devices()[:1])
    optimizer = make_optimizer(options, len(batches))
    abstract = abstract_state(task, optimizer, mesh)
    step = make_train_step(
        task,
        optimizer,
        mesh=mesh,
        abstract=abstract,
        microbatches=microbatches,
        seed=0,
        frozen_params=task.frozen_inputs.load(mesh),
    )
    params, report = model_directory.load_params(
        directory, task.description, task.module, mesh=mesh
    )
    assert not report.unexpected_keys
    assert set(report.new) == set(new)
    state = new_state(task, optimizer, abstract, seed=1, params=params)
    actual = []
    for batch in batches:
        state, metrics = step(state, to_global(mesh, batch))
        actual.append(jax.device_get(metrics))
    return by_name(actual), state.params


def by_name(steps: Iterable[dict[str, Any]]) -> dict[str, np.ndarray]:
    """The values of all steps by the names that each step has."""
    steps = list(steps)
    return {name: np.array([step[name] for step in steps]) for name in steps[0]}


def torch_adamw(model: Any, options: OptimizerOptions, more: Iterable[Any] = ()) -> Any:
    """PyTorch's AdamW with our options, for a model of transformers and more parameters.

    Biases and the scales of LayerNorm, which do not decay, are the vectors among its parameters.
    """
    import torch

    parameters = [*model.parameters(), *more]
    groups = [
        {
            "params": [each for each in parameters if (each.ndim > 1) == decays],
            "weight_decay": options.weight_decay if decays else 0.0,
        }
        for decays in (True, False)
    ]
    # Hugging Face never moves the embedding of [PAD] by what follows from it as an input. The
    # original does, and so do we: in a small vocabulary [PAD] is often the random word of a mask.
    model.get_input_embeddings().padding_idx = None
    return torch.optim.AdamW(
        groups, lr=options.learning_rate, betas=(options.beta1, options.beta2), eps=options.epsilon
    )


def torch_labels(batch: Batch) -> np.ndarray:
    """The labels of transformers' masked language models: one for every token, -100 for none."""
    labels = np.full(batch["input_ids"].shape, -100)
    rows, places = np.nonzero(batch["masked_lm_weights"])
    labels[rows, batch["masked_lm_positions"][rows, places]] = batch["masked_lm_ids"][rows, places]
    return labels

"""A run's work directory: what it needs to be gone on with, judged and exported.

config.json          of the run, complete
model_config.json    of the model that it trains, as in a model directory
tokenizer/           of that model
checkpoints/         by orbax, see `checkpoints.runs`
metrics.jsonl, tensorboard/, curves.png, predictions/, result.json, model/
"""

import json
from pathlib import Path
from typing import Any

import flax.linen as nn
import jax
from jax.sharding import Mesh
from ml_collections import ConfigDict

from bert_jax import configuration
from bert_jax.checkpoints.config_file import ModelDescription, read_config, write_config
from bert_jax.checkpoints.runs import RunCheckpoints
from bert_jax.errors import UserError
from bert_jax.files import write_atomically
from bert_jax.models.bert import abstract_params
from bert_jax.models.config import Execution
from bert_jax.sharding.mesh import one_device_mesh
from bert_jax.sharding.rules import state_shardings
from bert_jax.training.task import Task

MODEL_CONFIG = "model_config.json"
TOKENIZER = "tokenizer"

# What may change between two calls of one run: it does not change the numbers.
FREE_KEYS = frozenset(
    {
        "data.evaluation_batches",
        "train.log_every",
        "train.eval_every",
        "train.checkpoint_every",
        "train.keep_checkpoints",
        "mesh.data",
        "mesh.fsdp",
        "mesh.tensor",
    }
)


def run_config(workdir: Path) -> ConfigDict:
    """The config of a run.

    Raises:
        UserError: there is no run, or its config is damaged.
    """
    path = workdir / "config.json"
    if not path.is_file():
        raise UserError(f"{workdir} is not a run: it has no config.json; give another --workdir")
    try:
        fields = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise UserError(f"{path} is damaged: {error}; use another --workdir") from error
    return configuration.complete(fields, where=str(path))


def claim(workdir: Path, config: ConfigDict) -> None:
    """Makes a work directory, or checks that it belongs to the same config.

    Raises:
        UserError: it belongs to another, or cannot be made.
    """
    path = workdir / "config.json"
    new = json.loads(json.dumps(config.to_dict()))  # tuples as the lists that they become
    if path.is_file():
        old = json.loads(json.dumps(run_config(workdir).to_dict()))
        changed = [
            item for item in configuration.differing_keys(old, new) if item[0] not in FREE_KEYS
        ]
        if changed:
            key, old_value, new_value = changed[0]
            raise UserError(
                f"{workdir} belongs to another config: {key} was {old_value!r} and is {new_value!r}"
                f" now ({len(changed)} keys differ); use another --workdir, or that value"
            )
    try:
        workdir.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(
            f"cannot make {workdir}: {error.strerror}; choose another --workdir"
        ) from error
    write_atomically(path, (json.dumps(new, indent=2) + "\n").encode())


def save_model_files(workdir: Path, task: Task) -> None:
    """Writes what an export needs besides a checkpoint: the data may be gone by then."""
    task.tokenizer.save(workdir / TOKENIZER)
    write_config(workdir / MODEL_CONFIG, task.description)


def description_of(workdir: Path) -> ModelDescription:
    """The model that a run trains.

    Raises:
        UserError: the run has not begun.
    """
    return read_config(workdir / MODEL_CONFIG)


def restore_params(
    workdir: Path,
    description: ModelDescription,
    which: str,
    mesh: Mesh | None = None,
    module: nn.Module | None = None,
) -> tuple[Any, int]:
    """The parameters of a checkpoint, on a mesh or one device, and its step.

    Args:
        workdir: of the run.
        description: of the model that it trains.
        which: "latest", "best" or a step.
        mesh: the devices.
        module: the model that is trained; None for as much of it as is exported. What is exported
            as a bare encoder is trained with something around it, and lies under `bert`.

    Raises:
        UserError: there is no such checkpoint, or it is damaged.
    """
    config = run_config(workdir)
    mesh = mesh or one_device_mesh()
    abstract = abstract_params(module or description.make_module(Execution()))
    if module is None and description.architecture == "BertModel":
        abstract = {"bert": abstract}
    placed = jax.tree.map(
        lambda leaf, sharding: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=sharding),
        abstract,
        state_shardings(mesh, abstract),
    )
    checkpoints = RunCheckpoints(workdir, keep=config.train.keep_checkpoints, read_only=True)
    step = checkpoints.step_of(which)
    return checkpoints.restore_params(step, placed), step

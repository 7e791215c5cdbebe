"""A run's work directory, here or in a bucket: what a run needs to continue and to be exported.

config.json          of the run, complete
model_config.json    of the model that it trains, as in a model directory
tokenizer/           of that model
data.json            what a change of the data would show in
checkpoints/         by orbax, see `checkpoints.runs`
metrics.jsonl, tensorboard/, curves.png, predictions/, result.json, model/
"""

import dataclasses
import json
from pathlib import Path
from typing import Any

import flax.linen as nn
import jax
from jax.sharding import Mesh
from ml_collections import ConfigDict

from bert_jax import model_init
from bert_jax.checkpoints import model_directory
from bert_jax.checkpoints.config_file import (
    ModelDescription,
    read_config,
    write_config,
)
from bert_jax.checkpoints.runs import RunCheckpoints
from bert_jax.config import complete_config, differing_keys
from bert_jax.errors import OptionError
from bert_jax.files import atomic_directory, reachable, read_json_object, write_atomically
from bert_jax.models.config import ENCODER_SCOPE, Head
from bert_jax.models.encoder import abstract_params
from bert_jax.models.surgery import without_padding
from bert_jax.sharding.hosts import is_main_host
from bert_jax.sharding.mesh import MeshShape, make_mesh, one_device_mesh
from bert_jax.sharding.rules import state_shardings
from bert_jax.tasks.base.splits import label_names
from bert_jax.tasks.base.task import Task

MODEL_CONFIG = "model_config.json"
DATA = "data.json"
SEVERAL_RUNS = "several_runs.json"
TOKENIZER = "tokenizer"

# What may change between two calls of one run: it does not change what a step computes.
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
        "optimizer.shard_over_data",
        "mesh.auto",
        # How it is computed; what comes out is the same, but for rounding.
        "model.remat",
        "model.scan_layers",
        "model.attention",
    }
)


def run_config(workdir: Path) -> ConfigDict:
    """The config of a run.

    Raises:
        UserError: there is no run, or its config is damaged.
    """
    path = workdir / "config.json"
    with reachable(path):
        is_there = path.is_file()
    if not is_there:
        problem = f"{workdir} is not a run: it has no config.json"
        raise OptionError("workdir", None, "give another {workdir}", problem)
    fields = read_json_object(path, remedy="use another run")
    return complete_config(fields, where=str(path))


def init_workdir(workdir: Path, config: ConfigDict) -> None:
    """Makes a work directory, or checks that it belongs to the same config.

    The main host goes first; the others find what it made.

    Raises:
        UserError: it belongs to another, cannot be made, or is not shared by all hosts.
    """
    with reachable(workdir):
        holds_several = (workdir / SEVERAL_RUNS).exists()
    if holds_several:
        raise OptionError(
            "workdir",
            None,
            "give one of those in it as {workdir} to go on with it, or another place for a new run",
            f"{workdir} holds several runs",
        )
    path = workdir / "config.json"
    new = json.loads(json.dumps(config.to_dict()))  # tuples as the lists that they become
    if path.is_file():
        old = json.loads(json.dumps(run_config(workdir).to_dict()))
        changed = [item for item in differing_keys(old, new) if item[0] not in FREE_KEYS]
        if changed:
            key, old_value, new_value = changed[0]
            raise OptionError(
                "workdir",
                None,
                "use another {workdir}, or that value",
                f"{workdir} belongs to another config: {key} was {old_value!r} and is {new_value!r}"
                f" now ({len(changed)} keys differ)",
            )
    if not is_main_host():
        if not path.is_file():
            raise OptionError(
                "workdir",
                None,
                "give a {workdir} on a disk that all hosts share",
                f"{path} of the main host is not seen from here",
            )
        return
    make_directory(workdir)
    write_atomically(path, (json.dumps(new, indent=2) + "\n").encode())


def make_directory(workdir: Path) -> None:
    """Makes a work directory, unless it is there.

    Raises:
        UserError: it cannot be made.
    """
    try:
        with reachable(workdir):
            workdir.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        problem = f"cannot make {workdir}: {error.strerror}"
        raise OptionError("workdir", None, "choose another {workdir}", problem) from error


def save_model_files(workdir: Path, task: Task) -> None:
    """Writes what an export needs besides a checkpoint: the data may be gone by then."""
    with atomic_directory(workdir / TOKENIZER) as place:
        task.tokenizer.save(place)
    write_config(workdir / MODEL_CONFIG, task.description)
    write_atomically(workdir / DATA, json.dumps(_of_data(task)).encode())


def check_unchanged(workdir: Path, task: Task) -> None:
    """Checks that a run that continues still has its data and labels.

    Raises:
        UserError: its files have changed.
    """
    old = description_of(workdir)
    before, now = label_names(old), label_names(task.description)
    if before != now:
        raise OptionError(
            "workdir",
            None,
            "use another {workdir}, or the old data",
            f"{workdir} learns the labels {', '.join(before)}, but those of the data are now "
            f"{', '.join(now)}",
        )
    then, today = read_json_object(workdir / DATA), _of_data(task)
    if then != today:
        raise OptionError(
            "workdir",
            None,
            "use another {workdir}, or the old data",
            f"{workdir} was started with {then} and the data now have {today}",
        )


def _of_data(task: Task) -> dict[str, int]:
    return {"examples_per_epoch": task.examples_per_epoch}


def description_of(workdir: Path) -> ModelDescription:
    """The model that a run trains.

    Raises:
        UserError: the run has not started.
    """
    description = read_config(workdir / MODEL_CONFIG)
    # Only tensors tell a pooler; a bare encoder is trained without, as no loss would reach it.
    has_pooler = description.head is not Head.ENCODER
    return dataclasses.replace(description, add_pooling_layer=has_pooler)


def export(workdir: Path, output: Path, *, which: str = "") -> int:
    """Writes a checkpoint of a run as a model directory; the data are not needed.

    With several hosts all call it.

    Args:
        workdir: of the run.
        output: the model directory.
        which: "latest", "best" or a step; "" for the run's `train.export`.

    Returns:
        The step that was exported.
    """
    which = which or run_config(workdir).train.export
    description = description_of(workdir)
    tokenizer = description.family.load_tokenizer(workdir / TOKENIZER)
    params, step = restore_params(workdir, description, which)
    # A bare encoder is trained with a loss around it.
    if description.head is Head.ENCODER:
        params = params[ENCODER_SCOPE]
    model_directory.save(output, description, params, tokenizer)
    return step


def restore_params(
    workdir: Path,
    description: ModelDescription,
    which: str,
    mesh: Mesh | None = None,
    module: nn.Module | None = None,
) -> tuple[Any, int]:
    """The parameters of a checkpoint, on a mesh, and its step; all hosts call it.

    Args:
        workdir: of the run.
        description: of the model that it trains.
        which: "latest", "best" or a step.
        mesh: the devices; None for one, or for those of all hosts.
        module: the model that is trained; None for as much of it as is exported, without the
            padding of its vocabulary. What is exported as a bare encoder is trained with something
            around it, and lies under `ENCODER_SCOPE`.

    Raises:
        UserError: there is no such checkpoint, or it is damaged.
    """
    config = run_config(workdir)
    if mesh is None:
        # Of several hosts each must take part.
        mesh = one_device_mesh() if jax.process_count() == 1 else make_mesh(MeshShape())
    abstract = abstract_params(module or description.make_module(model_init.execution(config)))
    if module is None and description.head is Head.ENCODER:
        abstract = {ENCODER_SCOPE: abstract}
    placed = jax.tree.map(
        lambda leaf, sharding: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=sharding),
        abstract,
        state_shardings(mesh, abstract),
    )
    checkpoints = RunCheckpoints(workdir, keep=config.train.keep_checkpoints, read_only=True)
    step = checkpoints.step_of(which)
    params = checkpoints.restore_params(step, placed)
    return (params if module else without_padding(params, description.config)), step

"""A run's work directory, local or in a bucket: all files to continue a run and to export it.

config.json          complete config of the run
model_config.json    config of the trained model, as in a model directory
tokenizer/           tokenizer of that model
vectors/             how it makes vectors of texts, as in a model directory
data.json            fingerprint of the data, to detect a change
data_summary.json    counts of the data and warnings, see `DataSummary`
checksums.json       checksums of these files and of the result, to detect damage
checkpoints/         by orbax, see `checkpoints.runs`
metrics.jsonl, tensorboard/, curves.png, predictions/, result.json, model/
"""

import contextlib
import dataclasses
import json
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import flax.linen as nn
import jax
from jax.sharding import Mesh
from ml_collections import ConfigDict

from bert_jax.checkpoints.config_file import ModelDescription, config_bytes, read_config
from bert_jax.checkpoints.runs import RunCheckpoints, newest_step
from bert_jax.checkpoints.sentence_transformers.reading import module_shapes, read_vectors
from bert_jax.checkpoints.sentence_transformers.writing import vector_files
from bert_jax.config import Sections, complete_config, differing_keys
from bert_jax.errors import OptionError, UserError, listed
from bert_jax.files import (
    check_undamaged,
    is_remote,
    is_there,
    locked,
    reachable,
    read_json_object,
    remove_partial_files,
    write_listed,
)
from bert_jax.files.paths import MODEL, MODEL_CONFIG, RESULT, RUN_CONFIG, SEVERAL_RUNS
from bert_jax.models.config import ENCODER_SCOPE
from bert_jax.models.encoder import abstract_params
from bert_jax.models.head import fields_of
from bert_jax.models.parameter_sharding import sharded_shapes
from bert_jax.models.surgery import without_padding
from bert_jax.options import differing_names
from bert_jax.process import say
from bert_jax.sharding.hosts import is_main_host, main_host_first
from bert_jax.sharding.mesh import MeshShape, make_mesh, one_device_mesh
from bert_jax.tasks.base.labels import label_names
from bert_jax.tasks.base.task import Task
from bert_jax.training.optimizer import make_optimizer
from bert_jax.training_options import OptimizerOptions

DATA = "data.json"
DATA_SUMMARY, _CHECKSUMS = "data_summary.json", "checksums.json"
TOKENIZER, _VECTORS, PREDICTIONS = "tokenizer", "vectors", "predictions"
WARNINGS, EXPORTED_STEP = "warnings", "exported_step"
"""The keys of `result.json` that are no metrics."""

# Files and directories that a run writes after its config.
_NAMES = (
    *("checkpoints", DATA, MODEL_CONFIG, TOKENIZER, "metrics.jsonl", "tensorboard", "curves.png"),
    *(PREDICTIONS, RESULT, MODEL, DATA_SUMMARY, _VECTORS),
)

# Keys that may change when a run continues: they do not change the result of a step.
FREE_KEYS = frozenset(
    {
        "data.evaluation_batches",
        "train.log_every",
        "train.eval_every",
        "train.evaluate_per_epoch",
        "train.checkpoint_every",
        "train.keep_checkpoints",
        "train.average_checkpoints",
        "mesh.data",
        "mesh.fsdp",
        "mesh.tensor",
        "optimizer.shard_over_data",
        "mesh.auto",
        # Ways of computing the same result, up to rounding.
        "model.remat",
        "model.scan_layers",
        "model.attention",
    }
)

# Keys that may change unless the training becomes shorter than the steps already done.
LENGTH_KEYS = frozenset({"train.steps", "train.epochs"})


def _unusable(problem: str, remedy: str = "use another --workdir") -> UserError:
    return UserError(f"{problem}; {remedy}")


def run_config(workdir: Path) -> ConfigDict:
    """The config of a run.

    Raises:
        UserError: the run does not exist, or its config is damaged.
    """
    path = workdir / RUN_CONFIG
    with reachable(path):
        has_config = path.is_file()
    if not has_config:
        raise _unusable(f"{workdir} is not a run: it has no {RUN_CONFIG}")
    check_undamaged(workdir, [RUN_CONFIG], _CHECKSUMS)
    fields = read_json_object(path, remedy="use another run")
    if "model_type" in fields:
        raise _unusable(f"{workdir} is not a run: its {RUN_CONFIG} describes a model")
    return complete_config(fields, where=str(path))


def run_sections(workdir: Path) -> Sections:
    """The config of a run as typed options; for errors see `run_config`."""
    return Sections.read(run_config(workdir))


@contextlib.contextmanager
def writing(workdir: Path) -> Iterator[None]:
    """Makes a work directory, which only these hosts write within the block; all of them call it.

    Raises:
        UserError: other processes write it, or it cannot be created.
    """
    with contextlib.ExitStack() as stack:
        with main_host_first():
            if is_main_host():
                try:
                    with reachable(workdir):
                        workdir.mkdir(parents=True, exist_ok=True)
                except OSError as error:
                    raise _unusable(f"cannot make {workdir}: {error.strerror}") from error
                stack.enter_context(locked(workdir, inside=True))
        yield


def check_config(workdir: Path, keys: Mapping[str, Any]) -> ConfigDict | None:
    """The config of the run in a work directory, None if there is none.

    Args:
        workdir: the directory.
        keys: the config of the run that begins or continues there.

    Raises:
        UserError: the run belongs to another config.
    """
    if is_there(workdir / SEVERAL_RUNS):
        raise _unusable(
            f"{workdir} holds several runs",
            "give one of its runs as --workdir to continue it, or another --workdir for a new run",
        )
    if not (workdir / RUN_CONFIG).is_file():
        return None
    old = run_config(workdir)
    changed = [
        item
        for item in differing_keys(_as_json(old.to_dict()), _as_json(keys))
        if item[0] not in FREE_KEYS | LENGTH_KEYS
    ]
    if changed:
        named = [f"{key} was {before!r} and is {now!r} now" for key, before, now in changed]
        raise _unusable(
            f"{workdir} belongs to another config: {listed(named, most=5)}",
            "use another --workdir, or the old values",
        )
    return old


def _as_json(keys: Mapping[str, Any]) -> dict[str, Any]:
    return json.loads(json.dumps(keys))  # tuples become lists


def init_workdir(workdir: Path, sections: Sections, task: Task) -> None:
    """Begins a run in a work directory, or checks that the run has the same config and data.

    The training may have become longer: from the steps that are done, the learning rate follows the
    schedule of the new length. The main host goes first; the other hosts then see its files.

    Args:
        workdir: the directory.
        sections: the config of the run.
        task: task with the data of the config.

    Raises:
        UserError: it belongs to another config or other data, has done more steps, or is not shared
            by all hosts.
    """
    old, done = check_config(workdir, sections.keys), newest_step(workdir)
    if old is not None and done is not None:
        check_unchanged(workdir, task)
        trains = Sections.read(old).train, sections.train
        before, now = (train.resolved(task.examples_per_epoch).steps for train in trains)
        _change_length(workdir, sections.optimizer, done=done, before=before, now=now)
    path = workdir / RUN_CONFIG
    if not is_main_host():
        if not path.is_file():
            raise _unusable(
                f"{path} of the main host is not seen from here",
                "give a --workdir on a disk that all hosts share",
            )
        return
    if not path.is_file() and (foreign := [name for name in _NAMES if (workdir / name).exists()]):
        raise _unusable(f"{workdir} is not a run: it has {listed(foreign)}, but no {path.name}")
    if not is_remote(workdir):
        remove_partial_files(workdir)
    write(workdir, {RUN_CONFIG: (json.dumps(sections.keys, indent=2) + "\n").encode()})


def _change_length(
    workdir: Path, optimizer: OptimizerOptions, *, done: int, before: int, now: int
) -> None:
    """Checks and announces another number of steps; the run is not finished any more.

    Raises:
        OptionError: more steps are done.
    """
    if now == before:
        return
    if now < done:
        problem = f"{workdir} has done {done} steps already, and the config sets {now}"
        rule = f"use another --workdir, or at least {{train.steps={done}}}"
        raise OptionError("train.steps", now, rule, problem)
    if is_main_host():
        last = make_optimizer(optimizer, before).schedule(done - 1)
        following = make_optimizer(optimizer, now).schedule(done)
        say(
            f"{workdir}: {before} steps before, {now} now, {done} of them done; from here on the "
            f"learning rate follows the schedule of {now} steps: {last:.2g} in step {done}, "
            f"{following:.2g} in the next"
        )
        # Before the config, which is written next: a run that is killed here is continued.
        with reachable(workdir):
            (workdir / RESULT).unlink(missing_ok=True)


def save_model_files(workdir: Path, task: Task) -> None:
    """Writes the files that an export needs in addition to a checkpoint, without the data."""
    with tempfile.TemporaryDirectory(prefix="bert-jax-") as folder:
        task.tokenizer.save(folder)
        paths = sorted(Path(folder).iterdir())
        files = {f"{TOKENIZER}/{path.name}": path.read_bytes() for path in paths}
    description = task.description
    files[MODEL_CONFIG] = config_bytes(description)
    if vectors := description.stored_vectors:
        vector_content = vector_files(vectors, description.config.hidden_size)
        files |= {f"{_VECTORS}/{name}": content for name, content in vector_content.items()}
    summary = json.dumps(task.data_summary.as_dict(), indent=2, ensure_ascii=False)
    # Names of files need not be text; JSON spells them like Python.
    files[DATA_SUMMARY] = f"{summary}\n".encode(errors="backslashreplace")
    write(workdir, {**files, DATA: json.dumps(_data_record(task)).encode()})


def write(workdir: Path, files: Mapping[str, bytes]) -> None:
    """Writes files of a run, each atomically, with their checksums."""
    write_listed(workdir, files, _CHECKSUMS)


def finished_result(workdir: Path) -> dict[str, Any] | None:
    """The content of `result.json`, which is written last; None if the run is not finished.

    Raises:
        UserError: it is damaged.
    """
    if not is_there(workdir / RESULT):
        return None
    check_undamaged(workdir, [RESULT], _CHECKSUMS)
    return read_json_object(workdir / RESULT, remedy="remove it and run again")


def metrics_in(result: Mapping[str, Any]) -> dict[str, Any]:
    """The metrics in the content of `result.json`."""
    return {name: value for name, value in result.items() if name not in (WARNINGS, EXPORTED_STEP)}


def check_unchanged(workdir: Path, task: Task) -> None:
    """Checks that a run that continues still has the same data and labels.

    Raises:
        UserError: its files have changed.
    """
    old = description_of(workdir)
    before, labels = label_names(old), label_names(task.description)
    if before != labels:
        raise _unusable(
            f"{workdir} learns the labels {', '.join(before)}, but the data now have "
            f"{', '.join(labels)}",
            "use another --workdir, or the old data",
        )
    if old.config != task.description.config:
        names = differing_names(fields_of(old.config), fields_of(task.description.config))
        raise _unusable(
            f"{workdir} was started with another model: {', '.join(names)} changed since",
            "use another --workdir, or the old model",
        )
    if changed := differing_names(read_json_object(workdir / DATA), _data_record(task)):
        raise _unusable(
            f"{workdir} was started with other data: {', '.join(changed)} changed since",
            "use another --workdir, or the old data",
        )


def changed_evaluation_data(workdir: Path, task: Task) -> list[str]:
    """The inputs of an evaluation that differ from the training of a run."""
    then = read_json_object(workdir / DATA)
    now = {name: digest for name, digest in task.fingerprints().items() if name != "train"}
    return differing_names({name: then.get(name) for name in now}, now)


def _data_record(task: Task) -> dict[str, int | str]:
    return {
        # Also the windows that options of a task make of the examples.
        "examples_per_epoch": task.examples_per_epoch,
        "tokenizer": task.tokenizer.fingerprint(),
        **task.fingerprints(),
    }


def description_of(workdir: Path) -> ModelDescription:
    """The model that a run trains.

    Raises:
        UserError: the run has not started.
    """
    check_undamaged(workdir, [MODEL_CONFIG, f"{TOKENIZER}/*", f"{_VECTORS}/*"], _CHECKSUMS)
    description = read_config(workdir / MODEL_CONFIG)
    # Only the tensors show whether there is a pooler; a bare encoder is trained without one, as no
    # loss would reach it.
    has_pooler = not description.is_bare
    vectors = read_vectors(workdir / _VECTORS)
    return dataclasses.replace(description, add_pooling_layer=has_pooler, stored_vectors=vectors)


def restore_params(
    workdir: Path,
    description: ModelDescription,
    which: str,
    mesh: Mesh | None = None,
    module: nn.Module | None = None,
    *,
    average: int = 1,
) -> tuple[Any, int]:
    """The parameters of a checkpoint, on a mesh, and its step; all hosts call it.

    Args:
        workdir: directory of the run.
        description: description of the model that the run trains.
        which: "latest", "best" or a step.
        mesh: devices for the parameters; None: one device, or with several hosts all devices.
        module: the model that is trained; None: only its exported part, without the padding of its
            vocabulary. The trained model of a bare encoder has it under `ENCODER_SCOPE`.
        average: N, for the mean of the newest N checkpoints up to this one.

    Raises:
        UserError: the checkpoint does not exist, or is damaged.
    """
    run = run_sections(workdir)
    if mesh is None:
        # With several hosts, each must take part.
        mesh = one_device_mesh() if jax.process_count() == 1 else make_mesh(MeshShape())
    abstract = abstract_params(module or description.make_module(run.execution()))
    if module is None and description.is_bare:
        modules = module_shapes(description.stored_vectors, description.config.hidden_size)
        abstract = {ENCODER_SCOPE: abstract, **modules}
    train = run.train
    with RunCheckpoints(
        workdir, keep=train.keep_checkpoints, every=train.checkpoint_every, read_only=True
    ) as checkpoints:
        step = checkpoints.step_of(which)
        shapes = sharded_shapes(mesh, abstract)
        params = checkpoints.restore_params(step, shapes, average=average)
    return (params if module else without_padding(params, description.config)), step

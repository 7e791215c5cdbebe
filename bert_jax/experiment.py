"""From a config to things that are done: prepare a corpus, train, evaluate and export a run.

This is where configs meet the floors below. A section that is the fields of a class becomes one
where it is needed; the model's keys are read in `model_init`, the task's own in its `create`.
"""

import json
import sys
from pathlib import Path
from typing import Any

from jax.sharding import Mesh
from ml_collections import ConfigDict

from bert_jax import model_init
from bert_jax import workdir as run_directory
from bert_jax.checkpoints import model_directory
from bert_jax.checkpoints.config_file import ModelDescription, write_config
from bert_jax.checkpoints.hub import resolve
from bert_jax.checkpoints.parameters import HEADS_OF_LABELS
from bert_jax.checkpoints.runs import has_checkpoint
from bert_jax.config import task_module
from bert_jax.data.pretraining.preparation.prepare import PrepareOptions
from bert_jax.data.pretraining.preparation.vocabulary import VocabularyOptions
from bert_jax.data.pretraining.sources import SourceSpec, source_specs
from bert_jax.errors import UserError, as_retryable
from bert_jax.files import write_atomically
from bert_jax.models.config import Head
from bert_jax.options import from_keys, keys_of
from bert_jax.planning.meshes import auto_mesh
from bert_jax.sharding.hosts import check_batch_size, from_main_host, is_main_host, main_host_first
from bert_jax.sharding.mesh import MeshShape, make_mesh
from bert_jax.tasks.base.task import ModelInit, Task
from bert_jax.tokenization import load_tokenizer
from bert_jax.training.logs import draw_curves
from bert_jax.training.loop import train as train_loop
from bert_jax.training.optimizer import OptimizerOptions, make_optimizer
from bert_jax.training.options import TrainOptions
from bert_jax.training.step import abstract_state, explain_out_of_memory

PREDICTIONS = "predictions"


def prepare_options(config: ConfigDict) -> PrepareOptions:
    """What `bert-jax prepare` makes: the sections `data` and `tokenizer`.

    Raises:
        UserError: the config's task is not trained on a corpus, or a value is wrong.
    """
    data, tokenizer = config.data, config.tokenizer
    if "corpus" not in data:
        raise UserError(
            f"task {config.task} reads its files as they are; there is nothing to prepare: train"
        )
    per_source = {name: data[name] for name in keys_of(SourceSpec, omit=("source", "weight"))}
    return PrepareOptions(
        sources=source_specs(data.source, per_source),
        tokenizer=tokenizer.path or None,
        vocabulary=from_keys(VocabularyOptions, tokenizer),
        validation_fraction=data.validation_fraction,
        sentences=data.sentences,
        language=data.language,
        seed=config.seed,
    )


def make_task(config: ConfigDict, on: ModelInit | None = None) -> Task:
    """The task that a config names, with its data open.

    Args:
        config: the whole config.
        on: in place of the model that the config describes.
    """
    module = task_module(config.task)
    task = module.create(config, on or model_init.of_config(config))
    task.check()
    return task


def train(config: ConfigDict, workdir: Path) -> dict[str, float]:
    """Trains a run to its end; writes `model/`, `curves.png` and `result.json` beside its logs.

    Returns:
        The validation metrics of the exported model and their baselines, as in `result.json`.
    """
    options = TrainOptions(**config.train)
    optimizer_options = OptimizerOptions(**config.optimizer)
    shape = MeshShape(**config.mesh)
    mesh = make_mesh(shape)
    if not shape.auto:
        check_batch_size(options.global_batch_size, mesh, options.microbatches)
    base = model_init.of_config(config)
    task = make_task(config, base)
    options = options.resolved(task.examples_per_epoch)
    if shape.auto:
        mesh = auto_mesh(task, make_optimizer(optimizer_options, options.steps), options)
    # Refuses what does not fit together, before a work directory is made.
    abstract_state(task, make_optimizer(optimizer_options, options.steps), mesh)
    with main_host_first():
        run_directory.init_workdir(workdir, config)
    result_file = workdir / "result.json"
    if from_main_host(result_file.is_file()):  # it is written last
        print(f"{workdir} is finished already: nothing to do", file=sys.stderr)
        return json.loads(result_file.read_text(encoding="utf-8"))
    if is_main_host():
        execution = base.execution
        print(f"computing in {execution.dtype}, attention {execution.attention}", file=sys.stderr)
    is_new = from_main_host(not has_checkpoint(workdir))
    if not is_new:
        run_directory.check_unchanged(workdir, task)
    elif is_main_host():
        run_directory.save_model_files(workdir, task)
    # Where the last step is bound to become the model, its evaluation is the one that counts; else
    # the model that is exported is evaluated by itself.
    is_last = options.export == "latest" and not options.patience

    def evaluate_on_mesh(params: Any, directory: Path | None) -> dict[str, float]:
        return task.evaluate(params, mesh, directory)

    with explain_out_of_memory(options, mesh):
        metrics = train_loop(
            task,
            evaluate_on_mesh,
            optimizer_options=optimizer_options,
            options=options,
            mesh=mesh,
            workdir=workdir,
            seed=config.seed,
            initial_params=_initial_params(config, base, task, mesh) if is_new else None,
            predictions=workdir / PREDICTIONS if is_last else None,
        )
    baselines = task.baselines()
    with as_retryable():
        if not is_last:
            params, _ = run_directory.restore_params(
                workdir, task.description, options.export, mesh, task.module
            )
            metrics = evaluate_on_mesh(params, workdir / PREDICTIONS)
        result = metrics | baselines
        with main_host_first():
            # An evaluation may have learned something that the model is to know.
            if is_main_host():
                write_config(workdir / run_directory.MODEL_CONFIG, task.description)
        export(workdir, workdir / "model", which=options.export)
        if is_main_host():
            draw_curves(workdir, baselines, derived_metrics=task.derived_metrics)
            write_atomically(result_file, (json.dumps(result, indent=2) + "\n").encode())
    return result


def evaluate(
    config: ConfigDict, workdir: Path | None, model: Path | None, output: Path | None = None
) -> dict[str, float]:
    """Held-out metrics of a run, or of a model directory, with baselines.

    Args:
        config: names the task and its data.
        workdir: of the run; the checkpoint that it exports is judged.
        model: a model directory.
        output: a directory for predictions and reports.
    """
    mesh = make_mesh(MeshShape(**config.mesh))
    if workdir is not None:
        description = run_directory.description_of(workdir)
        tokenizer = workdir / run_directory.TOKENIZER
        task = make_task(config, model_init.of_model(config, description, tokenizer))
        params, _ = run_directory.restore_params(
            workdir, description, config.train.export, mesh, task.module
        )
    elif model is not None:
        directory = resolve(model)
        description = model_directory.load_description(directory)
        task = make_task(config, model_init.of_model(config, description, directory))
        params, report = model_directory.load_params(directory, task.module, mesh=mesh)
        if report.new:
            raise UserError(f"{directory} cannot be evaluated for task {config.task}: {report}")
    else:
        raise UserError("evaluate needs --workdir RUN or --model DIR")
    return task.evaluate(params, mesh, output) | task.baselines()


def export(workdir: Path, output: Path, *, which: str = "") -> int:
    """Writes a checkpoint of a run as a model directory; the data are not needed.

    Of several hosts all call it.

    Args:
        workdir: of the run.
        output: the model directory.
        which: "latest", "best" or a step; "" for what the run's `train.export` says.

    Returns:
        The step that was exported.
    """
    which = which or run_directory.run_config(workdir).train.export
    tokenizer = load_tokenizer(workdir / run_directory.TOKENIZER)
    description = run_directory.description_of(workdir)
    params, step = run_directory.restore_params(workdir, description, which)
    # A bare encoder is trained with something around it.
    if description.head is Head.ENCODER:
        params = params["bert"]
    model_directory.save(output, description, params, tokenizer)
    return step


def _initial_params(config: ConfigDict, base: ModelInit, task: Task, mesh: Mesh) -> Any:
    """Parameters of `init_from`, None if there is none."""
    if base.description is None:
        return None
    directory = resolve(config.init_from)
    params, report = model_directory.load_params(
        directory,
        task.module,
        mesh=mesh,
        seed=config.seed,
        reinitialize=_of_other_labels(base.description, task.description),
    )
    if is_main_host():
        print(f"init_from {directory}: {report}", file=sys.stderr)
    return params


def _of_other_labels(theirs: ModelDescription, ours: ModelDescription) -> tuple[str, ...]:
    """Beginnings of the names of parameters that mean something else in a model to begin with."""
    if theirs.problem_type == ours.problem_type == "regression":
        return ()
    if (
        theirs.head is ours.head
        and theirs.config.num_labels == ours.config.num_labels
        and theirs.labels in ((), ours.labels)
    ):
        return ()
    return HEADS_OF_LABELS

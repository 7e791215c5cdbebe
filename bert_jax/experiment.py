"""From a config to things that are done: prepare a corpus, train, evaluate and export a run.

This is where configs meet the floors below; each key is read here or in the task's `create`.
"""

import dataclasses
import json
import sys
from pathlib import Path
from typing import Any

import flax.linen as nn
import jax
from jax.sharding import Mesh
from ml_collections import ConfigDict

from bert_jax import configuration
from bert_jax.checkpoints import model_directory
from bert_jax.checkpoints.config_file import ModelDescription
from bert_jax.checkpoints.hub import resolve
from bert_jax.checkpoints.runs import RunCheckpoints
from bert_jax.data.corpus import TOKENIZER_DIRECTORY
from bert_jax.data.preparation.prepare import PrepareOptions
from bert_jax.data.preparation.vocabulary import VocabularyOptions
from bert_jax.data.sources import SourceSpec, source_specs
from bert_jax.errors import UserError
from bert_jax.files import write_atomically
from bert_jax.models.bert import abstract_params
from bert_jax.models.config import BertConfig, Execution
from bert_jax.sharding.hosts import is_main_host, rows_per_host
from bert_jax.sharding.mesh import MeshShape, make_mesh, one_device_mesh
from bert_jax.sharding.rules import state_shardings
from bert_jax.tokenization import Tokenizer, load_tokenizer
from bert_jax.training.evaluation import evaluate as evaluate_batches
from bert_jax.training.loop import TrainOptions
from bert_jax.training.loop import train as train_loop
from bert_jax.training.optimizer import OptimizerOptions, make_optimizer
from bert_jax.training.plots import draw_curves
from bert_jax.training.step import make_evaluation_step
from bert_jax.training.task import Task

# Fields of the architecture that do not change what its parameters compute.
TRAINING_FIELDS = frozenset(
    {
        "hidden_dropout_prob",
        "attention_probs_dropout_prob",
        "classifier_dropout",
        "initializer_range",
        "num_labels",
    }
)

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


def prepare_options(config: ConfigDict) -> PrepareOptions:
    """What `bert-jax prepare` makes: the sections `data` and `tokenizer`."""
    data, tokenizer = config.data, config.tokenizer
    per_source = {
        field.name: data[field.name]
        for field in dataclasses.fields(SourceSpec)
        if field.name not in ("source", "weight")
    }
    return PrepareOptions(
        sources=source_specs(data.source, per_source),
        tokenizer=tokenizer.path or None,
        vocabulary=VocabularyOptions(
            **{field.name: tokenizer[field.name] for field in dataclasses.fields(VocabularyOptions)}
        ),
        held_out=data.held_out,
        sentences=data.sentences,
        language=data.language,
        seed=config.seed,
    )


def model_config(config: ConfigDict, tokenizer: Tokenizer) -> BertConfig:
    """The architecture that a config describes for a vocabulary."""
    fields = {
        field.name: config.model[field.name]
        for field in dataclasses.fields(BertConfig)
        if config.model[field.name] is not None
    }
    given = {"vocab_size": tokenizer.vocab_size, "pad_token_id": tokenizer.special_ids.pad}
    return BertConfig.from_size(config.model.size, **{**given, **fields})


def make_task(config: ConfigDict, architecture: BertConfig | None = None) -> Task:
    """The task that a config names, with its data open.

    Args:
        config: the whole config.
        architecture: in place of the one that the config describes.
    """

    def architecture_for(tokenizer: Tokenizer) -> BertConfig:
        return architecture or model_config(config, tokenizer)

    execution = Execution(
        dtype=config.precision, scan_layers=config.model.scan_layers, remat=config.model.remat
    )
    module = configuration.task_module(config.task)
    return module.create(config, architecture_for, execution)


def train(config: ConfigDict, workdir: Path) -> dict[str, float]:
    """Trains a run to its end; writes `model/`, `curves.png` and `result.json` beside its logs.

    Returns:
        The held-out metrics and their baselines, as in `result.json`.
    """
    options = TrainOptions(**config.train)
    optimizer_options = OptimizerOptions(**config.optimizer)
    make_optimizer(optimizer_options, options.steps)  # refuses bad options
    mesh = make_mesh(MeshShape(**config.mesh))
    rows_per_host(options.global_batch_size, mesh, options.microbatches)
    task = make_task(config)
    initial_params = _initial_params(config, task, mesh)
    _claim(workdir, config)
    result_file = workdir / "result.json"
    if result_file.is_file():  # it is written last
        print(f"{workdir} is finished already: nothing to do", file=sys.stderr)
        return json.loads(result_file.read_text(encoding="utf-8"))
    if is_main_host():
        # With it the run can be exported when the corpus is no longer at hand.
        task.tokenizer.save(workdir / TOKENIZER_DIRECTORY)
    metrics = train_loop(
        task,
        optimizer_options=optimizer_options,
        options=options,
        mesh=mesh,
        workdir=workdir,
        seed=config.seed,
        initial_params=initial_params,
    )
    baselines = task.baselines()
    result = metrics | baselines
    if is_main_host():
        export(workdir, workdir / "model")
        draw_curves(workdir, baselines)
        write_atomically(result_file, (json.dumps(result, indent=2) + "\n").encode())
    return result


def evaluate(config: ConfigDict, workdir: Path | None, model: Path | None) -> dict[str, float]:
    """Held-out metrics of a run's newest checkpoint, or of a model directory, with baselines."""
    mesh = make_mesh(MeshShape(**config.mesh))
    rows_per_host(config.train.global_batch_size, mesh)
    if workdir is not None:
        task = make_task(config)
        params, _ = _run_params(workdir, task.module, "latest", mesh)
    elif model is not None:
        directory = resolve(model)
        task = make_task(config, model_directory.load_description(directory).config)
        _check_tokenizer(directory, task)
        params, report = model_directory.load_params(directory, task.module, mesh=mesh)
        if report.new:
            raise UserError(f"{directory} cannot be evaluated for task {config.task}: {report}")
    else:
        raise UserError("evaluate needs --workdir RUN or --model DIR")
    batches = task.evaluation_batches(host=jax.process_index(), hosts=jax.process_count())
    step = make_evaluation_step(task, mesh=mesh)
    return evaluate_batches(task, step, params, batches, mesh) | task.baselines()


def export(workdir: Path, output: Path, *, which: str = "latest") -> int:
    """Writes a checkpoint of a run as a model directory; the corpus is not needed.

    Args:
        workdir: of the run.
        output: the model directory.
        which: "latest", "best" or a step.

    Returns:
        The step that was exported.
    """
    config = run_config(workdir)
    tokenizer = load_tokenizer(workdir / TOKENIZER_DIRECTORY)
    architecture = model_config(config, tokenizer)
    task = configuration.task_module(config.task)
    params, step = _run_params(workdir, task.make_module(architecture, Execution()), which)
    description = ModelDescription(architecture, task.ARCHITECTURE)
    model_directory.save(output, description, params, tokenizer)
    return step


def run_config(workdir: Path) -> ConfigDict:
    """The config of a run."""
    path = workdir / "config.json"
    if not path.is_file():
        raise UserError(f"{workdir} is not a run: it has no config.json; give another --workdir")
    try:
        fields = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise UserError(f"{path} is damaged: {error}; use another --workdir") from error
    return configuration.complete(fields, where=str(path))


def _run_params(
    workdir: Path, module: nn.Module, which: str, mesh: Mesh | None = None
) -> tuple[Any, int]:
    """The parameters of a checkpoint of a run, on a mesh or one device, and its step."""
    config = run_config(workdir)
    mesh = mesh or one_device_mesh()
    abstract = abstract_params(module)
    placed = jax.tree.map(
        lambda leaf, sharding: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=sharding),
        abstract,
        state_shardings(mesh, abstract),
    )
    checkpoints = RunCheckpoints(
        workdir,
        keep=config.train.keep_checkpoints,
        best_metric=configuration.task_module(config.task).BEST_METRIC,
        read_only=True,
    )
    step = checkpoints.step_of(which)
    return checkpoints.restore_params(step, placed), step


def _initial_params(config: ConfigDict, task: Task, mesh: Mesh) -> Any:
    """Parameters of `init_from`, None if there is none."""
    if not config.init_from:
        return None
    directory = resolve(config.init_from)
    _check_tokenizer(directory, task)
    theirs, ours = model_directory.load_description(directory).config, task.module.config
    for field in dataclasses.fields(BertConfig):
        old, new = getattr(theirs, field.name), getattr(ours, field.name)
        if old != new and field.name not in TRAINING_FIELDS:
            raise UserError(
                f"init_from {directory} has {field.name} {old!r}, the config {new!r}; give the "
                "config the same model"
            )
    params, report = model_directory.load_params(
        directory, task.module, mesh=mesh, seed=config.seed
    )
    if is_main_host():
        print(f"init_from {directory}: {report}", file=sys.stderr)
    return params


def _check_tokenizer(directory: Path, task: Task) -> None:
    """Raises UserError unless a model directory has the task's tokenizer."""
    if load_tokenizer(directory).fingerprint() != task.tokenizer.fingerprint():
        raise UserError(
            f"{directory} has another tokenizer than the corpus; prepare the corpus with "
            f"tokenizer.path={directory}"
        )


def _claim(workdir: Path, config: ConfigDict) -> None:
    """Makes a work directory, or checks that it belongs to the same config."""
    path = workdir / "config.json"
    new = json.loads(json.dumps(config.to_dict()))  # tuples as the lists that they become
    if path.is_file():
        changed = [
            item
            for item in configuration.differing_keys(run_config(workdir).to_dict(), new)
            if item[0] not in FREE_KEYS
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

"""Loads a model directory, a model of the hub, or Google's or AllenNLP's files into memory."""

import dataclasses
import functools
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from jax.sharding import Mesh

from bert_jax.checkpoints import allennlp_files, google_files, model_directory
from bert_jax.checkpoints.config_file import LABEL_KEYS, HeadError, ModelDescription
from bert_jax.checkpoints.hub import resolve
from bert_jax.checkpoints.sentence_transformers.entries import has_routes, sides_of
from bert_jax.checkpoints.sentence_transformers.reading import read_modules
from bert_jax.errors import OptionError, UserError, require_at_least, require_one_of
from bert_jax.families.family import find_class
from bert_jax.files import is_remote
from bert_jax.inference.model import LoadedModel
from bert_jax.inference.origin import Origin, parts_of, states_of
from bert_jax.inference.resizing import MOST_POSITIONS, ModelT
from bert_jax.models.config import EncoderConfig
from bert_jax.models.execution import resolve_execution
from bert_jax.models.head import BARE_ENCODER, all_heads, find_head, heads_with, label_parameters
from bert_jax.models.heads.text_vectors import SIMILARITIES
from bert_jax.models.vectors import DOCUMENT, QUERY
from bert_jax.process import say
from bert_jax.sharding.hosts import is_main_host
from bert_jax.sharding.mesh import check_mesh, one_device_mesh
from bert_jax.sharding.runtime import keep_freed_memory
from bert_jax.tasks import find_task, task_names
from bert_jax.tasks.base.predictor import BatchOptions, Model
from bert_jax.tasks.base.vector_kinds import vector_kind


def load(
    path: str | Path,
    task: str | None = None,
    *,
    mesh: Mesh | None = None,
    precision: str = "float32",
    revision: str | None = None,
    seed: int = 0,
    hidden_act: str | None = None,
    labels: Sequence[str] | None = None,
    route: str | None = None,
) -> LoadedModel:
    """Loads a model directory written by `bert-jax` or `transformers`, or a model of the hub.

    Files of google-research/bert can be loaded as well (with TensorFlow, which takes some seconds),
    and AllenNLP's of an ELMo (with h5py).

    The files must hold the complete encoder. A head that the task needs and the files lack is
    initialised from `seed`; a line on stderr says so, and `LoadedModel.report` has the details. If
    no task is given and the stored head does not fit, the encoder is loaded alone, and methods that
    need the head refuse it.

    Args:
        path: a model directory, the work directory of a finished run, a hub id such as
            "google-bert/bert-base-uncased", or the path of Google's or AllenNLP's files, see
            `find` of `checkpoints.google_files` and `checkpoints.allennlp_files`.
        task: a head ("masked_lm"), a task ("similarity") or a class name of Hugging Face; None
            for the model as stored in the files.
        mesh: devices for the parameters; None for the first device.
        precision: dtype of the activations: "float32", "bfloat16", or "auto", the fastest on the
            device.
        revision: branch, tag or commit of a hub id.
        seed: seed of parameters that the files lack.
        hidden_act: activation function that overrides the config; "gelu" in Google's files is
            loaded as the exact form, as in Hugging Face.
        labels: names of the labels of a classifier or tagger, in their order; if the stored head
            has other labels, the head is initialised again.
        route: of a model of sentence-transformers with a Router, the encoder of a kind of texts
            alone, "query" or "document"; None: both, and `search` and `index` use each for its
            texts.

    Raises:
        UserError: the model does not exist or is not supported, its files are damaged or do not fit
            together, or its head has no labels.
    """
    files, source, directory = _located(path, revision)
    states = states_of(directory)
    head = _requested_head(task)
    describe = files.load_description
    if route is not None:
        _check_route(files, source, route)
        describe = functools.partial(describe, route=route)
    description = _described(describe, source, head, hidden_act)
    stored_head = description.head
    if files is model_directory and head and find_head(head).label_parameters:
        stored_head = model_directory.load_description(directory).head
    description, reinitialize = _with_requested_labels(description, stored_head, labels)
    tokenizer = model_directory.load_tokenizer(directory, description)
    mesh = mesh or one_device_mesh()
    check_mesh(mesh)
    if mesh.devices.flat[0].platform == "cpu":
        keep_freed_memory()
    execution = resolve_execution(precision)
    read = functools.partial(files.load_params, source, mesh=mesh, seed=seed)
    try:
        module = description.make_module(execution)
        params, report = read(description, module, reinitialize=reinitialize)
    except HeadError as error:
        if task is not None or BARE_ENCODER not in description.family.class_names:
            raise
        if is_main_host():
            say(f"{error}; the model is loaded without its head")
        description = _described(describe, source, BARE_ENCODER, hidden_act)
        description = dataclasses.replace(description, head_error=str(error))
        module = description.make_module(execution)
        params, report = read(description, module)
    if files is model_directory:
        params |= read_modules(directory, description, mesh)
    if not report.complete and is_main_host():
        say(f"{directory}: {report}")
    model = LoadedModel(module, params, tokenizer, description, mesh, report)
    options: dict[str, Any] = {"precision": precision, "seed": seed, "hidden_act": hidden_act}
    stored_vectors = description.stored_vectors
    if route is None and stored_vectors:
        sides = {}
        if description.head in stored_vectors.heads:
            sides = {
                side: load(directory, task, mesh=mesh, route=side, **options)
                for side in sides_of(directory)
            }
        elif has_routes(directory) and is_main_host():
            rule = "take another by `bert-jax convert --route`"
            say(f"{directory} has a Router: its encoder of texts of no kind gets the head; {rule}")
        model = dataclasses.replace(model, sides=sides)
    options |= {"labels": None if labels is None else tuple(labels), "route": route}
    stored = directory if files is model_directory else source.prefix
    again = functools.partial(load, stored.absolute(), task, **options)
    origin = Origin(again, directory.absolute(), states, parts_of(model))
    return dataclasses.replace(model, origin=origin)


def _located(path: str | Path, revision: str | None) -> tuple[Any, Any, Path]:
    """The module that reads the files of a model, the path for its functions, and the directory."""
    for files in () if is_remote(path) else (google_files, allennlp_files):
        if found := files.find(Path(os.path.expanduser(path))):
            if revision is not None:
                raise UserError(
                    f"{path}: local files have no revision {revision!r}; leave the revision out"
                )
            return files, found, found.directory
    directory = resolve(path, revision)
    return model_directory, directory, directory


def _check_route(files: Any, source: Any, route: str) -> None:
    """Raises OptionError unless the files have modules of their own for texts of a kind."""
    if files is not model_directory or not has_routes(source):
        rule = "leave it out: the model makes the vectors of all texts alike"
        raise OptionError("route", route, rule)


def _described(
    describe: Callable[[Any, str | None], ModelDescription],
    source: Any,
    head: str | None,
    hidden_act: str | None,
) -> ModelDescription:
    description = describe(source, head)
    if hidden_act is None:
        return description
    config = dataclasses.replace(description.config, hidden_act=hidden_act)
    return dataclasses.replace(description, config=config)


def _with_requested_labels(
    description: ModelDescription, stored_head: str | None, labels: Sequence[str] | None
) -> tuple[ModelDescription, tuple[str, ...]]:
    """The description with its final labels, and prefixes of parameters with other labels.

    The description has the requested head, and the files may have another; for labels see `load`.
    """
    reinitialize: tuple[str, ...] = ()
    head = description.head
    if labels is not None and head not in heads_with("label_kernels"):
        own = description.family.class_names
        able = " or ".join(name for name in heads_with("label_kernels") if name in own)
        raise OptionError(
            "labels",
            labels,
            f"leave labels out, or give task={able}",
            problem=f"a model with the head {head or 'unknown'} has no labels",
        )
    with_labels = {name for name, one in all_heads().items() if one.label_parameters}
    if stored_head != head and {stored_head, head} <= with_labels:
        # These heads' parameters have the same names and another meaning.
        description = _with_labels(description, EncoderConfig.num_labels)
        description = dataclasses.replace(description, problem_type=None)
        reinitialize = label_parameters()
    if labels is not None and tuple(labels) != description.labels:
        description = _with_labels(description, len(labels), tuple(labels))
        reinitialize = label_parameters()
    if head and (count := find_head(head).num_labels) is not None:
        description = _with_labels(description, count)
    return description, reinitialize


def _with_labels(
    description: ModelDescription, count: int, labels: tuple[str, ...] = ()
) -> ModelDescription:
    config = dataclasses.replace(description.config, num_labels=count)
    other = {key: value for key, value in description.other.items() if key not in LABEL_KEYS}
    return dataclasses.replace(description, config=config, labels=labels, other=other)


def _requested_head(task: str | None) -> str | None:
    """The head of this name, of this task, or of one of Hugging Face's classes.

    Raises:
        UserError: the name is unknown.
    """
    if task is None:
        return None
    heads = {name: name for name, head in all_heads().items() if head.module}
    heads["embedding"] = heads.pop(BARE_ENCODER)
    for name in task_names("PREDICT"):
        heads.setdefault(name, (*find_task(name, "PREDICT").PREDICT.heads, BARE_ENCODER)[0])
    if task in heads:
        return heads[task]
    family_and_head = find_class(task)
    if family_and_head is None:
        raise UserError(f"task {task!r} is unknown; known are {', '.join(heads)}")
    return family_and_head[1]


def convert(
    source: str | Path,
    output: Path,
    *,
    task: str | None = None,
    to: str = "huggingface",
    hidden_act: str | None = None,
    words: Path | None = None,
    markers: Path | None = None,
    positions: int | None = None,
    attention_window: int | None = None,
    keep_layers: int | Sequence[int] | None = None,
    pooling: str | None = None,
    similarity: str | None = None,
    query_model: str | Path | None = None,
    route: str | None = None,
) -> LoadedModel:
    """Loads a model of any kind that `load` takes and writes it as another kind.

    Args:
        source: path of the model, see `load`.
        output: directory for the result; for Google's files also a prefix in it.
        task: the resulting model, see `load`.
        to: "huggingface", a model directory; "google", files of google-research/bert; or a family
            for longer texts, a model directory, see `LoadedModel.to_family`.
        hidden_act: activation function that overrides the config, see `load`.
        words: a file of words to add, one per line; empty lines are ignored.
        markers: a file of words to add as markers, see `Tokenizer.with_words`.
        positions: new length of the position table; None: the old one, or that of the family `to`.
        attention_window: see `LoadedModel.to_family`.
        keep_layers: layers that stay, see `LoadedModel.keep_layers`; None: all.
        pooling: see `embed`; the result is an encoder with files of sentence-transformers.
        similarity: "cosine", "dot", "euclidean" or "manhattan", how its vectors are compared.
        query_model: a model that encodes queries; the result has both, with a Router of
            sentence-transformers, and `source` encodes all other texts.
        route: one of the encoders of `source` alone, see `load`.

    Returns:
        The converted model.

    Raises:
        UserError: the source cannot be loaded, or not be written in this format.
    """
    makes_vectors = bool(pooling or similarity)
    task = task or ("embedding" if makes_vectors else None)
    models = [load(source, task, hidden_act=hidden_act, route=route)]
    if query_model is not None:
        models.append(load(query_model, task, hidden_act=hidden_act))
    if makes_vectors:
        models = [_with_vectors(each, pooling, similarity) for each in models]
    model = models[0] if query_model is None else _with_queries_of(*models)
    for path, whole in ((words, False), (markers, True)):
        if path is not None:
            try:
                model = model.add_words(_read_words(path), whole=whole)
            except UserError as error:
                raise UserError(f"{path}: {error}") from error
    if to not in ("huggingface", "google"):
        model = model.to_family(to, positions=positions, attention_window=attention_window)
    elif attention_window is not None:
        rule = "it is of families for longer texts alone: leave it out, or name one with to"
        raise OptionError("attention_window", attention_window, rule)
    elif positions is not None:
        require_at_least("positions", positions, 1, MOST_POSITIONS)
        model = model.extend_positions(positions)
    if keep_layers is not None:
        model = model.keep_layers(keep_layers)
    if to == "google":
        if model.sides:
            rule = "Google's files have one encoder: write a model directory"
            raise OptionError("to", to, rule)
        if makes_vectors:
            name, value = ("pooling", pooling) if pooling else ("similarity", similarity)
            rule = f"Google's files have no {name}: leave it out, or write a model directory"
            raise OptionError(name, value, rule)
        if is_remote(output):
            raise UserError(
                f"{output}: Google's files are written to this machine; copy them afterwards"
            )
        google_files.save(output, model.description, model.params, model.tokenizer)
    else:
        model.save(output)
    return model


def _with_vectors(model: ModelT, pooling: str | None, similarity: str | None) -> ModelT:
    """The model with another description of its vectors.

    Raises:
        OptionError: it has a head, or cannot make such vectors.
    """
    if not model.description.is_bare:
        raise OptionError("task", model.description.head, "leave it out: vectors need no head")
    vectors = model.description.vectors.chosen(pooling, None)
    vectors.width(model.config.hidden_size)  # the pooling fits the modules after it
    if similarity is not None:
        require_one_of("similarity", similarity, SIMILARITIES)
        vectors = dataclasses.replace(vectors, similarity=similarity)
    description = dataclasses.replace(model.description, stored_vectors=vectors)
    sides = {side: _with_vectors(each, pooling, similarity) for side, each in model.sides.items()}
    return dataclasses.replace(model, description=description, sides=sides)


def _with_queries_of(model: LoadedModel, query_model: Model) -> LoadedModel:
    """A model whose queries another one encodes.

    Raises:
        UserError: one of them has no files that say how it makes vectors, another head, or two
            encoders already; or their vectors have different widths.
    """
    widths = []
    for each in (model, query_model):
        if each.sides:
            problem = "a model with two encoders takes no third"
            raise OptionError("query_model", None, "leave it out", problem)
        vectors, head = each.description.stored_vectors, each.description.head
        if vectors is None:
            rule = "name how both make vectors, such as mean"
            problem = f"a {each.description.class_name} has no files of sentence-transformers"
            raise OptionError("pooling", None, rule, problem)
        if head not in vectors.heads:
            raise OptionError("task", head, "leave it out: its model makes no vectors")
        predictor: Any = vector_kind(each.description).predictor(each, BatchOptions(), DOCUMENT)
        widths.append(predictor.width)
    if widths[0] != widths[1]:
        problem = f"vectors of documents have the width {widths[0]}, of queries {widths[1]}"
        raise OptionError("query_model", None, "give two models of one width", problem)
    return dataclasses.replace(model, sides={QUERY: query_model})


def _read_words(path: Path) -> list[str]:
    try:
        lines = path.read_text(encoding="utf-8-sig").splitlines()
    except OSError as error:
        raise UserError(f"{error.strerror}; give a file of words") from error
    except UnicodeDecodeError as error:
        raise UserError(f"byte {error.start} is not UTF-8; save it as UTF-8") from error
    words = [word for word in map(str.strip, lines) if word]
    if not words:
        raise UserError("there are no words; give one a line")
    return words

"""A model directory, a model of the hub, or Google's files, into memory."""

import dataclasses
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from jax.sharding import Mesh

from bert_jax.checkpoints import google_files, model_directory
from bert_jax.checkpoints.config_file import ModelDescription
from bert_jax.checkpoints.hub import resolve
from bert_jax.errors import OptionError, UserError
from bert_jax.families.family import head_of_class
from bert_jax.files import is_remote
from bert_jax.inference.model import LoadedModel
from bert_jax.models.config import EncoderConfig, Head
from bert_jax.models.execution import resolve_execution
from bert_jax.sharding.hosts import is_main_host
from bert_jax.sharding.mesh import one_device_mesh
from bert_jax.tasks import find_task, task_names

# Heads whose outputs have names.
_NAMED_OUTPUTS = (Head.CLASSIFICATION, Head.TAGGING)


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
) -> LoadedModel:
    """Reads a model directory that `bert-jax` or `transformers` wrote, or fetches it from the hub.

    Files of google-research/bert are read as well (by TensorFlow, which takes some seconds).

    The encoder must be whole. A head that the task needs and the files lack is new, drawn from
    `seed`; a line on stderr says so, and `LoadedModel.report` says it in full.

    Args:
        path: a model directory, a hub id as "google-bert/bert-base-uncased", or the place of
            Google's files, see `checkpoints.google_files.find`.
        task: a head ("masked_lm"), a task ("similarity") or one of Hugging Face's class names; None
            for the model that the files hold.
        mesh: the devices to lay the parameters on; None for the first device.
        precision: the dtype of the activations: "float32", "bfloat16", or "auto", what is fastest
            on the device.
        revision: of a hub id: branch, tag or commit.
        seed: of parameters that the files lack.
        hidden_act: in place of what the config says; "gelu" of Google's files is the exact form, as
            Hugging Face computes it.
        labels: the names of the labels of a classifier or tagger, in their order; where the files
            have a head for others, it is made again.

    Raises:
        UserError: there is no such model, it is none that we can load, its files are damaged or
            do not fit together, or its head has no labels.
    """
    head = _requested_head(task)
    google = None if is_remote(path) else google_files.find(Path(path).expanduser())
    if google and revision is not None:
        raise UserError(f"{path} is here, and has no revision {revision!r}; leave the revision out")
    # Both modules have these functions, for their kind of files.
    files: Any = google_files if google else model_directory
    directory = google.directory if google else resolve(path, revision)
    source = google or directory
    description = files.load_description(source, head)
    stored_head = description.head
    if not google and head in description.family.heads_of_labels:
        stored_head = model_directory.load_description(directory).head
    if hidden_act is not None:
        config = dataclasses.replace(description.config, hidden_act=hidden_act)
        description = dataclasses.replace(description, config=config)
    description, reinitialize = _with_requested_labels(description, stored_head, labels)
    tokenizer = description.family.load_tokenizer(directory)
    if tokenizer.vocab_size > description.config.vocab_size:
        raise UserError(
            f"{directory}: the tokenizer has {tokenizer.vocab_size} ids, the model only "
            f"{description.config.vocab_size}; they do not belong together"
        )
    if mesh is None:
        mesh = one_device_mesh()
    module = description.make_module(resolve_execution(precision))
    params, report = files.load_params(
        source, description, module, mesh=mesh, seed=seed, reinitialize=reinitialize
    )
    if not report.complete and is_main_host():
        print(f"{directory}: {report}", file=sys.stderr)
    return LoadedModel(description.config, module, params, tokenizer, description, report, mesh)


def _with_requested_labels(
    description: ModelDescription, stored_head: Head | None, labels: Sequence[str] | None
) -> tuple[ModelDescription, tuple[str, ...]]:
    """The description with its final labels, and beginnings of parameters that have other ones.

    Args:
        description: of the model with the requested head.
        stored_head: that of the files.
        labels: of `load`.
    """
    family = description.family
    reinitialize: tuple[str, ...] = ()
    head, default = description.head, EncoderConfig.num_labels
    if labels is not None and head not in _NAMED_OUTPUTS:
        able = " or ".join(one.value for one in _NAMED_OUTPUTS)
        raise OptionError(
            "labels",
            labels,
            f"leave {{labels}} out, or set {{task}} to {able}",
            problem=f"a model with the head {head.value if head else 'unknown'} has no labels",
        )
    if stored_head is not head and {stored_head, head} <= set(family.heads_of_labels):
        # These heads' parameters have the same names and another meaning.
        description = _with_labels(description, default, problem_type=None)
        reinitialize = family.label_parameters
    if labels is not None and tuple(labels) != description.labels:
        description = _with_labels(description, len(labels), tuple(labels))
        reinitialize = family.label_parameters
    if head is Head.QUESTION_ANSWERING:
        # Its outputs are first and last token, whatever the labels of the model it is made of.
        description = _with_labels(description, default)
    return description, reinitialize


def _with_labels(
    description: ModelDescription, count: int, labels: tuple[str, ...] = (), **fields: Any
) -> ModelDescription:
    config = dataclasses.replace(description.config, num_labels=count)
    return dataclasses.replace(description, config=config, labels=labels, **fields)


def _requested_head(task: str | None) -> Head | None:
    """The head of that name, of a task, or of one of Hugging Face's classes.

    Raises:
        UserError: none has this name.
    """
    if task is None:
        return None
    heads: dict[str, Head] = {head.value: head for head in Head if head is not Head.ENCODER}
    heads["embedding"] = Head.ENCODER
    for name in task_names("PREDICT"):
        heads.setdefault(name, (*find_task(name, "PREDICT").PREDICT.heads, Head.ENCODER)[0])
    head = heads.get(task) or head_of_class(task)
    if head is None:
        raise UserError(f"task {task!r} is unknown; known are {', '.join(heads)}")
    return head


def convert(
    source: str | Path,
    output: Path,
    *,
    task: str | None = None,
    to: str = "huggingface",
    hidden_act: str | None = None,
    words: Path | None = None,
    positions: int | None = None,
) -> LoadedModel:
    """Reads a model of any kind that `load` takes and writes it as another kind.

    Args:
        source: as in `load`.
        output: a directory for the result; for Google's files also a prefix in it.
        task: the model to make, as in `load`.
        to: "huggingface", a model directory; "google", files of google-research/bert.
        hidden_act: in place of what the config says, as in `load`.
        words: a file of words to add, one a line; empty lines are ignored.
        positions: the new length of the position table.

    Returns:
        The model that was written.

    Raises:
        UserError: the source is no such model, or cannot be written so.
    """
    model = load(source, task, hidden_act=hidden_act)
    if words is not None:
        try:
            model = model.add_words(_read_words(words))
        except UserError as error:
            raise UserError(f"{words}: {error}") from error
    if positions is not None:
        model = model.extend_positions(positions)
    if to == "google":
        if is_remote(output):
            raise UserError(
                f"{output}: Google's files are written to this machine; copy them afterwards"
            )
        google_files.save(output, model.description, model.params, model.tokenizer)
    else:
        model.save(output)
    return model


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

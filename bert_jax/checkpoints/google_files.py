"""Google's files: `bert_config.json`, `vocab.txt`, `bert_model.ckpt.*` of google-research/bert.

**Activation.** "gelu" in a `bert_config.json` was the erf form when the models were released, and
is the tanh form in google-research/bert since bee6030 (February 2019). Hugging Face computes all
released models with the erf form, and so it is read here; replace `hidden_act` of the config by
"gelu_new" for a model that was trained with the tanh form.

**Case.** Whether text is lower-cased is no part of these files; the vocabulary settles it, as
`tokenization.load_tokenizer` says.

Source: google-research/bert, README.md, modeling.py (EncoderConfig), run_*.py.
"""

import dataclasses
import re
from pathlib import Path
from typing import Any, NamedTuple

import flax.linen as nn
import numpy as np
from jax.sharding import Mesh

from bert_jax.checkpoints.config_file import CONFIG, ModelDescription, read_config, write_config
from bert_jax.checkpoints.parameters import (
    CLASSIFIER,
    POOLER,
    WORD_EMBEDDINGS,
    LoadReport,
    head_in,
    locate,
    parameters_in,
    read_parameters,
    to_tensors,
)
from bert_jax.checkpoints.tensors import TensorFile
from bert_jax.checkpoints.tensors.tensorflow_checkpoint import (
    TensorflowCheckpoint,
    write_checkpoint,
)
from bert_jax.errors import UserError
from bert_jax.families.family import TensorNames
from bert_jax.files import atomic_directory
from bert_jax.models.config import EncoderConfig, Head
from bert_jax.models.execution import Execution
from bert_jax.sharding.mesh import one_device_mesh
from bert_jax.tokenization import Tokenizer, WordPieceTokenizer

GOOGLE_CONFIG = "bert_config.json"
CHECKPOINT = "bert_model.ckpt"

# Each of a checkpoint's files is its prefix and one of these.
_ENDING = re.compile(r"\.(index|meta|data-\d{5}-of-\d{5})")
_STATE = re.compile(r'^model_checkpoint_path: "(.*)"$', re.MULTILINE)

# The scripts of others for these heads call their variables as run_classifier.py does.
_LIKE_CLASSIFICATION = (Head.TAGGING, Head.MULTIPLE_CHOICE)

# Name of an activation here → what google-research/bert calls it.
_ACTIVATIONS = {
    "gelu": "gelu",
    "gelu_new": "gelu",
    "gelu_pytorch_tanh": "gelu",
    "relu": "relu",
    "tanh": "tanh",
}
# In files that we write: which "gelu" it is. Google's reader takes any field.
_EXACT_ACTIVATION = "bert_jax_hidden_act"


class GoogleFiles(NamedTuple):
    """Where a model is.

    Attributes:
        directory: of `bert_config.json` and `vocab.txt`.
        prefix: of the checkpoint's files, in the same directory.
    """

    directory: Path
    prefix: Path


def find(path: Path) -> GoogleFiles | None:
    """Google's files at a path; None where there are none.

    Args:
        path: a checkpoint's prefix (`DIR/bert_model.ckpt`) or one of its files; or a directory,
            which holds one checkpoint, or several of one training: then the one that its file
            `checkpoint` names is taken, else the one of the highest step. A directory with a
            `config.json` is Hugging Face's, whatever else it holds.

    Raises:
        UserError: it is open which checkpoint is meant, or `bert_config.json` is missing.
    """
    if path.is_dir():
        if (path / CONFIG).is_file():
            return None
        names = sorted(index.name.removesuffix(".index") for index in path.glob("*.ckpt*.index"))
        if not names:
            return None
        files = GoogleFiles(path, path / _current(path, names))
    else:
        ending = _ENDING.fullmatch(path.suffix)
        prefix = path.with_suffix("") if ending else path
        if not prefix.with_name(f"{prefix.name}.index").is_file():
            return None
        files = GoogleFiles(prefix.parent, prefix)
    if not (files.directory / GOOGLE_CONFIG).is_file():
        raise UserError(
            f"{files.prefix} has no {GOOGLE_CONFIG} beside it; copy {GOOGLE_CONFIG} and vocab.txt "
            "from the model that the training began with"
        )
    return files


def load_description(files: GoogleFiles, head: Head | None = None) -> ModelDescription:
    """What Google's files hold; no weight is read.

    Args:
        files: the model.
        head: of the requested model; None for the one that the variables show. Heads for
            tagging and multiple choice have the same variables as one for classification, so they
            must be requested (files that `save` wrote say which it is).

    Raises:
        UserError: a file is missing or damaged, or the model is no BERT.
    """
    described = read_config(files.directory / GOOGLE_CONFIG)
    other = dict(described.other)
    exact = str(other.pop(_EXACT_ACTIVATION, None))
    fields: dict[str, Any] = {"tie_word_embeddings": True}
    if _ACTIVATIONS.get(exact) == described.config.hidden_act:  # it is unchanged since
        fields["hidden_act"] = exact
    names = _names(files.directory, described)
    with _open(files, names) as file:
        located = locate(file, names)
        parameters = parameters_in(located, names)
        if CLASSIFIER in parameters and not described.labels:
            outputs = file.tensors[located[names.rule(CLASSIFIER).tensor]].shape[0]
            fields["num_labels"] = outputs
    return dataclasses.replace(
        described,
        config=dataclasses.replace(described.config, **fields),
        head=head or _head_of(parameters, described.head),
        add_pooling_layer=POOLER in parameters,
        other=other,
    )


def load_params(
    files: GoogleFiles,
    description: ModelDescription,
    module: nn.Module,
    *,
    mesh: Mesh | None = None,
    seed: int = 0,
    reinitialize: tuple[str, ...] = (),
) -> tuple[Any, LoadReport]:
    """Parameters for a model, float32, on a mesh (default: one device).

    See `parameters.read_parameters`. Optimizer slots and counters are skipped, and are not counted
    as left over.

    Raises:
        UserError: the encoder is not whole, or a variable has another shape.
    """
    if mesh is None:
        mesh = one_device_mesh()
    names = _names(files.directory, description)
    with _open(files, names) as file:
        return read_parameters(file, names, module, mesh=mesh, seed=seed, reinitialize=reinitialize)


def save(path: Path, description: ModelDescription, params: Any, tokenizer: Tokenizer) -> None:
    """Writes files that google-research/bert reads (`--bert_config_file`, `--init_checkpoint`).

    They are made beside their place and then moved, the index last: a checkpoint that has an index
    is whole. Variables are float32. `bert_config.json` also has Hugging Face's fields and the
    exact form of "gelu", which Google's reader does not mind: they are read as the same model.

    Args:
        path: a directory, for `bert_model.ckpt` in it; or a prefix that ends in `.ckpt`.
        description: of the model.
        params: its parameters.
        tokenizer: its tokenizer, WordPiece with BERT's own rules.

    Raises:
        UserError: the model is one that google-research/bert cannot compute, the directory holds
            something else, or cannot be written.
    """
    prefix = (path if path.suffix == ".ckpt" else path / CHECKPOINT).resolve()
    directory = prefix.parent
    _check_config(path, description.config)
    _check_tokenizer(path, tokenizer)
    names = _names(path, description)
    tensors = to_tensors(params, names, description.make_module(Execution()))
    with atomic_directory(
        directory,
        marker=GOOGLE_CONFIG,
        last=f"{prefix.name}.index",
        obsolete=(f"{prefix.name}.data-*", f"{prefix.name}.meta"),
    ) as partial:
        tokenizer.save(partial, max_length=description.config.max_length)
        write_config(partial / GOOGLE_CONFIG, _with_googles_activation(description))
        write_checkpoint(
            partial / prefix.name,
            {name: tensor.astype(np.float32, copy=False) for name, tensor in tensors.items()},
        )


def _current(directory: Path, names: list[str]) -> str:
    """The checkpoint of a directory that is meant."""
    if len(names) == 1:
        return names[0]
    state = directory / "checkpoint"
    if state.is_file():
        named = _STATE.search(state.read_text(encoding="utf-8", errors="replace"))
        # It may be a path of the machine where the training ran.
        if named and (name := named[1].rpartition("/")[2]) in names:
            return name
    stems, _, steps = zip(*(name.rpartition("-") for name in names), strict=True)
    if len(set(stems)) == 1 and all(step.isdecimal() for step in steps):
        return f"{stems[0]}-{max(steps, key=int)}"
    raise UserError(
        f"{directory} holds {len(names)} checkpoints ({', '.join(names)}); "
        f"give the one that is meant, as {directory / names[0]}"
    )


def _names(path: Path, description: ModelDescription) -> TensorNames:
    """The names of the variables of a family.

    Raises:
        UserError: Google has no files of this family.
    """
    family = description.family
    if family.google is None:
        raise UserError(f"{path}: Google's files of {family.model_type} models are not supported")
    return family.google


def _open(files: GoogleFiles, names: TensorNames) -> TensorFile:
    """The checkpoint, if it is one of google-research/bert."""
    file = TensorflowCheckpoint(files.prefix)
    variable = names.rule(WORD_EMBEDDINGS).tensor
    if variable not in file.tensors:
        file.close()
        some = ", ".join(list(file.tensors)[:3])
        raise UserError(
            f"{files.prefix} has no variable {variable} (it begins with {some}); "
            "give a checkpoint of google-research/bert, made by TensorFlow 1"
        )
    return file


def _head_of(parameters: set[str], named: Head | None) -> Head:
    """The head that the variables belong to.

    `bert_config.json` decides only where the variables leave it open: Google's scripts leave the
    file as it was when they put another head on the model.
    """
    head = head_in(parameters | {POOLER})  # taggers of google-research/bert have one, too
    return named if head is Head.CLASSIFICATION and named in _LIKE_CLASSIFICATION else head


def _check_config(path: Path, config: EncoderConfig) -> None:
    """What google-research/bert has no switch for."""
    remedy = "save a model directory instead"
    if config.hidden_act not in _ACTIVATIONS:
        raise UserError(
            f"{path}: google-research/bert does not know hidden_act {config.hidden_act!r}, only "
            f"{', '.join(_ACTIVATIONS)}; {remedy}"
        )
    known = (("tie_word_embeddings", True), ("layer_norm_eps", 1e-12), ("use_crf", False))
    for field, only in known:
        if (value := getattr(config, field)) != only:
            raise UserError(
                f"{path}: {field} is {value}; google-research/bert computes {only} alone; {remedy}"
            )


def _check_tokenizer(path: Path, tokenizer: Tokenizer) -> None:
    """Google's tokenizer is a vocabulary and one switch."""
    switches = tokenizer.switches if isinstance(tokenizer, WordPieceTokenizer) else None
    if (
        switches is None
        or not switches.tokenize_chinese_chars
        or switches.strip_accents not in (None, switches.do_lower_case)
    ):
        raise UserError(
            f"{path}: google-research/bert has WordPiece with BERT's own rules alone, and the "
            "model's tokenizer has others; save a model directory instead"
        )


def _with_googles_activation(description: ModelDescription) -> ModelDescription:
    """The description with Google's name of the activation, and ours beside it if they differ."""
    name = description.config.hidden_act
    google_name = _ACTIVATIONS[name]
    if name == google_name:
        return description
    return dataclasses.replace(
        description,
        config=dataclasses.replace(description.config, hidden_act=google_name),
        other={**description.other, _EXACT_ACTIVATION: name},
    )

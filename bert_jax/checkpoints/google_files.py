"""Google's files: `bert_config.json`, `vocab.txt`, `bert_model.ckpt.*` of google-research/bert.

google-research/albert has `albert_config.json`, a `.model` file and `model.ckpt-best.*`.

**Activation.** "gelu" in a `bert_config.json` was the erf form when the models were released, and
is the tanh form in google-research/bert since bee6030 (February 2019). Hugging Face computes all
released models with the erf form, and so does bert_jax; set `hidden_act` to "gelu_new" for a model
that was trained with the tanh form.

**Case.** These files do not state whether text is lower-cased; it is derived from the vocabulary,
see `tokenization.load_tokenizer`.

Source: google-research/bert, README.md, modeling.py (BertConfig), run_*.py.
"""

import dataclasses
import re
from pathlib import Path
from typing import Any, NamedTuple, Unpack

import flax.linen as nn
import numpy as np

from bert_jax.checkpoints.config_file import ModelDescription, read_config, write_config
from bert_jax.checkpoints.parameters import (
    POOLER,
    WORD_EMBEDDINGS,
    LoadReport,
    ReadOptions,
    check_sizes,
    heads_in,
    locate,
    number_of_labels,
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
from bert_jax.families.family import Family, TensorNames, family_names, find_family
from bert_jax.files import atomic_directory, check_undamaged, is_there, read_limited
from bert_jax.files.paths import DESCRIPTION
from bert_jax.models.config import EncoderConfig
from bert_jax.models.execution import Execution
from bert_jax.models.head import fields_of, find_head
from bert_jax.tokenization import SentencePieceTokenizer, Tokenizer, WordPieceTokenizer
from bert_jax.tokenization.interface import SENTENCEPIECE

# The file with the config, and the family that it shows.
_FAMILIES = {
    family.google_config: family
    for family in map(find_family, family_names())
    if family.google is not None
}
CHECKPOINT = "bert_model.ckpt"

# The suffixes of a checkpoint's files after its prefix.
_ENDING = re.compile(r"\.(index|meta|data-\d{5}-of-\d{5})")
_STATE_BYTES = 2**20
_STATE = re.compile(r'^model_checkpoint_path: "(.*)"$', re.MULTILINE)

# Name of an activation in bert_jax → name in google-research/bert.
_ACTIVATIONS = {
    **dict.fromkeys(("gelu", "gelu_python"), "gelu"),  # the erf form
    **dict.fromkeys(("gelu_new", "gelu_pytorch_tanh", "gelu_python_tanh"), "gelu"),
    **dict.fromkeys(("gelu_fast", "gelu_accurate"), "gelu"),
    **{name: name for name in ("relu", "tanh", "linear")},
}
# Field of our own files: the form of "gelu". Google's reader ignores unknown fields.
_EXACT_ACTIVATION = "bert_jax_hidden_act"


class GoogleFiles(NamedTuple):
    """The location of a model.

    Attributes:
        directory: directory of the config and the tokenizer's file.
        prefix: prefix of the checkpoint's files, in the same directory.
        config: name of the file with the config, such as `bert_config.json`.
    """

    directory: Path
    prefix: Path
    config: str = "bert_config.json"


def find(path: Path) -> GoogleFiles | None:
    """Google's files at a path; None if there are none.

    Args:
        path: a checkpoint's prefix (`DIR/bert_model.ckpt`) or one of its files; or a directory with
            one checkpoint, or several of one training: then its file `checkpoint` names the one to
            use, else the highest step is used. A directory with a `config.json` is Hugging Face's,
            even if it also has such files.

    Raises:
        UserError: the checkpoint is ambiguous, or the config is missing.
    """
    if path.is_dir():
        if is_there(path / DESCRIPTION):
            return None
        names = sorted(index.name.removesuffix(".index") for index in path.glob("*.ckpt*.index"))
        if not names:
            return None
        directory, prefix = path, path / _current(path, names)
    else:
        ending = _ENDING.fullmatch(path.suffix)
        prefix = path.with_suffix("") if ending else path
        if not is_there(prefix.with_name(f"{prefix.name}.index")):
            return None
        directory = prefix.parent
    for name in _FAMILIES:
        if is_there(directory / name):
            return GoogleFiles(directory, prefix, name)
    known = " or ".join(sorted(_FAMILIES, reverse=True))
    raise UserError(
        f"{prefix} has no {known} beside it; copy it and the vocabulary from the model that the "
        "training started from"
    )


def load_description(files: GoogleFiles, head: str | None = None) -> ModelDescription:
    """The description of Google's files; no weights are read.

    Args:
        files: the model.
        head: head of the requested model; None: the variables decide. Heads for tagging and
            multiple choice have the same variables as a head for classification, so they must be
            requested (files written by `save` name the head).

    Raises:
        UserError: a file is missing or damaged, or the model is not BERT.
    """
    check_undamaged(files.directory, [files.config])
    family = _FAMILIES[files.config]
    described = read_config(files.directory / files.config, family.model_type)
    other = dict(described.other)
    exact = str(other.pop(_EXACT_ACTIVATION, None))
    fields: dict[str, Any] = {"tie_word_embeddings": True}
    if described.config.hidden_act == "gelu":
        fields["hidden_act"] = family.google_gelu
    if _ACTIVATIONS.get(exact) == described.config.hidden_act:  # not edited since
        fields["hidden_act"] = exact
    names = _names(files.directory, described)
    with _open(files, names) as file:
        located = locate(file, names, described.config)
        check_sizes(file, located, names.rules, described.config)
        parameters = parameters_in(located, names)
        count = number_of_labels(file, located, names)
        if count is not None and not described.labels:
            fields["num_labels"] = count
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
    **options: Unpack[ReadOptions],
) -> tuple[Any, LoadReport]:
    """The parameters of a model, float32, on a mesh (default: one device).

    See `parameters.read_parameters`. Optimizer slots and counters are skipped, and not reported as
    unexpected keys.

    Raises:
        UserError: the encoder is incomplete, or a variable has another shape.
    """
    check_undamaged(files.directory, [f"{files.prefix.name}.*"])
    names = _names(files.directory, description)
    with _open(files, names) as file:
        return read_parameters(file, names, module, **options)


def save(path: Path, description: ModelDescription, params: Any, tokenizer: Tokenizer) -> None:
    """Writes files that google-research/bert reads (`--bert_config_file`, `--init_checkpoint`).

    They are written to a temporary directory and then moved, the index last: a checkpoint with an
    index is complete. Variables are float32. `bert_config.json` also has Hugging Face's fields and
    the exact form of "gelu", which Google's reader ignores: bert_jax loads the same model again.

    Args:
        path: a directory, for `bert_model.ckpt` in it; or a prefix that ends in `.ckpt`.
        description: description of the model.
        params: parameters of the model.
        tokenizer: tokenizer of the model, WordPiece with BERT's own rules, or SentencePiece for an
            ALBERT.

    Raises:
        UserError: google-research/bert does not support the model, the directory contains something
            else, or cannot be written.
    """
    prefix = (path if path.suffix == ".ckpt" else path / CHECKPOINT).resolve()
    directory = prefix.parent
    names = _names(path, description)
    _check_config(path, description.config, description.family)
    _check_tokenizer(path, tokenizer, description.family)
    if description.stored_vectors and description.stored_vectors.has_parameters:
        raise UserError(
            f"{path}: google-research/bert has no weights after a pooling, as the model's Dense or "
            "LayerNorm; save a model directory instead"
        )
    tensors = to_tensors(params, names, description.make_module(Execution()))
    with atomic_directory(
        directory,
        marker=description.family.google_config,
        last=f"{prefix.name}.index",
        obsolete=(f"{prefix.name}.data-*", f"{prefix.name}.meta"),
    ) as partial:
        tokenizer.save(partial, max_length=description.config.max_length)
        config = partial / description.family.google_config
        write_config(config, _with_googles_activation(description))
        write_checkpoint(
            partial / prefix.name,
            {name: tensor.astype(np.float32, copy=False) for name, tensor in tensors.items()},
        )


def _current(directory: Path, names: list[str]) -> str:
    """The prefix of the current checkpoint of a directory."""
    if len(names) == 1:
        return names[0]
    state = directory / "checkpoint"
    if is_there(state):
        content = read_limited(state, _STATE_BYTES, remedy="name one of its checkpoints")
        named = _STATE.search(content.decode(errors="replace"))
        # It may be a path on the machine of the training.
        if named and (name := named[1].rpartition("/")[2]) in names:
            return name
    stems, _, steps = zip(*(name.rpartition("-") for name in names), strict=True)
    if len(set(stems)) == 1 and all(step.isdecimal() for step in steps):
        return f"{stems[0]}-{max(steps, key=int)}"
    raise UserError(
        f"{directory} is ambiguous: it has {len(names)} checkpoints ({', '.join(names)}); "
        f"name one of them, such as {directory / names[0]}"
    )


def _names(path: Path, description: ModelDescription) -> TensorNames:
    """The variable names of a family; a UserError if there are no Google files of it."""
    family = description.family
    if family.google is None:
        raise UserError(f"{path}: Google's files of {family.model_type} models are not supported")
    return family.google


def _open(files: GoogleFiles, names: TensorNames) -> TensorFile:
    """Opens a checkpoint of google-research/bert, and refuses other checkpoints."""
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


def _head_of(parameters: set[str], named: str | None) -> str:
    """The head that the variables belong to.

    `bert_config.json` is used only if the variables are ambiguous: Google's scripts do not update
    the file when they put another head on the model.
    """
    parameters = parameters | {POOLER}  # taggers of google-research/bert have a pooler, too
    head = heads_in(parameters)[-1]
    if named is None or named not in heads_in(parameters, is_score=True):
        return head
    # Third-party scripts for other heads with labels name their variables like run_classifier.py.
    own, other = (find_head(name).label_parameters for name in (head, named))
    return named if set(own) & set(other) else head


def _check_config(path: Path, config: EncoderConfig, family: Family) -> None:
    """Raises UserError for options that google-research/bert does not have."""
    remedy = "save a model directory instead"
    if config.hidden_act not in _ACTIVATIONS:
        raise UserError(
            f"{path}: google-research/bert does not know hidden_act {config.hidden_act!r}, only "
            f"{', '.join(_ACTIVATIONS)}; {remedy}"
        )
    fields = fields_of(config)
    known = {"tie_word_embeddings": True, "layer_norm_eps": 1e-12, **family.own_options}
    for field, only in known.items():
        if (value := fields[field]) != only:
            raise UserError(
                f"{path}: {field} is {value}; google-research/bert computes {only} alone; {remedy}"
            )


def _check_tokenizer(path: Path, tokenizer: Tokenizer, family: Family) -> None:
    """Raises UserError unless it is a vocabulary with BERT's own rules, or ALBERT's kind."""
    if family.tokenizer_kind == SENTENCEPIECE:
        supported, is_supported = "SentencePiece", isinstance(tokenizer, SentencePieceTokenizer)
    else:
        supported = "WordPiece with BERT's own rules"
        switches = tokenizer.switches if isinstance(tokenizer, WordPieceTokenizer) else None
        is_supported = (
            switches is not None
            and switches.tokenize_chinese_chars
            and switches.strip_accents in (None, switches.do_lower_case)
        )
    if not is_supported:
        raise UserError(
            f"{path}: google-research/{family.model_type} supports only {supported}, and the "
            "model's tokenizer has other rules; save a model directory instead"
        )


def _with_googles_activation(description: ModelDescription) -> ModelDescription:
    """The description with Google's name of the activation, and ours in addition if they differ."""
    name, other = description.config.hidden_act, description.other
    google_name = _ACTIVATIONS[name]
    if name not in (google_name, description.family.google_gelu):
        other = {**other, _EXACT_ACTIVATION: name}
    config = dataclasses.replace(description.config, hidden_act=google_name)
    return dataclasses.replace(description, config=config, other=other)

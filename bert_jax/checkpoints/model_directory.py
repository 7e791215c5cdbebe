"""A model directory: `config.json`, `model.safetensors`, tokenizer files; Hugging Face's layout."""

import dataclasses
import json
import shutil
from pathlib import Path
from typing import Any

import jax
import numpy as np
from flax.traverse_util import flatten_dict, unflatten_dict

from bert_jax.checkpoints.huggingface_names import RULES, from_tensor, tensor_shape, to_tensors
from bert_jax.errors import UserError
from bert_jax.files import write_atomically
from bert_jax.models.config import BertConfig
from bert_jax.tokenization.interface import Tokenizer

CONFIG, WEIGHTS = "config.json", "model.safetensors"


def save(
    directory: Path, config: BertConfig, params: Any, tokenizer: Tokenizer, *, architecture: str
) -> None:
    """Writes a model directory that `transformers` loads.

    It is made beside its place and then moved file by file, the weights last: a directory that has
    weights is whole.

    Args:
        directory: made if it is missing; an older model in it is replaced.
        config: of the model.
        params: its parameters; every one must be in the name table.
        tokenizer: its tokenizer.
        architecture: Hugging Face's class for these parameters, as `BertForPreTraining`.

    Raises:
        UserError: the directory holds something else, or cannot be written.
    """
    from safetensors.numpy import save as serialize

    ours = flatten_dict(jax.device_get(params), sep="/")
    rules = {rule.ours: rule for rule in RULES}
    tensors = dict(
        pair for name, value in ours.items() for pair in to_tensors(rules[name], np.asarray(value))
    )
    fields = {
        "architectures": [architecture],
        "model_type": "bert",
        **dataclasses.asdict(config),
        "tie_word_embeddings": True,
        "dtype": "float32",
    }
    if directory.exists() and not directory.is_dir():
        raise UserError(f"{directory} is a file; give a directory")
    if directory.is_dir() and any(directory.iterdir()) and not (directory / CONFIG).is_file():
        raise UserError(f"{directory} holds something that is no model; give another directory")
    partial = directory.with_name(directory.name + ".partial")
    try:
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir(parents=True)
        tokenizer.save(partial)
        write_atomically(partial / CONFIG, (json.dumps(fields, indent=2) + "\n").encode())
        write_atomically(partial / WEIGHTS, serialize(tensors, metadata={"format": "pt"}))
        directory.mkdir(exist_ok=True)
        (directory / WEIGHTS).unlink(missing_ok=True)
        for path in sorted(partial.iterdir(), key=lambda path: path.name == WEIGHTS):
            path.replace(directory / path.name)
        partial.rmdir()
    except OSError as error:
        raise UserError(
            f"cannot write {directory}: {error.strerror}; free space or give another directory"
        ) from error


def load_config(directory: Path) -> BertConfig:
    """The architecture of a model directory.

    Raises:
        UserError: there is no config, or it is not one of a BERT.
    """
    path = directory / CONFIG
    try:
        fields = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise UserError(f"{path} does not exist; give a model directory") from error
    except (OSError, ValueError) as error:
        raise UserError(f"{path} cannot be read: {error}") from error
    if not isinstance(fields, dict):
        raise UserError(f"{path} is not a JSON object; give a model directory")
    for key, default, wanted in (
        ("model_type", None, "bert"),
        ("position_embedding_type", "absolute", "absolute"),
    ):
        if (found := fields.get(key, default)) != wanted:
            raise UserError(f"{path}: {key} is {found!r}; only {wanted!r} can be loaded")
    known = {field.name for field in dataclasses.fields(BertConfig)}
    try:
        return BertConfig.from_fields({key: fields[key] for key in fields if key in known})
    except UserError as error:
        raise UserError(f"{path}: {error}") from error


def load_params(directory: Path, abstract: Any) -> Any:
    """Parameters of a model directory, float32 NumPy arrays.

    Args:
        directory: the model directory.
        abstract: a tree of shapes that says which parameters are wanted.

    Raises:
        UserError: a tensor is missing or has another shape.
    """
    from safetensors import SafetensorError, safe_open

    path = directory / WEIGHTS
    wanted = flatten_dict(abstract, sep="/")
    rules = {rule.ours: rule for rule in RULES}
    found: dict[str, np.ndarray] = {}
    try:
        with safe_open(path, framework="numpy") as file:
            names = set(file.keys())

            def read(name: str, ours: str, shape: tuple[int, ...]) -> np.ndarray:
                rule = rules[ours]
                if name not in names:
                    raise UserError(f"{path} has no tensor {name}")
                expected = tensor_shape(rule, shape)
                tensor = file.get_tensor(name)
                if tensor.shape != expected:
                    raise UserError(
                        f"{path}: tensor {name} has shape {tensor.shape}, the config asks for "
                        f"{expected}"
                    )
                return from_tensor(rule, tensor, shape).astype(np.float32)

            for ours, leaf in wanted.items():
                rule = rules[ours]
                if not rule.stacked:
                    found[ours] = read(rule.theirs, ours, leaf.shape)
                    continue
                found[ours] = np.empty(leaf.shape, np.float32)
                for layer in range(leaf.shape[0]):
                    name = rule.theirs.format(layer=layer)
                    found[ours][layer] = read(name, ours, leaf.shape[1:])
    except FileNotFoundError as error:
        raise UserError(f"{path} does not exist; give a model directory") from error
    except SafetensorError as error:
        raise UserError(f"{path} is damaged: {error}; copy it again") from error
    return unflatten_dict(found, sep="/")

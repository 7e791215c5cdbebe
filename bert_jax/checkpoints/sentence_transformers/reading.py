"""Reads the files of sentence-transformers beside a model, and the weights of its modules."""

import contextlib
import dataclasses
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax.traverse_util import flatten_dict, unflatten_dict
from jax.sharding import Mesh

from bert_jax.checkpoints.config_file import ModelDescription
from bert_jax.checkpoints.sentence_transformers import (
    CONFIG,
    ENCODER,
    ENCODER_FILES,
    ENCODERS,
    FLAGS,
    MODEL,
    MODULES,
    OF_MODEL,
    OF_OTHER_METHODS,
    REMEDY,
    TO_POOLER,
    TO_TOKENS,
    NotSupportedError,
    encoder_directory,
    entries_of,
    kind_of,
    not_supported,
    tensors_of,
)
from bert_jax.checkpoints.tensors import open_tensors
from bert_jax.errors import UserError
from bert_jax.files import is_there, read_json_object
from bert_jax.models.activations import PYTORCH_ACTIVATIONS
from bert_jax.models.heads.text_vectors import (
    POOLER,
    SIMILARITIES,
    TEXT_VECTORS,
    TOKEN_POOLINGS,
    Dense,
    Dropout,
    LayerNorm,
    Module,
    Normalize,
    TextVectors,
)
from bert_jax.models.parameter_sharding import state_shardings

_KINDS: dict[str, type[Module]] = {
    kind.__name__: kind for kind in (Dense, Normalize, LayerNorm, Dropout)
}
_OF_POOLING = (
    *FLAGS.values(),
    *("word_embedding_dimension", "embedding_dimension", "pooling_mode", "include_prompt"),
)
# Fields of the encoder's file with the only supported value.
_FIXED = {"transformer_task": "feature-extraction", "tokenizer_name_or_path": None}
# Fields with arguments of transformers, for its model, its config and its tokenizer.
_ARGUMENTS = (
    *("model_args", "config_args", "tokenizer_args"),
    *("model_kwargs", "config_kwargs", "processor_kwargs"),
)
_OF_ARGUMENTS = (
    *("torch_dtype", "dtype", "attn_implementation", "device_map", "add_pooling_layer"),
    *("use_cache", "use_fast", "trust_remote_code", "model_max_length"),
)
_OF_TEXTS = ("max_length", "padding", "return_tensors", "pad_to_multiple_of")


def read_vectors(directory: Path) -> TextVectors | None:
    """How a model makes vectors, by the files in its directory; None without such files.

    Raises:
        UserError: a file is damaged.
    """
    entries = entries_of(directory)
    model = read_json_object(directory / MODEL) if is_there(directory / MODEL) else {}
    model_type = model.get("model_type", "SentenceTransformer")
    if not entries or model_type == "CrossEncoder":
        return None  # as in that library, such a model makes vectors like any encoder
    if model_type != "SentenceTransformer":
        return TextVectors(unsupported=f"{directory / MODEL}: model_type {model_type!r}")
    carried = {
        MODULES: [_without(entry, ("idx", "path", "type")) for entry in entries],
        MODEL: _without(model, OF_MODEL),
    }
    try:
        vectors = _of_modules(directory, entries)
        with _named(directory / MODEL):
            of_model = _of_model(directory / MODEL, model)
    except NotSupportedError as error:
        return TextVectors(unsupported=str(error))
    return dataclasses.replace(vectors, **of_model, other={**vectors.other, **carried})


def read_modules(directory: Path, description: ModelDescription, mesh: Mesh) -> dict[str, Any]:
    """The parameters of the modules, float32, on a mesh: {TEXT_VECTORS: tree}, or {}.

    Raises:
        UserError: a file of weights is missing or damaged, or has other tensors.
    """
    vectors = description.vectors
    shapes = module_shapes(vectors, description.config.hidden_size)
    if not shapes:
        return {}
    folders = [entry["path"] for entry in entries_of(directory)][-len(vectors.modules) :]
    parameters = flatten_dict(shapes[TEXT_VECTORS], sep="/")
    arrays: dict[str, np.ndarray] = {}
    for number, folder in enumerate(folders):
        if not (own := tensors_of(number, parameters)):
            continue
        with open_tensors(directory / folder) as file:
            stored = {tensor: info.shape for tensor, info in file.tensors.items()}
            needed = {tensor: parameters[name].shape[::-1] for name, tensor in own.items()}
            if stored != needed:
                raise UserError(
                    f"{file.path} has the tensors {stored}, and {CONFIG} says {needed}; {REMEDY}"
                )
            for name, tensor in own.items():
                arrays[name] = np.array(file.read(tensor), np.float32).T
    return jax.tree.map(
        lambda array, sharding: jax.make_array_from_callback(
            array.shape, sharding, lambda index: array[index]
        ),
        {TEXT_VECTORS: unflatten_dict(arrays, sep="/")},
        state_shardings(mesh, shapes),
    )


def module_shapes(vectors: TextVectors, hidden_size: int) -> Any:
    """The shapes of the parameters of the modules: {TEXT_VECTORS: tree}, or {}."""
    if not vectors.has_parameters:
        return {}
    vectors.width(hidden_size)  # the sizes fit
    hidden, mask = jnp.zeros((1, 1, hidden_size)), jnp.ones((1, 1), bool)
    init = vectors.pool().init
    shapes = jax.eval_shape(lambda: init(jax.random.key(0), hidden, mask, hidden[:, 0]))
    return {TEXT_VECTORS: shapes["params"]}


def _of_modules(directory: Path, entries: list[dict[str, Any]]) -> TextVectors:
    path, rest = directory / MODULES, entries[1:]
    if kind_of(entries[0]).lower() not in ENCODERS:
        raise not_supported(path, f"the module {entries[0]['type']}")
    vectors, is_pooled = _of_encoder(encoder_directory(directory), directory)
    if not is_pooled:
        if not rest or kind_of(rest[0]) != "Pooling":
            what = f"the module {rest[0]['type']} as the second" if rest else "an encoder alone"
            raise not_supported(path, what)
        pooling = _of_pooling(directory / rest.pop(0)["path"] / CONFIG, directory)
        vectors = dataclasses.replace(vectors, **pooling)
    modules = []
    for entry in rest:
        if (kind := _KINDS.get(kind_of(entry))) is None:
            raise not_supported(path, f"the module {entry['type']}")
        modules.append(_of_module(kind, directory / entry["path"] / CONFIG, directory))
    return dataclasses.replace(vectors, modules=tuple(modules))


def _of_pooling(path: Path, directory: Path) -> dict[str, Any]:
    fields = read_json_object(path, directory)
    _check_known(path, fields, _OF_POOLING)
    flags = [name for name, flag in FLAGS.items() if fields.get(flag)]
    poolings = fields.get("pooling_mode", flags or "mean")
    poolings = [poolings] if isinstance(poolings, str) else poolings
    if not isinstance(poolings, list) or not poolings or set(poolings) - set(TOKEN_POOLINGS):
        raise not_supported(path, f"pooling_mode {fields.get('pooling_mode')!r}")
    include = bool(fields.get("include_prompt", True))
    return {"poolings": tuple(poolings), "include_prompt": include}


def _of_module(kind: type[Module], path: Path, directory: Path) -> Module:
    # The folder of a Normalize may be missing: older versions have no file in it.
    has_file = kind is not Normalize or is_there(path)
    fields = read_json_object(path, directory) if has_file else {}
    for key in ("module_input_name", "module_output_name"):
        if (value := fields.pop(key, None)) not in (None, "sentence_embedding"):
            raise not_supported(path, f"{key} {value!r}")
    _check_known(path, fields, [field.name for field in dataclasses.fields(kind)])
    name = str(fields.get("activation_function", "torch.nn.Tanh"))
    if not name.startswith("torch.nn.") or name.rpartition(".")[2] not in PYTORCH_ACTIVATIONS:
        raise not_supported(path, f"activation_function {name!r}")
    for key in ("in_features", "out_features", "dimension"):
        _check_size(path, key, fields.get(key))
    with _named(path):
        return kind(**fields)


def _of_encoder(folder: Path, directory: Path) -> tuple[TextVectors, bool]:
    """The settings in the encoder's file, and whether the encoder returns its pooler's output."""
    path = next((folder / name for name in ENCODER_FILES if is_there(folder / name)), None)
    fields = {} if path is None else read_json_object(path, directory)
    path = path or folder / ENCODER
    outputs = [fields.pop(key, None) for key in ("modality_config", "module_output_name")]
    is_pooled = outputs == [TO_POOLER, "sentence_embedding"]
    if not is_pooled and outputs not in ([None, None], [TO_TOKENS, "token_embeddings"]):
        raise not_supported(path, f"modality_config {outputs[0]} for {outputs[1]}")
    for key, only in _FIXED.items():
        if (value := fields.pop(key, only)) != only:
            raise not_supported(path, f"{key} {value!r}")
    max_length = fields.pop("max_seq_length", None)
    lower_case = bool(fields.pop("do_lower_case", False))
    with _named(path):
        for key, value in fields.items():
            if key in _ARGUMENTS:
                _check_known(path, value or {}, _OF_ARGUMENTS, f"{key}.")
                max_length = (value or {}).get("model_max_length", max_length)
            elif key not in (*OF_OTHER_METHODS, "processing_kwargs"):
                raise not_supported(path, f"{key} {value!r}")
        processing = fields.get("processing_kwargs") or {}
        of_texts = {**processing.get("common", {}), **processing.get("text", {})}
        if of_texts.get("truncation") in (True, "longest_first"):
            del of_texts["truncation"]
        _check_known(path, of_texts, _OF_TEXTS, "processing_kwargs.")
        max_length = of_texts.get("max_length", max_length)
    _check_size(path, "max_seq_length", max_length)
    return TextVectors(
        poolings=(POOLER,) if is_pooled else ("mean",),
        max_length=max_length,
        lower_case=lower_case,
        other={ENCODER: fields} if fields else {},
    ), is_pooled


def _of_model(path: Path, fields: Mapping[str, Any]) -> dict[str, Any]:
    prompts = fields.get("prompts") or {}
    if not isinstance(prompts, dict) or not all(
        isinstance(text, str | None) for text in prompts.values()
    ):
        raise UserError(f"{path}: prompts are {prompts!r:.80}; they must be texts")
    prompts = {name: text or "" for name, text in prompts.items()}
    name, dimension = fields.get("default_prompt_name"), fields.get("truncate_dim")
    if name is not None and name not in TextVectors(prompts=prompts).all_prompts:
        raise UserError(f"{path}: default_prompt_name is {name!r}, and there is no such prompt")
    _check_size(path, "truncate_dim", dimension)
    similarity = fields.get("similarity_fn_name")
    return {
        "prompts": prompts,
        "default_prompt_name": name,
        # As in sentence-transformers; other kinds of models have other names.
        "similarity": similarity if similarity in SIMILARITIES else TextVectors.similarity,
        "truncate_dim": dimension,
    }


@contextlib.contextmanager
def _named(path: Path) -> Iterator[None]:
    """Makes an error that names the file of a value with a wrong type."""
    try:
        yield
    except (AttributeError, TypeError, ValueError) as error:
        raise UserError(f"{path} is damaged: {error}; {REMEDY}") from error


def _without(fields: Mapping[str, Any], keys: Iterable[str]) -> dict[str, Any]:
    return {key: value for key, value in fields.items() if key not in keys}


def _check_size(path: Path, key: str, value: Any) -> None:
    if value is not None and (type(value) is not int or value < 1):
        raise UserError(f"{path}: {key} is {value!r}; it must be a whole number, at least 1")


def _check_known(
    path: Path, fields: Mapping[str, Any], known: Iterable[str], prefix: str = ""
) -> None:
    for key, value in fields.items():
        if key not in known:
            raise not_supported(path, f"{prefix}{key} {value!r:.80}")

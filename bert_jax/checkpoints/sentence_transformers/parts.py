"""Reads single files of sentence-transformers: an encoder's, a module's, a model's."""

import contextlib
import dataclasses
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from bert_jax.checkpoints.sentence_transformers import (
    ENCODER,
    ENCODER_FILES,
    MULTI_VECTOR_FIELDS,
    REMEDY,
    TO_TOKENS,
    not_supported,
)
from bert_jax.errors import UserError
from bert_jax.files import is_there, read_json_object
from bert_jax.models.activations import PYTORCH_ACTIVATIONS
from bert_jax.models.vectors import Dense, Dropout, LayerNorm, Module, Normalize, StoredVectors

MODULE_KINDS: dict[str, type[Module]] = {
    kind.__name__: kind for kind in (Dense, Normalize, LayerNorm, Dropout)
}
"""The modules after an encoder that have no other meaning than their class."""

PROMPTS = {name: name for name in ("prompts", "default_prompt_name")}
"""Field of MODEL → field of the description, of all layouts; see `read_prompts`."""

# Fields with arguments of transformers, for its model, its config and its tokenizer.
_ARGUMENTS = (
    *("model_args", "config_args", "tokenizer_args"),
    *("model_kwargs", "config_kwargs", "processor_kwargs"),
)
_KNOWN_ARGUMENTS = (
    *("torch_dtype", "dtype", "attn_implementation", "device_map", "add_pooling_layer"),
    *("use_cache", "use_fast", "trust_remote_code", "model_max_length"),
)
_TEXT_ARGUMENTS = ("max_length", "padding", "return_tensors", "pad_to_multiple_of")


def read_module(
    kind: type[Module], path: Path, directory: Path, vectors: str, default: str | None = None
) -> Module:
    """A module from its file.

    Args:
        kind: its class.
        path: its file.
        directory: the model directory.
        vectors: what it takes and returns, "sentence_embedding" or "token_embeddings".
        default: what it takes by a file that does not say so; None: `vectors`.

    Raises:
        NotSupportedError: it takes something else, or a field is not supported.
        UserError: the file is damaged.
    """
    # The folder of a Normalize may be missing: older versions have no file in it.
    has_file = kind is not Normalize or is_there(path)
    fields = read_json_object(path, directory) if has_file else {}
    taken = fields.pop("module_input_name", None) or default or vectors
    names = {
        "module_input_name": taken,
        "module_output_name": fields.pop("module_output_name", None) or taken,
    }
    for key, value in names.items():
        if value != vectors:
            raise not_supported(path, f"{key} {value!r}")
    check_known(path, fields, [field.name for field in dataclasses.fields(kind)])
    name = str(fields.get("activation_function", "torch.nn.Tanh"))
    if not name.startswith("torch.nn.") or name.rpartition(".")[2] not in PYTORCH_ACTIVATIONS:
        raise not_supported(path, f"activation_function {name!r}")
    for key in ("in_features", "out_features", "dimension"):
        check_size(path, key, fields.get(key))
    with named(path):
        return kind(**fields)


def module_fields(module: Module) -> tuple[str, dict[str, Any]]:
    """The class of a module, and the fields of its file."""
    fields = dataclasses.asdict(module)
    if not fields.get("use_residual", True):
        del fields["use_residual"]  # versions before 5.7 do not know it
    return type(module).__name__, fields


@dataclasses.dataclass(frozen=True)
class EncoderFile:
    """The content of ENCODER.

    Attributes:
        path: the file; it may be missing.
        output: `modality_config` and `module_output_name`, what the encoder returns.
        task: `transformer_task`, the class of the model.
        max_length, lower_case: see `StoredVectors`.
        other: the other fields.
    """

    path: Path
    output: tuple[Any, Any]
    task: str
    max_length: int | None
    lower_case: bool
    other: dict[str, Any]

    @property
    def carried(self) -> dict[str, Any]:
        """The other fields as a part of `StoredVectors.other`."""
        return {ENCODER: self.other} if self.other else {}

    def check_output(self, modality: Mapping[str, Any] = TO_TOKENS) -> None:
        """Raises NotSupportedError unless the encoder returns this, its last hidden states."""
        if self.output not in ((None, None), (modality, "token_embeddings")):
            raise not_supported(self.path, f"modality_config {self.output[0]} for {self.output[1]}")

    def check_task(self, task: str = "feature-extraction") -> None:
        """Raises NotSupportedError unless the model is of this class."""
        if self.task != task:
            raise not_supported(self.path, f"transformer_task {self.task!r}")


def read_encoder(folder: Path, directory: Path) -> EncoderFile:
    """The content of the encoder's file.

    Args:
        folder: the encoder's folder.
        directory: the model directory.

    Raises:
        NotSupportedError: a field is not supported.
        UserError: the file is damaged.
    """
    path = next((folder / name for name in ENCODER_FILES if is_there(folder / name)), None)
    fields = {} if path is None else read_json_object(path, directory)
    path = path or folder / ENCODER
    output = fields.pop("modality_config", None), fields.pop("module_output_name", None)
    task = fields.pop("transformer_task", None) or "feature-extraction"
    if (value := fields.pop("tokenizer_name_or_path", None)) is not None:
        raise not_supported(path, f"tokenizer_name_or_path {value!r}")
    max_length = fields.pop("max_seq_length", None)
    lower_case = bool(fields.pop("do_lower_case", False))
    with named(path):
        for key, value in fields.items():
            if key in _ARGUMENTS:
                check_known(path, value or {}, _KNOWN_ARGUMENTS, f"{key}.")
                max_length = (value or {}).get("model_max_length", max_length)
            elif key not in (*MULTI_VECTOR_FIELDS, "processing_kwargs"):
                raise not_supported(path, f"{key} {value!r}")
        processing = fields.get("processing_kwargs") or {}
        text_arguments = {**processing.get("common", {}), **processing.get("text", {})}
        if text_arguments.get("truncation") in (True, "longest_first"):
            del text_arguments["truncation"]
        check_known(path, text_arguments, _TEXT_ARGUMENTS, "processing_kwargs.")
        max_length = text_arguments.get("max_length", max_length)
    check_size(path, "max_seq_length", max_length)
    return EncoderFile(path, output, task, max_length, lower_case, fields)


def read_prompts(path: Path, fields: Mapping[str, Any]) -> dict[str, Any]:
    """`prompts` and `default_prompt_name` of MODEL.

    Raises:
        UserError: they are damaged.
    """
    prompts = fields.get("prompts") or {}
    if not isinstance(prompts, dict) or not all(
        isinstance(text, str | None) for text in prompts.values()
    ):
        raise UserError(f"{path}: prompts are {prompts!r:.80}; they must be texts")
    prompts = {name: text or "" for name, text in prompts.items()}
    name = fields.get("default_prompt_name")
    if name is not None and name not in StoredVectors(prompts=prompts).all_prompts:
        raise UserError(f"{path}: default_prompt_name is {name!r}, and there is no such prompt")
    return {"prompts": prompts, "default_prompt_name": name}


@contextlib.contextmanager
def named(path: Path) -> Iterator[None]:
    """Makes an error that names the file of a value with a wrong type."""
    try:
        yield
    except (AttributeError, TypeError, ValueError) as error:
        raise UserError(f"{path} is damaged: {error}; {REMEDY}") from error


def check_size(path: Path, key: str, value: Any) -> None:
    """Raises UserError unless a value is None or a number from 1."""
    if value is not None and (type(value) is not int or value < 1):
        raise UserError(f"{path}: {key} is {value!r}; it must be a whole number, at least 1")


def check_known(
    path: Path, fields: Mapping[str, Any], known: Iterable[str], prefix: str = ""
) -> None:
    """Raises NotSupportedError if there is another field than the known ones."""
    for key, value in fields.items():
        if key not in known:
            raise not_supported(path, f"{prefix}{key} {value!r:.80}")

"""The weights of a model directory: named tensors in safetensors or PyTorch files, or in shards."""

from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np

from bert_jax.checkpoints.tensors.pytorch_file import PytorchFile
from bert_jax.checkpoints.tensors.safetensors_file import SafetensorsFile
from bert_jax.checkpoints.tensors.tensor_file import MappedTensorFile, TensorFile, TensorInfo
from bert_jax.errors import UserError
from bert_jax.files import below, is_there, read_json_object

SAFETENSORS = "model.safetensors"
SAFETENSORS_INDEX = "model.safetensors.index.json"
PYTORCH = "pytorch_model.bin"
PYTORCH_INDEX = "pytorch_model.bin.index.json"
ADAPTER = "adapter_config.json"

# The formats of shards, by file extension.
SHARD_FORMATS: dict[str, type[MappedTensorFile]] = {
    ".safetensors": SafetensorsFile,
    ".bin": PytorchFile,
}

REMEDY = "copy or download the model again"

TRANSFORMERS = f"get {SAFETENSORS}, or let transformers 4 write it (from_tf, from_flax)"
ORIGINAL = f"get {SAFETENSORS} or {PYTORCH} of the model that it was made of"
# Weights in other formats, by file name pattern, with a remedy.
OTHER_WEIGHTS = {
    "*.ckpt*.index": "Google's; `bert-jax convert` makes a model directory of it",
    "tf_model*.h5": f"TensorFlow's; {TRANSFORMERS}",
    "flax_model*.msgpack": f"Flax's, in transformers' layout; {TRANSFORMERS}",
    "adapter_model.*": "of an adapter (LoRA); merge it into its model (peft: merge_and_unload)",
    "*.gguf": f"GGUF's, for llama.cpp; {ORIGINAL}",
    "*.onnx": f"ONNX's; {ORIGINAL}",
    "openvino_model.*": f"OpenVINO's; {ORIGINAL}",
    "rust_model.ot": f"Rust's; {ORIGINAL}",
    "*.mlmodel": f"Core ML's; {ORIGINAL}",
    "*.tflite": f"TensorFlow Lite's; {ORIGINAL}",
    "*model*.safetensors": f"not named {SAFETENSORS}; rename it if it holds the whole model",
    "*model*.bin": f"not named {PYTORCH}; rename it if it holds the whole model",
}


class ShardedFiles(TensorFile):
    """A `*.index.json`: `{"metadata": …, "weight_map": {TENSOR: SHARD, …}}`, and its shards.

    All shards are opened at once, so that missing files are known before anything is loaded; an
    open shard needs memory for its metadata, not for its tensors.

    Attributes:
        path: path of the index.
        tensors: tensors that the index names; others in a shard are not part of the model.

    Raises:
        UserError: the index is damaged, a shard is missing, damaged, or lacks a tensor.
    """

    def __init__(self, path: Path):
        self.path = path
        weight_map = _read_weight_map(path)
        self._shards: dict[str, MappedTensorFile] = {}
        self._last: MappedTensorFile | None = None  # its pages may be resident
        try:
            for shard in dict.fromkeys(weight_map.values()):
                shard_path = below(path.parent, shard, path)
                if not is_there(shard_path):
                    raise UserError(f"{path} names {shard}, which is not there; {REMEDY}")
                self._shards[shard] = SHARD_FORMATS[shard_path.suffix](shard_path)
            for name, shard in weight_map.items():
                if name not in self._shards[shard].tensors:
                    raise UserError(f"{path} has {name} in {shard}, which lacks it; {REMEDY}")
        except UserError:
            self.close()
            raise
        self._files = {name: self._shards[shard] for name, shard in weight_map.items()}
        self.tensors: Mapping[str, TensorInfo] = {
            name: file.tensors[name] for name, file in self._files.items()
        }

    def read(self, name: str) -> np.ndarray:
        """A tensor as stored; see `TensorFile.read`."""
        if self._last is not None:
            self._last.give_back()
        self._last = self._files[name]
        return self._last.read(name)

    def close(self) -> None:
        """Closes the shards."""
        for shard in self._shards.values():
            shard.close()


def _read_weight_map(path: Path) -> dict[str, str]:
    weight_map = read_json_object(path, remedy=REMEDY).get("weight_map")
    if not isinstance(weight_map, dict) or not weight_map:
        raise UserError(f"{path} has no weight_map that gives each tensor its file; {REMEDY}")
    for name, shard in weight_map.items():
        # Only a plain name: an index must not make us read files outside its directory.
        if not isinstance(shard, str) or Path(shard).name != shard:
            raise UserError(
                f"{path} has {name} in {shard!a:.80}; shards are files in the same directory"
            )
        if Path(shard).suffix not in SHARD_FORMATS:
            known = " or ".join(SHARD_FORMATS)
            raise UserError(
                f"{path} has {name} in {shard!a:.80}; the name of a shard ends in {known}"
            )
    return weight_map


# The first existing file is read.
FORMATS: dict[str, Callable[[Path], TensorFile]] = {
    SAFETENSORS: SafetensorsFile,
    SAFETENSORS_INDEX: ShardedFiles,
    PYTORCH: PytorchFile,
    PYTORCH_INDEX: ShardedFiles,
}


def open_tensors(directory: Path) -> TensorFile:
    """Opens the weights of a model directory: the first of `FORMATS` that exists.

    Raises:
        UserError: there are no weights, only some of another format, they are damaged, or an
            adapter lies beside them.
    """
    if not directory.is_dir():
        kind = "is a file" if directory.exists() else "does not exist"
        raise UserError(f"{directory} {kind}; give a model directory")
    if is_there(directory / ADAPTER):  # transformers adds what it describes to the weights
        raise UserError(
            f"{directory / ADAPTER}: adapters are not supported; merge it into the model (peft: "
            "merge_and_unload), or move the file away"
        )
    for name, open_file in FORMATS.items():
        if is_there(directory / name):
            return open_file(directory / name)
    for pattern, remedy in OTHER_WEIGHTS.items():
        for path in sorted({*directory.glob(pattern), *directory.glob(f"onnx/{pattern}")}):
            raise UserError(
                f"{directory} has no {SAFETENSORS}; its {path.relative_to(directory)} is {remedy}"
            )
    raise UserError(f"{directory} has no weights; put {SAFETENSORS} or {PYTORCH} there")

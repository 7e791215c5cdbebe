"""Files of named tensors: safetensors and PyTorch's, whole or in shards."""

from collections.abc import Callable
from pathlib import Path

from bert_jax.checkpoints.tensors.interface import TensorFile, TensorInfo
from bert_jax.checkpoints.tensors.pytorch_file import PytorchFile
from bert_jax.checkpoints.tensors.safetensors_file import SafetensorsFile
from bert_jax.checkpoints.tensors.sharded_files import ShardedFiles
from bert_jax.errors import UserError

__all__ = ["FORMATS", "SAFETENSORS", "TensorFile", "TensorInfo", "open_tensors"]

SAFETENSORS = "model.safetensors"
SAFETENSORS_INDEX = "model.safetensors.index.json"
PYTORCH = "pytorch_model.bin"
PYTORCH_INDEX = "pytorch_model.bin.index.json"

# The first that is there is read.
FORMATS: dict[str, Callable[[Path], TensorFile]] = {
    SAFETENSORS: SafetensorsFile,
    SAFETENSORS_INDEX: ShardedFiles,
    PYTORCH: PytorchFile,
    PYTORCH_INDEX: ShardedFiles,
}

TRANSFORMERS = f"get {SAFETENSORS}, or let transformers 4 write it (from_tf, from_flax)"
# Weights of other kinds, by pattern of their names, and what to do with them.
OTHER_WEIGHTS = {
    "*.ckpt*.index": "Google's; `bert-jax convert` makes a model directory of it",
    "tf_model*.h5": f"TensorFlow's; {TRANSFORMERS}",
    "flax_model*.msgpack": f"Flax's, in transformers' layout; {TRANSFORMERS}",
    "*model*.safetensors": f"not named {SAFETENSORS}; rename it if it holds the whole model",
    "*model*.bin": f"not named {PYTORCH}; rename it if it holds the whole model",
}


def open_tensors(directory: Path) -> TensorFile:
    """Opens the weights of a model directory: the first of `FORMATS` that is in it.

    Raises:
        UserError: there are none, only some of another kind, or they are damaged.
    """
    if not directory.is_dir():
        kind = "is a file" if directory.exists() else "does not exist"
        raise UserError(f"{directory} {kind}; give a model directory")
    for name, open_file in FORMATS.items():
        if (directory / name).is_file():
            return open_file(directory / name)
    for pattern, remedy in OTHER_WEIGHTS.items():
        for path in sorted(directory.glob(pattern)):
            raise UserError(f"{directory} has no {SAFETENSORS}; its {path.name} is {remedy}")
    raise UserError(f"{directory} has no weights; put {SAFETENSORS} or {PYTORCH} there")

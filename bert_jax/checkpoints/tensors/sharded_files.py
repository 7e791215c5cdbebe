"""The shards of one model, and the index that says which tensor is in which."""

import json
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from bert_jax.checkpoints.tensors.interface import TensorFile, TensorInfo
from bert_jax.checkpoints.tensors.mapped_file import MappedTensorFile
from bert_jax.checkpoints.tensors.pytorch_file import PytorchFile
from bert_jax.checkpoints.tensors.safetensors_file import SafetensorsFile
from bert_jax.errors import UserError

FORMATS: dict[str, type[MappedTensorFile]] = {".safetensors": SafetensorsFile, ".bin": PytorchFile}

REMEDY = "copy or download the model again"


class ShardedFiles(TensorFile):
    """A `*.index.json`: `{"metadata": …, "weight_map": {TENSOR: SHARD, …}}`, and its shards.

    All shards are opened at once, so that what is missing is known before anything is loaded; an
    open shard costs its description and no memory for its tensors.

    Attributes:
        path: the index.
        tensors: what the index names; another tensor in a shard is no part of the model.

    Raises:
        UserError: the index is damaged, a shard is missing, damaged, or lacks a tensor.
    """

    def __init__(self, path: Path):
        self.path = path
        weight_map = _read_weight_map(path)
        self._shards: dict[str, MappedTensorFile] = {}
        try:
            for shard in dict.fromkeys(weight_map.values()):
                self._shards[shard] = _open_shard(path, shard)
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
        """A tensor as it is stored; see `TensorFile.read`."""
        for shard in self._shards.values():
            shard.give_back()
        return self._files[name].read(name)

    def close(self) -> None:
        """Closes the shards."""
        for shard in self._shards.values():
            shard.close()


def _read_weight_map(path: Path) -> dict[str, str]:
    try:
        index = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise UserError(f"{path} does not exist; give a model directory") from error
    except OSError as error:
        raise UserError(f"{path} cannot be read: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        raise UserError(f"{path} is no JSON ({error}); {REMEDY}") from error
    weight_map = index.get("weight_map") if isinstance(index, dict) else None
    if not isinstance(weight_map, dict) or not weight_map:
        raise UserError(f"{path} has no weight_map that gives each tensor its file; {REMEDY}")
    for name, shard in weight_map.items():
        # A plain name: an index must not make us read files outside its directory.
        if not isinstance(shard, str) or Path(shard).name != shard:
            raise UserError(
                f"{path} has {name} in {shard!a}; shards are files in the directory of the index"
            )
        if Path(shard).suffix not in FORMATS:
            known = " or ".join(FORMATS)
            raise UserError(f"{path} has {name} in {shard!a}; the name of a shard ends in {known}")
    return weight_map


def _open_shard(index: Path, shard: str) -> MappedTensorFile:
    path = index.with_name(shard)
    if not path.is_file():
        raise UserError(f"{index} names {shard}, which is not there; {REMEDY}")
    return FORMATS[path.suffix](path)

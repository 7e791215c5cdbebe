"""PyTorch's `pytorch_model.bin`, in both of its layouts; nothing in it is run.

Since PyTorch 1.6 a zip file, nothing in it compressed:

    archive/data.pkl     the names, shapes and strides, see `torch_pickle`
    archive/data/KEY     the elements of one storage
    archive/byteorder    "little"; missing before PyTorch 2.1

Before, one after the other: four pickles (a magic number, the version, the machine, the tensors),
one with the list of storage keys, and for each key int64 count and the elements.
"""

import io
import struct
import zipfile
from typing import IO, Any, NamedTuple, cast

import numpy as np

from bert_jax.checkpoints.tensors.mapped_file import MappedTensorFile
from bert_jax.checkpoints.tensors.torch_pickle import (
    Pickled,
    PickledTensor,
    RefusedName,
    Storage,
    read_pickle,
)
from bert_jax.errors import UserError

ZIP_BEGIN = b"PK"
LOCAL_HEADER = struct.Struct("<4s22xHH")  # signature, …, lengths of the name and of the extra field
LOCAL_SIGNATURE = b"PK\3\4"

LEGACY_MAGIC = 0x1950A86A20F9469CFC6C
LEGACY_VERSION = 1001

REMEDY = "get the model as safetensors, or save `model.state_dict()` alone"


class _Place(NamedTuple):
    """Where the elements of a storage are: first byte in the file, and how many bytes."""

    offset: int
    size: int


class PytorchFile(MappedTensorFile):
    """A `pytorch_model.bin`, or one of its shards: a dict of names and tensors.

    Tensors may share a storage, have strides and be parameters; anything else in the file is
    refused by name.
    """

    def _find_views(self) -> dict[str, np.ndarray]:
        try:
            if self._map[: len(ZIP_BEGIN)] == ZIP_BEGIN:
                pickled, places = self._read_zip()
            else:
                pickled, places = self._read_legacy()
        except RefusedName as error:
            # The name comes from the file: no control characters of it reach the terminal.
            name = ascii(str(error))[1:-1][:80]
            raise UserError(
                f"{self.path} asks for {name}, which no file of weights needs; nothing in it was "
                f"run; {REMEDY}"
            ) from error
        tensors = self._named_tensors(pickled.value)
        return {name: self._tensor(name, tensor, places) for name, tensor in tensors.items()}

    def _named_tensors(self, value: Any) -> dict[str, PickledTensor]:
        if not isinstance(value, dict):
            kind = type(value).__name__
            raise UserError(f"{self.path} holds no dict of tensors but a {kind}; {REMEDY}")
        for name, entry in value.items():
            if not isinstance(name, str) or not isinstance(entry, PickledTensor):
                kind = type(entry).__name__
                raise UserError(f"{self.path}: entry {name!a} is no tensor but a {kind}; {REMEDY}")
        return value

    def _tensor(self, name: str, tensor: PickledTensor, places: dict[str, _Place]) -> np.ndarray:
        storage, offset, shape, strides = tensor
        size = storage.dtype.itemsize
        place = places.get(storage.key)
        if place is None or place.size < storage.length * size:
            raise ValueError(f"the elements of {name!a} are missing")
        if len(shape) != len(strides):
            raise ValueError(f"{name!a} has {len(shape)} dimensions and {len(strides)} strides")
        steps = zip(shape, strides, strict=True)
        last = offset + sum((length - 1) * stride for length, stride in steps)
        if 0 not in shape and last >= storage.length:
            raise ValueError(f"{name!a} reaches beyond its storage of {storage.length:,} elements")
        begin = 0 if 0 in shape else place.offset + offset * size
        return self._view(begin, storage.dtype, shape, tuple(step * size for step in strides))

    def _read_zip(self) -> tuple[Pickled, dict[str, _Place]]:
        try:
            with zipfile.ZipFile(self.path) as archive:
                entries = {entry.filename: entry for entry in archive.infolist()}
                pickles = [name for name in entries if name.split("/")[1:] == ["data.pkl"]]
                if len(pickles) != 1:
                    raise UserError(f"{self.path} is a zip file, but none of PyTorch; {REMEDY}")
                folder = pickles[0].removesuffix("data.pkl")
                if any(name.startswith(f"{folder}code/") for name in entries):
                    raise UserError(
                        f"{self.path} is a TorchScript program; nothing in it was run; {REMEDY}"
                    )
                if any(entry.compress_type != zipfile.ZIP_STORED for entry in entries.values()):
                    raise ValueError("PyTorch compresses nothing, but this zip file is compressed")
                order = entries.get(f"{folder}byteorder")
                if order is not None and archive.read(order) != b"little":
                    raise UserError(f"{self.path} was written on a big-endian machine; {REMEDY}")
                pickled = read_pickle(io.BytesIO(archive.read(pickles[0])))
        except (zipfile.BadZipFile, NotImplementedError, RuntimeError, EOFError, OSError) as error:
            raise ValueError(error) from error
        places = {
            key: self._place(entries[f"{folder}data/{key}"])
            for key in pickled.storages
            if f"{folder}data/{key}" in entries
        }
        return pickled, places

    def _place(self, entry: zipfile.ZipInfo) -> _Place:
        begin = entry.header_offset
        header = self._map[begin : begin + LOCAL_HEADER.size]
        if len(header) < LOCAL_HEADER.size or not header.startswith(LOCAL_SIGNATURE):
            raise ValueError(f"{entry.filename!a} is not where the zip directory has it")
        _, name_length, extra_length = LOCAL_HEADER.unpack(header)
        return _Place(begin + LOCAL_HEADER.size + name_length + extra_length, entry.file_size)

    def _read_legacy(self) -> tuple[Pickled, dict[str, _Place]]:
        file = cast(IO[bytes], self._map)  # it has `read`, `readline` and `tell`
        try:
            magic = read_pickle(file).value
        except ValueError:
            magic = None
        if magic != LEGACY_MAGIC:
            raise ValueError("it is no file of PyTorch")
        if read_pickle(file).value != LEGACY_VERSION:
            raise ValueError("its version is unknown")
        machine = read_pickle(file).value
        if not isinstance(machine, dict) or machine.get("little_endian") is not True:
            raise UserError(f"{self.path} was written on a big-endian machine; {REMEDY}")
        pickled = read_pickle(file)
        places = {}
        keys = read_pickle(file).value
        offset = file.tell()
        for key in keys if isinstance(keys, list) else ():
            storage = pickled.storages.get(key)
            if storage is None:
                raise ValueError("it lists elements that no tensor has")
            places[key], offset = self._legacy_place(storage, offset)
        return pickled, places

    def _legacy_place(self, storage: Storage, offset: int) -> tuple[_Place, int]:
        """The storage at an offset, and the offset of the next."""
        begin = offset + 8
        count = int.from_bytes(self._map[offset:begin], "little")
        end = begin + count * storage.dtype.itemsize
        if count != storage.length or end > len(self._map):
            raise ValueError(f"it ends within a storage of {storage.length:,} elements")
        return _Place(begin, end - begin), end

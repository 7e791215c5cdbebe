"""PyTorch's `pytorch_model.bin`, in both of its layouts; no code in it is run.

Since PyTorch 1.6 a zip file, nothing in it compressed:

    archive/data.pkl     the names, shapes and strides
    archive/data/KEY     the elements of one storage
    archive/byteorder    "little"; missing before PyTorch 2.1

Before 1.6, in sequence: four pickles (a magic number, the version, the machine, the tensors), a
pickle with the list of storage keys, and for each key its int64 count and the elements.

A pickle is a program for a stack machine, and Python's machine imports and calls everything that
the program names. The machine in this module can do neither: it knows the instructions with which
PyTorch writes named tensors, and makes only dicts, lists, tuples, text, numbers and the two classes
below. Python's decoder of instructions (`pickletools`, which reads pickles without running them)
splits the bytes. A `pickle.Unpickler` with a list of permitted names is not safe: the number of a
memo entry makes it allocate as many entries, and a deep tuple as the key of a dict overflows its
stack.
"""

import io
import math
import pickletools
import struct
import zipfile
from collections.abc import Iterable
from typing import IO, Any, NamedTuple, cast

import ml_dtypes
import numpy as np

from bert_jax.checkpoints.tensors.tensor_file import MappedTensorFile
from bert_jax.errors import UserError

ZIP_BEGIN = b"PK"
LOCAL_HEADER = struct.Struct("<4s22xHH")  # signature, …, lengths of the name and of the extra field
LOCAL_SIGNATURE = b"PK\3\4"

LEGACY_MAGIC = 0x1950A86A20F9469CFC6C
LEGACY_VERSION = 1001

MOST_STEPS = 2_000_000
"""The limit for a pickle's instructions and the values that they read again: 60,000 tensors."""

REMEDY = "get the model as safetensors, or save `model.state_dict()` alone"

STORAGE_DTYPES = {
    "torch FloatStorage": np.dtype("<f4"),
    "torch HalfStorage": np.dtype("<f2"),
    "torch BFloat16Storage": np.dtype(ml_dtypes.bfloat16),
    "torch DoubleStorage": np.dtype("<f8"),
    "torch LongStorage": np.dtype("<i8"),
    "torch IntStorage": np.dtype("<i4"),
    "torch ShortStorage": np.dtype("<i2"),
    "torch CharStorage": np.dtype("i1"),
    "torch ByteStorage": np.dtype("u1"),
    "torch BoolStorage": np.dtype("?"),
}
DICTIONARY = "collections OrderedDict"
TENSOR = "torch._utils _rebuild_tensor_v2"
PARAMETER = "torch._utils _rebuild_parameter"
ADMITTED = {*STORAGE_DTYPES, DICTIONARY, TENSOR, PARAMETER}

# Instructions that push their own argument; PyTorch under Python 2 wrote text as strings.
LITERALS = frozenset(
    ("BININT", "BININT1", "BININT2", "LONG1", "BINFLOAT", "BINUNICODE", "SHORT_BINUNICODE")
) | {"BINSTRING", "SHORT_BINSTRING"}
CONSTANTS = {"NONE": None, "NEWTRUE": True, "NEWFALSE": False, "EMPTY_TUPLE": ()}


class RefusedNameError(Exception):
    """The pickle names something that is not part of a tensor; `str` is its name."""


class Storage(NamedTuple):
    """Elements in another part of the file, possibly shared by several tensors.

    Attributes:
        key: name of the storage in the file.
        dtype: dtype of its elements.
        length: number of its elements.
    """

    key: str
    dtype: np.dtype
    length: int


class PickledTensor(NamedTuple):
    """The elements of a storage that form a tensor; offset and strides count elements."""

    storage: Storage
    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]


class Pickled(NamedTuple):
    """The content of a pickle.

    Attributes:
        value: dicts, lists, tuples, text, numbers, None, `Storage` and `PickledTensor`.
        storages: all storages that it mentions, by key.
    """

    value: Any
    storages: dict[str, Storage]


class _Location(NamedTuple):
    """The position of a storage's elements: first byte in the file, and number of bytes."""

    offset: int
    size: int


class PytorchFile(MappedTensorFile):
    """A `pytorch_model.bin`, or one of its shards: a dict of names and tensors.

    Tensors may share a storage, have strides and be parameters; anything else in the file is
    refused, and the error names it.
    """

    def _find_views(self) -> dict[str, np.ndarray]:
        try:
            if self._map[: len(ZIP_BEGIN)] == ZIP_BEGIN:
                pickled, locations = self._read_zip()
            else:
                pickled, locations = self._read_legacy()
        except RefusedNameError as error:
            # The name comes from the file: no control characters of it reach the terminal.
            name = ascii(str(error))[1:-1][:80]
            raise UserError(
                f"{self.path} asks for {name}, which no file of weights needs; nothing in it was "
                f"run; {REMEDY}"
            ) from error
        if not isinstance(pickled.value, dict):
            kind = type(pickled.value).__name__
            raise UserError(f"{self.path} holds no dict of tensors but a {kind}; {REMEDY}")
        views = {}
        for name, entry in pickled.value.items():
            if not isinstance(name, str) or not isinstance(entry, PickledTensor):
                kind = type(entry).__name__
                raise UserError(
                    f"{self.path}: entry {name!a} is not a tensor but a {kind}; {REMEDY}"
                )
            views[name] = self._tensor(name, entry, locations)
        return views

    def _tensor(
        self, name: str, tensor: PickledTensor, locations: dict[str, _Location]
    ) -> np.ndarray:
        storage, offset, shape, strides = tensor
        size = storage.dtype.itemsize
        location = locations.get(storage.key)
        if location is None or location.size < storage.length * size:
            raise ValueError(f"the elements of {name!a} are missing")
        # Strides of 0 would make tensors of any size of a few bytes.
        if math.prod(shape) > storage.length:
            raise ValueError(
                f"{name!a} has more elements than its storage, which has {storage.length:,}"
            )
        steps = zip(shape, strides, strict=False)  # NumPy refuses two lengths
        last = offset + sum((length - 1) * stride for length, stride in steps)
        if 0 not in shape and last >= storage.length:
            raise ValueError(f"{name!a} reaches beyond its storage of {storage.length:,} elements")
        begin = 0 if 0 in shape else location.offset + offset * size
        return self._view(begin, storage.dtype, shape, tuple(step * size for step in strides))

    def _read_zip(self) -> tuple[Pickled, dict[str, _Location]]:
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
        locations = {
            key: self._location(entries[f"{folder}data/{key}"])
            for key in pickled.storages
            if f"{folder}data/{key}" in entries
        }
        return pickled, locations

    def _location(self, entry: zipfile.ZipInfo) -> _Location:
        begin = entry.header_offset
        header = self._map[begin : begin + LOCAL_HEADER.size]
        if len(header) < LOCAL_HEADER.size or not header.startswith(LOCAL_SIGNATURE):
            raise ValueError(f"{entry.filename!a} is not where the zip directory has it")
        _, name_length, extra_length = LOCAL_HEADER.unpack(header)
        return _Location(begin + LOCAL_HEADER.size + name_length + extra_length, entry.file_size)

    def _read_legacy(self) -> tuple[Pickled, dict[str, _Location]]:
        file = cast(IO[bytes], self._map)  # it has `read`, `readline` and `tell`
        try:
            magic = read_pickle(file).value
        except ValueError:
            magic = None
        if magic != LEGACY_MAGIC:
            raise ValueError("it is not a file of PyTorch")
        if read_pickle(file).value != LEGACY_VERSION:
            raise ValueError("its version is unknown")
        machine = read_pickle(file).value
        if not isinstance(machine, dict) or machine.get("little_endian") is not True:
            raise UserError(f"{self.path} was written on a big-endian machine; {REMEDY}")
        pickled = read_pickle(file)
        locations = {}
        keys = read_pickle(file).value
        end = file.tell()
        for key in keys if isinstance(keys, list) else ():
            storage = pickled.storages.get(key) if isinstance(key, str) else None
            if storage is None:
                raise ValueError("it lists elements that no tensor has")
            begin = end + 8
            count = int.from_bytes(self._map[end:begin], "little")
            end = begin + count * storage.dtype.itemsize
            if count != storage.length or end > len(self._map):
                raise ValueError(f"it ends within a storage of {storage.length:,} elements")
            locations[key] = _Location(begin, end - begin)
        return pickled, locations


class _Name(NamedTuple):
    """A name of `ADMITTED` as data: nothing is imported."""

    text: str


def read_pickle(file: IO[bytes]) -> Pickled:
    """Reads one pickle and leaves the file position after it.

    Raises:
        RefusedNameError: it names something that is not part of a tensor.
        ValueError: it is damaged.
    """
    machine = _Machine()
    try:
        for opcode, argument, _ in pickletools.genops(file):
            machine.count(1)
            machine.run(opcode.name, argument)
    except (IndexError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise ValueError("its pickle refers to an entry that is missing") from error
    if len(machine.stack) != 1 or machine.outer_stacks:
        raise ValueError("its pickle ends before it is complete")
    return Pickled(machine.stack[0], machine.storages)


class _Machine:
    """The stack machine. An instruction that it does not support is an error."""

    def __init__(self) -> None:
        self.stack: list[Any] = []
        self.outer_stacks: list[list[Any]] = []
        self.memo: dict[int, Any] = {}
        self.storages: dict[str, Storage] = {}
        self.steps = 0

    def count(self, steps: int) -> None:
        """Raises ValueError if a pickle takes more time and memory than tensors need."""
        self.steps += steps
        if self.steps > MOST_STEPS:
            raise ValueError(f"its pickle takes more than {MOST_STEPS:,} steps, the limit")

    def run(self, opcode: str, argument: Any) -> None:
        """Executes one instruction."""
        stack = self.stack
        match opcode:
            case _ if opcode in LITERALS:
                stack.append(argument)
            case _ if opcode in CONSTANTS:
                stack.append(CONSTANTS[opcode])
            case "PROTO" | "FRAME" | "STOP":
                pass
            case "TUPLE1" | "TUPLE2" | "TUPLE3":
                items = [stack.pop() for _ in range(int(opcode[-1]))]
                stack.append(tuple(reversed(items)))
            case "MARK":
                self.outer_stacks.append(stack)
                self.stack = []
            case "TUPLE":
                items = self._since_mark()
                self.stack.append(tuple(items))
            case "EMPTY_LIST":
                stack.append([])
            case "APPEND":
                item = stack.pop()
                stack[-1].append(item)
            case "APPENDS":
                items = self._since_mark()
                self.stack[-1].extend(items)
            case "EMPTY_DICT":
                stack.append({})
            case "SETITEM":
                value, key = stack.pop(), stack.pop()
                stack[-1].update(_dictionary([(key, value)]))
            case "SETITEMS":
                items = self._since_mark()
                pairs = [(items[key], items[key + 1]) for key in range(0, len(items), 2)]
                self.stack[-1].update(_dictionary(pairs))
            case "BINPUT" | "LONG_BINPUT":
                self.memo[argument] = stack[-1]
            case "MEMOIZE":
                self.memo[len(self.memo)] = stack[-1]
            case "BINGET" | "LONG_BINGET":
                stack.append(self.memo[argument])
            case "INST":
                raise RefusedNameError(argument.replace(" ", "."))
            case "GLOBAL":
                stack.append(_admit(argument))
            case "STACK_GLOBAL":
                name, module = stack.pop(), stack.pop()
                if not (type(name) is type(module) is str):  # the text of a nested tuple is endless
                    raise ValueError("its pickle names a global that is not text")
                stack.append(_admit(f"{module} {name}"))
            case "BINPERSID":
                self.count(len(stack[-1]))
                storage = _storage(stack.pop())
                self.storages[storage.key] = storage
                stack.append(storage)
            case "REDUCE":
                arguments, name = stack.pop(), stack.pop()
                # A small pickle may call with the same long list again and again.
                self.count(len(arguments))
                self.count(sum(len(each) for each in arguments if isinstance(each, list | tuple)))
                stack.append(_make(name.text, arguments))
            case "BUILD":
                # Attributes of a dict: versions of modules, which no tensor needs.
                stack.pop()
                if not isinstance(stack[-1], dict):
                    raise ValueError("its pickle sets attributes of an object that has none")
            case _:
                raise RefusedNameError(f"the instruction {opcode}")

    def _since_mark(self) -> list[Any]:
        items, self.stack = self.stack, self.outer_stacks.pop()
        return items


def _admit(name: str) -> _Name:
    if name not in ADMITTED:
        raise RefusedNameError(name.replace(" ", "."))
    return _Name(name)


def _make(name: str, arguments: tuple[Any, ...]) -> Any:
    """The result of PyTorch's function of this name, as data."""
    if name == DICTIONARY:
        return _dictionary(*arguments) if arguments else {}
    if name == PARAMETER:
        tensor, *_ = arguments
        if not isinstance(tensor, PickledTensor):
            raise ValueError("its pickle has a parameter that is not a tensor")
        return tensor
    if name != TENSOR:
        raise ValueError(f"its pickle calls {name}")
    storage, offset, shape, strides, _, _, *metadata = arguments
    if any(metadata):
        raise ValueError("its pickle has a tensor that is the conjugate or negative of another")
    whole = [offset, *shape, *strides]
    if not isinstance(storage, Storage) or not all(_is_count(number) for number in whole):
        raise ValueError("its pickle has a tensor without storage or shape")
    return PickledTensor(storage, offset, tuple(shape), tuple(strides))


def _dictionary(pairs: Iterable[Any]) -> dict[str | int, Any]:
    """Allows only plain keys: a deep tuple's hash overflows the stack; hashes of ints collide."""
    entries = {}
    for key, value in pairs:
        if not (isinstance(key, str) or (isinstance(key, int) and abs(key) < 2**31)):
            raise ValueError("its pickle has a dict with a key that is not a string")
        entries[key] = value
    return entries


def _storage(reference: tuple[Any, ...]) -> Storage:
    """Makes a storage of ("storage", type, key, device, length), before PyTorch 1.6 also a view."""
    kind, dtype, key, _, length, *view = reference
    if kind != "storage" or any(view) or not isinstance(key, str) or not _is_count(length):
        raise ValueError("its pickle refers to something that is not a storage of elements")
    return Storage(key, STORAGE_DTYPES[dtype.text], length)


def _is_count(number: Any) -> bool:
    return type(number) is int and number >= 0

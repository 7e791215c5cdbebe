"""PyTorch's files, sound, damaged and hostile; without PyTorch, see `test_pytorch_file_saved`."""

import builtins
import contextlib
import os
import pickle
import struct
import zipfile

import hypothesis
import hypothesis.strategies as st
import ml_dtypes
import numpy as np
import pytest

from bert_jax.checkpoints.tensors import TensorInfo
from bert_jax.checkpoints.tensors.pytorch_file import PytorchFile
from bert_jax.errors import UserError

# The instructions of a pickle, as PyTorch writes them.
BEGIN, END = b"\x80\x02", b"."
DICT = b"ccollections\nOrderedDict\n)R"


def text(value: str) -> bytes:
    return b"X" + struct.pack("<I", len(value.encode())) + value.encode()


def number(value: int) -> bytes:
    content = value.to_bytes(value.bit_length() // 8 + 1, "little", signed=True)
    return b"\x8a" + bytes([len(content)]) + content


def group(*items: bytes) -> bytes:
    return b"(" + b"".join(items) + b"t"


def numbers(values) -> bytes:
    return group(*(number(value) for value in values))


def storage(kind: str, key: str, length: int, *more: bytes) -> bytes:
    name = f"ctorch\n{kind}\n".encode()
    return group(text("storage"), name, text(key), text("cpu"), number(length), *more) + b"Q"


def tensor(store: bytes, offset: int, shape, strides, *more: bytes) -> bytes:
    arguments = [store, number(offset), numbers(shape), numbers(strides), b"\x89", DICT, *more]
    return b"ctorch._utils\n_rebuild_tensor_v2\n" + group(*arguments) + b"R"


def named(**entries: bytes) -> bytes:
    items = b"".join(text(name) + entry for name, entry in entries.items())
    return BEGIN + b"}(" + items + b"u" + END


FLOATS = storage("FloatStorage", "0", 6)
SIX = {"0": np.arange(6, dtype="<f4").tobytes()}


@pytest.fixture
def path(tmp_path):
    return tmp_path / "pytorch_model.bin"


def test_every_dtype(path, write_zip):
    types = {"Float": "<f4", "Half": "<f2", "BFloat16": ml_dtypes.bfloat16, "Double": "<f8"}
    types |= {"Long": "<i8", "Int": "<i4", "Short": "<i2", "Char": "i1", "Byte": "u1", "Bool": "?"}
    entries = {kind: tensor(storage(f"{kind}Storage", kind, 3), 0, [3], [1]) for kind in types}
    contents = {kind: np.array([1, 0, 1]).astype(dtype).tobytes() for kind, dtype in types.items()}
    with PytorchFile(write_zip(path, named(**entries), contents)) as file:
        assert file.path == path
        for kind, dtype in types.items():
            assert file.tensors[kind] == TensorInfo((3,), np.dtype(dtype))
            assert file.read(kind).tolist() == [1, 0, 1]


def test_views_of_one_storage(path, write_zip):
    parameter = b"ctorch._utils\n_rebuild_parameter\n"
    pickled = named(
        whole=tensor(FLOATS, 0, [2, 3], [3, 1]),
        transposed=tensor(FLOATS, 0, [3, 2], [1, 3]),
        middle=tensor(FLOATS, 1, [2, 2], [3, 1]),
        last=tensor(FLOATS, 5, [], []),
        spread=tensor(FLOATS, 4, [3], [0]),
        none=tensor(FLOATS, 6, [0, 2], [2, 1]),
        parameter=parameter + group(tensor(FLOATS, 2, [2], [1]), b"\x88", DICT) + b"R",
    )
    with PytorchFile(write_zip(path, pickled, SIX)) as file:
        assert file.read("whole").tolist() == [[0, 1, 2], [3, 4, 5]]
        assert file.read("transposed").tolist() == [[0, 3], [1, 4], [2, 5]]
        assert file.read("middle").tolist() == [[1, 2], [4, 5]]
        assert file.read("last").tolist() == 5
        assert file.read("spread").tolist() == [4, 4, 4]
        assert file.read("none").shape == (0, 2)
        assert file.read("parameter").tolist() == [2, 3]
        assert not file.read("whole").flags.writeable


@hypothesis.given(
    length=st.integers(0, 30),
    offset=st.integers(0, 32),
    steps=st.lists(st.tuples(st.integers(0, 4), st.integers(0, 12)), max_size=3),
)
@hypothesis.settings(
    max_examples=60, suppress_health_check=[hypothesis.HealthCheck.function_scoped_fixture]
)
def test_strides_are_as_in_numpy_or_refused(length, offset, steps, path, write_zip):
    shape, strides = [size for size, _ in steps], [stride for _, stride in steps]
    elements = np.arange(100, 100 + length, dtype="<i2")
    pickled = named(a=tensor(storage("ShortStorage", "k", length), offset, shape, strides))
    path.unlink(missing_ok=True)  # an earlier example may still be mapped
    write_zip(path, pickled, {"k": elements.tobytes()})
    indices = np.lib.stride_tricks.as_strided(np.arange(200), shape, [8 * step for step in strides])
    if indices.size and (offset + indices.max() >= length or indices.size > length):
        with pytest.raises(UserError, match="'a' (reaches beyond|has more elements than) its stor"):
            PytorchFile(path)
        return
    with PytorchFile(path) as file:
        expected = elements[offset + indices] if indices.size else np.zeros(shape, "<i2")
        np.testing.assert_array_equal(file.read("a"), expected, strict=True)


# The layout before PyTorch 1.6.

MAGIC = BEGIN + number(0x1950A86A20F9469CFC6C) + END
VERSION = BEGIN + number(1001) + END

# A tuple in a tuple in …, whose hash overflows the stack.
DEEP = b")" + b"\x85" * 2 * 10**5


def machine(little_endian: bool) -> bytes:
    return named(little_endian=b"\x88" if little_endian else b"\x89", protocol_version=number(1001))


def legacy(pickled: bytes, arrays: dict[str, np.ndarray], **parts: bytes) -> bytes:
    pieces = {"magic": MAGIC, "version": VERSION, "machine": machine(True), "tensors": pickled}
    pieces["keys"] = BEGIN + b"](" + b"".join(text(key) for key in arrays) + b"e" + END
    pieces["storages"] = b"".join(
        len(elements).to_bytes(8, "little") + elements.tobytes() for elements in arrays.values()
    )
    return b"".join((pieces | parts).values())


LEGACY_TENSORS = named(
    b=tensor(storage("LongStorage", "77", 2, b"N"), 0, [2], [1]),
    a=tensor(storage("FloatStorage", "55", 6, b"N"), 1, [2, 2], [1, 2]),
)
LEGACY_STORAGES = {"55": np.arange(6, dtype="<f4"), "77": np.array([8, 9], "<i8")}


def test_the_old_layout(path):
    path.write_bytes(legacy(LEGACY_TENSORS, LEGACY_STORAGES))
    with PytorchFile(path) as file:
        assert list(file.tensors) == ["b", "a"]
        assert file.read("a").tolist() == [[1, 3], [2, 4]]
        assert file.read("b").tolist() == [8, 9]


@pytest.mark.parametrize(
    ("parts", "expected"),
    [
        ({"magic": BEGIN + number(7) + END}, "is damaged: it is not a file of PyTorch"),
        ({"magic": pickle.dumps(eval, 2)}, r"asks for __builtin__\.eval, which no file of weights"),
        ({"version": BEGIN + number(9) + END}, "is damaged: its version is unknown"),
        ({"machine": machine(False)}, "was written on a big-endian machine"),
        ({"keys": BEGIN + b"]" + END}, "is damaged: the elements of 'b' are missing"),
        ({"keys": BEGIN + b"](" + text("3") + b"e" + END}, "lists elements that no tensor has"),
        ({"keys": BEGIN + b"](" + DEEP + b"e" + END}, "lists elements that no tensor has"),
        ({"storages": bytes(40)}, "is damaged: it ends within a storage of 6 elements"),
    ],
)
def test_damage_in_the_old_layout(path, parts, expected):
    path.write_bytes(legacy(LEGACY_TENSORS, LEGACY_STORAGES, **parts))
    with pytest.raises(UserError, match=expected):
        PytorchFile(path)


# Refused names.


class Call:
    """Pickles as the call of a function."""

    def __init__(self, function, *arguments):
        self.function, self.arguments = function, arguments

    def __reduce__(self):
        return self.function, self.arguments


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
@pytest.mark.parametrize("layout", ["zip", "legacy"])
def test_a_pickle_that_calls_os_system(path, tmp_path, write_zip, protocol, layout):
    touched = tmp_path / "touched"
    attack = pickle.dumps(Call(os.system, f"touch {touched}"), protocol)
    if layout == "zip":
        write_zip(path, attack)
    else:
        path.write_bytes(legacy(attack, {}))
    with pytest.raises(UserError) as caught:
        PytorchFile(path)
    assert str(caught.value) == (
        f"{path} asks for {os.system.__module__}.system, which no file of weights needs; nothing "
        "in it was run; get the model as safetensors, or save `model.state_dict()` alone"
    )
    assert not touched.exists()
    pickle.loads(attack)
    assert touched.exists(), "the attack would have worked"


REFUSED = {
    "eval": (pickle.dumps(Call(builtins.eval, "1"), 2), r"__builtin__\.eval"),
    "dotted": (b"\x80\x04" + text("torch") + text("FloatStorage.__init__") + b"\x93.", "torch.Flo"),
    "stack_global": (b"\x80\x04" + text("os") + text("path.join") + b"\x93.", r"os\.path\.join"),
    "instance": (b"(" + text("touch x") + b"ios\nsystem\n.", r"os\.system"),
    "object": (b"(cos\nsystem\n" + text("touch x") + b"o.", r"os\.system"),
    "bytes": (named(a=b"ctorch.storage\n_load_from_bytes\n"), r"torch\.storage\._load_from_bytes"),
    "new": (named(a=b"ccollections\nOrderedDict\n)\x81"), "the instruction NEWOBJ"),
    "extension": (named(a=b"\x82\x01"), "the instruction EXT1"),
    "model": (BEGIN + b"ctransformers\nBertModel\n)\x81.", r"transformers\.BertModel"),
    "terminal": (BEGIN + b"ca\x1b[2J\nb\n.", r"asks for a\\x1b\[2J\.b, which"),
    "long": (BEGIN + b"c" + b"a" * 10**6 + b"\nb\n.", r"asks for a{80}, which"),
    # Python's unpickler overflows its stack.
    "deep": (BEGIN + DEEP + b"0" + END, "asks for the instruction POP, which no file"),
}
NO_TENSORS = {
    "number": (named(epoch=number(3)), "entry 'epoch' is not a tensor but a int"),
    "dict": (named(state_dict=b"}"), "entry 'state_dict' is not a tensor but a dict"),
    "key": (
        BEGIN + b"}" + number(4) + tensor(FLOATS, 0, [], []) + b"s.",
        "entry 4 is not a tensor",
    ),
    "tensor": (BEGIN + tensor(FLOATS, 0, [], []) + END, "no dict of tensors but a PickledTensor"),
    "list": (BEGIN + b"]" + END, "holds no dict of tensors but a list"),
}


BUILD = b"}" + text("dtype") + number(0) + b"sb"
DAMAGED = {
    "outside": named(a=tensor(FLOATS, 0, [7], [1])),
    "offset": named(a=tensor(FLOATS, 6, [1], [1])),
    "huge": named(a=tensor(FLOATS, 0, [2**70], [0])),
    "huge_none": named(a=tensor(FLOATS, 0, [0, 2**70], [2**70, 1])),
    "no_strides": named(a=tensor(FLOATS, 0, [6], [])),
    "dimensions": named(a=tensor(FLOATS, 0, [1] * 65, [1] * 65)),
    "missing": named(a=tensor(storage("FloatStorage", "1", 6), 0, [6], [1])),
    "short": named(a=tensor(storage("DoubleStorage", "0", 6), 0, [6], [1])),
    "longer": named(a=tensor(storage("FloatStorage", "0", 7), 0, [6], [1])),
    "length": named(a=tensor(storage("FloatStorage", "0", -6), 0, [], [])),
    "view": named(a=tensor(storage("FloatStorage", "0", 6, numbers([1])), 0, [], [])),
    "conjugate": named(a=tensor(FLOATS, 0, [], [], b"}" + text("conj") + b"\x88s")),
    "no_storage": named(a=tensor(text("0"), 0, [], [])),
    "no_tensor": named(a=b"ctorch._utils\n_rebuild_parameter\n" + group(text("x")) + b"R"),
    "call_storage": named(a=b"ctorch\nFloatStorage\n)R"),
    "build_storage": named(a=b"ctorch\nFloatStorage\n" + BUILD),
    "persistent": named(a=text("x") + b"Q"),
    "tuple_key": BEGIN + b"}" + DEEP + b"Ns" + END,
    "memo": BEGIN + b"h\x05" + END,
    "empty": b"",
    "two_values": BEGIN + b"}}" + END,
    "no_mark": BEGIN + b"u" + END,
    "odd_items": BEGIN + b"}(" + text("a") + b"u" + END,
    "unknown": BEGIN + b"\xff" + END,
}


@pytest.mark.parametrize(
    ("pickled", "message"),
    [
        *((pickled, f"{message}.*nothing in it was run") for pickled, message in REFUSED.values()),
        *NO_TENSORS.values(),
        *((pickled, "is damaged: .*; copy or download it again$") for pickled in DAMAGED.values()),
        (
            named(a=tensor(FLOATS, 0, [10**6, 10**6], [0, 0])),
            "'a' has more elements than its",
        ),
    ],
    ids=[*REFUSED, *NO_TENSORS, *DAMAGED, "large"],
)
def test_other_pickles(path, write_zip, pickled, message):
    with pytest.raises(UserError, match=message) as caught:
        PytorchFile(write_zip(path, pickled, SIX))
    assert len(str(caught.value).splitlines()) == 1


# A long list in the memo, and calls that read it again and again.
PAIRS = b"](" + 500 * (text("a") + b"]\x86") + b"eq\x01"
ORDERED = b"ccollections\nOrderedDict\nq\x00"
LIMIT = "takes more than 20,000 steps, the limit"


@pytest.mark.parametrize(
    ("pickled", "expected"),
    [
        pytest.param(b"(" + b"]" * 30_000 + b"t", LIMIT, id="lists"),
        pytest.param(b"(" * 30_000, LIMIT, id="marks"),
        pytest.param(b"(" + ORDERED + PAIRS + 500 * b"h\x00h\x01\x85R" + b"t", LIMIT, id="calls"),
        pytest.param(
            b"}(" + b"".join(number(n * (2**61 - 1)) + b"]" for n in range(1, 5_000)) + b"u",
            "a key that is not a string",
            id="keys with one hash",
        ),
    ],
)
def test_a_pickle_that_takes_more_time_than_its_size(
    path, write_zip, monkeypatch, pickled, expected
):
    monkeypatch.setattr("bert_jax.checkpoints.tensors.pytorch_file.MOST_STEPS", 20_000)
    with pytest.raises(UserError, match=expected):
        PytorchFile(write_zip(path, BEGIN + pickled + END, SIX))


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ({"other": {"archive/code/a.py": b"x"}}, "is a TorchScript program; nothing in it was run"),
        ({"other": {"archive/byteorder": b"big"}}, "was written on a big-endian machine"),
        ({"other": {"second/data.pkl": b"x"}}, "is a zip file, but none of PyTorch"),
        ({"compression": zipfile.ZIP_DEFLATED}, "this zip file is compressed"),
        *((content, "is damaged: ") for content in (b"PK", b"\x89HDF\r\n", b"hello", bytes(100))),
        (None, "does not exist"),
    ],
)
def test_other_files(path, write_zip, content, expected):
    if isinstance(content, bytes):
        path.write_bytes(content)
    elif content is not None:
        write_zip(path, **content)
    with pytest.raises(UserError, match=expected):
        PytorchFile(path)


def test_a_file_before_pytorch_2_1(path):
    with zipfile.ZipFile(path, "w") as archive:  # it has no byte order
        archive.writestr("m/data.pkl", named(a=tensor(FLOATS, 0, [6], [1])))
        archive.writestr("m/data/0", SIX["0"])
    with PytorchFile(path) as file:
        assert file.read("a").tolist() == [0, 1, 2, 3, 4, 5]
    # Python's unpickler would allocate 64 GB for the number of this memo entry.
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("m/data.pkl", BEGIN + b"}r\xff\xff\xff\xff" + END)
    with PytorchFile(path) as file:
        assert file.tensors == {}


@pytest.fixture(params=["zip", "legacy"])
def sound(request, write_zip, tmp_path) -> bytes:
    """A sound file in one of the layouts."""
    if request.param == "zip":
        return write_zip(tmp_path / "sound.bin").read_bytes()
    return legacy(LEGACY_TENSORS, LEGACY_STORAGES)


def test_truncations(path, sound):
    for size in range(len(sound) - 1, 0, -5):
        path.write_bytes(sound[:size])
        with pytest.raises(UserError, match="is damaged: "):
            PytorchFile(path)


@hypothesis.given(
    changes=st.lists(st.tuples(st.integers(0, 4000), st.integers(0, 255)), min_size=1, max_size=4),
)
@hypothesis.settings(
    max_examples=150, suppress_health_check=[hypothesis.HealthCheck.function_scoped_fixture]
)
def test_changed_bytes_are_read_or_refused(changes, path, sound):
    content = bytearray(sound)
    for position, value in changes:
        content[position % len(content)] = value
    path.unlink(missing_ok=True)  # an earlier example may still be mapped
    path.write_bytes(content)
    with contextlib.suppress(UserError), PytorchFile(path) as file:
        for name, info in file.tensors.items():
            assert file.read(name).shape == info.shape

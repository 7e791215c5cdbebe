"""Safetensors written by hand, by the library, and damaged."""

import contextlib
import gc
import math
import random
import struct
from pathlib import Path

import hypothesis
import hypothesis.strategies as st
import ml_dtypes
import numpy as np
import pytest
from safetensors.numpy import save

from bert_jax.checkpoints.tensors import TensorInfo
from bert_jax.checkpoints.tensors.safetensors_file import SafetensorsFile
from bert_jax.errors import UserError

DTYPES = [
    *("bool", "uint8", "int8", "uint16", "int16", "uint32", "int32", "uint64", "int64"),
    *("float16", "float32", "float64"),
    *(ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2),
]

STATUS = Path("/proc/self/status")

ONE = {"a": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}}


def array_of_any_bits(dtype, shape, random: random.Random) -> np.ndarray:
    """Random bits, also of NaN; a boolean is 0 or 1."""
    size = np.dtype(dtype).itemsize * math.prod(shape)
    content = bytes(random.randrange(2 if dtype == "bool" else 256) for _ in range(size))
    return np.frombuffer(content, dtype).reshape(shape)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "model.safetensors"


def test_a_file_written_by_hand(path):
    header = (
        b'{"__metadata__":{"format":"pt"},'
        b'"weight":{"dtype":"F32","shape":[2,3],"data_offsets":[0,24]},'
        b'"brain":{"dtype":"BF16","shape":[1,2],"data_offsets":[24,28]},'
        b'"ids":{"dtype":"I64","shape":[2],"data_offsets":[28,44]},'
        b'"one":{"dtype":"F64","shape":[],"data_offsets":[44,52]},'
        b'"none":{"dtype":"F32","shape":[0,4],"data_offsets":[52,52]}}'
    )
    path.write_bytes(
        len(header).to_bytes(8, "little")
        + header
        + b"\x00\x00\x80\x3f\x00\x00\x00\x40\x00\x00\x40\x40"  # 1 2 3
        + b"\x00\x00\x80\xbf\x00\x00\x00\xc0\x00\x00\x40\xc0"  # -1 -2 -3
        + b"\x80\x3f\x00\xc0"  # 1 -2
        + b"\x05\x00\x00\x00\x00\x00\x00\x00\xff\xff\xff\xff\xff\xff\xff\xff"  # 5 -1
        + b"\x00\x00\x00\x00\x00\x00\xf0\x3f"  # 1
    )
    with SafetensorsFile(path) as file:
        assert file.path == path
        assert file.tensors == {
            "weight": TensorInfo((2, 3), np.dtype(np.float32)),
            "brain": TensorInfo((1, 2), np.dtype(ml_dtypes.bfloat16)),
            "ids": TensorInfo((2,), np.dtype(np.int64)),
            "one": TensorInfo((), np.dtype(np.float64)),
            "none": TensorInfo((0, 4), np.dtype(np.float32)),
        }
        assert file.read("weight").tolist() == [[1, 2, 3], [-1, -2, -3]]
        assert file.read("brain").tolist() == [[1, -2]]
        assert file.read("ids").tolist() == [5, -1]
        assert file.read("one").tolist() == 1
        assert file.read("none").shape == (0, 4)


@hypothesis.given(
    tensors=st.dictionaries(
        st.text(min_size=1).filter(lambda name: name != "__metadata__"),
        st.tuples(
            st.sampled_from(DTYPES),
            st.lists(st.integers(0, 4), max_size=4),
            st.randoms(use_true_random=False),
        ).map(lambda drawn: array_of_any_bits(*drawn)),
        max_size=6,
    )
)
@hypothesis.settings(max_examples=30)
def test_what_the_library_writes_is_read_bit_by_bit(tensors, tmp_path_factory):
    path = tmp_path_factory.mktemp("safetensors") / "model.safetensors"
    path.write_bytes(save(tensors))
    with SafetensorsFile(path) as file:
        assert set(file.tensors) == set(tensors)
        for name, expected in tensors.items():
            array = file.read(name)
            assert (array.shape, array.dtype) == (expected.shape, expected.dtype)
            assert file.tensors[name] == (expected.shape, expected.dtype)
            assert array.tobytes() == expected.tobytes()


def bytes_in(names, size: int) -> dict:
    """The header of a file with `size` bytes for each name."""
    return {
        name: {"dtype": "U8", "shape": [size], "data_offsets": [number * size, (number + 1) * size]}
        for number, name in enumerate(names)
    }


def test_views_are_valid_after_later_reads_and_after_closing(path, write_safetensors):
    size = 1 << 20
    write_safetensors(path, bytes_in("abc", size), b"a" * size + b"b" * size + b"c" * size)
    with SafetensorsFile(path) as file:
        views = [file.read(name) for name in "abc"]
        assert np.shares_memory(views[0], file.read("a"))
        assert not views[0].flags.owndata
        assert not views[0].flags.writeable
        assert [view.tobytes() for view in views] == [bytes([name]) * size for name in b"abc"]
    path.unlink()
    assert [view.tobytes() for view in views] == [bytes([name]) * size for name in b"abc"]


def resident_file_pages() -> int:
    """Bytes of mapped files that are in memory for this process."""
    fields = dict(line.split(":") for line in STATUS.read_text().splitlines())
    return 1024 * int(fields["RssFile"].split()[0])


@pytest.mark.slow
@pytest.mark.skipif(not STATUS.exists(), reason="Linux tells what is resident")
def test_one_tensor_at_a_time_is_in_memory(path, write_safetensors):
    size, names = 1 << 22, "abcdefghijklmnop"
    write_safetensors(path, bytes_in(names, size), bytes(range(256)) * (size * len(names) // 256))
    gc.collect()
    with SafetensorsFile(path) as file:
        before = resident_file_pages()
        for name in file.tensors:
            assert file.read(name).sum(dtype=np.int64) == 255 * size // 2
            # The tensor, and what the system maps around its ends.
            assert size / 2 < resident_file_pages() - before < 2 * size


HEADERS = {
    "no_json": b"{not JSON}",
    "list": b"[1]",
    "dtype": {"a": {"dtype": "F31", "shape": [2], "data_offsets": [0, 8]}},
    "shape": {"a": {"dtype": "F32", "shape": [3], "data_offsets": [0, 8]}},
    "beyond": {"a": {"dtype": "F32", "shape": [4], "data_offsets": [0, 16]}},
    "hole": {"a": {"dtype": "F32", "shape": [1], "data_offsets": [4, 8]}},
    "shared": ONE | {"b": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}},
    "huge": ONE | {"b": {"dtype": "F32", "shape": [0, 2**63], "data_offsets": [8, 8]}},
    "dimensions": {"a": {"dtype": "F32", "shape": [1] * 99 + [2], "data_offsets": [0, 8]}},
}


@pytest.mark.parametrize("header", HEADERS.values(), ids=HEADERS)
def test_damaged_headers(path, header, write_safetensors):
    write_safetensors(path, header, bytes(8))
    with pytest.raises(UserError) as caught:
        SafetensorsFile(path)
    message = str(caught.value)
    assert message.startswith(f"{path} is damaged: ")
    assert message.endswith("; copy or download it again")
    assert "\n" not in message


def test_other_headers(path, write_safetensors):
    write_safetensors(path, b"{" + b" " * 2**23 + b"}", b"")
    with pytest.raises(UserError, match=r"its header has 8,388,6.. bytes, and the limit is"):
        SafetensorsFile(path)
    for length in (10**6, 2**40, 2**64 - 1):  # longer than the file
        path.write_bytes(struct.pack("<Q", length) + b"{}")
        with pytest.raises(UserError, match="is damaged: .*too large|is damaged: .*header length"):
            SafetensorsFile(path)
    header = {"scales": {"dtype": "F4", "shape": [16], "data_offsets": [0, 8]}}
    write_safetensors(path, header, bytes(8))
    with pytest.raises(UserError, match="tensor scales has dtype F4, .* known are BOOL, U8"):
        SafetensorsFile(path)


def test_every_truncation(path, write_safetensors):
    content = write_safetensors(path, ONE, bytes(8)).read_bytes()
    for size in range(1, len(content)):
        path.write_bytes(content[:size])
        with pytest.raises(UserError, match=f"is damaged: .*the file has {size} bytes"):
            SafetensorsFile(path)
    path.write_bytes(content + b"\0")
    with pytest.raises(UserError, match="is damaged"):
        SafetensorsFile(path)


def test_paths_without_a_safetensors_file(path, tmp_path):
    with pytest.raises(UserError, match="model.safetensors does not exist"):
        SafetensorsFile(path)
    with pytest.raises(UserError, match="is a directory, not a regular file"):
        SafetensorsFile(tmp_path)
    path.touch()
    with pytest.raises(UserError, match="model.safetensors is empty"):
        SafetensorsFile(path)
    path.write_text("version https://git-lfs.github.com/spec/v1\noid sha256:12\nsize 440\n")
    with pytest.raises(UserError, match="only Git LFS's pointer .* run `git lfs pull`"):
        SafetensorsFile(path)


@hypothesis.given(
    changes=st.lists(st.tuples(st.integers(0, 200), st.integers(0, 255)), min_size=1, max_size=4)
)
@hypothesis.settings(max_examples=100)
def test_changed_bytes_are_read_or_refused(changes, tmp_path_factory):
    content = bytearray(save({"a": np.zeros((2, 2), np.float32), "b": np.zeros(3, np.int64)}))
    for position, value in changes:
        content[position % len(content)] = value
    path = tmp_path_factory.mktemp("changed") / "model.safetensors"
    path.write_bytes(content)
    with contextlib.suppress(UserError), SafetensorsFile(path) as file:
        for name, info in file.tensors.items():
            assert file.read(name).copy().shape == info.shape

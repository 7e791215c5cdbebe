"""Files of tensors, written by hand."""

import json
import struct
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

# What torch.save (2.13) wrote for the state dict of Linear(2, 3), to the byte.
LINEAR_PICKLE = (
    b"\x80\x02ccollections\nOrderedDict\nq\x00)Rq\x01("
    b"X\x06\x00\x00\x00weightq\x02ctorch._utils\n_rebuild_tensor_v2\nq\x03("
    b"(X\x07\x00\x00\x00storageq\x04ctorch\nFloatStorage\nq\x05X\x01\x00\x00\x000q\x06"
    b"X\x03\x00\x00\x00cpuq\x07K\x06tq\x08Q"
    b"K\x00K\x03K\x02\x86q\tK\x02K\x01\x86q\n\x89h\x00)Rq\x0btq\x0cRq\r"
    b"X\x04\x00\x00\x00biasq\x0eh\x03("
    b"(h\x04h\x05X\x01\x00\x00\x001q\x0fh\x07K\x03tq\x10Q"
    b"K\x00K\x03\x85q\x11K\x01\x85q\x12\x89h\x00)Rq\x13tq\x14Rq\x15u"
    b"}q\x16X\t\x00\x00\x00_metadataq\x17h\x00)Rq\x18X\x00\x00\x00\x00q\x19"
    b"}q\x1aX\x07\x00\x00\x00versionq\x1bK\x01sssb."
)
LINEAR_STORAGES = {
    "0": np.array([1, 2, 3, 4, 5, 6], "<f4").tobytes(),
    "1": np.array([7, 8, 9], "<f4").tobytes(),
}


@pytest.fixture
def write_safetensors() -> Callable[..., Path]:
    """Writes a header, JSON or the bytes themselves, and the data after it."""

    def write(path: Path, header: dict | bytes, data: bytes) -> Path:
        text = header if isinstance(header, bytes) else json.dumps(header).encode()
        path.write_bytes(struct.pack("<Q", len(text)) + text + data)
        return path

    return write


@pytest.fixture
def write_zip() -> Callable[..., Path]:
    """Writes the zip file of PyTorch around a pickle; `other` adds entries or replaces them."""

    def write(
        path: Path,
        pickled: bytes = LINEAR_PICKLE,
        storages: dict[str, bytes] = LINEAR_STORAGES,
        other: dict[str, bytes] = {},  # noqa: B006 - not changed
        compression: int = zipfile.ZIP_STORED,
    ) -> Path:
        entries = {"archive/data.pkl": pickled, "archive/byteorder": b"little"}
        entries |= {f"archive/data/{key}": content for key, content in storages.items()}
        with zipfile.ZipFile(path, "w", compression) as archive:
            for name, content in (entries | other).items():
                archive.writestr(name, content)
        return path

    return write

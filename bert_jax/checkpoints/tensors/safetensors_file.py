"""Safetensors: a JSON header, then the tensors.

    8 bytes    N, the length of the header, little-endian
    N bytes    {"NAME": {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]}, …}
    the rest   the tensors, little-endian, without gaps; offsets count from here

The format: https://github.com/huggingface/safetensors.
"""

import json

import ml_dtypes
import numpy as np
from safetensors import SafetensorError, safe_open

from bert_jax.checkpoints.tensors.tensor_file import MappedTensorFile
from bert_jax.errors import UserError, first_line

DTYPES = {
    "BOOL": np.dtype("?"),
    "U8": np.dtype("u1"),
    "I8": np.dtype("i1"),
    "U16": np.dtype("<u2"),
    "I16": np.dtype("<i2"),
    "U32": np.dtype("<u4"),
    "I32": np.dtype("<i4"),
    "U64": np.dtype("<u8"),
    "I64": np.dtype("<i8"),
    "F8_E4M3": np.dtype(ml_dtypes.float8_e4m3fn),
    "F8_E5M2": np.dtype(ml_dtypes.float8_e5m2),
    "F16": np.dtype("<f2"),
    "BF16": np.dtype(ml_dtypes.bfloat16),
    "F32": np.dtype("<f4"),
    "F64": np.dtype("<f8"),
}

LENGTH_BYTES = 8

HEADER_BYTES = 8 * 2**20
"""The limit for a header: 80,000 tensors."""


class SafetensorsFile(MappedTensorFile):
    """A `model.safetensors`, or one of its shards.

    The library checks the file and this class maps it: the library's NumPy reader copies every
    tensor, and pages that it has read count as memory of the process until the file is closed, so
    that a model would take twice its size.
    """

    def _find_views(self) -> dict[str, np.ndarray]:
        length = int.from_bytes(self._map[:LENGTH_BYTES], "little")
        if HEADER_BYTES < length <= len(self._map):
            raise UserError(
                f"{self.path}: its header has {length:,} bytes, and the limit is {HEADER_BYTES:,}; "
                "get the model in shards, or save fewer tensors"
            )
        try:
            with safe_open(self.path, framework="numpy"):
                pass
        except (SafetensorError, OSError) as error:
            size = len(self._map)
            raise ValueError(f"{first_line(error)} (the file has {size:,} bytes)") from error
        begin = LENGTH_BYTES + length
        header = json.loads(self._map[LENGTH_BYTES:begin])  # as the library, the last of two names
        header.pop("__metadata__", None)
        views = {}
        for name, entry in header.items():
            if entry["dtype"] not in DTYPES:
                raise UserError(
                    f"{self.path}: tensor {name} has dtype {entry['dtype']}, which cannot be read; "
                    f"known are {', '.join(DTYPES)}"
                )
            offset = begin + entry["data_offsets"][0]
            views[name] = self._view(offset, DTYPES[entry["dtype"]], tuple(entry["shape"]))
        return views

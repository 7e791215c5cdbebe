"""Outputs of an evaluation's batches, from which it continues after a stop or a kill.

A journal has a file for each set, see `files.journal`: for each batch the size of what follows in
eight bytes, and its outputs as safetensors. What follows from the outputs, such as answers and
metrics, is computed again: that is fast.
"""

import contextlib
import hashlib
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np

from bert_jax.checkpoints.checksums import checksums
from bert_jax.files import Journal, Request, continued, is_remote
from bert_jax.tasks.base.predictor import Model

_ENDING = ".outputs"
_SIZE_BYTES = 8


class OutputCache:
    """The outputs of the batches of one set.

    Attributes:
        count: number of batches with outputs in the file.
    """

    def __init__(self, journal: Journal, name: str) -> None:
        """Finds the outputs of earlier calls; raises UserError if they are damaged."""
        self._journal, self._name = journal, name
        self._file = journal.open(f"{name}{_ENDING}")
        self.count = journal.state.get(name, 0)
        self._stored = self._read_all(self.count)

    def read(self) -> list[np.ndarray] | None:
        """The leaves of the next batch's outputs, in the order of the calls of `add`; or None."""
        return next(self._stored, None)

    def add(self, leaves: Sequence[np.ndarray]) -> None:
        """Stores the outputs of the next batch.

        Raises:
            UserError: they cannot be written.
        """
        from safetensors.numpy import save

        arrays = {str(leaf): np.asarray(array, order="C") for leaf, array in enumerate(leaves)}
        content = save(arrays)
        self._file.write(len(content).to_bytes(_SIZE_BYTES, "little") + content)
        self.count += 1
        self._journal.mark(self._journal.count + 1, {**self._journal.state, self._name: self.count})

    def _read_all(self, count: int) -> Iterator[list[np.ndarray]]:
        from safetensors.numpy import load

        self._file.flush()
        descriptor, offset = self._file.fileno(), 0
        for _ in range(count):
            size = int.from_bytes(os.pread(descriptor, _SIZE_BYTES, offset), "little")
            arrays = load(os.pread(descriptor, size, offset + _SIZE_BYTES))
            offset += _SIZE_BYTES + size
            yield [arrays[str(leaf)] for leaf in range(len(arrays))]


@contextlib.contextmanager
def cached_beside(output: Path | None, request: Request) -> Iterator[Journal | None]:
    """A journal of outputs in OUTPUT.partial, see `files.continued`.

    Yields None where nothing is stored: without an output, for one in a bucket, with several hosts.
    """
    if output is None or is_remote(output) or jax.process_count() > 1:
        yield None
        return
    output = output.resolve()
    directory = output.with_name(f"{output.name}.partial")
    content = "the outputs of {:,} batches"
    with continued(directory, [f"*{_ENDING}"], content, request) as journal:
        yield journal


def model_fingerprint(model: Model) -> dict[str, Any]:
    """Everything but the input that the outputs of a model depend on, as values of JSON."""
    description = {**vars(model.description), "family": model.description.family.model_type}
    module: Any = model.module
    parts = [description, checksums(model.params), model.tokenizer.rules_of_rows]
    devices = model.mesh.devices.ravel()
    return {
        "model": hashlib.sha256(repr(parts).encode(errors="surrogatepass")).hexdigest(),
        "precision": repr(module.execution),
        "devices": f"{len(devices)} × {devices[0].device_kind}",
        "jax": jax.__version__,
    }

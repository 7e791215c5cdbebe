"""`tfds:NAME[/CONFIG][:VERSION][:SPLIT]`: text of prepared data sets of TensorFlow Datasets."""

from collections.abc import Iterator

import numpy as np

from bert_jax.data.pretraining.sources import Block, Source, SourceSpec, document_blocks
from bert_jax.data.pretraining.sources.files import REMEDY
from bert_jax.data.readers.lines import decode
from bert_jax.data.tensorflow import PreparedDataset
from bert_jax.errors import OptionError


class TensorFlowDataset(Source):
    """One split of a prepared data set; one document per example, in the order on disk."""

    def __init__(self, spec: SourceSpec, location: str):
        name = f"source {spec.source!r}"
        self._dataset = PreparedDataset(name, location, spec.data_dir)
        files = sorted(self._dataset.directory.iterdir())
        self._states = {path.name: path.stat() for path in files}
        super().__init__(spec, sum(state.st_size for state in self._states.values()))

    def identity(self) -> dict[str, object]:
        """Name, size and modification time (ns) of every file, and the split."""
        return {
            "directory": str(self._dataset.directory),
            "split": self._dataset.split,
            "files": [[name, st.st_size, st.st_mtime_ns] for name, st in self._states.items()],
        }

    def blocks(self) -> Iterator[Block]:
        fields = sorted(self._dataset.features)
        self.spec.check_field(fields, f"source {self.spec.source!r} has")
        count = self._dataset.count
        for number, value in enumerate(self._dataset.examples(self.spec.field), start=1):
            yield from document_blocks(self._text(value, number), self.spec.paragraphs)
            self.position = self.size * number // count

    def _text(self, value: object, number: int) -> str:
        """The text of a string, or of a list of strings, one paragraph each."""
        parts = value.tolist() if isinstance(value, np.ndarray) else [value]
        lines = [part for part in parts if isinstance(part, bytes)]
        if len(lines) < len(parts):
            raise OptionError(
                "data.field",
                self.spec.field,
                "set {data.field} to one that does",
                problem=f"source {self.spec.source!r}: field {self.spec.field!r} holds no text",
            )
        location = f"{self.spec.source} example:{number}"
        return decode(b"\n".join(lines), location, self.spec.errors, REMEDY)

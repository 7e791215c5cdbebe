"""Output files that a stopped program continues.

Until they are complete, they are in a directory NAME.partial beside the output NAME, with a record
of how far they go, see `files.journal`.
"""

import contextlib
import glob
import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from bert_jax.data.outputs import Layout, Outputs, TextFile
from bert_jax.files import (
    Journal,
    Request,
    check_own_files,
    continued,
    manifest_updated,
    not_written,
)


class ResumableOutputs(Outputs):
    """The files of an output in its directory of unfinished files.

    Attributes:
        directory: the directory.
        rows: number of rows that an earlier call has written.
        digest: digest of the examples of these rows, as it was given to `mark`.
    """

    def __init__(self, target: Path, layouts: Sequence[Layout], journal: Journal) -> None:
        """For internal use; `resumable_outputs` makes outputs."""
        self.directory = journal.directory
        self.rows, self.digest = journal.count, journal.state.get("digest", "")
        self._target, self._journal = target, journal
        super().__init__(layouts, self._open)
        for prefix, layout in self.layouts.items():
            if prefix not in self.files and layout.path(target).name in journal.files:
                self.files[prefix] = self._open(layout)

    @property
    def kept(self) -> int:
        """The number of rows that a later call need not write again."""
        return self._journal.count

    def mark(self, rows: int, digest: str) -> None:
        """Says that the output can be continued from here; recorded from time to time.

        Args:
            rows: number of rows so far.
            digest: digest of their examples.
        """
        self._journal.mark(rows, {"digest": digest})

    def publish(self) -> None:
        """Moves the complete files to their final names, the output itself last."""
        self.end_all()
        self._journal.sync()
        names = [self.layouts[prefix].path(self._target).name for prefix in self.files]
        with manifest_updated(self.directory, self._target.parent, names):
            for name in sorted(names, key=self._target.name.__eq__):
                (self.directory / name).replace(self._target.with_name(name))

    def _open(self, layout: Layout) -> TextFile:
        path = layout.path(self._target)
        file = self._journal.open(path.name)
        return TextFile(str(self.directory / path.name), layout, file, is_begun=file.size > 0)


@contextlib.contextmanager
def resumable_outputs(
    target: Path, layouts: Sequence[Layout], request: Request | None
) -> Iterator[ResumableOutputs]:
    """Opens files that a later call continues if this one is stopped or killed.

    They get their final names at the end, and are listed there, see `files.manifest`: only files
    of earlier calls are replaced. After an error, the rows up to the last mark are kept.

    Args:
        target: path of the output, a regular file of this machine or none.
        layouts: see `open_outputs`.
        request: returns everything that the rows depend on, except the input; None: the input
            cannot be read again, and nothing is kept after an error.

    Raises:
        UserError: see `files.continued`; or a file cannot be written or is not from bert_jax.
    """
    target = Path(os.path.realpath(target))  # a link is kept
    names = {layout.path(target).name for layout in layouts}
    directory = target.with_name(f"{target.name}.partial")
    try:
        check_own_files(target.parent, names)
        with continued(
            directory, {*map(glob.escape, names)}, "{:,} predictions", request
        ) as journal:
            outputs = ResumableOutputs(target, layouts, journal)
            yield outputs
            outputs.publish()
    except OSError as error:
        raise not_written(target, error) from error

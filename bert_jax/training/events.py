"""TensorBoard's event files, written by the calling thread.

tensorboardX's `SummaryWriter` writes in a thread. When a disk is full, that thread ends with a
traceback, and the training waits for it as soon as ten events wait to be written.
"""

import time
from pathlib import Path
from typing import Any


class EventFile:
    """A new event file in a directory; TensorBoard shows all files of a directory as one."""

    def __init__(self, directory: Path, *, purge_step: int) -> None:
        """Creates the file and hides the events of older files from a step on.

        Raises:
            OSError: it cannot be created.
        """
        from tensorboardX.event_file_writer import EventsWriter
        from tensorboardX.proto.event_pb2 import SessionLog

        directory.mkdir(exist_ok=True)
        self._writer = EventsWriter(str(directory / "events"))
        self._add(purge_step, session_log=SessionLog(status=SessionLog.START))

    def add_scalar(self, name: str, value: float, step: int) -> None:
        """Adds a value; it is on the disk after `flush`."""
        from tensorboardX.summary import scalar

        self._add(step, summary=scalar(name, value))

    def flush(self) -> None:
        """Waits until all values are on the disk."""
        self._writer.flush()

    def close(self) -> None:
        """Flushes and closes the file."""
        self._writer.close()

    def _add(self, step: int, **content: Any) -> None:
        from tensorboardX.proto.event_pb2 import Event

        self._writer.write_event(Event(wall_time=time.time(), step=step, **content))

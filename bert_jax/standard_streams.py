"""Standard streams: messages without control characters; streams that are closed or full."""

import contextlib
import io
import os
import sys
from typing import Any

from bert_jax.errors import escaped, one_line

_MODES = {"stdin": "r", "stdout": "w", "stderr": "w"}


def say(*lines: object) -> None:
    """Prints messages to stderr, each as one line, see `errors.one_line`.

    In one write, since threads of libraries may be writing, too. What is printed for people goes
    through it or `show`: the name of a tensor, a path or a lock may come from others.
    """
    sys.stderr.write("".join(f"{one_line(str(line))}\n" for line in lines))


def show(text: str) -> None:
    """Prints a result to stdout: lines in which control characters are escaped."""
    sys.stdout.write("".join(f"{escaped(line)}\n" for line in text.split("\n")))


class _Messages(io.TextIOWrapper):
    """A stderr whose errors end nothing: a full disk or a closed terminal loses messages only."""

    def __init__(self, stream: io.TextIOWrapper) -> None:
        super().__init__(stream.buffer, stream.encoding, "backslashreplace", line_buffering=True)
        self._replaced = stream  # which would close the buffer

    def write(self, text: str) -> int:
        with contextlib.suppress(OSError):
            return super().write(text)
        return len(text)

    def flush(self) -> None:
        with contextlib.suppress(OSError):
            super().flush()


def open_streams() -> None:
    """Opens the standard streams that are closed, and makes stderr one that does not fail.

    The next file would otherwise have the number of a closed stream, and libraries write there.
    """
    for number, (name, mode) in enumerate(_MODES.items()):
        try:
            os.fstat(number)
        except OSError:
            # The lowest free number: those below it are open by now.
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)
            _set(name, os.fdopen(number, mode, encoding="utf-8", closefd=False))
    if isinstance(sys.stderr, io.TextIOWrapper):  # not one that a test or a notebook has set
        _set("stderr", _Messages(sys.stderr))


def _set(name: str, stream: Any) -> None:
    for each in (name, f"__{name}__"):
        setattr(sys, each, stream)

"""The life of the command: what it prints, signals, its last line and its exit code.

From `install` on, SIGINT, SIGTERM and SIGHUP end the command at any point with one line and exit
code 75. The first signal raises KeyboardInterrupt, or is left to
`sharding.stopping.StopSignals`, which saves the work first. During an import it ends the process at
once: some libraries print an exception that interrupts their import, and go on. Otherwise the
process ends `_GRACE_SECONDS` later, wherever it is: in a library that does not return to the
interpreter, or one that has lost the exception. A second signal, at least `_TWICE_SECONDS` after
the first, ends it at once. (Some launchers send a signal to the whole group of processes and to
each of them.) What that leaves behind is recognised by the next call. After the last line, signals
do not change the code.
"""

import contextlib
import dataclasses
import io
import os
import signal
import sys
import threading
import time
from types import FrameType
from typing import TYPE_CHECKING, Any, NoReturn

from bert_jax.errors import escaped, one_line

if TYPE_CHECKING:
    from tqdm import tqdm

# Exit codes: differences in `parity`; a bug; bad input; interrupted, run it again.
DIFFERS, FAILED, BAD_INPUT, STOPPED = 1, 1, 2, 75
INTERRUPTED = "interrupted; run the same command again"

SIGNALS = tuple(
    number
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    if number != signal.SIGHUP or signal.getsignal(number) != signal.SIG_IGN  # as under `nohup`
)

_GRACE_SECONDS = 5.0
_TWICE_SECONDS = 1.0
_MODES = {"stdin": "r", "stdout": "w", "stderr": "w"}


@dataclasses.dataclass
class _State:
    """The state of this process.

    Attributes:
        code: exit code, once the last line is being written.
        is_handled: whether `StopSignals` has seen a signal: the process may take its time to end.
        is_installed: whether `install` was called, so that a second signal ends the process.
        was_raised: whether a signal has raised KeyboardInterrupt; later errors may be its effects.
    """

    code: int | None = None
    is_handled: bool = False
    is_installed: bool = False
    was_raised: bool = False


state = _State()


def say(*lines: object) -> None:
    """Prints messages to stderr, each as one line, see `errors.one_line`.

    In one write, since threads of libraries may be writing, too. All text for people goes through
    it or `show`: the name of a tensor, a path or a lock may come from an untrusted file.
    """
    sys.stderr.write("".join(f"{one_line(str(line))}\n" for line in lines))


def show(text: str) -> None:
    """Prints a result to stdout: lines in which control characters are escaped."""
    sys.stdout.write("".join(f"{escaped(line)}\n" for line in text.split("\n")))


def new_bar(
    unit: str, *, enabled: bool, initial: int, total: int | None = None, title: str | None = None
) -> "tqdm":
    """A progress bar on stderr, with rate and time left; in a log file, a line each half minute."""
    from tqdm import tqdm

    terminal = sys.stderr.isatty()
    return tqdm(
        desc=title,
        total=total,
        initial=initial,
        unit=unit,
        disable=not enabled,
        dynamic_ncols=True,
        mininterval=0.2 if terminal else 30.0,
        maxinterval=10.0 if terminal else 60.0,
    )


class _Messages(io.TextIOWrapper):
    """A stderr that ignores write errors: a full disk or a closed terminal loses messages only."""

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
    """Opens closed standard streams, and makes stderr ignore write errors.

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


def install() -> None:
    """Handles the signals of this process."""
    reader, writer = os.pipe()
    threading.Thread(target=_watch, args=(reader,), daemon=True).start()
    os.set_blocking(writer, False)
    signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
    for number in SIGNALS:
        signal.signal(number, _handle)
    sys.unraisablehook = _report_unraisable
    state.is_installed = True


def end() -> NoReturn:
    """Ends the process at once, with the line unless the last one is written."""
    if state.code is None:
        with contextlib.suppress(OSError):
            os.write(2, f"bert-jax: {INTERRUPTED}\n".encode())
    os._exit(STOPPED if state.code is None else state.code)


def _handle(number: int, frame: FrameType | None) -> None:
    if not state.was_raised and state.code is None:
        if _is_importing(frame):
            end()
        state.was_raised = True
        raise KeyboardInterrupt


def _is_importing(frame: FrameType | None) -> bool:
    """Whether an import is under way in a frame or in one that has called it."""
    while frame is not None:
        if frame.f_code.co_filename.startswith("<frozen importlib."):
            return True
        frame = frame.f_back
    return False


def _watch(reader: int) -> None:
    """Sees the signals while the main thread is inside a library; runs in a thread."""
    first = None
    while True:
        for number in os.read(reader, 64):
            if number not in SIGNALS:
                continue
            if first is None:
                first = time.monotonic()
                timer = threading.Timer(_GRACE_SECONDS, _end_if_not_handled, [number])
                timer.daemon = True
                timer.start()
            elif time.monotonic() - first >= _TWICE_SECONDS:
                end()


def _end_if_not_handled(number: int) -> None:
    if signal.getsignal(number) is _handle and not state.is_handled:
        end()


def _report_unraisable(lost: Any) -> None:
    """Exceptions that the interpreter can only print: a KeyboardInterrupt ends the process."""
    if issubclass(lost.exc_type, KeyboardInterrupt):
        end()
    sys.__unraisablehook__(lost)

"""SIGINT, SIGTERM and SIGHUP end the command with one line and exit code 75, whatever it is doing.

`install` is called before anything else. From then on, the first signal

- ends the process at once while a module is imported: libraries are not prepared for an exception
  there. Nothing needs to be cleaned up: what a kill leaves behind is recognised by the next call;
- is left to `training.signals`, where that has its handlers;
- raises KeyboardInterrupt otherwise. If that is lost in a callback of the interpreter, or a library
  does not return to the interpreter for `_GRACE_SECONDS`, the process ends all the same.

A second one, at least `_TWICE_SECONDS` later, ends the process at once. (Some launchers send a
signal to the whole group of processes and to each of them.) After the last line of the command,
signals have no effect on its exit code.
"""

import atexit
import contextlib
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from types import FrameType
from typing import Any, NoReturn

STOPPED = 75
MESSAGE = "interrupted; run the same command again"

SIGNALS = tuple(
    number
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    if number != signal.SIGHUP or signal.getsignal(number) != signal.SIG_IGN  # as under `nohup`
)

_GRACE_SECONDS = 5.0
_TWICE_SECONDS = 1.0


class _State:
    """What has happened so far in this process.

    Attributes:
        ending: held by the thread that ends the process.
        code: exit code, once the last line is being written.
        handled: whether a handler of another module has seen a signal.
        installed: whether `install` was called.
        raised: whether a signal has raised KeyboardInterrupt.
    """

    def __init__(self) -> None:
        self.ending = threading.RLock()
        self.code: int | None = None
        self.handled = False
        self.installed = False
        self.raised = False


_state = _State()


def block() -> None:
    """Holds signals back until `install`, also in a program that replaces this process."""
    signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)


def install() -> None:
    """Handles the signals of this process, and those that were held back."""
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
    os.register_at_fork(after_in_child=_uninstall)
    atexit.register(_ignore)  # the first to be registered is the last to be called
    sys.unraisablehook = _ending(sys.unraisablehook)
    _state.installed = True
    for number in SIGNALS:
        signal.signal(number, _handle)
    threading.Thread(target=_watch, args=(reader,), daemon=True).start()
    # Not before `start` has returned: a KeyboardInterrupt in there breaks its lock.
    os.write(writer, b"\0")
    signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)


def is_installed() -> bool:
    """Whether a second signal ends the process."""
    return _state.installed


def set_handled() -> None:
    """Announces that another module handles the signal: the process may take its time to end."""
    _state.handled = True


def was_raised() -> bool:
    """Whether a signal has raised KeyboardInterrupt, so that later errors may be its effects."""
    return _state.raised


def last_line(code: int) -> None:
    """Announces that the calling thread writes the last line of the process, or has written it.

    If another thread is about to end the process, it does not return.
    """
    _state.ending.acquire()
    _state.code = code


def end() -> NoReturn:
    """Writes the line and ends the process, unless that is under way."""
    if not _state.ending.acquire(blocking=False):
        time.sleep(_GRACE_SECONDS)
        os._exit(STOPPED if _state.code is None else _state.code)
    if _state.code is not None:  # this thread has written it, and a late KeyboardInterrupt was lost
        os._exit(_state.code)
    with contextlib.suppress(OSError):
        os.write(2, f"bert-jax: {MESSAGE}\n".encode())
    os._exit(STOPPED)


def _handle(number: int, frame: FrameType | None) -> None:
    if _state.raised or _state.code is not None:
        return
    while frame is not None:
        if frame.f_code.co_filename.startswith("<frozen importlib"):
            end()
        frame = frame.f_back
    _state.raised = True
    raise KeyboardInterrupt


def _watch(reader: int) -> None:
    """Sees the signals while the main thread is inside a library; runs in a thread."""
    os.read(reader, 1)
    # Else a signal that the main thread blocks would reach no thread.
    signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)
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
    if signal.getsignal(number) is _handle and not (_state.handled or _state.raised):
        end()


def _ending(hook: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """A hook for exceptions that the interpreter can only print: a KeyboardInterrupt ends it."""

    def report(lost: Any) -> None:
        if issubclass(lost.exc_type, KeyboardInterrupt):
            end()
        hook(lost)

    return report


def _ignore() -> None:
    """At the end, where the interpreter would give the signals their usual effects."""
    for number in SIGNALS:
        signal.signal(number, signal.SIG_IGN)


def _uninstall() -> None:
    """In a copy of the process: signals have their usual effects."""
    signal.set_wakeup_fd(-1)
    _state.installed = False
    for number in SIGNALS:
        signal.signal(number, signal.SIG_DFL)

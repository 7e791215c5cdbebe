"""The processes of a run stop together: after a signal, or if one of them fails.

After a signal to one process, all finish the same step and save. If one fails, the other processes
would wait for it in a collective, on some devices for ever: it publishes the reason through the
coordination service, where a thread of each process waits for it, and all exit with it.
"""

import contextlib
import itertools
import json
import os
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

import jax
from jax.experimental import multihost_utils

from bert_jax import process
from bert_jax.process import FAILED, STOPPED
from bert_jax.sharding.distributed import A_WEEK, coordination, is_coordinator, leave
from bert_jax.sharding.hosts import is_main_host, wait_for_all_hosts

_LOST_MESSAGE = (
    "another process of this run ended without a message: killed, out of memory, or its machine or "
    "network failed; run the same command on all hosts to continue from the last checkpoint, "
    "or from the start if there is none"
)

# Parts of JAX's errors when the connection to another process breaks.
_CONNECTION_ERRORS = (
    "Gloo",
    "coordination service",
    "CoordinationService",
    "Connection reset by peer",
)

# Seconds that a failed process has to publish the reason before it counts as lost.
_GRACE_PERIOD = 3.0

_REASON = "bert_jax/failure"
_HOUR = 3_600_000  # ms
_runs = itertools.count()


@contextlib.contextmanager
def ending_together(outcome: Callable[[BaseException], tuple[str, int]]) -> Iterator[None]:
    """Within it, an error of one process ends all of them; at its end, all wait for each other.

    Only the main host prints. A single process is not affected.

    Args:
        outcome: maps a user error to its message and exit code; raises any other error again: a
            bug, which is printed with its traceback.
    """
    if not jax.distributed.is_initialized():
        yield
        return
    over = threading.Event()
    listener = threading.Thread(target=_listen, args=(over,), daemon=True)
    listener.start()
    try:
        with contextlib.ExitStack() as quiet:
            if not is_main_host():
                nowhere = quiet.enter_context(open(os.devnull, "w", encoding="utf-8"))
                quiet.enter_context(contextlib.redirect_stdout(nowhere))
                quiet.enter_context(contextlib.redirect_stderr(nowhere))
            # The first collective of CPUs times out after 30 s; later ones may take longer.
            multihost_utils.sync_global_devices("the beginning")
            yield
            wait_for_all_hosts("the end")
    except BaseException as error:
        _fail(error, outcome, over)
    over.set()
    _publish(_REASON, "null")  # no failure
    listener.join()  # no thread may be inside JAX when the interpreter exits


def _fail(
    error: BaseException, outcome: Callable[[BaseException], tuple[str, int]], over: threading.Event
) -> None:
    """Publishes an error to the other processes, and exits."""
    if _is_loss(error):
        time.sleep(_GRACE_PERIOD)  # `_listen` may receive the reason
        leave(_LOST_MESSAGE, STOPPED)
    over.set()  # from now on, this process ignores other failures
    try:
        message, code = outcome(error)
    except BaseException:
        traceback.print_exception(error, file=sys.__stderr__)
        message, code = f"{type(error).__name__}: {error}".splitlines()[0], FAILED
    reason = {"process": jax.process_index(), "message": message, "code": code}
    _publish(_REASON, json.dumps(reason))
    if is_coordinator():
        time.sleep(1)  # the service ends with this process: the message must arrive before
    leave(message, code)


def _publish(key: str, value: str) -> None:
    with contextlib.suppress(Exception):  # another process was first, or is lost
        coordination().key_value_set(key, value)


def _listen(over: threading.Event) -> None:
    """Waits for a failure of another process; runs in a thread."""
    while not over.is_set():
        try:
            reason = json.loads(coordination().blocking_key_value_get(_REASON, _HOUR))
        except Exception as error:
            if over.is_set():
                return
            if "DEADLINE_EXCEEDED" not in str(error):
                leave(_LOST_MESSAGE, STOPPED)
            continue
        time.sleep(0.5)  # this process may be about to raise the same error
        if not over.is_set():
            leave(f"process {reason['process']} ended the run: {reason['message']}", reason["code"])


def _is_loss(error: BaseException | None) -> bool:
    """Whether an error, or one of its causes, is the loss of another process."""
    while error is not None:
        if any(sign in str(error) for sign in _CONNECTION_ERRORS):
            return True
        error = error.__cause__ or error.__context__
    return False


class Interrupted(Exception):  # noqa: N818 - a request, not an error
    """A signal stopped the run; the state after `step` is saved."""

    def __init__(self, step: int) -> None:
        super().__init__(f"stopped by a signal after saving step {step}")
        self.step = step


class StopSignals:
    """Within `with StopSignals() as stop:` a signal sets `stop.requested`.

    A second one has the effect that it would have without, see `process` for the command. Only the
    main thread receives signals: another one, such as of a user interface, is not stopped by them.
    """

    def __init__(self, line: str = "") -> None:
        """Args: `line`: a line for stderr at the first signal."""
        self.requested = False
        self._line = line
        self._previous: dict[signal.Signals, Any] = {}
        self._agreement: _Agreement | None = None

    def __enter__(self) -> "StopSignals":
        """Installs the handlers."""
        if threading.current_thread() is threading.main_thread():
            for number in process.SIGNALS:
                self._previous[number] = signal.signal(number, self._request)
        if jax.process_count() > 1:
            self._agreement = _Agreement()
        return self

    def __exit__(self, *exception: object) -> None:
        """Restores the previous handlers."""
        for number, handler in self._previous.items():
            signal.signal(number, handler)
        if self._agreement is not None:
            self._agreement.end()

    def stop_after(self, step: int) -> bool:
        """Whether to stop after a step: the same answer on all hosts.

        A signal to one host stops all, after the first step that no host has passed.
        """
        if self._agreement is None:
            return self.requested
        return self._agreement.stop_after(step, requested=self.requested)

    def _request(self, number: int, frame: FrameType | None) -> None:
        self.requested = True
        if self._line and is_main_host():
            # Not through `sys.stderr`: the signal may have come in the middle of a write to it.
            os.write(2, f"\n{self._line}\n".encode())
        if process.state.is_installed:  # which sees a second one itself
            process.state.is_handled = True
        else:
            signal.signal(number, self._previous[signal.Signals(number)])


class _Agreement:
    """The step after which all hosts stop.

    Steps are not slowed down: a thread on each host waits for a message from a host that received a
    signal; then all hosts exchange their current step numbers, while none can finish its step, and
    take the highest plus one. (JAX's `reached_preemption_sync_point` is not suitable: orbax reports
    the steps of older checkpoints to it, and it does not handle SIGINT.)
    """

    def __init__(self) -> None:
        self._prefix = f"bert_jax/stop/{next(_runs)}"
        self._lock = threading.Lock()
        self._sent = False
        self._step = -1
        self._last: int | None = None
        self._thread = threading.Thread(target=self._agree, daemon=True)
        self._thread.start()

    def stop_after(self, step: int, *, requested: bool) -> bool:
        if requested and not self._sent:
            self._sent = True
            _publish(f"{self._prefix}/message", "stop")
        with self._lock:
            self._step = step
            return self._last is not None and step >= self._last

    def end(self) -> None:
        """Ends the thread; if a host has requested a stop, it first takes part in the exchange."""
        _publish(f"{self._prefix}/message", "over")
        # No thread may be inside JAX when the interpreter exits; a lost host must not block us.
        self._thread.join(timeout=10)

    def _agree(self) -> None:
        client = coordination()
        # If a host is lost, the collectives that wait for it fail with an error.
        with contextlib.suppress(Exception):
            if client.blocking_key_value_get(f"{self._prefix}/message", A_WEEK) != "stop":
                return
            with self._lock:
                mine = f"{self._prefix}/steps/{jax.process_index()}"
                client.key_value_set(mine, str(self._step))
                client.wait_at_barrier(f"{self._prefix}/all", A_WEEK)
                steps = client.key_value_dir_get(f"{self._prefix}/steps/")
                self._last = max(int(step) for _, step in steps) + 1

"""If one process of a run fails, all of them exit, and each prints the reason.

The others would wait for it in a collective, on some devices for ever. So a failing process
publishes the reason through the coordination service, where a thread of each process waits for it.
"""

import contextlib
import json
import os
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator

import jax
from jax.experimental import multihost_utils

from bert_jax.sharding.distributed import coordination, is_coordinator, leave
from bert_jax.sharding.hosts import is_main_host, wait_for_all_hosts

FAILED, LOST = 1, 75

_LOST_MESSAGE = (
    "another process of this run ended without a message: killed, out of memory, or its machine or "
    "network failed; run the same command on all hosts to continue from the last checkpoint, "
    "or from the start if there is none"
)

# Parts of JAX's errors when the connection to another process breaks.
_SIGNS_OF_LOSS = (
    "Gloo",
    "coordination service",
    "CoordinationService",
    "Connection reset by peer",
)

# Seconds that a failed process has to publish the reason before it counts as lost.
_GRACE_PERIOD = 3.0

_REASON = "bert_jax/failure"
_HOUR = 3_600_000  # ms


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
    _publish("null")  # no failure
    listener.join()  # no thread may be inside JAX when the interpreter exits


def _fail(
    error: BaseException,
    outcome: Callable[[BaseException], tuple[str, int]],
    over: threading.Event,
) -> None:
    """Publishes an error to the other processes, and exits."""
    if _is_loss(error):
        time.sleep(_GRACE_PERIOD)  # `_listen` may receive the reason
        leave(_LOST_MESSAGE, LOST)
    over.set()  # from now on, this process ignores failures of the others
    try:
        message, code = outcome(error)
    except BaseException:
        traceback.print_exception(error, file=sys.__stderr__)
        message, code = f"{type(error).__name__}: {error}".splitlines()[0], FAILED
    _publish(json.dumps({"process": jax.process_index(), "message": message, "code": code}))
    if is_coordinator():
        time.sleep(1)  # the service ends with this process: the others must receive it before
    leave(message, code)


def _publish(reason: str) -> None:
    with contextlib.suppress(Exception):  # another process was first
        coordination().key_value_set(_REASON, reason)


def _listen(over: threading.Event) -> None:
    """Waits for a failure of another process; runs in a thread."""
    while not over.is_set():
        try:
            reason = json.loads(coordination().blocking_key_value_get(_REASON, _HOUR))
        except Exception as error:
            if over.is_set():
                return
            if "DEADLINE_EXCEEDED" not in str(error):
                leave(_LOST_MESSAGE, LOST)
            continue
        time.sleep(0.5)  # this process may be about to raise the same error
        if not over.is_set():
            leave(f"process {reason['process']} ended the run: {reason['message']}", reason["code"])


def _is_loss(error: BaseException | None) -> bool:
    """Whether an error, or one of its causes, is the loss of another process."""
    while error is not None:
        if any(sign in str(error) for sign in _SIGNS_OF_LOSS):
            return True
        error = error.__cause__ or error.__context__
    return False

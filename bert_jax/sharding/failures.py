"""If one process of a run fails, all of them end, and each says why.

The others would wait for it in a collective, on some devices for ever. So whoever fails leaves the
reason with the coordination service, where a thread of each process waits for one.
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

from bert_jax.sharding.distributed import coordination, is_coordinator, leave
from bert_jax.sharding.hosts import is_main_host, wait_for_all_hosts

FAILED, LOST = 1, 75

_LOSS = (
    "another process of this run is gone without a word: killed, out of memory, or its machine or "
    "network failed; run the same command on all hosts to go on from the last checkpoint"
)

# What JAX says where the connection to another process breaks.
_SIGNS_OF_LOSS = ("Gloo", "coordination service", "CoordinationService", "Connection reset by peer")

# Whoever failed has so many seconds to say why, before it counts as gone without a word.
_PATIENCE = 3.0

_REASON = "bert_jax/failure"
_HOUR = 3_600_000  # ms


@contextlib.contextmanager
def ending_together(outcome: Callable[[BaseException], tuple[str, int]]) -> Iterator[None]:
    """Within it, an error of one process ends them all; at its end, all wait for each other.

    Only the main host prints. Where a process is alone, nothing of this happens.

    Args:
        outcome: from an error that users cause to its line and the exit code; it raises any other
            error again, which is a flaw of ours and is printed with its traceback.
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
            yield
            wait_for_all_hosts("the end")
    except BaseException as error:
        _fail(error, outcome)
    over.set()
    _tell("null")  # that there was none
    listener.join()  # an interpreter that ends may have no thread inside JAX


def _fail(error: BaseException, outcome: Callable[[BaseException], tuple[str, int]]) -> None:
    """Tells the others of an error, and ends."""
    if _tells_of_loss(error):
        time.sleep(_PATIENCE)  # `_listen` may hear more
        leave(_LOSS, LOST)
    try:
        message, code = outcome(error)
    except BaseException:
        traceback.print_exception(error, file=sys.__stderr__)
        message, code = f"{type(error).__name__}: {error}".splitlines()[0], FAILED
    _tell(json.dumps({"process": jax.process_index(), "message": message, "code": code}))
    if is_coordinator():
        time.sleep(1)  # the service ends with this process: the others are to hear it before
    leave(message, code)


def _tell(reason: str) -> None:
    with contextlib.suppress(Exception):  # another process was first
        coordination().key_value_set(_REASON, reason)


def _listen(over: threading.Event) -> None:
    """Waits for a reason to end, in a thread of its own."""
    while not over.is_set():
        try:
            reason = json.loads(coordination().blocking_key_value_get(_REASON, _HOUR))
        except Exception as error:
            if over.is_set():
                return
            if "DEADLINE_EXCEEDED" not in str(error):
                leave(_LOSS, LOST)
            continue
        time.sleep(0.5)  # our own error may be the same, and then is the one to be told
        if not over.is_set():
            leave(f"process {reason['process']} ended the run: {reason['message']}", reason["code"])


def _tells_of_loss(error: BaseException | None) -> bool:
    """Whether an error, or what caused it, is that another process is gone."""
    while error is not None:
        if any(sign in str(error) for sign in _SIGNS_OF_LOSS):
            return True
        error = error.__cause__ or error.__context__
    return False

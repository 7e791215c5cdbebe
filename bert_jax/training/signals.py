"""SIGTERM and SIGINT: finish the step, save, exit; several hosts all stop after the same step."""

import contextlib
import itertools
import signal
import threading
from types import FrameType
from typing import Any

import jax

from bert_jax.sharding.distributed import A_WEEK, coordination

_runs = itertools.count()


class Interrupted(Exception):  # noqa: N818 - a request, not an error
    """A signal stopped the run, which is saved at `step`."""

    def __init__(self, step: int) -> None:
        super().__init__(f"stopped by a signal after saving step {step}")
        self.step = step


class StopSignals:
    """Within `with StopSignals() as stop:` the signals set `stop.requested`; a second one kills."""

    def __init__(self) -> None:
        self.requested = False
        self._previous: dict[signal.Signals, Any] = {}
        self._agreement: _Agreement | None = None

    def __enter__(self) -> "StopSignals":
        """Installs the handlers."""
        for number in (signal.SIGTERM, signal.SIGINT):
            self._previous[number] = signal.signal(number, self._request)
        if jax.process_count() > 1:
            self._agreement = _Agreement()
        return self

    def __exit__(self, *exception: object) -> None:
        """Puts the previous handlers back."""
        for number, handler in self._previous.items():
            signal.signal(number, handler)
        if self._agreement is not None:
            self._agreement.end()

    def stop_after(self, step: int) -> bool:
        """Whether to stop after a step: the same answer on all hosts.

        A signal to one of them stops all, after the first step that none of them has passed.
        """
        if self._agreement is None:
            return self.requested
        return self._agreement.stop_after(step, requested=self.requested)

    def _request(self, number: int, frame: FrameType | None) -> None:
        self.requested = True
        signal.signal(number, signal.SIG_DFL)


class _Agreement:
    """The step after which all hosts stop.

    It costs a step nothing: a thread on each host waits for the message of a host that received a
    signal; then all exchange the numbers of their current steps, while none can finish its step,
    and take the highest plus one. (JAX's `reached_preemption_sync_point` does not serve: orbax
    reports the steps of older checkpoints to it, and it does not handle SIGINT.)
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
            self._send("stop")
        with self._lock:
            self._step = step
            return self._last is not None and step >= self._last

    def end(self) -> None:
        """Ends the thread; if a host has requested a stop, it first takes part in the exchange."""
        self._send("over")
        # No thread may be inside JAX when the interpreter exits; a lost host must not block us.
        self._thread.join(timeout=10)

    def _send(self, message: str) -> None:
        with contextlib.suppress(Exception):  # another host was first, or is lost
            coordination().key_value_set(f"{self._prefix}/message", message)

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

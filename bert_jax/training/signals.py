"""SIGTERM, SIGINT, SIGHUP: finish the step, save, exit; all hosts stop after the same step."""

import contextlib
import itertools
import signal
import threading
from types import FrameType
from typing import Any

import jax

from bert_jax import interrupts
from bert_jax.sharding.distributed import A_WEEK, coordination

_runs = itertools.count()


class Interrupted(Exception):  # noqa: N818 - a request, not an error
    """A signal stopped the run; the state after `step` is saved."""

    def __init__(self, step: int) -> None:
        super().__init__(f"stopped by a signal after saving step {step}")
        self.step = step


class StopSignals:
    """Within `with StopSignals() as stop:` a signal sets `stop.requested`.

    A second one has the effect that it would have without, see `interrupts` for the command.
    """

    def __init__(self) -> None:
        self.requested = False
        self._previous: dict[signal.Signals, Any] = {}
        self._agreement: _Agreement | None = None

    def __enter__(self) -> "StopSignals":
        """Installs the handlers."""
        for number in interrupts.SIGNALS:
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
        if interrupts.is_installed():  # which sees a second one itself
            interrupts.set_handled()
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

"""SIGTERM and SIGINT: finish the step, save, then leave; with several hosts, all after one step."""

import contextlib
import itertools
import signal
import threading
from types import FrameType
from typing import Any

import jax

from bert_jax.sharding.distributed import A_WEEK, coordination

_runs = itertools.count()


class Interrupted(Exception):  # noqa: N818 - it reports a wish, not an error
    """A signal asked the run to stop, and the run has saved itself at `step`."""

    def __init__(self, step: int) -> None:
        """Remembers the step."""
        super().__init__(f"stopped by a signal after saving step {step}")
        self.step = step


class StopSignals:
    """Within `with StopSignals() as stop:` the signals set `stop.requested`; a second one kills."""

    def __init__(self) -> None:
        """Nothing is requested yet."""
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

    def after(self, step: int) -> bool:
        """Whether to stop after a step: the same answer on all hosts.

        A signal to one of them stops all, after the first step that none of them has passed.
        """
        if self._agreement is None:
            return self.requested
        return self._agreement.after(step, requested=self.requested)

    def _request(self, number: int, frame: FrameType | None) -> None:
        self.requested = True
        signal.signal(number, signal.SIG_DFL)


class _Agreement:
    """On which step all hosts stop.

    Asking costs a step nothing: a thread waits for the word of a host that was sent a signal, tells
    the others which step its own host has come to, and hears the same of them. Meanwhile no host
    can pass its step. (JAX has such a thing, `reached_preemption_sync_point`; but orbax reports
    steps to it, too, and of older checkpoints, and it knows no SIGINT.)
    """

    def __init__(self) -> None:
        self._place = f"bert_jax/stop/{next(_runs)}"
        self._lock = threading.Lock()
        self._asked = False
        self._step = -1
        self._last: int | None = None
        self._thread = threading.Thread(target=self._agree, daemon=True)
        self._thread.start()

    def after(self, step: int, *, requested: bool) -> bool:
        if requested and not self._asked:
            self._asked = True
            self._say("stop")
        with self._lock:
            self._step = step
            return self._last is not None and step >= self._last

    def end(self) -> None:
        """The thread ends, unless somebody has asked: then it answers before it does."""
        self._say("over")
        # An interpreter that ends may have no thread inside JAX; a host that is gone holds us up.
        self._thread.join(timeout=10)

    def _say(self, word: str) -> None:
        with contextlib.suppress(Exception):  # another host was first, or is gone
            coordination().key_value_set(f"{self._place}/word", word)

    def _agree(self) -> None:
        client = coordination()
        # Should a host be gone, the collectives that wait for it fail, and say so.
        with contextlib.suppress(Exception):
            if client.blocking_key_value_get(f"{self._place}/word", A_WEEK) != "stop":
                return
            with self._lock:
                mine = f"{self._place}/steps/{jax.process_index()}"
                client.key_value_set(mine, str(self._step))
                client.wait_at_barrier(f"{self._place}/all", A_WEEK)
                steps = client.key_value_dir_get(f"{self._place}/steps/")
                self._last = max(int(step) for _, step in steps) + 1

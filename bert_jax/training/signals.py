"""SIGTERM and SIGINT: finish the step, save, then leave."""

import signal
from types import FrameType
from typing import Any


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

    def __enter__(self) -> "StopSignals":
        """Installs the handlers."""
        for number in (signal.SIGTERM, signal.SIGINT):
            self._previous[number] = signal.signal(number, self._request)
        return self

    def __exit__(self, *exception: object) -> None:
        """Puts the previous handlers back."""
        for number, handler in self._previous.items():
            signal.signal(number, handler)

    def _request(self, number: int, frame: FrameType | None) -> None:
        self.requested = True
        signal.signal(number, signal.SIG_DFL)

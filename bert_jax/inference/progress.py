"""What a person sees while texts are computed: one bar, or a line now and then in a log file."""

import sys
import time
from collections.abc import Callable
from types import TracebackType
from typing import Self

from tqdm import tqdm


class Progress:
    """A bar with texts done, their rate, and the time left where the total can be told."""

    def __init__(self, total: Callable[[], int | None], *, enabled: bool) -> None:
        """Shows a bar on stderr.

        Args:
            total: how many texts there are, as far as is known by now; asked after each batch.
            enabled: otherwise nothing is shown.
        """
        self._total = total
        self._enabled = enabled
        self._begun = time.time()
        # It comes with the first answers: an error before them stands alone.
        self._bar: tqdm | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._bar is not None:
            self._bar.leave = kind is None
            self._bar.close()

    def advance(self, texts: int) -> None:
        """So many more are done."""
        if self._bar is None:
            terminal = sys.stderr.isatty()
            self._bar = tqdm(
                total=self._total(),
                unit="text",
                disable=not self._enabled,
                dynamic_ncols=True,
                mininterval=0.2 if terminal else 30.0,
                maxinterval=10.0 if terminal else 60.0,
            )
            self._bar.start_t = self._begun
        self._bar.total = self._total()
        self._bar.update(texts)

"""What a person sees while texts are computed: one bar, or a line now and then in a log file."""

import sys
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
        terminal = sys.stderr.isatty()
        self._total = total
        self._bar = tqdm(
            total=total(),
            unit="text",
            disable=not enabled,
            dynamic_ncols=True,
            mininterval=0.2 if terminal else 30.0,
            maxinterval=10.0 if terminal else 60.0,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._bar.close()

    def advance(self, texts: int) -> None:
        """So many more are done."""
        self._bar.total = self._total()
        self._bar.update(texts)

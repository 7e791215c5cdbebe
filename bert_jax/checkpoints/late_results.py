"""What orbax and TensorStore leave behind when an array cannot be written or read.

orbax then closes its event loop without waiting for the other arrays. TensorStore cannot report
that these are done, and the coroutines that wait for them are removed. The interpreter would print
each of these errors with its traceback, although nobody waits for the results.
"""

import dataclasses
import os
import sys
import types
import warnings
from collections.abc import Callable
from typing import Any

_ORBAX = f"{os.sep}orbax{os.sep}"


def ignore_late_results() -> None:
    """Lets the interpreter not print these errors, from now on; all others are printed."""
    if not isinstance(sys.unraisablehook, _WithoutLateResults):
        sys.unraisablehook = _WithoutLateResults(sys.unraisablehook)
    warnings.filterwarnings(
        "ignore", r"coroutine 'Store\._get_array_metadatas' was never awaited", RuntimeWarning
    )


@dataclasses.dataclass(frozen=True)
class _WithoutLateResults:
    """A hook for exceptions that the interpreter can only print.

    Attributes:
        hook: the hook for all others.
    """

    hook: Callable[[Any], Any]

    def __call__(self, lost: Any) -> None:
        if isinstance(lost.object, types.CoroutineType):
            is_late = _ORBAX in lost.object.cr_code.co_filename
        else:
            is_late = lost.object is None and str(lost.exc_value) == "Event loop is closed"
        if not (is_late and issubclass(lost.exc_type, Exception)):
            self.hook(lost)

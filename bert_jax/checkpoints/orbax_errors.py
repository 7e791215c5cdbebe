"""What orbax and TensorStore leave behind when an array cannot be written or read."""

import os
import sys
import warnings
from typing import Any

_CLOSED = "Event loop is closed"


def hide_late_errors() -> None:
    """Lets the interpreter not print errors that nobody waits for.

    orbax closes its event loop without waiting for the other arrays: TensorStore cannot report that
    these are done, and the coroutines that wait for them are removed.
    """
    hook = sys.unraisablehook
    if hook.__module__ == __name__:
        return

    def report(lost: Any) -> None:
        source = getattr(getattr(lost.object, "cr_code", None), "co_filename", "")
        is_late = f"{os.sep}orbax{os.sep}" in source or str(lost.exc_value) == _CLOSED
        if not (is_late and issubclass(lost.exc_type, Exception)):
            hook(lost)

    sys.unraisablehook = report
    message = r"coroutine 'Store\._get_array_metadatas' was never awaited"
    warnings.filterwarnings("ignore", message, RuntimeWarning)

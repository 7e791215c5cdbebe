"""Late errors of orbax and TensorStore after an array could not be written or read."""

import os
import sys
import warnings
from typing import Any

_CLOSED = "Event loop is closed"


def hide_late_errors() -> None:
    """Keeps the interpreter from printing errors of coroutines that nobody awaits.

    orbax closes its event loop without waiting for the remaining arrays: TensorStore cannot report
    their completion, and the coroutines that await them are destroyed.
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

"""Errors that orbax leaves to the interpreter."""

import sys
import warnings
from typing import Any


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
        is_late = "/orbax/" in source or str(lost.exc_value) == "Event loop is closed"
        if not (is_late and issubclass(lost.exc_type, Exception)):
            hook(lost)

    sys.unraisablehook = report
    message = r"coroutine 'Store\._get_array_metadatas' was never awaited"
    warnings.filterwarnings("ignore", message, RuntimeWarning)

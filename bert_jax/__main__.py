"""`bert-jax`, and `python -m bert_jax`."""

import os
import sys

from bert_jax import process

_TUNABLES = "GLIBC_TUNABLES"
_TUNED = ":".join(
    (
        "glibc.malloc.hugetlb=1",  # huge pages if Linux grants them on request
        "glibc.malloc.mmap_threshold=68719476736",  # large blocks are kept when they are freed, …
        "glibc.malloc.trim_threshold=68719476736",  # … and reused
    )
)


def main() -> int:
    """Runs the command; returns its exit code."""
    _tune_memory()
    process.open_streams()
    try:
        process.install()
        from bert_jax.cli import main as run

        code = run()
        process.state.code = code
    except KeyboardInterrupt:
        process.end()
    if process.state.was_raised:  # threads of libraries may not be prepared for an orderly end
        sys.stdout.flush()
        os._exit(code)
    return code


def _tune_memory() -> None:
    """Restarts the process with the C library's memory tuned for large arrays.

    A step on a CPU touches gigabytes of memory. With pages of 2 MiB it takes 0.85 times as long,
    and if the C library returns no memory between steps, the hidden states of 512 tokens take 0.95
    times as long again. The C library reads these values only when a process starts; what can be
    set later (`sharding.runtime.keep_freed_memory`) does not reach the large blocks that XLA's
    threads allocate in training.
    """
    if sys.platform == "linux" and _TUNABLES not in os.environ:
        os.environ[_TUNABLES] = _TUNED
        os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])


if __name__ == "__main__":
    sys.exit(main())

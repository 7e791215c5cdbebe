"""Files and directories, on this machine's disk or in a bucket.

A path in a bucket, as gs://BUCKET/RUN, has the methods of `pathlib.Path`: `as_path` makes it, and
who reads, replaces or removes a small file need not know where it is. What is mapped into memory,
or written by a library that knows disks only, passes through a directory of this machine:

    fetch      remote → a copy in the user's cache, which is kept and brought up to date
    written    an empty directory here, whose files are in the remote one at the end
"""

from bert_jax.files.atomic import write_atomically
from bert_jax.files.paths import (
    as_path,
    is_remote,
    matching_files,
    open_binary,
    reachable,
    state_of,
    user_cache,
)
from bert_jax.files.staging import fetch, remove, upload, written

__all__ = [
    "as_path",
    "fetch",
    "is_remote",
    "matching_files",
    "open_binary",
    "reachable",
    "remove",
    "state_of",
    "upload",
    "user_cache",
    "write_atomically",
    "written",
]

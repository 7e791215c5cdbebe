"""Files and directories, on the local disk or in a bucket.

A path in a bucket, as gs://BUCKET/RUN, has the methods of `pathlib.Path`: `as_path` makes it, and
code that reads, replaces or removes a small file is the same for both. Large files that are mapped
into memory, and libraries that only know local files, use local copies:

    fetch             remote → a copy in the user's cache, which is kept and brought up to date
    atomic_directory  an empty local directory, whose files are in the remote one at the end
"""

from bert_jax.files.atomic import (
    atomic_directory,
    atomic_file,
    remove_partial_files,
    save_figure,
    write_atomically,
)
from bert_jax.files.download import fetch
from bert_jax.files.paths import (
    as_path,
    is_remote,
    matching_files,
    open_binary,
    reachable,
    read_json_object,
    remove,
    state_of,
    upload,
    user_cache,
)

__all__ = [
    "as_path",
    "atomic_directory",
    "atomic_file",
    "fetch",
    "is_remote",
    "matching_files",
    "open_binary",
    "reachable",
    "read_json_object",
    "remove",
    "remove_partial_files",
    "save_figure",
    "state_of",
    "upload",
    "user_cache",
    "write_atomically",
]

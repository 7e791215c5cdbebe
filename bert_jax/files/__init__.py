"""Files and directories, on the local disk or in a bucket.

A path in a bucket, such as gs://BUCKET/RUN, has the methods of `pathlib.Path`: `as_path` makes it,
and code that reads, replaces or removes a small file is the same for both. Large files that are
mapped into memory, and libraries that only support local files, use local copies:

        fetch             remote → a copy in the user's cache, which is kept and updated
        atomic_directory  an empty local directory; its files are in the remote one at the end
"""

from bert_jax.files.atomic import (
    atomic_directory,
    atomic_file,
    manifest_updated,
    not_written,
    remove_partial_files,
    write_atomically,
    write_listed,
)
from bert_jax.files.download import fetch
from bert_jax.files.figures import can_draw, save_figure
from bert_jax.files.journal import Journal, Request, check_directory, continued
from bert_jax.files.lock import check_locks, locked
from bert_jax.files.manifest import check_own_files, check_undamaged
from bert_jax.files.paths import (
    as_path,
    below,
    is_remote,
    matching_files,
    open_binary,
    reachable,
    remove,
    state_of,
    upload,
    user_cache,
)
from bert_jax.files.reading import (
    VOCABULARY_BYTES,
    is_there,
    open_regular,
    read_json,
    read_json_object,
    read_limited,
    regular_files_below,
)

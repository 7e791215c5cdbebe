"""Where a corpus is made: `OUTPUT.partial/`, which becomes OUTPUT when all of it is on disk.

A corpus in a bucket is made in the user's cache and then uploaded, its manifest last.
"""

import contextlib
import errno
import fcntl
import itertools
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

from bert_jax.data.pretraining.corpus import FILE_KINDS, TOKENIZER_DIRECTORY, split_file
from bert_jax.data.pretraining.corpus_manifest import (
    MANIFEST_NAME,
    SPLITS,
    Manifest,
    sync_directory,
)
from bert_jax.data.pretraining.preparation.writer import JOURNAL_NAME, Progress
from bert_jax.errors import UserError
from bert_jax.files import is_remote, reachable, upload, user_cache

_LOCK_NAME = "lock"
_NAMES = {
    TOKENIZER_DIRECTORY,
    *itertools.starmap(split_file, itertools.product(SPLITS, FILE_KINDS)),
}
_SPACE_ERRORS = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def finished_manifest(output: Path, fingerprint: str) -> Manifest | None:
    """The manifest of a corpus that is finished already, or None where there is room for one.

    Raises:
        UserError: `output` holds something else, or a corpus with another fingerprint.
    """
    remedy = "give another --output or remove it"
    with reachable(output):
        if not output.exists() or (output.is_dir() and not any(output.iterdir())):
            return None
        if not (output / MANIFEST_NAME).is_file():
            if is_remote(output) and {path.name for path in output.iterdir()} <= _NAMES:
                return None  # an upload that was interrupted
            raise UserError(f"{output}: exists and is not a corpus; {remedy}")
    manifest = Manifest.read(output)
    if manifest.fingerprint != fingerprint:
        raise UserError(
            f"{output}: holds a corpus of other text, options or tokenizer "
            f"(fingerprint {manifest.fingerprint}, now {fingerprint}); {remedy}"
        )
    return manifest


@contextlib.contextmanager
def staging_directory(output: Path) -> Iterator[Path]:
    """Makes `OUTPUT.partial`, on disk, and keeps other processes out of it.

    Raises:
        UserError: another process works there, or the disk is full or refuses; what is on disk
            stays, so that the work can go on.
    """
    partial = output.with_name(output.name + ".partial")
    if is_remote(output):
        partial = user_cache() / "prepared" / os.fspath(partial).replace("://", "/")
    try:
        partial.mkdir(parents=True, exist_ok=True)
        with open(partial / _LOCK_NAME, "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            yield partial
    except BlockingIOError as error:
        raise UserError(
            f"{partial}: another bert-jax prepare is writing there; wait for it or give another "
            "--output"
        ) from error
    except OSError as error:
        if error.errno in _SPACE_ERRORS:
            reason = f"no space left ({error.strerror}); make room"
        else:
            reason = f"{error.strerror} ({error.filename or 'while writing'}); mend that"
        raise UserError(f"{partial}: {reason} and run the same command to go on") from error


def resume(partial: Path, fingerprint: str) -> Progress | None:
    """The state of an earlier call for the same work; None if there was none."""
    progress = Progress.read(partial)
    return progress if progress is not None and progress.fingerprint == fingerprint else None


def begin(partial: Path, fingerprint: str, sources: int) -> Progress:
    """Removes what an earlier call for other work has left, and starts a journal."""
    (partial / JOURNAL_NAME).unlink(missing_ok=True)
    for split, kind in itertools.product(SPLITS, FILE_KINDS):
        (partial / split_file(split, kind)).unlink(missing_ok=True)
    shutil.rmtree(partial / TOKENIZER_DIRECTORY, ignore_errors=True)
    progress = Progress.begin(fingerprint, sources)
    progress.write(partial)
    return progress


def publish(partial: Path, output: Path) -> None:
    """Gives a finished corpus its name."""
    if is_remote(output):
        upload(partial, output, [*Manifest.read(partial).files, MANIFEST_NAME])
        shutil.rmtree(partial)
        return
    os.rename(partial, output)
    sync_directory(output.parent)
    for name in (JOURNAL_NAME, _LOCK_NAME):
        (output / name).unlink()

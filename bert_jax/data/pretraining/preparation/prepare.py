"""`bert-jax prepare`: text to corpus, with constant memory, on all cores, resumable.

    text → `shards`: batches → `encoding`, in `workers` or on `beam` → `shards`: joined → `writer`

A corpus is complete or does not exist, and its bytes do not depend on who encoded it. Until then
`OUTPUT.partial/` keeps the encoded batches.
"""

import contextlib
import dataclasses
import functools
import os
import re
import shutil
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

from tqdm import tqdm

from bert_jax.data.pretraining.corpus import (
    FILE_KINDS,
    FORMAT_VERSION,
    MANIFEST_NAME,
    SPLITS,
    TOKENIZER_DIRECTORY,
    Corpus,
    Counts,
    Manifest,
    SourceCounts,
    file_entry,
    split_file,
    sync_directory,
    token_dtype,
)
from bert_jax.data.pretraining.diagnostics import corpus_statistics
from bert_jax.data.pretraining.options import PrepareOptions, PretrainingOptions
from bert_jax.data.pretraining.preparation.shards import (
    EncodeShards,
    EncodingWork,
    Shard,
    join_shards,
    plan_shards,
)
from bert_jax.data.pretraining.preparation.vocabulary import train_vocabulary, unknown_pieces
from bert_jax.data.pretraining.preparation.workers import encode_locally
from bert_jax.data.pretraining.preparation.writer import (
    finished_manifest,
    last_document,
    with_moved,
    write_splits,
)
from bert_jax.data.pretraining.sources import Source, open_source
from bert_jax.errors import OptionError, UserError, one_line, require_at_least
from bert_jax.files import (
    as_path,
    atomic_directory,
    check_locks,
    is_remote,
    locked,
    not_written,
    reachable,
    remove,
    upload,
    user_cache,
)
from bert_jax.files.journal import checksum
from bert_jax.tokenization import load_tokenizer
from bert_jax.tokenization.interface import Tokenizer

BATCH_CHARACTERS = 1 << 20
MOST_WORKERS = 4096  # each holds some batches in memory

# In `OUTPUT.partial`: the files of the corpus, and the encoded batches, by what they depend on.
_FILES = "corpus"
_BATCHES = re.compile(r"[0-9a-f]{16}-\d+")


def prepare(
    options: PrepareOptions,
    output: str | Path,
    *,
    workers: int | None = None,
    limit: int | None = None,
    progress: bool = True,
    encode_shards: EncodeShards | None = None,
    batch_characters: int = BATCH_CHARACTERS,
) -> Manifest:
    """Makes a corpus, or continues an interrupted call.

    Args:
        options: the text and the options of its encoding.
        output: directory of the corpus; until it is finished, its files are in `OUTPUT.partial` (if
            `output` is in a bucket, in the user's cache).
        workers: number of processes that encode; None for one per core.
        limit: maximum number of documents of each source; None for all.
        progress: whether progress is shown on stderr.
        encode_shards: encodes shards elsewhere, instead of local workers; see `beam`.
        batch_characters: characters that are encoded at a time; the corpus does not depend on it.

    Returns:
        The manifest. If `output` is already a corpus of the same text, options and tokenizer,
        nothing is done.

    Raises:
        UserError: bad text or options, full disk, or `output` contains something else, or is being
            written by another process.
    """
    output = as_path(output)
    workers = _usable_cores() if workers is None else workers
    require_at_least("workers", workers, 1, MOST_WORKERS)
    require_at_least("limit", limit, 1)
    sources = [open_source(spec) for spec in options.sources]
    tokenizer = None if options.tokenizer is None else load_tokenizer(options.tokenizer)
    fingerprint = _fingerprint(options, sources, limit, tokenizer)
    shared = output.with_name(f"{output.name}.partial")
    local = shared
    if is_remote(output):
        local = user_cache() / "prepared" / os.fspath(shared).replace("://", "/")
    # Named by all that the files of the batches depend on, so that an interrupted call finds them.
    batches = (shared if encode_shards else local) / f"{fingerprint}-{batch_characters}"

    def report(message: str) -> None:
        if progress:
            tqdm.write(one_line(f"prepare: {message}"), file=sys.stderr)  # above the progress bar

    with locked(output):
        if manifest := finished_manifest(output, fingerprint):
            report(f"{output} is finished already: nothing to do")
        else:
            _check_text(sources)
            try:
                done = _begin(local, batches, report)
                work = EncodingWork(str(batches), options, limit, batch_characters, done)
                tokenizer = _write_tokenizer(work, sources, tokenizer, progress, report)
                shards = plan_shards(sources, limit)
                encode = encode_shards or functools.partial(
                    encode_locally, workers=workers, progress=progress
                )
                encode(shards, work)
                files = local / _FILES
                manifest = _write_corpus(files, shards, work, tokenizer, fingerprint)
                _publish(files, output)
            except _NoTokenError:  # another text is other work
                shutil.rmtree(local / _FILES)
                remove(batches)
                raise
            except OSError as error:
                raise not_written(local, error) from error
            finally:
                with contextlib.suppress(OSError):  # it has what the next call continues
                    local.rmdir()
            counts = sum(manifest.splits.values(), Counts())
            unknown = counts.unknown_tokens / counts.tokens
            report(f"{counts.tokens:,} tokens, {unknown:.2%} of them unknown")
        if options.validation_fraction and not manifest.splits["validation"].documents:
            report(
                "warning: the text is one document, and a training needs a second one for its "
                "validation: separate documents by empty lines, or give another file"
            )
        remove(batches)  # of this call, or of one interrupted just before its end
        with contextlib.suppress(OSError):  # it has files of others
            local.rmdir()
    return manifest


class _NoTokenError(OptionError):
    """There is no token in the text of all sources."""


def statistics(
    options: PrepareOptions,
    *,
    length: int = 128,
    limit: int | None = None,
    workers: int | None = None,
    progress: bool = True,
) -> dict[str, int | float]:
    """Prepares a corpus in a temporary directory, removes it and returns its `corpus_statistics`.

    Args:
        options: see `prepare`.
        length: T, tokens of an example, including special tokens.
        limit: maximum number of documents of each source; None for all.
        workers: see `prepare`.
        progress: whether progress is shown on stderr.

    Raises:
        UserError: see `prepare`; or `length` is too small.
    """
    PretrainingOptions(length=length)  # checks the length first
    with tempfile.TemporaryDirectory(prefix="bert-jax-dry-run-") as folder:
        path = Path(folder, "corpus")
        prepare(options, path, workers=workers, limit=limit, progress=progress)
        return corpus_statistics(Corpus.open(path, verify=False), length)


def _usable_cores() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _fingerprint(
    options: PrepareOptions,
    sources: Sequence[Source],
    limit: int | None,
    tokenizer: Tokenizer | None,
) -> str:
    """16 hex digits that change with the text, the options or the tokenizer that was given."""
    made_from = dataclasses.asdict(options) | {
        # The path of a tokenizer does not matter, only its results.
        "tokenizer": tokenizer.fingerprint() if tokenizer else None,
        "vocabulary": None if tokenizer else dataclasses.asdict(options.vocabulary),
        "texts": [source.identity() for source in sources],
        "limit": limit,
        "format_version": FORMAT_VERSION,
    }
    return checksum(made_from)[:16]


def _check_text(sources: Sequence[Source]) -> None:
    for source in sources:
        if next(source.blocks(), None) is None:
            raise source.spec.error("it has no text")


def _begin(local: Path, batches: Path, report: Callable[[str], None]) -> frozenset[str]:
    """Removes work for other text or options; returns the names of files that continue.

    Raises:
        UserError: there are files of others.
    """
    local.mkdir(parents=True, exist_ok=True)
    for directory in {local, batches.parent}:
        names = _names(directory) - {batches.name}
        old = {name for name in names if _BATCHES.fullmatch(name)}
        if others := names - old - {_FILES}:
            raise UserError(
                f"{directory} holds {min(others)!r}; move it away or give another --output"
            )
        if old:
            report(f"{directory} belongs to other text or options: starting again")
        for name in names:
            remove(directory / name)
    if done := _names(batches):
        report(f"continuing in {batches}, which has {len(done):,} files")
    return frozenset(done)


def _names(directory: Path) -> set[str]:
    with reachable(directory):
        return {path.name for path in directory.iterdir()} if directory.is_dir() else set()


def _write_tokenizer(
    work: EncodingWork,
    sources: Sequence[Source],
    tokenizer: Tokenizer | None,
    progress: bool,
    report: Callable[[str], None],
) -> Tokenizer:
    """Trains a tokenizer if none is given, writes it beside the encoded batches, and loads it."""
    directory = as_path(work.directory) / TOKENIZER_DIRECTORY
    if TOKENIZER_DIRECTORY not in work.done:
        problems: list[OptionError] | None = None
        if tokenizer is None:
            problems = []
            tokenizer = train_vocabulary(
                work.options, sources, limit=work.limit, progress=progress, report=problems.append
            )
        if progress:
            for line in unknown_pieces(
                tokenizer, work.options, sources, limit=work.limit, problems=problems
            ):
                report(line)
            size, asked = tokenizer.vocab_size, work.options.vocabulary.vocab_size
            if problems is not None and size < asked:
                report(
                    f"the text is enough for {size:,} of {asked:,} pieces (tokenizer.vocab_size)"
                )
        with atomic_directory(directory) as unfinished:
            tokenizer.save(unfinished)
    return load_tokenizer(directory)


def _write_corpus(
    files: Path,
    shards: Sequence[Shard],
    work: EncodingWork,
    tokenizer: Tokenizer,
    fingerprint: str,
) -> Manifest:
    """Joins the encoded batches to the files of a corpus, and writes its manifest."""
    options, dtype = work.options, token_dtype(tokenizer.vocab_size)
    files.mkdir()
    tokenizer.save(files / TOKENIZER_DIRECTORY)
    try:
        moved = last_document(join_shards(shards, work), is_split=options.validation_fraction > 0)
    except LookupError as error:
        texts = ", ".join(repr(spec.source) for spec in options.sources)
        problem = f"there is no token in the text of {texts}"
        rule = "give the right {data.source}"
        raise _NoTokenError("data.source", texts, rule, problem) from error
    batches = with_moved(join_shards(shards, work), moved)
    counts = write_splits(files, batches, dtype, len(options.sources))
    names = [split_file(split, kind) for split in SPLITS for kind in FILE_KINDS]
    names += sorted(
        path.relative_to(files).as_posix()
        for path in (files / TOKENIZER_DIRECTORY).rglob("*")
        if path.is_file()
    )
    manifest = Manifest(
        format_version=FORMAT_VERSION,
        fingerprint=fingerprint,
        settings=dataclasses.asdict(options) | {"limit": work.limit},
        tokenizer_fingerprint=tokenizer.fingerprint(),
        vocab_size=tokenizer.vocab_size,
        dtype=dtype.name,
        splits={split: sum(counts[split], Counts()) for split in SPLITS},
        sources=tuple(
            SourceCounts(
                spec.source, spec.weight, {split: counts[split][index] for split in SPLITS}
            )
            for index, spec in enumerate(options.sources)
        ),
        files={name: file_entry(files / name) for name in names},
    )
    manifest.write(files)
    return manifest


def _publish(files: Path, output: Path) -> None:
    """Renames (or uploads) a finished corpus to OUTPUT."""
    check_locks()
    if is_remote(output):
        upload(files, output, [*Manifest.read(files).files, MANIFEST_NAME])
        shutil.rmtree(files)
        return
    os.rename(files, output)
    sync_directory(output.parent)

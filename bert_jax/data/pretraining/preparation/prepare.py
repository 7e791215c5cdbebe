"""`bert-jax prepare`: text to corpus, with constant memory, on all cores, resumable.

One process reads; workers split sentences and encode; the reader appends their results, in order,
to `OUTPUT.partial/`, which is renamed at the end. So a corpus is complete or does not exist, and
its bytes do not depend on the number of workers.

With `encode_shards`, other machines read and encode (`workers.Shard`), and this one appends.
"""

import dataclasses
import hashlib
import itertools
import json
import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from tqdm import tqdm

from bert_jax.data.pretraining.corpus import (
    FILE_KINDS,
    FORMAT_VERSION,
    SPLITS,
    TOKENIZER_DIRECTORY,
    Counts,
    Manifest,
    SourceCounts,
    file_entry,
    split_file,
    token_dtype,
)
from bert_jax.data.pretraining.preparation.encoding import (
    EncodedSplit,
    ValidationSplit,
    check_mode,
    read_batches,
)
from bert_jax.data.pretraining.preparation.vocabulary import (
    VocabularyOptions,
    train_vocabulary,
    unknown_pieces,
)
from bert_jax.data.pretraining.preparation.workers import (
    BatchEncoder,
    Shard,
    ShardWork,
    encode_in_order,
    join_shards,
    plan_shards,
)
from bert_jax.data.pretraining.preparation.writer import (
    CorpusWriter,
    Journal,
    begin,
    finished_manifest,
    partial_directory,
    publish,
    remove_journal,
    resume,
)
from bert_jax.data.pretraining.sources import Source, SourceSpec, no_source, open_source
from bert_jax.errors import OptionError, one_line, require_at_least, require_between
from bert_jax.files import as_path, atomic_directory, locked, remove
from bert_jax.tokenization.interface import Tokenizer

BATCH_CHARACTERS = 1 << 20
MOST_WORKERS = 4096  # each holds some batches in memory
JOURNAL_SECONDS = 10.0


EncodeShards = Callable[[Sequence[Shard], ShardWork], None]
"""Calls `encode_shard` for every shard, on any machines."""

# Index of the source, bytes of all sources up to the end of the batch, and the encoded batch.
_Encoded = tuple[int, int, dict[str, EncodedSplit]]


@dataclasses.dataclass(frozen=True, slots=True)
class PrepareOptions:
    """The text of a corpus, and options of its encoding.

    Attributes:
        sources: sources of the text; several sources are a mixture. Their weights are stored, text
            is not repeated.
        tokenizer: directory or file of a tokenizer; None to train one.
        vocabulary: options for training a tokenizer, if none is given.
        validation_fraction: expected fraction of documents in the validation split, in [0, 1).
        sentences: "split" or "lines", see `split_sentences`.
        language: language of the text, for "split".
        seed: another seed chooses other validation documents.
    """

    sources: tuple[SourceSpec, ...]
    tokenizer: str | None = None
    vocabulary: VocabularyOptions = dataclasses.field(default_factory=VocabularyOptions)
    validation_fraction: float = 0.01
    sentences: str = "split"
    language: str = "en"
    seed: int = 0

    def __post_init__(self) -> None:
        if not self.sources:
            raise no_source()
        require_between("validation_fraction", self.validation_fraction, 0, 1, without_high=True)
        check_mode(self.sentences, self.language)


def prepare(
    options: PrepareOptions,
    output: str | Path,
    *,
    workers: int | None = None,
    limit: int | None = None,
    progress: bool = True,
    encode_shards: EncodeShards | None = None,
    batch_characters: int = BATCH_CHARACTERS,
    journal_seconds: float = JOURNAL_SECONDS,
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
        batch_characters: characters that a worker encodes at a time; the corpus does not depend on
            it.
        journal_seconds: maximum work, in seconds, that is lost if the process is killed.

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
    job = _Job(
        options=options,
        sources=[open_source(spec) for spec in options.sources],
        limit=limit,
        progress=progress,
        batch_characters=batch_characters,
    )
    user_tokenizer = _load_tokenizer(options)
    fingerprint = job.fingerprint(user_tokenizer)
    shards = output.with_name(f"{output.name}.shards-{fingerprint}")
    with locked(output):
        if manifest := finished_manifest(output, fingerprint):
            remove_journal(output)
            job.report(f"{output} is finished already: nothing to do")
        else:
            with partial_directory(output) as partial:
                # The journal counts batches, so it is only valid for the same batch size.
                kind = f"{batch_characters} in shards" if encode_shards else str(batch_characters)
                state = _resume_or_begin(job, partial, f"{fingerprint}/{kind}")
                tokenizer = _write_tokenizer(job, partial, user_tokenizer)
                with CorpusWriter(partial, token_dtype(tokenizer.vocab_size), state) as writer:
                    if encode_shards:
                        results = _from_shards(job, tokenizer, shards, encode_shards)
                        results = itertools.islice(results, state.batches, None)
                    else:
                        results = _from_workers(job, partial, workers, state.batches)
                    _append_all(job, writer, results, journal_seconds)
                    _fill_empty_split(job, writer)
                    writer.finish()
                manifest = _manifest(job, partial, fingerprint, tokenizer, state)
                manifest.write(partial)
                publish(partial, output)
            counts = sum(manifest.splits.values(), Counts())
            unknown = counts.unknown_tokens / counts.tokens
            job.report(f"{counts.tokens:,} tokens, {unknown:.2%} of them unknown")
        remove(shards)  # of this call, or of one that was interrupted just before its end
    return manifest


@dataclasses.dataclass(frozen=True, slots=True)
class _Job:
    """The arguments of `prepare` that several functions read, and the opened sources."""

    options: PrepareOptions
    sources: list[Source]
    limit: int | None
    progress: bool
    batch_characters: int

    @property
    def validation(self) -> ValidationSplit:
        """Chooses the documents of the validation split."""
        return ValidationSplit(self.options.validation_fraction, self.options.seed)

    def report(self, message: str) -> None:
        if self.progress:
            tqdm.write(one_line(f"prepare: {message}"), file=sys.stderr)  # above the progress bar

    def fingerprint(self, user_tokenizer: Tokenizer | None) -> str:
        """16 hex digits that change with the text, the options or the tokenizer."""
        made_from = dataclasses.asdict(self.options) | {
            # The path of a tokenizer does not matter, only its results.
            "tokenizer": user_tokenizer.fingerprint() if user_tokenizer else None,
            "vocabulary": None if user_tokenizer else dataclasses.asdict(self.options.vocabulary),
            "texts": [source.identity() for source in self.sources],
            "limit": self.limit,
            "format_version": FORMAT_VERSION,
        }
        text = json.dumps(made_from, sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:16]


def _usable_cores() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _load_tokenizer(options: PrepareOptions) -> Tokenizer | None:
    from bert_jax.tokenization import load_tokenizer

    if options.tokenizer is None:
        return None
    return load_tokenizer(options.tokenizer)


def _resume_or_begin(job: _Job, partial: Path, fingerprint: str) -> Journal:
    if state := resume(partial, fingerprint):
        documents = sum(split.total().documents for split in state.splits.values())
        job.report(f"continuing in {partial} after {documents:,} documents")
        return state
    if Journal.read(partial) is not None:
        job.report(f"{partial} belongs to other text or options: starting again")
    return begin(partial, fingerprint, len(job.sources))


def _write_tokenizer(job: _Job, partial: Path, user_tokenizer: Tokenizer | None) -> Tokenizer:
    """Trains a tokenizer if none is given, writes it to the corpus, and loads it."""
    from bert_jax.tokenization import load_tokenizer

    directory = partial / TOKENIZER_DIRECTORY
    if not directory.is_dir():
        problems: list[OptionError] = []
        tokenizer = user_tokenizer or train_vocabulary(
            job.options.vocabulary,
            job.sources,
            job.validation,
            limit=job.limit,
            progress=job.progress,
            report=problems.append,
        )
        if job.progress:
            for line in unknown_pieces(
                tokenizer,
                job.sources,
                job.validation,
                limit=job.limit,
                problems=None if user_tokenizer else problems,
            ):
                job.report(line)
        with atomic_directory(directory) as unfinished:
            tokenizer.save(unfinished)
    return load_tokenizer(directory)


def _from_workers(job: _Job, partial: Path, workers: int, done: int) -> Iterator[_Encoded]:
    """All batches but the first `done`, encoded by processes of this machine."""
    encoder = BatchEncoder(
        partial / TOKENIZER_DIRECTORY, job.options.sentences, job.options.language
    )
    batches = read_batches(
        job.sources, job.validation, limit=job.limit, characters=job.batch_characters
    )
    batches = itertools.islice(batches, done, None)
    for batch, encoded in encode_in_order(batches, encoder, workers):
        yield batch.source, batch.position, encoded


def _from_shards(
    job: _Job, tokenizer: Tokenizer, directory: Path, encode_shards: EncodeShards
) -> Iterator[_Encoded]:
    """All batches, encoded elsewhere and written to files in a directory next to the corpus."""
    options = job.options
    with atomic_directory(directory / TOKENIZER_DIRECTORY) as partial:
        tokenizer.save(partial)
    encoder = BatchEncoder(directory / TOKENIZER_DIRECTORY, options.sentences, options.language)
    work = ShardWork(str(directory), encoder, job.validation, job.limit, job.batch_characters)
    shards = plan_shards(job.sources, job.limit)
    job.report(f"encoding {len(shards):,} shards; their files are in {directory}")
    encode_shards(shards, work)
    yield from join_shards(shards, work)


def _append_all(
    job: _Job, writer: CorpusWriter, results: Iterator[_Encoded], journal_seconds: float
) -> None:
    """Appends batches, and writes the journal now and then."""
    state = writer.progress
    size = sum(source.size for source in job.sources)
    with tqdm(
        total=size, desc="prepare", unit="B", unit_scale=True, disable=not job.progress
    ) as bar:
        begun_tokens, begun = state.tokens(), time.monotonic()
        journal_time = begun
        for source, position, encoded in results:
            bar.update(position - bar.n)
            writer.append(source, encoded)
            now = time.monotonic()
            if now - journal_time >= journal_seconds:
                writer.write_journal()
                journal_time = now
            rate = (state.tokens() - begun_tokens) / max(now - begun, 1e-3)
            bar.set_postfix_str(f"{rate / 1e6:.2f} M tokens/s", refresh=False)
    writer.write_journal()


def _fill_empty_split(job: _Job, writer: CorpusWriter) -> None:
    """Moves one document if a split happens to be empty."""
    documents = {split: writer.progress.splits[split].total().documents for split in SPLITS}
    if not any(documents.values()):
        sources = ", ".join(repr(spec.source) for spec in job.options.sources)
        raise OptionError(
            "source",
            None,
            "give the right {source}",
            problem=f"there is no token in the text of {sources}",
        )
    if documents["train"] == 0:
        writer.move_last_document("validation", "train")
    elif (
        documents["validation"] == 0
        and job.options.validation_fraction > 0
        and documents["train"] > 1
    ):
        writer.move_last_document("train", "validation")


def _manifest(
    job: _Job, partial: Path, fingerprint: str, tokenizer: Tokenizer, state: Journal
) -> Manifest:
    names = [split_file(split, kind) for split in SPLITS for kind in FILE_KINDS]
    names += sorted(
        path.relative_to(partial).as_posix()
        for path in (partial / TOKENIZER_DIRECTORY).rglob("*")
        if path.is_file()
    )
    return Manifest(
        format_version=FORMAT_VERSION,
        fingerprint=fingerprint,
        settings=dataclasses.asdict(job.options) | {"limit": job.limit},
        tokenizer_fingerprint=tokenizer.fingerprint(),
        vocab_size=tokenizer.vocab_size,
        dtype=token_dtype(tokenizer.vocab_size).name,
        splits={split: state.splits[split].total() for split in SPLITS},
        sources=tuple(
            SourceCounts(
                spec.source,
                spec.weight,
                {split: state.splits[split].counts[index] for split in SPLITS},
            )
            for index, spec in enumerate(job.options.sources)
        ),
        files={name: file_entry(partial / name) for name in names},
    )

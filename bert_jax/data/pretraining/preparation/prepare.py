"""`bert-jax prepare`: text to corpus, with constant memory, on all cores, resumable.

One process reads; workers split sentences and encode; the reader appends their results, in order,
to `OUTPUT.partial/`, which is renamed when it is complete. So a corpus is complete or does not
exist, and its bytes do not depend on the number of workers.

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
from bert_jax.data.pretraining.preparation.vocabulary import VocabularyOptions, train_vocabulary
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
    resume,
)
from bert_jax.data.pretraining.sources import Source, SourceSpec, no_source, open_source
from bert_jax.errors import OptionError
from bert_jax.files import as_path, atomic_directory, remove
from bert_jax.tokenization.interface import Tokenizer

BATCH_CHARACTERS = 1 << 20
JOURNAL_SECONDS = 10.0


EncodeShards = Callable[[Sequence[Shard], ShardWork], None]
"""Calls `encode_shard` for every shard, on any machines."""

# Index of the source, bytes of all sources up to the end of the batch, and the encoded batch.
_Encoded = tuple[int, int, dict[str, EncodedSplit]]


@dataclasses.dataclass(frozen=True, slots=True)
class PrepareOptions:
    """The text of a corpus, and how it is encoded.

    Attributes:
        sources: the text; several sources are a mixture. Their weights are stored, text is not
            repeated.
        tokenizer: directory or file of a tokenizer; None to train one.
        vocabulary: how a tokenizer is trained if none is given.
        validation_fraction: expected share of documents in the validation split, in [0, 1).
        sentences: "split" or "lines", see `split_sentences`.
        language: for "split".
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
        if not 0 <= self.validation_fraction < 1:
            rule = "it is a share of documents, 0 or more and below 1"
            raise OptionError("validation_fraction", self.validation_fraction, rule)
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
    """Makes a corpus, or continues where an earlier call was interrupted.

    Args:
        options: the text and how it is encoded.
        output: the corpus directory; until it is finished, its files are in `OUTPUT.partial` (if
            `output` is in a bucket, in the user's cache).
        workers: processes that encode; None for one per core.
        limit: the most documents of each source; None for all.
        progress: whether progress is shown on stderr.
        encode_shards: encodes shards elsewhere, in place of the workers here; see `beam`.
        batch_characters: how much text a worker encodes at a time; it does not change the corpus.
        journal_seconds: the most work, in seconds, that is lost when the process is killed.

    Returns:
        The manifest. If `output` is already a corpus of the same text, options and tokenizer,
        nothing is done.

    Raises:
        UserError: bad text or options, full disk, or `output` holds something else.
    """
    output = as_path(output)
    workers = _usable_cores() if workers is None else workers
    for name, value in (("workers", workers), ("limit", 1 if limit is None else limit)):
        if value < 1:
            raise OptionError(name, value, "it must be at least 1")
    job = _Job(
        options=options,
        sources=[open_source(spec) for spec in options.sources],
        validation=ValidationSplit(options.validation_fraction, options.seed),
        limit=limit,
        workers=workers,
        progress=progress,
        encode_shards=encode_shards,
        batch_characters=batch_characters,
        journal_seconds=journal_seconds,
    )
    user_tokenizer = _load_tokenizer(options)
    fingerprint = job.fingerprint(user_tokenizer)
    shards = output.with_name(f"{output.name}.shards-{fingerprint}")
    if finished := finished_manifest(output, fingerprint):
        remove(shards)  # left by a call that was interrupted at the very end
        job.report(f"{output} is finished already: nothing to do")
        return finished
    with partial_directory(output) as partial:
        # The journal counts batches, so it is only valid for the same batch size.
        batches = f"{batch_characters} in shards" if encode_shards else str(batch_characters)
        state = _resume_or_begin(job, partial, f"{fingerprint}/{batches}")
        tokenizer = _write_tokenizer(job, partial, user_tokenizer)
        with CorpusWriter(partial, token_dtype(tokenizer.vocab_size), state) as writer:
            if encode_shards:
                _append_all(job, writer, _from_shards(job, tokenizer, shards, encode_shards))
            else:
                _append_all(job, writer, _from_workers(job, partial, state.batches))
            _fill_empty_split(job, writer)
            writer.finish()
        manifest = _manifest(job, partial, fingerprint, tokenizer, state)
        manifest.write(partial)
        publish(partial, output)
    if encode_shards:
        remove(shards)
    return manifest


@dataclasses.dataclass(frozen=True, slots=True)
class _Job:
    """One call of `prepare`: its arguments, and the sources opened."""

    options: PrepareOptions
    sources: list[Source]
    validation: ValidationSplit
    limit: int | None
    workers: int
    progress: bool
    encode_shards: EncodeShards | None
    batch_characters: int
    journal_seconds: float

    def report(self, message: str) -> None:
        if self.progress:
            tqdm.write(f"prepare: {message}", file=sys.stderr)  # above the progress bar

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
    """Writes the tokenizer to the corpus (trains it first if none is given), and loads it."""
    from bert_jax.tokenization import load_tokenizer

    directory = partial / TOKENIZER_DIRECTORY
    if not directory.is_dir():
        tokenizer = user_tokenizer or train_vocabulary(
            job.options.vocabulary,
            job.sources,
            job.validation,
            limit=job.limit,
            progress=job.progress,
        )
        with atomic_directory(directory) as unfinished:
            tokenizer.save(unfinished)
    return load_tokenizer(directory)


def _from_workers(job: _Job, partial: Path, done: int) -> Iterator[_Encoded]:
    """All batches, encoded by processes of this machine; the first `done` are left empty."""
    encoder = BatchEncoder(
        partial / TOKENIZER_DIRECTORY, job.options.sentences, job.options.language
    )
    batches = read_batches(
        job.sources, job.validation, limit=job.limit, characters=job.batch_characters
    )
    for batch in itertools.islice(batches, done):
        yield batch.source, batch.position, {}
    for batch, encoded in encode_in_order(batches, encoder, job.workers):
        yield batch.source, batch.position, encoded


def _from_shards(
    job: _Job, tokenizer: Tokenizer, directory: Path, encode_shards: EncodeShards
) -> Iterator[_Encoded]:
    """All batches, encoded elsewhere and written to files in a directory beside the corpus."""
    options = job.options
    with atomic_directory(directory / TOKENIZER_DIRECTORY) as partial:
        tokenizer.save(partial)
    encoder = BatchEncoder(directory / TOKENIZER_DIRECTORY, options.sentences, options.language)
    work = ShardWork(str(directory), encoder, job.validation, job.limit, job.batch_characters)
    shards = plan_shards(job.sources, job.limit)
    job.report(f"encoding {len(shards):,} shards; their files are in {directory}")
    encode_shards(shards, work)
    yield from join_shards(shards, work)


def _append_all(job: _Job, writer: CorpusWriter, results: Iterator[_Encoded]) -> None:
    """Appends every batch that is not yet written."""
    state = writer.progress
    done = state.batches
    size = sum(source.size for source in job.sources)
    with tqdm(
        total=size, desc="prepare", unit="B", unit_scale=True, disable=not job.progress
    ) as bar:
        begun_tokens, begun = state.tokens(), time.monotonic()
        journal_time = begun
        for number, (source, position, encoded) in enumerate(results):
            bar.update(position - bar.n)
            if number < done:
                begun = journal_time = time.monotonic()
                continue
            writer.append(source, encoded)
            now = time.monotonic()
            if now - journal_time >= job.journal_seconds:
                writer.write_journal()
                journal_time = now
            rate = (state.tokens() - begun_tokens) / max(now - begun, 1e-3)
            bar.set_postfix_str(f"{rate / 1e6:.2f} M tokens/s", refresh=False)
    writer.write_journal()


def _fill_empty_split(job: _Job, writer: CorpusWriter) -> None:
    """Moves one document if by chance a split is empty."""
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

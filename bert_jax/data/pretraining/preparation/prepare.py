"""`bert-jax prepare`: text to corpus, with constant memory, on all cores, resumable.

One process reads; workers split sentences and encode; the reader appends what they return, in
order, to `OUTPUT.partial/`, which gets its real name when all of it is on disk. So there is a
corpus or there is none, and its bytes do not depend on the number of workers.

With `encode_shards`, other machines read and encode (`shards`), and this one appends.
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
    TOKENIZER_DIRECTORY,
    split_file,
    token_dtype,
)
from bert_jax.data.pretraining.corpus_manifest import (
    FORMAT_VERSION,
    SPLITS,
    Manifest,
    SourceCounts,
    file_entry,
)
from bert_jax.data.pretraining.preparation.chunks import ValidationSplit, read_chunks
from bert_jax.data.pretraining.preparation.encoding import EncodedSplit
from bert_jax.data.pretraining.preparation.sentences import check_mode
from bert_jax.data.pretraining.preparation.shards import Shard, ShardWork, join_shards, plan_shards
from bert_jax.data.pretraining.preparation.staging import (
    begin,
    finished_manifest,
    publish,
    resume,
    staging_directory,
)
from bert_jax.data.pretraining.preparation.vocabulary import VocabularyOptions, train_vocabulary
from bert_jax.data.pretraining.preparation.workers import Encoder, encode_in_order
from bert_jax.data.pretraining.preparation.writer import CorpusWriter, Progress
from bert_jax.data.pretraining.sources import Source, SourceSpec, open_source
from bert_jax.errors import UserError
from bert_jax.files import as_path, atomic_directory, remove
from bert_jax.tokenization.interface import Tokenizer

CHUNK_CHARACTERS = 1 << 20
JOURNAL_SECONDS = 10.0


EncodeShards = Callable[[Sequence[Shard], ShardWork], None]
"""Has `encode_shard` called for every shard, wherever it likes."""

# The source, the bytes of all sources up to the end of the chunk, and the chunk.
_Encoded = tuple[int, int, dict[str, EncodedSplit]]


@dataclasses.dataclass(frozen=True, slots=True)
class PrepareOptions:
    """What a corpus is made from, and how.

    Attributes:
        sources: where the text comes from; several are a mixture. Weights are written down, text
            is never repeated.
        tokenizer: directory or file of a tokenizer; None to train one.
        vocabulary: how a tokenizer is trained if none is given.
        validation_fraction: expected share of documents that are validation for evaluation, in [0, 1).
        sentences: "split" or "lines", see `split_sentences`.
        language: for "split".
        seed: of the choice of validation documents.
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
            raise UserError("data.source is not set; write for example data.source=text:FILES")
        if not 0 <= self.validation_fraction < 1:
            raise UserError(
                f"data.validation_fraction: {self.validation_fraction} is not a share of documents: 0 or more, below 1"
            )
        check_mode(self.sentences, self.language)


def prepare(
    options: PrepareOptions,
    output: str | Path,
    *,
    workers: int | None = None,
    limit: int | None = None,
    progress: bool = True,
    encode_shards: EncodeShards | None = None,
    chunk_characters: int = CHUNK_CHARACTERS,
    journal_seconds: float = JOURNAL_SECONDS,
) -> Manifest:
    """Makes a corpus, or goes on where an earlier call was stopped.

    Args:
        options: what is made.
        output: the corpus directory; until it is finished, `OUTPUT.partial` stands there (of one
            in a bucket, in the user's cache).
        workers: processes that encode; None for one per core.
        limit: the most documents of each source; None for all.
        progress: whether progress is shown on stderr.
        encode_shards: encodes shards elsewhere, in place of the workers here; see `beam`.
        chunk_characters: how much text a worker gets at a time; the corpus does not depend on it.
        journal_seconds: how much time a killed call loses at most.

    Returns:
        The manifest. If `output` is already a corpus of the same text, options and tokenizer,
        nothing is done and its manifest returned.

    Raises:
        UserError: bad text or options, no space, or `output` holds something else.
    """
    output = as_path(output)
    workers = _usable_cores() if workers is None else workers
    for name, value in (("--workers", workers), ("--limit", 1 if limit is None else limit)):
        if value < 1:
            raise UserError(f"{name}: {value} is less than 1")
    job = _Job(
        options=options,
        sources=[open_source(spec) for spec in options.sources],
        validation=ValidationSplit(options.validation_fraction, options.seed),
        limit=limit,
        workers=workers,
        progress=progress,
        encode_shards=encode_shards,
        chunk_characters=chunk_characters,
        journal_seconds=journal_seconds,
    )
    given = _given_tokenizer(options)
    fingerprint = job.fingerprint(given)
    shards = output.with_name(f"{output.name}.shards-{fingerprint}")
    if finished := finished_manifest(output, fingerprint):
        remove(shards)  # a call that was interrupted at the very end has left them
        job.say(f"{output} is finished already: nothing to do")
        return finished
    with staging_directory(output) as partial:
        # The journal counts chunks, so it fits the same chunks only.
        chunks = f"{chunk_characters} in shards" if encode_shards else str(chunk_characters)
        state = _resume_or_begin(job, partial, f"{fingerprint}/{chunks}")
        tokenizer = _place_tokenizer(job, partial, given)
        with CorpusWriter(partial, token_dtype(tokenizer.vocab_size), state) as writer:
            if encode_shards:
                _append_all(job, writer, _from_shards(job, tokenizer, shards, encode_shards))
            else:
                _append_all(job, writer, _from_workers(job, partial, state.chunks))
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
    chunk_characters: int
    journal_seconds: float

    def say(self, message: str) -> None:
        if self.progress:
            tqdm.write(f"prepare: {message}", file=sys.stderr)  # on a line of its own

    def fingerprint(self, given: Tokenizer | None) -> str:
        """16 hex digits that change with the text, the options or the tokenizer."""
        made_from = dataclasses.asdict(self.options) | {
            # A tokenizer is what it does, wherever it lies; how one would be trained does not
            # matter when one is given.
            "tokenizer": given.fingerprint() if given else None,
            "vocabulary": None if given else dataclasses.asdict(self.options.vocabulary),
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


def _given_tokenizer(options: PrepareOptions) -> Tokenizer | None:
    from bert_jax.tokenization import load_tokenizer

    if options.tokenizer is None:
        return None
    return load_tokenizer(options.tokenizer)


def _resume_or_begin(job: _Job, partial: Path, fingerprint: str) -> Progress:
    if state := resume(partial, fingerprint):
        documents = sum(split.total().documents for split in state.splits.values())
        job.say(f"going on in {partial} after {documents:,} documents")
        return state
    if Progress.read(partial) is not None:
        job.say(f"{partial} was begun with other text or options: starting afresh")
    return begin(partial, fingerprint, len(job.sources))


def _place_tokenizer(job: _Job, partial: Path, given: Tokenizer | None) -> Tokenizer:
    """Puts the tokenizer into the corpus, trained if need be, and loads it from there."""
    from bert_jax.tokenization import load_tokenizer

    directory = partial / TOKENIZER_DIRECTORY
    if not directory.is_dir():
        tokenizer = given or train_vocabulary(
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
    """Chunks that processes of this machine encode, but for the first ones."""
    encoder = Encoder(partial / TOKENIZER_DIRECTORY, job.options.sentences, job.options.language)
    chunks = read_chunks(
        job.sources, job.validation, limit=job.limit, characters=job.chunk_characters
    )
    for chunk in itertools.islice(chunks, done):
        yield chunk.source, chunk.position, {}
    for chunk, encoded in encode_in_order(chunks, encoder, job.workers):
        yield chunk.source, chunk.position, encoded


def _from_shards(
    job: _Job, tokenizer: Tokenizer, directory: Path, encode_shards: EncodeShards
) -> Iterator[_Encoded]:
    """Chunks that others encode and write to files in a directory beside the corpus."""
    options = job.options
    with atomic_directory(directory / TOKENIZER_DIRECTORY) as place:
        tokenizer.save(place)
    encoder = Encoder(directory / TOKENIZER_DIRECTORY, options.sentences, options.language)
    work = ShardWork(str(directory), encoder, job.validation, job.limit, job.chunk_characters)
    shards = plan_shards(job.sources, job.limit)
    job.say(f"encoding {len(shards):,} shards; their files are in {directory}")
    encode_shards(shards, work)
    yield from join_shards(shards, work)


def _append_all(job: _Job, writer: CorpusWriter, results: Iterator[_Encoded]) -> None:
    """Appends every chunk that the writer does not have yet."""
    state = writer.progress
    done = state.chunks
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
    """Moves one document if chance has left nothing to train on or nothing to evaluate on."""
    documents = {split: writer.progress.splits[split].total().documents for split in SPLITS}
    if not any(documents.values()):
        sources = ", ".join(repr(spec.source) for spec in job.options.sources)
        raise UserError(f"data.source: no token in the text of {sources}; is it the right file?")
    if documents["train"] == 0:
        writer.move_last_document("validation", "train")
    elif (
        documents["validation"] == 0
        and job.options.validation_fraction > 0
        and documents["train"] > 1
    ):
        writer.move_last_document("train", "validation")


def _manifest(
    job: _Job, partial: Path, fingerprint: str, tokenizer: Tokenizer, state: Progress
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

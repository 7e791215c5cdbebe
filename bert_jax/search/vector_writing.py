"""Writes the files of an index, see `search.vector_files`."""

import contextlib
import dataclasses
import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

import jax
import numpy as np

from bert_jax.errors import OptionError, UserError
from bert_jax.files import (
    atomic_file,
    is_there,
    open_binary,
    reachable,
    remove,
    state_of,
    write_atomically,
)
from bert_jax.options import differing_names
from bert_jax.search.vector_files import (
    CONTENTS,
    DENSE,
    GROUP_ROWS,
    SPARSE,
    TOKENS,
    Contents,
    Shard,
    TokenArrays,
    read_contents,
)
from bert_jax.sharding.hosts import from_all_hosts

if TYPE_CHECKING:
    import pyarrow as pa

SHARD_DOCUMENTS = 16_384
"""Documents of a shard: the most that are computed again after a kill."""

# The same where each token has a vector: 94 MB of 180 tokens with 128 float32.
_SHARD_TOKEN_DOCUMENTS = 1_024

# Folders with their content listed in `index.json`; LanceDB has its own versions.
_FOLDERS = ("vectors", "deleted", "faiss", "bm25", "sparse", "maxsim")
# The values of vectors, of texts and of tokens.
_UNCOMPRESSED = ("vector.list.element", "vectors.list.element.list.element")
# The entry of a shard's metadata with the digest of its documents.
_DIGEST = b"bert_jax.documents"


@dataclasses.dataclass(frozen=True)
class Block:
    """The documents of a shard.

    Attributes:
        first: number of the first one among all that are written.
        ids: an id for each.
        texts: the texts, or pairs of texts, that the vectors are made of.
        columns: what is stored of each beside its vector, by name; "id" is among them.
    """

    first: int
    ids: Sequence[str]
    texts: Sequence[str | tuple[str, str]]
    columns: Mapping[str, Sequence[Any]]


def documents_per_shard(settings: Mapping[str, Any]) -> int:
    """The number of documents of a shard."""
    is_of_tokens = settings["kind"] == TOKENS
    return min(SHARD_DOCUMENTS, _SHARD_TOKEN_DOCUMENTS) if is_of_tokens else SHARD_DOCUMENTS


def commit(directory: Path, contents: Contents) -> None:
    """Replaces `index.json`, and removes the files that it does not list, if it is complete."""
    content = json.dumps(dataclasses.asdict(contents), indent=1)
    write_atomically(directory / CONTENTS, f"{content}\n".encode())
    if not contents.is_complete:
        return
    with reachable(directory):
        paths = [path for folder in _FOLDERS for path in directory.glob(f"{folder}/*")]
        for path in paths:
            if path.relative_to(directory).as_posix() in contents.names:
                continue
            if path.is_dir():
                remove(path)
            else:
                path.unlink()


def write_deleted(directory: Path, contents: Contents, numbers: Sequence[int]) -> Contents:
    """Writes the sorted numbers of all deleted documents; returns contents with them."""
    name = f"deleted/{len(numbers)}.npy"
    with _new_file(directory / name) as file:
        np.save(file, np.array(numbers, np.int64))
    return dataclasses.replace(contents, deleted=name)


def open_for_writing(
    directory: Path, settings: Mapping[str, Any], paths: Mapping[str, str]
) -> Contents:
    """The contents of an index that is made with these settings, or goes on to be.

    Raises:
        UserError: there is one with other settings, or the directory has other files.
    """
    contents = read_contents(directory)
    if contents is None:
        with reachable(directory):
            if directory.exists() and not directory.is_dir():
                raise UserError(f"{directory} is a file; give a directory")
            directory.mkdir(parents=True, exist_ok=True)
            is_used = directory.is_dir() and any(
                path.name[:1] != "." for path in directory.iterdir()
            )
            if is_used:
                raise UserError(f"{directory} has files of something else; give another directory")
        contents = Contents(settings, paths)
        commit(directory, contents)
    changed = differing_names(contents.settings, json.loads(json.dumps(settings)))
    # The kind and the width follow from the model and the pooling.
    if options := [name for name in changed if name not in ("kind", "width")]:
        names = ", ".join(f"{{{name}}}" for name in options)
        rule, problem = f"give the same {names}", f"{directory} is an index with other options"
        raise OptionError(options[0], None, f"{rule}, or another directory", problem)
    return contents


def write_shards(
    directory: Path,
    contents: Contents,
    first: int,
    blocks: Iterable[Block],
    embed: Callable[[Block], Any],
) -> Contents:
    """Writes the shards that are not there yet; with several hosts, each its share.

    Args:
        directory: directory of the index, see `open_for_writing`.
        contents: its contents.
        first: number of the first shard.
        blocks: the documents of all shards from there; all hosts pass the same ones.
        embed: returns the vectors of a block, see `VectorFiles.vectors`.

    Returns:
        Contents with these shards, which all hosts have written.

    Raises:
        UserError: the documents of a shard are not the ones that it was made of, or a shard cannot
            be written.
    """
    host, hosts = jax.process_index(), jax.process_count()
    counts = []
    for number, block in enumerate(blocks, first):
        counts.append(len(block.ids))
        if number % hosts != host:
            continue
        path, digest = directory / _name(number), _digest(contents.settings, block)
        stored = _stored_digest(path)
        is_listed = number < len(contents.shards) or not contents.is_complete
        if stored is not None and stored != digest and is_listed:
            raise UserError(
                f"{directory}: the collection has changed since {_name(number)} was made of it, "
                f"from document number {block.first:,} on; give the same collection, add "
                "documents to a finished index, or give another directory"
            )
        if stored != digest:
            _write(path, block, embed(block), contents.settings, digest)
    if first + len(counts) < len(contents.shards):
        raise UserError(
            f"{directory} has more documents than the {sum(counts):,} of the collection; give the "
            "same collection, leave it out to add searchers, or give another directory"
        )
    from_all_hosts(len(counts))  # all have written their shards
    shards = [
        Shard(_name(number), count, state_of(directory / _name(number)).size)
        for number, count in enumerate(counts, first)
    ]
    return dataclasses.replace(contents, shards=(*contents.shards[:first], *shards))


def _write(
    path: Path, block: Block, vectors: Any, settings: Mapping[str, Any], digest: str
) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    columns = {name: pa.array(values) for name, values in block.columns.items()}
    columns |= _COLUMNS[settings["kind"]](vectors, block, settings["dtype"])
    table = pa.table(columns).replace_schema_metadata({_DIGEST: digest})
    with _new_file(path) as file:
        pq.write_table(
            table,
            file,
            row_group_size=GROUP_ROWS,
            compression=dict.fromkeys(columns, "zstd") | dict.fromkeys(_UNCOMPRESSED, "none"),
            use_dictionary=False,
            write_page_checksum=True,
        )


def _dense_columns(vectors: np.ndarray, block: Block, dtype: str) -> "dict[str, pa.Array]":
    return {"vector": _lists(vectors, np.arange(len(vectors)), block, dtype)}


def _token_columns(tokens: TokenArrays, block: Block, dtype: str) -> "dict[str, pa.Array]":
    import pyarrow as pa

    documents = np.repeat(np.arange(len(tokens.counts)), tokens.counts)
    ends = pa.array(np.append(0, tokens.ends), pa.int32())
    vectors = _lists(tokens.vectors, documents, block, dtype)
    return {"vectors": pa.ListArray.from_arrays(ends, vectors)}


def _lists(vectors: np.ndarray, documents: np.ndarray, block: Block, dtype: str) -> "pa.Array":
    """Vectors, float32 [n, X], of the documents with these numbers in the block, int [n]."""
    import pyarrow as pa

    with np.errstate(over="ignore"):  # refused below
        stored = vectors.astype(dtype)
    is_finite = np.isfinite(stored).all(axis=1)
    if not is_finite.all():
        raise UserError(
            f"document {block.ids[documents[is_finite.argmin()]]!r:.80}: its vector is not finite "
            f"in {dtype}; check the model, or choose float32"
        )
    return pa.FixedSizeListArray.from_arrays(pa.array(stored.ravel()), stored.shape[1])


def _sparse_columns(vectors: Any, block: Block, dtype: str) -> "dict[str, pa.Array]":
    import pyarrow as pa

    ends = pa.array(vectors.indptr, pa.int32())
    return {
        "words": pa.ListArray.from_arrays(ends, pa.array(vectors.indices, pa.int32())),
        "weights": pa.ListArray.from_arrays(ends, pa.array(vectors.data.astype(dtype))),
    }


_COLUMNS: "Mapping[str, Callable[..., dict[str, pa.Array]]]" = {
    DENSE: _dense_columns,
    SPARSE: _sparse_columns,
    TOKENS: _token_columns,
}


@contextlib.contextmanager
def _new_file(path: Path) -> Iterator[BinaryIO]:
    with reachable(path):
        path.parent.mkdir(exist_ok=True)
    with atomic_file(path) as file:
        yield file


def _digest(settings: Mapping[str, Any], block: Block) -> str:
    content = json.dumps([settings, block.columns, list(block.texts)])
    return hashlib.sha256(content.encode()).hexdigest()


def _stored_digest(path: Path) -> str | None:
    """The digest of the documents of a shard; None: it is not there."""
    import pyarrow.parquet as pq

    if not is_there(path):
        return None
    with open_binary(path) as file, reachable(path):
        try:
            metadata = pq.read_schema(file).metadata or {}
        except ValueError as error:
            raise UserError(f"{path} is damaged; remove it") from error
    return metadata.get(_DIGEST, b"").decode()


def _name(number: int) -> str:
    return f"vectors/{number:05}.parquet"

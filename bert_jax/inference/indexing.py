"""Documents become the vectors of an index, shard by shard in constant memory."""

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Sized
from pathlib import Path
from typing import Any

import numpy as np

from bert_jax.data.examples import Document, Passage, Stream, texts_of, with_title
from bert_jax.data.passages import passages
from bert_jax.data.unique_ids import UniqueIds
from bert_jax.errors import UserError
from bert_jax.inference.engine import Advance, Engine
from bert_jax.inference.index_models import VectorPredictor, kind_of
from bert_jax.inference.streams import progress_bar
from bert_jax.process import say
from bert_jax.search import vector_writing
from bert_jax.search.vector_files import Contents
from bert_jax.search.vector_writing import Block
from bert_jax.sharding.hosts import is_main_host
from bert_jax.tasks.base.predictor import EncodingCounts, ExampleError, not_one_string
from bert_jax.tasks.token_vectors import TokenVectorsPredictor
from bert_jax.tokenization.encoding import half_surrogate

# Documents whose tokens are counted, and for how many the size of an index is said if their number
# is unknown.
_SAMPLED, _SAID = 256, 1_000

_NO_STRING = "not a string; documents with a title are of bert_jax.Document"


def documents_of(
    texts: Iterable[str | Document], ids: Iterable[str] | None, first: int = 0
) -> Iterator[Document]:
    """The documents of texts with ids; by default their numbers, from `first`.

    Raises:
        UserError: there are fewer ids, or more.
    """
    texts = not_one_string(texts)
    if ids is None:
        for number, text in enumerate(texts, first):
            yield text if isinstance(text, Document) else Document(str(number), text)
        return
    missing: Any = object()
    for text, each in itertools.zip_longest(texts, not_one_string(ids, "ids"), fillvalue=missing):
        if text is missing or each is missing:
            raise UserError("there are fewer ids than texts, or more; give one for each")
        yield Document(each, text)  # type: ignore[arg-type]  # `_checked` refuses others


def total_of(texts: Iterable[object]) -> Callable[[], int | None]:
    """A function that returns the number of texts, or None if it is unknown."""
    if isinstance(texts, Stream):
        return texts.estimated_total
    count = len(texts) if isinstance(texts, Sized) else None
    return lambda: count


def write(
    directory: Path,
    contents: Contents,
    documents: Iterable[Document],
    predictor: VectorPredictor,
    *,
    known: Iterable[list[str]] = (),
    first: int = 0,
    total: Callable[[], int | None] = lambda: None,
    progress: bool = False,
) -> Contents:
    """Writes the shards of documents, those that are not there yet.

    Args:
        directory: directory of the index.
        contents: its contents so far.
        documents: the documents, which are cut into passages if the index has them; with several
            hosts, all pass the same ones.
        predictor: predictor of their vectors.
        known: ids of other documents of the index.
        first: number of the first shard.
        total: returns the number of documents, or None if unknown; called after each batch.
        progress: whether a progress bar is shown on stderr.

    Raises:
        UserError: a document has no text, no id or an id of another, its vector is not finite, or
            see `vector_writing.write_shards`.
    """
    ids, columns, titles = UniqueIds(), ["id"], contents.settings["titles"]
    documents = _checked(documents, titles)
    if contents.settings["store_texts"]:
        columns += ["title", "text"]
    if words := contents.settings["passages"]:
        columns += ["document", "start"]
        documents, total = _passages(documents, words), lambda: None
    for each in itertools.chain.from_iterable(known):
        ids.add(each)
    size = vector_writing.documents_per_shard(contents.settings)
    blocks = _blocks(documents, ids, columns, titles, size)
    if isinstance(predictor, TokenVectorsPredictor) and is_main_host():
        blocks = _size_said(blocks, size, predictor, contents.settings, total)
    with progress_bar(total, enabled=progress) as advance:
        embedding = _Embedding(predictor, contents.settings, advance)
        contents = vector_writing.write_shards(directory, contents, first, blocks, embedding)
    if not contents.count:
        raise UserError("there are no documents to index; give some")
    if is_main_host():
        say(*embedding.report())
    return contents


def _blocks(
    documents: Iterable[Document], known: UniqueIds, names: Sequence[str], titles: str, size: int
) -> Iterator[Block]:
    following, first = iter(documents), 0
    while chosen := list(itertools.islice(following, size)):
        for document in chosen:
            if not known.add(document.id):
                rule = "give each document its own id"
                raise UserError(f"the id {document.id!r:.80} is of another document, too; {rule}")
        ids = [document.id for document in chosen]
        columns = {name: [getattr(each, name) for each in chosen] for name in names}
        texts = [with_title(each.text, each.title, titles) for each in chosen]
        yield Block(first, ids, texts, columns)
        first += len(chosen)


def _size_said(
    blocks: Iterator[Block],
    size: int,
    predictor: TokenVectorsPredictor,
    settings: Mapping[str, Any],
    total: Callable[[], int | None],
) -> Iterator[Block]:
    """The same blocks, of `size` documents; first a line says how large their index will be."""
    for block in blocks:
        if not block.first:
            texts = block.texts[:: -(-len(block.texts) // _SAMPLED)]
            tokens, read, count = predictor.count(texts) / len(texts), len(block.ids), total()
            if read < size:
                count = read
            elif count is not None and count <= read:
                count = None  # a file that is buffered as a whole: more may follow
            values, bytes_each = predictor.width, np.dtype(settings["dtype"]).itemsize
            stored = (count or _SAID) * tokens * values * bytes_each
            rows = "passages" if settings["passages"] else "documents"
            say(
                f"{'about' if count else 'every'} {count or _SAID:,} {rows} × {tokens:.0f} tokens "
                f"× {values} values × {bytes_each} bytes are {stored / 1e6:,.1f} MB, stored twice: "
                "in Parquet, and for the search"
            )
        yield block


def _passages(documents: Iterable[Document], words: int) -> Iterator[Passage]:
    """The passages of so many words of each document; of a title alone, an empty one."""
    for document in documents:
        empty = Passage(f"{document.id}#0", "", document.title, document.id)
        yield from [*passages(document, words)] or [empty]


def _checked(documents: Iterable[Document], titles: str) -> Iterator[Document]:
    """The documents; raises UserError if one has no id, or nothing to read."""
    for number, document in enumerate(documents):
        for name, value in (("id", document.id), ("text", document.text)):
            problem = half_surrogate(value) if isinstance(value, str) else _NO_STRING
            if problem:
                raise UserError(f"document {number:,}: its {name} is {value!r:.80}, {problem}")
        if not document.id:
            raise UserError(f"document {number:,} has no id; give every one its own")
        if not "".join(texts_of(with_title(document.text, document.title, titles))).strip():
            rule = "give it a text, or leave it out"
            raise UserError(f"document {document.id!r:.80} is empty; {rule}")
        yield document


class _Embedding:
    """The vectors of blocks, and what is to be said of their texts."""

    def __init__(
        self, predictor: VectorPredictor, settings: Mapping[str, Any], advance: Advance
    ) -> None:
        self._engine: Engine[Any, Any] = Engine(predictor)
        self._kind, self._width = kind_of(settings), settings["width"]
        self._advance, self._done = advance, 0
        self._counts = EncodingCounts(texts=0)

    def __call__(self, block: Block) -> Any:
        """The vectors of a block, see `VectorFiles.vectors`."""
        # Shards that are there, or that other hosts write, take no time.
        if block.first > self._done:
            self._advance(block.first - self._done)
        self._done = block.first + len(block.ids)
        vectors = []
        try:
            chunks = self._engine.run(block.texts, strict=True, advance=self._advance)
            for chunk in chunks:
                self._counts = EncodingCounts.total([self._counts, chunk.counts])
                vectors += [vector for _, vector in chunk.pairs]
        except ExampleError as error:
            name = block.ids[error.index or 0]
            raise UserError(f"document {name!r:.80}: {error.message}") from error
        return self._kind.stacked(vectors, self._width)

    def report(self) -> Iterable[str]:
        """Lines on texts that were cut."""
        return self._engine.predictor.report(self._counts)

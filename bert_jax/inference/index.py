"""An index: documents that are searched by their vectors, in a directory or in memory."""

import contextlib
import dataclasses
import functools
import itertools
import os
import tempfile
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Self

from jax.sharding import Mesh

from bert_jax.data.examples import Document, Text, texts_of, with_title
from bert_jax.data.outputs import float32_repr
from bert_jax.errors import OptionError, UserError, listed, require_at_least
from bert_jax.files import as_path, locked
from bert_jax.inference import index_models, indexing
from bert_jax.inference.engine import predict_examples
from bert_jax.inference.index_options import IndexOptions
from bert_jax.search import searchers, vector_writing
from bert_jax.search.hits import Hit
from bert_jax.search.searchers import Searchers
from bert_jax.search.vector_files import Contents, VectorFiles, read_contents
from bert_jax.sharding.hosts import is_main_host, main_host_first
from bert_jax.tasks.base.predictor import ExampleError, Model, not_one_string
from bert_jax.tasks.similarity.predict import checked_texts

_DEFAULTS = IndexOptions()


def index(
    model: Model,
    texts: Iterable[str | Document],
    ids: Iterable[str] | None = None,
    path: str | Path | None = None,
    *,
    query_model: Model | None = None,
    options: IndexOptions = _DEFAULTS,
    batch_size: int = 32,
    progress: bool = False,
) -> "Index":
    """An index of documents, which `Index.search` finds by the similarity of their vectors.

    A model whose files describe sparse vectors (SPLADE) makes an index of them, in memory; one of
    late interaction (ColBERT) an index of the vectors of tokens, whose size a line says before. The
    documents are read once; memory grows by 16 bytes for each, and in the options that say so. An
    index that another call has begun is continued; for a finished one, the documents are compared
    with it, and it keeps its searchers beside those of `options`.

    Args:
        model: the model; for the other models of the same index see `query_model`.
        texts: strings, or documents with ids.
        ids: an id for each text; None: the ids of the documents, or the numbers "0", "1", ….
        path: a directory for the index alone, local or in a bucket; None: a temporary one, which is
            removed with the object.
        query_model: the model of the queries, if it is another one, as in DPR.
        options: how vectors are made, and what is made beside them.
        batch_size: maximum number of rows computed together; short texts share rows.
        progress: whether a progress bar is shown on stderr.

    Raises:
        UserError: an option or a text is wrong, an id is missing or not unique, a vector is not
            finite; or the directory has another index, or an index of other documents.
    """
    models = {"model": model, "query_model": query_model or model}
    settings = index_models.settings_of(model, query_model or model, options)
    temporary = tempfile.TemporaryDirectory(prefix="bert-jax-") if path is None else None
    directory = as_path(os.path.expanduser(temporary.name if temporary else str(path)))
    paths = {name: index_models.path_of(each) for name, each in models.items()}
    with _locked(directory):
        with main_host_first():
            stored = read_contents(directory)
            kept = stored.options if stored and stored.is_complete else None
            outputs = searchers.searcher_options(
                settings, kept, faiss=options.faiss, bm25=options.bm25, lance=options.lance
            )
            contents = vector_writing.open_for_writing(directory, settings, paths)
        contents = indexing.write(
            directory,
            contents,
            indexing.documents_of(texts, ids),
            index_models.document_predictor(model, settings, batch_size),
            total=indexing.total_of(texts),
            progress=progress,
        )
        _commit(directory, contents, outputs)
    files = VectorFiles.open(directory)
    return Index(files, models, mesh=model.mesh, temporary=temporary)


class Index:
    """Documents that are searched by their vectors.

    `len(index)` is the number of documents.

    Attributes:
        directory: directory of the files.
    """

    def __init__(
        self,
        files: VectorFiles,
        models: dict[str, Model],
        *,
        document_model: str | Path | None = None,
        mesh: Mesh | None = None,
        temporary: "tempfile.TemporaryDirectory[str] | None" = None,
    ) -> None:
        """For internal use; `load` and `LoadedModel.index` make indexes.

        Args:
            files: the files.
            models: the "model" of the documents and the "query_model", if they are loaded.
            document_model: see `load`.
            mesh: devices for models that are loaded, and for an exact search.
            temporary: the directory, if it is to be removed with the object.
        """
        self.directory = files.directory
        self._files, self._models, self._mesh = files, models, mesh
        self._document_model = document_model
        self._temporary = temporary
        self._searchers = Searchers(files, mesh)

    @classmethod
    def load(
        cls,
        path: str | Path,
        model: Model | None = None,
        *,
        document_model: str | Path | None = None,
        mesh: Mesh | None = None,
    ) -> Self:
        """Opens an index.

        Args:
            path: directory of the index, local or in a bucket.
            model: the model of its queries; None: it is loaded when it is needed, from where it
                was when the index was made.
            document_model: where the model of its documents is now, which `add` loads; None: where
                it was.
            mesh: devices for a model that is loaded, and for an exact search; None: those of
                `model`, or the first one.

        Raises:
            UserError: there is no finished index, a file is damaged, or it is of another model.
        """
        files = VectorFiles.open(as_path(os.path.expanduser(path)))
        models = {"query_model": model} if model else {}
        if model:
            index_models.check_model(model, files, "query_model")
            mesh = mesh or model.mesh
        return cls(files, models, document_model=document_model, mesh=mesh)

    def share(self, models: Iterable[Model]) -> None:
        """Takes the model of its queries from models in memory, if it is one of them."""
        for model in models:
            if index_models.is_query_model(model, self._files.contents.settings):
                self._models["query_model"] = model

    def __len__(self) -> int:
        return self._files.contents.count - len(self._files.deleted)

    def search(
        self,
        queries: Iterable[str],
        top_k: int = 10,
        *,
        searcher: str | None = None,
        prompt: str | None = None,
        batch_size: int = 32,
        predicted: Sequence[Any] | None = None,
    ) -> list[list[Hit]]:
        """The documents that fit each query best, the best first.

        Args:
            queries: strings.
            top_k: number of hits for each query; fewer if there are not so many documents.
            searcher: "exact" compares a query with all vectors, in the memory of the devices;
                "faiss" and "lance" take the index of FAISS or LanceDB, with parameters of its
                search as "faiss:nprobe=32" or "lance:nprobes=32"; "sparse" is for sparse vectors;
                "maxsim" for vectors of tokens, see `search.maxsim.MaxSimSearcher`, as also
                "maxsim:bm25=500" and "maxsim:faiss=500"; "bm25" compares words. Several, as
                "faiss+bm25", are fused by their reciprocal ranks. None: the first of "faiss",
                "lance", "sparse" and "exact" that there is; of vectors of tokens "maxsim", with
                the candidates of FAISS if there is one.
            prompt: of the queries, see `embed`; None: the model's prompt "query", or its default.
            batch_size: maximum number of queries computed together.
            predicted: what `query_predictor` predicts for the queries, if that is done.

        Raises:
            UserError: a query is no string, or empty; an option is wrong; or the model is another
                one than the one of the index.
        """
        require_at_least("top_k", top_k, 1)
        texts = list(checked_texts(queries))
        for number, text in enumerate(texts):
            if not text.strip():
                raise ExampleError("the query is empty; give it a text, or leave it out", number)
        if not texts or not len(self):
            return [[] for _ in texts]

        @functools.cache
        def vectors() -> Any:
            made: Any = predicted
            if made is None:
                made = list(predict_examples(self.query_predictor(batch_size, prompt), texts))
            kind = index_models.kind_of(self._files.contents.settings)
            return kind.stacked(made, self._files.width)

        scores, numbers = self._searchers.search(searcher, texts, vectors, min(top_k, len(self)))
        documents = self._files.documents(numbers[numbers >= 0].tolist())
        return [
            [Hit(score=s, **documents[n]) for n, s in zip(*row, strict=True) if n >= 0]
            for row in zip(numbers.tolist(), scores.tolist(), strict=True)
        ]

    def query_predictor(self, batch_size: int = 32, prompt: str | None = None) -> Any:
        """The predictor of the vectors of queries; for arguments and errors see `search`."""
        settings, model = self._files.contents.settings, self._loaded("query_model")
        return index_models.query_predictor(model, settings, batch_size, prompt)

    def has_any(self, ids: Collection[str]) -> bool:
        """Whether a document has one of the ids; where documents are in passages, a whole one."""
        shards = _numbered(self._files, self._id_column)
        return any(each in ids for each, _ in itertools.chain.from_iterable(shards))

    @property
    def _id_column(self) -> str:
        """The column with the ids of whole documents."""
        return "id" if self.passages is None else "document"

    @property
    def titles(self) -> str:
        """How the title of a document is read, see `with_title`."""
        return str(self._files.contents.settings["titles"])

    @property
    def passages(self) -> int | None:
        """Words of a passage; None: documents are whole."""
        words: int | None = self._files.contents.settings["passages"]
        return words

    def similarities(
        self, pairs: Sequence[tuple[str, Text]], *, batch_size: int = 32
    ) -> list[float]:
        """The similarity of a query and a document for each pair.

        Args:
            pairs: a query, and a text or a title and a text, which need not be in the index.
            batch_size: maximum number of rows computed together.
        """
        if not pairs:
            return []
        settings = self._files.contents.settings
        parts = [("", *texts_of(text))[-2:] for _, text in pairs]
        encoded = [with_title(text, title, self.titles) for title, text in parts]
        queries, texts = dict.fromkeys(query for query, _ in pairs), dict.fromkeys(encoded)
        sides: Any = (
            (self.query_predictor(batch_size), queries),
            (index_models.document_predictor(self._loaded("model"), settings, batch_size), texts),
        )
        query_vectors, text_vectors = (
            dict(zip(distinct, predict_examples(predictor, distinct, report=False), strict=True))
            for predictor, distinct in sides
        )
        kind: Any = index_models.kind_of(settings)
        return [
            float(kind.similarities([query_vectors[query]], [text_vectors[text]])[0, 0])
            for (query, _), text in zip(pairs, encoded, strict=True)
        ]

    def add(
        self,
        texts: Iterable[str | Document],
        ids: Iterable[str] | None = None,
        *,
        batch_size: int = 32,
        progress: bool = False,
    ) -> None:
        """Adds documents, with the options of the index; a call that was killed is continued.

        For arguments and errors see `index`. Without ids, texts get the next numbers.
        """
        with self._changing() as files:
            contents, model = files.contents, self._loaded("model")
            contents = indexing.write(
                files.directory,
                contents,
                indexing.documents_of(texts, ids, contents.count),
                index_models.document_predictor(model, contents.settings, batch_size),
                known=([each for each, _ in shard] for shard in _numbered(files)),
                first=len(contents.shards),
                total=indexing.total_of(texts),
                progress=progress,
            )
            _commit(files.directory, contents, contents.options)

    def delete(self, ids: Iterable[str]) -> None:
        """Removes documents: no search returns them, and their ids are free again.

        Args:
            ids: their ids; where documents were cut into passages, all of theirs are removed.

        Raises:
            UserError: there is no document with one of the ids; nothing is removed.
        """
        with self._changing() as files:
            removed = set(not_one_string(ids, "ids"))
            pairs = itertools.chain.from_iterable(_numbered(files, self._id_column))
            known = [(number, each) for each, number in pairs if each in removed]
            if missing := sorted(removed.difference(each for _, each in known)):
                raise UserError(
                    f"{self.directory} has no document {listed(missing)}; leave these ids out"
                )
            numbers = sorted([*files.deleted.tolist(), *(number for number, _ in known)])
            contents = vector_writing.write_deleted(files.directory, files.contents, numbers)
            vector_writing.commit(files.directory, contents)

    def add_searchers(
        self, *, faiss: str | None = None, bm25: str | None = None, lance: bool = False
    ) -> None:
        """Makes searchers of the stored vectors and texts; those that the index has are kept.

        What a searcher reads is made again if it was removed.

        Args:
            faiss: see `IndexOptions`; another factory replaces the one of the index, and "" removes
                it.
            bm25: see `IndexOptions`; another option replaces the one of the index.
            lance: see `IndexOptions`.

        Raises:
            UserError: the searcher cannot be made of these vectors.
        """
        with self._changing() as files:
            contents = files.contents
            options = searchers.searcher_options(
                contents.settings, contents.options, faiss=faiss, bm25=bm25, lance=lance
            )
            _commit(files.directory, contents, options)

    @contextlib.contextmanager
    def _changing(self) -> Iterator[VectorFiles]:
        """The files as they are now; at the end they are opened again.

        Meanwhile, no other process changes them.
        """
        with _locked(self.directory):
            yield VectorFiles.open(self.directory)
        self._files = VectorFiles.open(self.directory)
        self._searchers = Searchers(self._files, self._mesh)

    def _loaded(self, name: str) -> Model:
        """The "model" of the documents or the "query_model"."""
        if name not in self._models:
            import bert_jax  # its `inference.loading` needs this module

            settings = self._files.contents.settings
            moved = self._document_model if name == "model" else None
            path, precision = moved or self._files.contents.paths[name], settings["precision"]
            usable = [
                other
                for other in self._models.values()
                if settings["model"] == settings["query_model"]
                and index_models.precision_of(other) == precision
            ]
            if usable:
                (model,) = usable
            elif path:
                try:
                    model = bert_jax.load(path, mesh=self._mesh, precision=precision)
                except UserError as error:
                    rule, problem = "if it was moved, give {model}", f"{self.directory}: {error}"
                    raise OptionError("model", str(path), rule, problem) from error
            else:
                problem = f"{self.directory}: its model was not loaded from files"
                rule = "give {model}, the one that has made the index"
                raise OptionError("model", None, rule, problem)
            index_models.check_model(model, self._files, name)
            self._models[name] = model
        return self._models[name]


def hit_record(hit: Hit) -> dict[str, Any]:
    """A hit as the fields of an object of JSON."""
    title = {"title": hit.title} if hit.title else {}
    place = {"document": hit.document, "start": hit.start} if hit.document else {}
    return {"id": hit.id, "score": float32_repr(hit.score), **title, "text": hit.text, **place}


def _locked(directory: Path) -> contextlib.AbstractContextManager[None]:
    """The lock on an index; with several hosts, the main one holds it."""
    return locked(directory) if is_main_host() else contextlib.nullcontext()


def _commit(directory: Path, contents: Contents, options: Mapping[str, str]) -> None:
    """Makes what the searchers read, and the shards count; the main host does it for all."""
    with main_host_first():
        if is_main_host():
            contents = searchers.make(VectorFiles(directory, contents), options)
            contents = dataclasses.replace(contents, is_complete=True)
            vector_writing.commit(directory, contents)


def _numbered(files: VectorFiles, column: str = "id") -> Iterator[Iterator[tuple[str, int]]]:
    """For each shard the ids and the numbers of its documents, without deleted ones."""
    numbers, deleted = itertools.count(), set(files.deleted.tolist())
    for ids in files.strings(column):
        pairs = zip(ids, numbers, strict=False)
        yield (pair for pair in pairs if pair[1] not in deleted)

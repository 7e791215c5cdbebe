"""The searchers of an index by name: what is made for each, and how it is opened."""

import dataclasses
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from jax.sharding import Mesh

from bert_jax.errors import OptionError, UserError, require_one_of
from bert_jax.search import faiss_index, lance_index, maxsim
from bert_jax.search.bm25 import WordOptions, WordSearcher
from bert_jax.search.exact import ExactSearcher
from bert_jax.search.fusion import FUSED, reciprocal_rank_fusion
from bert_jax.search.hits import Ranked, Searcher
from bert_jax.search.maxsim import MAXSIM
from bert_jax.search.sparse import SparseSearcher
from bert_jax.search.vector_files import KIND_NAMES, SPARSE, TOKENS, Contents, VectorFiles

EXACT, FAISS, LANCE, BM25 = "exact", "faiss", "lance", "bm25"  # and `SPARSE`, of such vectors

# Other kinds have one searcher that compares a query with all of them.
_COMPARE_ALL = {SPARSE: SPARSE, TOKENS: MAXSIM}
_UNSUPPORTED = {
    SPARSE: "it is for vectors that are not sparse",
    TOKENS: "it is for one vector of each text, and here each token has one",
}


def searcher_options(
    settings: Mapping[str, Any],
    kept: Mapping[str, str] | None,
    *,
    faiss: str | None,
    bm25: str | None,
    lance: bool,
) -> dict[str, str]:
    """The options for `make`: all that an index has, with what is asked for.

    Args:
        settings: see `Contents.settings`.
        kept: options of the finished index; None: there is none yet.
        faiss: see `IndexOptions`; of a finished index, None keeps what it has.
        bm25: None keeps what the index has.
        lance: False keeps what the index has.

    Raises:
        OptionError: it cannot be made of vectors with these settings.
    """
    options, kind = dict(kept or {}), settings["kind"]
    if kind in _COMPARE_ALL:
        options[_COMPARE_ALL[kind]] = ""
        for name, value in (("faiss", faiss if kind == SPARSE else None), ("lance", lance)):
            if value:
                raise OptionError(name, value, _UNSUPPORTED[kind])
    if faiss == "":
        options.pop(FAISS, None)
    elif faiss or (kept is None and kind not in _COMPARE_ALL):
        options[FAISS] = faiss or faiss_index.FLAT
        faiss_index.check(options[FAISS], settings["width"], settings["similarity"])
    if lance:
        lance_index.check(settings["similarity"])
        options[LANCE] = ""
    if bm25 is not None:
        WordOptions.parsed(bm25)
        options[BM25] = bm25
        if not settings["store_texts"]:
            raise OptionError("bm25", bm25, "it needs the texts in the index")
    return options


def make(files: VectorFiles, options: Mapping[str, str]) -> Contents:
    """Makes what searchers read, where it is not there yet or no longer.

    Args:
        files: the shards.
        options: name of a searcher → its option: the factory of FAISS, the words of BM25, or "".

    Returns:
        The contents with it.

    Raises:
        OptionError: FAISS cannot be trained on so few vectors.
    """
    outputs = {name: _STORED[name].make(files, option) for name, option in options.items()}
    return dataclasses.replace(files.contents, options=options, outputs=outputs)


class Searchers:
    """The searchers of an index; each is opened when it is first used."""

    def __init__(self, files: VectorFiles, mesh: Mesh | None) -> None:
        """Takes the files, and the devices of an exact search; None: the first one."""
        self._files, self._mesh = files, mesh
        self._opened: dict[str, tuple[str, Searcher]] = {}  # its name with parameters

    def search(
        self, names: str | None, texts: Sequence[str], vectors: Callable[[], Any], top_k: int
    ) -> Ranked:
        """The best documents of each of B queries, without deleted ones.

        Args:
            names: see `Index.search`.
            texts: the queries.
            vectors: returns their vectors; called if a searcher needs them.
            top_k: number of documents, at most as many as there are.

        Raises:
            OptionError: there is no such searcher, or it has no such parameters.
        """
        each = (names or self._default()).split("+")
        if len(set(each)) < len(each):
            raise OptionError("searcher", names, "give each one once")
        depth = top_k if len(each) == 1 else max(top_k, FUSED)
        results = [
            self._search(self._searcher(name), _queries(name, texts, vectors), depth)
            for name in each
        ]
        return results[0] if len(each) == 1 else reciprocal_rank_fusion(results, top_k)

    def _search(self, searcher: Searcher, queries: Any, top_k: int) -> Ranked:
        """The results of a searcher, which finds deleted documents as well."""
        deleted, count = self._files.deleted, self._files.contents.count
        most = depth = min(top_k, count - len(deleted))
        while True:
            scores, numbers = searcher.search(queries, depth)
            is_hit = (numbers >= 0) & ~np.isin(numbers, deleted)
            is_enough = (is_hit.sum(axis=1) >= most) | (numbers[:, -1] < 0)
            if depth == count or is_enough.all():
                break
            depth = min(2 * depth, count)
        scores, numbers = np.where(is_hit, scores, -np.inf), np.where(is_hit, numbers, -1)
        order = np.lexsort((numbers, -scores))[:, :most]  # other libraries order ties differently
        return np.take_along_axis(scores, order, 1), np.take_along_axis(numbers, order, 1)

    def _default(self) -> str:
        """The first searcher of vectors that there is."""
        if self._has(MAXSIM):
            return f"{MAXSIM}:{FAISS}" if self._has(FAISS) else MAXSIM
        return next((name for name in (FAISS, LANCE, SPARSE) if self._has(name)), EXACT)

    def _has(self, name: str) -> bool:
        return name in self._files.contents.outputs

    def _searcher(self, name: str) -> Searcher:
        """A searcher, which is kept until other parameters are given: it may hold the index."""
        kind = name.partition(":")[0]
        if kind in self._opened and self._opened[kind][0] != name:
            del self._opened[kind]  # before the next one takes as much memory
        if kind not in self._opened:
            self._opened[kind] = name, self._open(name)
        return self._opened[kind][1]

    def _open(self, name: str) -> Searcher:
        name, _, parameters = name.partition(":")
        require_one_of("searcher", name, (EXACT, *_STORED))
        kind = self._files.contents.settings["kind"]
        if kind == TOKENS and name == FAISS:
            rule = f"of {KIND_NAMES[kind]}, it finds candidates alone; choose {MAXSIM}:{FAISS}"
            raise OptionError("searcher", name, rule)
        if name == EXACT:
            return _exact(self._files, parameters, self._mesh)
        if not self._has(name):
            is_other = kind in _UNSUPPORTED and name in (FAISS, LANCE)
            remedy = _UNSUPPORTED[kind] if is_other else _STORED[name].remedy
            rule = f"{remedy}, or choose another {{searcher}}"
            problem = f"{self._files.directory} has nothing for the searcher {name}"
            raise OptionError("searcher", name, rule, problem)
        return _STORED[name].open(self._files, parameters)


def _queries(name: str, texts: Sequence[str], vectors: Callable[[], Any]) -> Any:
    """The queries of a searcher's kind."""
    if name == BM25:
        return texts
    if name.partition(":")[0] == MAXSIM:
        return list(zip(texts, vectors().split(), strict=True))
    return vectors()


def _exact(files: VectorFiles, parameters: str, mesh: Mesh | None) -> ExactSearcher:
    if (kind := files.contents.settings["kind"]) in _COMPARE_ALL:
        rule = f"of {KIND_NAMES[kind]}, {_COMPARE_ALL[kind]} is exact"
        raise OptionError("searcher", EXACT, rule)
    match = re.fullmatch(r"(?:recall_target=(0?\.\d+))?", parameters)
    if match is None:
        rule = "an exact search has recall_target=X, below 1, for the faster one of TPUs"
        raise OptionError("searcher", f"{EXACT}:{parameters}", rule)
    return ExactSearcher(
        files.vectors(),
        similarity=files.contents.settings["similarity"],
        mesh=mesh,
        recall_target=float(match[1]) if match[1] else None,
    )


def _make_words(files: VectorFiles, option: str) -> str:
    name = files.name_of(BM25, option)
    if not files.has(BM25, name):
        names = ("text",) if files.contents.settings["titles"] == "omit" else ("title", "text")
        columns = zip(*map(files.strings, names), strict=True)
        texts = (" ".join(parts) for shard in columns for parts in zip(*shard, strict=True))
        WordSearcher.from_texts(texts, WordOptions.parsed(option)).save(files.directory / name)
    return name


def _make_sparse(files: VectorFiles, option: str) -> str:
    from scipy.sparse import vstack

    name = f"{SPARSE}/{files.contents.count}"
    if not files.has(SPARSE, name):
        SparseSearcher(vstack([*files.vectors()])).save(files.directory / name)
    return name


def _without_parameters(load: Callable[[Any], Searcher], name: str) -> Callable[..., Searcher]:
    """A function that opens the folder of a searcher, and refuses parameters."""

    def opened(files: VectorFiles, parameters: str) -> Searcher:
        if parameters:
            raise OptionError("searcher", f"{name}:{parameters}", f"{name} has no parameters")
        try:
            return load(files.directory / files.contents.outputs[name])
        except UserError as error:
            raise files.unreadable(files.contents.outputs[name]) from error

    return opened


@dataclasses.dataclass(frozen=True)
class _StoredSearcher:
    """How a searcher that reads files is made and opened.

    Attributes:
        make: (files, option) → name of a file or folder.
        open: (files, parameters of a search) → the searcher.
        remedy: how it is made.
    """

    make: Callable[[VectorFiles, str], str]
    open: Callable[[VectorFiles, str], Searcher]
    remedy: str


_ADDED = "add it by `bert-jax index --output INDEX"
_STORED = {
    FAISS: _StoredSearcher(faiss_index.write, faiss_index.FaissSearcher, f"{_ADDED} --faiss Flat`"),
    LANCE: _StoredSearcher(lance_index.write, lance_index.LanceSearcher, f"{_ADDED} --lance`"),
    BM25: _StoredSearcher(
        _make_words, _without_parameters(WordSearcher.load, BM25), f"{_ADDED} --bm25`"
    ),
    SPARSE: _StoredSearcher(
        _make_sparse,
        _without_parameters(SparseSearcher.load, SPARSE),
        "it is made of the vectors of a model such as SPLADE",
    ),
    MAXSIM: _StoredSearcher(
        maxsim.write, maxsim.MaxSimSearcher, "it is made of the vectors of a model such as ColBERT"
    ),
}

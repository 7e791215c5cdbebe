"""BM25: search by the words that a query shares with a document, by the formula of Lucene.

    score = Σ idf(w) · tf / (tf + k1 · (1 - b + b · length / mean length))  over the query's words w
    idf(w) = log(1 + (N - n + 0.5) / (n + 0.5))                      n of N documents have the word

tf: how often a document has the word; its length is counted in words. Words are runs of at least
two letters, digits or underscores in lower case, without the stop words of the language, each as
its Snowball stem. Source: Kamphuis et al., 2020 (https://doi.org/10.1007/978-3-030-45442-5_4),
table 1, "Lucene (accurate)"; computed by bm25s (https://arxiv.org/abs/2407.03618).
"""

import collections
import dataclasses
import functools
import json
import logging
import re
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Self

import numpy as np

from bert_jax.errors import OptionError, UserError, require_between, require_one_of
from bert_jax.files import atomic_directory, fetch, read_json_object
from bert_jax.search.hits import Ranked
from bert_jax.search.sparse import Row, SparseSearcher, matrix

LANGUAGES = (
    *("danish", "dutch", "english", "french", "german", "italian", "norwegian", "portuguese"),
    *("russian", "spanish", "swedish", "turkish"),
)

_WORDS, _POSTINGS = "words.json", "postings"
_WORD = re.compile(r"\w\w+")


@dataclasses.dataclass(frozen=True)
class WordOptions:
    """The options of BM25; the defaults of k1 and b are Anserini's.

    Attributes:
        k1: saturation of the count of a word: n times in a document of the mean length score as
            n / (n + k1).
        b: normalisation by the length of a document, from 0, none, to 1, in proportion to it.
        language: one of `LANGUAGES`, of the stop words and stems; "": all words as they are.
    """

    k1: float = 0.9
    b: float = 0.4
    language: str = "english"

    def __post_init__(self) -> None:
        require_between("k1", self.k1, 0)
        require_between("b", self.b, 0, 1)
        require_one_of("language", self.language, ("", *LANGUAGES))

    @classmethod
    def parsed(cls, text: str) -> Self:
        """The options of a text: a language and parameters, as "english:k1=1.2,b=0.75".

        Raises:
            OptionError: it has another form, or a value is out of range.
        """
        language, _, parameters = text.partition(":")
        values = dict(each.partition("=")[::2] for each in parameters.split(",") if each)
        try:
            return cls(**{name: float(value) for name, value in values.items()}, language=language)
        except (TypeError, ValueError) as error:
            rule = "it is a language, perhaps with numbers k1 and b, as english:k1=1.2,b=0.75"
            raise OptionError("bm25", text, rule) from error
        except OptionError as error:
            raise OptionError("bm25", text, f"its {error.key}: {error.rule}") from error


class WordSearcher:
    """An index of words; `len` is the number of documents."""

    def __init__(
        self, options: WordOptions, vocabulary: dict[str, int], postings: SparseSearcher
    ) -> None:
        """For internal use; `from_texts` and `load` make searchers.

        Args:
            options: options of the index.
            vocabulary: the number of each word.
            postings: the parts of the scores that do not depend on the query.
        """
        self._options, self._vocabulary, self._postings = options, vocabulary, postings
        self._words = _Words(options.language)

    @classmethod
    def from_texts(cls, texts: Iterable[str], options: WordOptions = WordOptions()) -> Self:
        """Makes an index of texts, which are read once."""
        import bm25s
        from scipy.sparse import csc_array

        logging.getLogger("bm25s").setLevel(logging.WARNING)  # else it tells each step
        words = _Words(options.language)
        vocabulary: dict[str, int] = {}
        documents = [
            np.fromiter((vocabulary.setdefault(w, len(vocabulary)) for w in words(text)), np.int32)
            for text in texts
        ]
        if not vocabulary:
            return cls(options, {}, SparseSearcher(matrix([((), ())] * len(documents), 0)))
        scorer = bm25s.BM25(k1=options.k1, b=options.b, method="lucene")
        scorer.index((documents, vocabulary), create_empty_token=False, show_progress=False)
        parts = (scorer.scores[name] for name in ("data", "indices", "indptr"))
        scores = csc_array(tuple(parts), shape=(len(documents), len(vocabulary)))
        return cls(options, vocabulary, SparseSearcher(scores))

    def __len__(self) -> int:
        return len(self._postings)

    def search(self, queries: Sequence[str], top_k: int = 10) -> Ranked:
        """The best documents with a word of the query, see `Ranked`.

        Args:
            queries: B texts; a word counts as often as the query has it.
            top_k: number of documents.
        """
        rows = (self._row(query) for query in queries)
        return self._postings.search(matrix(rows, len(self._vocabulary)), top_k)

    def _row(self, query: str) -> Row:
        """The known words of a query, and how often it has them."""
        known = (self._vocabulary.get(word) for word in self._words(query))
        counts = collections.Counter(number for number in known if number is not None)
        return list(counts), list(counts.values())

    def save(self, directory: Path) -> None:
        """Writes the files; atomic."""
        contents = {"options": dataclasses.asdict(self._options), "words": list(self._vocabulary)}
        with atomic_directory(directory, last=_WORDS) as folder:
            self._postings.save(folder / _POSTINGS)
            (folder / _WORDS).write_text(json.dumps(contents, ensure_ascii=False), "utf-8")

    @classmethod
    def load(cls, directory: Path) -> Self:
        """Opens an index; its scores stay on the disk.

        Raises:
            UserError: the files are missing or damaged.
        """
        folder = fetch(directory)
        contents = read_json_object(folder / _WORDS, remedy="make the index again")
        try:
            options = WordOptions(**contents["options"])
            vocabulary = {word: number for number, word in enumerate(contents["words"])}
        except (KeyError, TypeError) as error:
            raise UserError(f"{directory / _WORDS} is damaged; make the index again") from error
        return cls(options, vocabulary, SparseSearcher.load(folder / _POSTINGS))


class _Words:
    """The words of a text in one language, see the module."""

    def __init__(self, language: str) -> None:
        self._stop_words: frozenset[str] = frozenset()
        self._stem: Callable[[str], str] = str
        if language:
            import snowballstemmer
            from bm25s import stopwords

            name = {"english": "EN"}.get(language, language.upper())
            self._stop_words = frozenset(getattr(stopwords, f"STOPWORDS_{name}"))
            self._stem = functools.cache(snowballstemmer.stemmer(language).stemWord)

    def __call__(self, text: str) -> list[str]:
        words = _WORD.findall(text.lower())
        return [self._stem(word) for word in words if word not in self._stop_words]

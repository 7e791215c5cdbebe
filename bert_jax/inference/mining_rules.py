"""Which documents that were retrieved for a query become its hard negatives.

The rules are those of sentence-transformers 6.2, util/hard_negatives.py, in this order: documents
that the file has for the query are no candidates; then margins and bounds of the scores; then the
ranks of the candidates that remain; then their choice.
"""

import collections
import dataclasses
from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from bert_jax.data.examples import Candidates, Example, Text, texts_of, with_title
from bert_jax.data.randomness import derive_key, permute
from bert_jax.errors import (
    OptionError,
    UserError,
    require_at_least,
    require_between,
    require_one_of,
)
from bert_jax.search.hits import Hit

SAMPLING = ("top", "random")

# Candidates of a query, for each negative, where scores drop some.
_SPARE = 10

Query = Example[Candidates]


@dataclasses.dataclass(frozen=True)
class MiningOptions:
    """Which of the documents that were retrieved for a query become its negatives.

    Scores are the searcher's, or the re-ranker's if there is one. With several positives, the
    margins are those to the one with the lowest score.

    Attributes:
        negatives: number of negatives of a query.
        range_min: number of the best candidates that are left out.
        range_max: number of the best candidates that are considered; None: `range_min`, the
            negatives, ten for each if scores drop some, and the largest number of positives.
        min_score, max_score: bounds of a negative's score.
        absolute_margin: least difference to the positive's score.
        relative_margin: least difference to it, as a share of its magnitude.
        sampling: "top": the candidates with the highest scores; "random": any.
        seed: seed of random ones; a query's depend on the seed and on its number.
        scores: whether the scores of all documents are written, as a teacher's.
    """

    negatives: int = 3
    range_min: int = 0
    range_max: int | None = None
    min_score: float | None = None
    max_score: float | None = None
    absolute_margin: float | None = None
    relative_margin: float | None = None
    sampling: str = "top"
    seed: int = 0
    scores: bool = False

    def __post_init__(self) -> None:
        require_at_least("negatives", self.negatives, 1)
        require_at_least("range_min", self.range_min, 0)
        require_at_least("range_max", self.range_max, 1)
        if self.range_max and self.range_max < (least := self.range_min + self.negatives):
            rule = f"it must be at least {least}, {{range_min}} and {{negatives}} together"
            raise OptionError("range_max", self.range_max, rule)
        require_between("min_score", self.min_score)
        require_between("max_score", self.max_score)
        require_between("absolute_margin", self.absolute_margin, 0)
        require_between("relative_margin", self.relative_margin, 0)
        require_one_of("sampling", self.sampling, SAMPLING)
        require_at_least("seed", self.seed, 0)

    def scored(self, query: Query) -> tuple[Text, ...]:
        """The documents of a query with scores that are needed."""
        return query.input.documents if self.scores else positives(query)

    @property
    def has_margin(self) -> bool:
        """Whether candidates are compared with the positive."""
        return self.absolute_margin is not None or self.relative_margin is not None

    def within(self, queries: Iterable[Query], *, is_rescored: bool) -> "MiningOptions":
        """The options with a `range_max`."""
        if self.range_max is not None:
            return self
        bounds = (self.max_score, self.min_score if is_rescored else None)
        drops = self.has_margin or any(bound is not None for bound in bounds)
        most = max(len(positives(query)) for query in queries)
        spare = self.negatives * (_SPARE if drops else 1)
        return dataclasses.replace(self, range_max=self.range_min + spare + most)

    def dropping(self, score: np.float32, positive: np.float32) -> str | None:
        """The option that drops a candidate with this score; None: it is kept."""
        limits = {
            "absolute_margin": lambda margin: score + margin > positive,
            # Not (1 - margin) · positive, which is above a negative score.
            "relative_margin": lambda margin: score > positive - abs(positive) * margin,
            "max_score": lambda bound: score > bound,
            "min_score": lambda bound: score < bound,
        }
        chosen = ((name, getattr(self, name)) for name in limits)
        return next((name for name, at in chosen if at is not None and limits[name](at)), None)


@dataclasses.dataclass(frozen=True)
class ScoredQuery:
    """A query and the documents that were retrieved for it.

    Attributes:
        query: the query.
        candidates: texts, the best first, without those of the query.
        scores: scores of the candidates and, if they are needed, of the query's documents.
    """

    query: Query
    candidates: Sequence[Text]
    scores: Mapping[Text, float]


def candidates_of(
    query: Query, hits: Sequence[Hit], titles: str, passages: int | None
) -> ScoredQuery:
    """A query with the hits that are neither its documents nor passages of its positives.

    Args:
        query: the query.
        hits: what a search returns for it, the best first.
        titles: how the titles of the hits are read, see `with_title`.
        passages: words of a passage; None: documents are whole.

    Raises:
        UserError: a hit has no text.
    """
    by_text: dict[Text, Hit] = {}  # of equal texts, the hit with the highest score
    for hit in hits:
        if hit.text is None:
            rule = "make one that does"
            raise UserError(f"the index stores no texts, which negatives need; {rule}")
        by_text.setdefault(with_title(hit.text, hit.title, titles), hit)
    known = {form for text in query.input.documents for form in _forms(text)}
    wholes = [" ".join(texts_of(positive)).split() for positive in positives(query)]
    candidates = [
        text
        for text, hit in by_text.items()
        if known.isdisjoint(_forms((hit.title, hit.text or "")))
        and not (passages and any(_is_part(hit, whole, passages) for whole in wholes))
    ]
    return ScoredQuery(query, candidates, {text: hit.score for text, hit in by_text.items()})


def _is_part(hit: Hit, whole: Sequence[str], passages: int) -> bool:
    """Whether a passage is a part of a text.

    A short one, the last of a document, has the place that it has in the document; a text may begin
    with the document's title.
    """
    words = (hit.text or "").split()
    if len(words) == passages:
        return f" {' '.join(words)} " in f" {' '.join(whole)} "
    first = passages * int(hit.id.rpartition("#")[2])
    starts = (first, first + len(hit.title.split()))
    return bool(words) and any(whole[start : start + len(words)] == words for start in starts)


def _forms(text: Text) -> set[str]:
    """A document with and without its title: a file and a collection may differ in this."""
    return {_normalised(" ".join(texts_of(text))), _normalised(texts_of(text)[-1])} - {""}


def _normalised(text: str) -> str:
    return " ".join(text.split())


def choose(
    scored: ScoredQuery, options: MiningOptions, number: int, dropped: collections.Counter[str]
) -> list[Text]:
    """The negatives of a query; `number` is the query's."""
    positive = np.float32(np.nan)
    if options.has_margin:
        positive = np.float32(min(scored.scores[text] for text in positives(scored.query)))
    kept = []
    for text in sorted(scored.candidates, key=lambda text: -scored.scores[text]):
        reason = options.dropping(np.float32(scored.scores[text]), positive)
        if reason is None:
            kept.append(text)
        else:
            dropped[reason] += 1
    in_range = kept[options.range_min : options.range_max]
    dropped["range_min"] += min(len(kept), options.range_min)
    if options.sampling == "random":
        order = permute(np.arange(len(in_range)), len(in_range), derive_key(options.seed, number))
        return [in_range[index] for index in sorted(order[: options.negatives])]
    return in_range[: options.negatives]


def positives(query: Query) -> tuple[Text, ...]:
    """The documents of a query that are relevant."""
    pairs = zip(query.input.documents, query.label.grades, strict=True)
    return tuple(text for text, grade in pairs if grade > 0)

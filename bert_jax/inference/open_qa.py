"""Answers from a collection: passages are retrieved, perhaps re-ranked, and read.

The reader is one of two kinds:

- DPR's, with a relevance of each passage: the best span of the most relevant passage.
- A model of question answering: the best span of all passages. Its score is the sum of the span's
  logits; if the model may say that a passage has no answer, minus the score of that, which makes
  passages comparable. Where no answer is better than this span by more than a threshold, there is
  no answer.
"""

import dataclasses
import math
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import overload

import numpy as np

from bert_jax.data.examples import Candidates, Question, texts_of, with_title
from bert_jax.errors import OptionError, UserError
from bert_jax.inference.engine import predict_examples
from bert_jax.inference.index import Index
from bert_jax.inference.ranking import score_chunks
from bert_jax.search.hits import Hit
from bert_jax.tasks.base.predictor import BatchOptions, Model, check_head, not_one_string
from bert_jax.tasks.question_answering.predict import PREDICT, AnswerPredictOptions, SpanPredictor
from bert_jax.tasks.question_answering.spans import SpanPrediction
from bert_jax.tasks.ranking.predict import RankingPredictOptions
from bert_jax.tasks.reader.predict import HEAD, ReadAnswer, ReaderPredictor

READERS = (HEAD, *PREDICT.heads)

TOP_K = 20
"""Passages that are read, by default."""


@dataclasses.dataclass(frozen=True, slots=True)
class RetrievedPassage:
    """A passage that was retrieved for a question.

    Attributes:
        hit: the passage, with the score of the search.
        rank_score: score of the re-ranker; None without one.
    """

    hit: Hit
    rank_score: float | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class LocatedAnswer:
    """An answer, a span of a document of the collection; or that there is none.

    Attributes:
        text: the answer; "": the passages have none.
        document: id of the document; "" without an answer.
        start: first character of the answer in the document's text, without the title.
        end: one past the last character.
        score: score of the best span, see the module.
        relevance: logit of the passage to have the answer; None: the reader has none.
        passage: the passage of the best span; `start - passage.hit.start` is its first character
            of the answer.
        no_answer_score: log odds of no answer against the best span: above the threshold, there is
            none; None: the reader always finds an answer.
    """

    text: str
    document: str
    start: int
    end: int
    score: float
    relevance: float | None
    passage: RetrievedPassage
    no_answer_score: float | None = None


class OpenQA:
    """Answers questions from the documents of an index."""

    def __init__(
        self,
        index: Index,
        reader: Model | None,
        reranker: Model | None = None,
        *,
        searcher: str | None = None,
        null_threshold: float | None = None,
        batch_size: int = 32,
        max_length: int | None = None,
    ) -> None:
        """Takes the models.

        Args:
            index: index of the collection, with texts; best of passages, see `IndexOptions`.
            reader: finds the answer in passages; None: passages are only retrieved.
            reranker: a model for `rank`, which orders the passages again and reads their titles as
                the index does; None: as searched.
            searcher: see `Index.search`.
            null_threshold: log odds of no answer above which there is none; None: the reader's
                own. Infinity: the best span is always the answer.
            batch_size: maximum number of rows computed together.
            max_length: maximum number of tokens of a row of the reader.

        Raises:
            UserError: the reader does not answer questions, or an option is out of range.
        """
        for name, each in (("reader", reader), ("reranker", reranker)):
            if isinstance(each, str | Path):
                raise OptionError(name, str(each), "give the model: bert_jax.load(path)")
        self._index, self._reranker, self._searcher = index, reranker, searcher
        self._ranking = RankingPredictOptions(batch_size=batch_size)
        self._predictor: ReaderPredictor | SpanPredictor | None = None
        if reader is not None:
            check_head(reader, READERS, "answer questions")
            if reader.description.head == HEAD:
                self._predictor = ReaderPredictor(reader, BatchOptions(batch_size, max_length))
            else:
                how = AnswerPredictOptions(
                    batch_size, max_length, n_best=1, null_threshold=null_threshold
                )
                self._predictor = SpanPredictor(reader, how)
        elif max_length is not None:
            rule = "it is for a {reader}; give one, or leave it out"
            raise OptionError("max_length", max_length, rule)
        if null_threshold is not None and not isinstance(self._predictor, SpanPredictor):
            rule = "it is for a {reader} of the task question_answering; leave it out"
            raise OptionError("null_threshold", null_threshold, rule)

    def retrieve(
        self, questions: Iterable[str], top_k: int = TOP_K
    ) -> list[list[RetrievedPassage]]:
        """The passages of each question, the best first.

        Raises:
            UserError: an argument is wrong, or the index stores no texts.
        """
        texts = list(not_one_string(questions, "questions"))
        retrieved = self._index.search(
            texts, top_k, searcher=self._searcher, batch_size=self._ranking.batch_size
        )
        if any(hit.text is None for hits in retrieved for hit in hits):
            raise UserError(f"{self._index.directory} has no texts; make an index that stores them")
        passages = [[RetrievedPassage(hit) for hit in hits] for hits in retrieved]
        if self._reranker is None or not any(passages):
            return passages
        examples = _candidates(texts, passages, self._index.titles)
        chunks = score_chunks(self._reranker, examples, self._ranking)
        scores = (scores.tolist() for chunk in chunks for _, scores in chunk.pairs)
        return [_reranked(each, next(scores)) if each else [] for each in passages]

    # A string is a sequence of strings, too: the first signature that fits applies.
    @overload
    def answer(  # type: ignore[overload-overlap]
        self, question: str, top_k: int = TOP_K
    ) -> LocatedAnswer | None: ...

    @overload
    def answer(self, question: Sequence[str], top_k: int = TOP_K) -> list[LocatedAnswer | None]: ...

    def answer(
        self, question: str | Sequence[str], top_k: int = TOP_K
    ) -> LocatedAnswer | list[LocatedAnswer | None] | None:
        """The answer to a question, or to each of several; None if nothing could be read.

        Args:
            question: one question, or a list.
            top_k: number of passages that are read.

        Raises:
            UserError: there is no reader, an argument is wrong, or the index stores no texts.
        """
        several = [question] if isinstance(question, str) else question
        questions = list(not_one_string(several, "questions"))
        answers = self.read(questions, self.retrieve(questions, top_k))
        return answers[0] if isinstance(question, str) else answers

    def read(
        self, questions: Sequence[str], passages: Sequence[Sequence[RetrievedPassage]]
    ) -> list[LocatedAnswer | None]:
        """The answer to each question from its passages, see `answer`."""
        if self._predictor is None:
            raise UserError("there is no reader to answer with; give one")
        read = iter(_read(self._predictor, _candidates(questions, passages, "pair")))
        answers = (next(read) if each else None for each in passages)
        return [
            _located_answer(answer, each) if answer else None
            for answer, each in zip(answers, passages, strict=True)
        ]


def _candidates(
    questions: Sequence[str], passages: Sequence[Sequence[RetrievedPassage]], titles: str
) -> list[Candidates]:
    """The questions that have passages, with them; for `titles` see `with_title`."""
    texts = [
        tuple(with_title(passage.hit.text or "", passage.hit.title, titles) for passage in each)
        for each in passages
    ]
    pairs = zip(questions, texts, strict=True)
    return [Candidates(question, documents) for question, documents in pairs if documents]


def _reranked(
    passages: Sequence[RetrievedPassage], scores: Sequence[float]
) -> list[RetrievedPassage]:
    order = np.argsort(-np.array(scores), kind="stable")
    return [RetrievedPassage(passages[index].hit, scores[index]) for index in order]


def _read(
    predictor: ReaderPredictor | SpanPredictor, examples: Sequence[Candidates]
) -> list[ReadAnswer | None]:
    if isinstance(predictor, ReaderPredictor):
        return list(predict_examples(predictor, examples))
    questions = [
        Question(each.query, texts_of(text)[-1]) for each in examples for text in each.documents
    ]
    predictions = iter(predict_examples(predictor, questions))
    return [_best([next(predictions) for _ in each.documents]) for each in examples]


def _best(predictions: Sequence[SpanPrediction]) -> ReadAnswer | None:
    """The best span of all passages of a question."""
    scores = [
        (-each.null_odds if each.null_threshold is not None else each.best[0].score)
        if each.best
        else -math.inf
        for each in predictions
    ]
    number = int(np.argmax(scores))
    best = predictions[number]
    if not best.best:
        return None
    odds = None if best.null_threshold is None else best.null_odds
    return ReadAnswer(number, best.answer(), scores[number], None, odds)


def _located_answer(answer: ReadAnswer, passages: Sequence[RetrievedPassage]) -> LocatedAnswer:
    passage, span = passages[answer.passage], answer.span
    hit, is_answer = passage.hit, bool(span.text)
    return LocatedAnswer(
        span.text,
        (hit.document or hit.id) if is_answer else "",
        hit.start + span.start if is_answer else 0,
        hit.start + span.end if is_answer else 0,
        answer.score,
        answer.relevance,
        passage,
        answer.no_answer_score,
    )

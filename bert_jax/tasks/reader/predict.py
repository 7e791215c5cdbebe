"""The answer to a question from several passages: the best span of the most relevant passage.

Source: DPR (Karpukhin et al., 2020, https://arxiv.org/abs/2004.04906), section 6.1 and its code;
the rows are those of Hugging Face's DPRReaderTokenizer.
"""

import contextlib
import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from bert_jax.data.examples import Candidates, Example, Examples, texts_of
from bert_jax.data.outputs import float32_repr
from bert_jax.data.readers.candidate_columns import RankingOptions
from bert_jax.data.readers.open_questions import PassageParser, read_passages
from bert_jax.data.windows.passages import PassageWindow
from bert_jax.errors import OptionError
from bert_jax.models.heads.reader import ReaderOutput
from bert_jax.tasks.base.predict_spec import InputReader, PredictOptions, PredictSpec
from bert_jax.tasks.base.predictor import (
    BatchOptions,
    EncodedExample,
    EncodingCounts,
    ExampleError,
    Model,
    check_finite,
    check_head,
)
from bert_jax.tasks.base.text_rows import map_valid
from bert_jax.tasks.question_answering.spans import AnswerSpan, best_spans
from bert_jax.tasks.ranking.predict import CandidatesPredictor, candidates_error
from bert_jax.tokenization import Encoding, Tokenizer

HEAD = "reader"

# Maximum tokens of a row in DPR, unless the model takes fewer.
DEFAULT_LENGTH = 350

# Maximum tokens of an answer in DPR, before it is extended to whole words.
_ANSWER_LENGTH = 10


@dataclasses.dataclass(frozen=True, slots=True)
class ReadAnswer:
    """An answer that was read in one of several passages.

    Attributes:
        passage: number of the passage, from 0.
        span: the span of the passage's text.
        score: its score; a higher one is better.
        relevance: the passage's logit of having the answer; None: the reader has none.
        no_answer_score: log odds of no answer against the best span; None: the reader always
            finds an answer.
    """

    passage: int
    span: AnswerSpan
    score: float
    relevance: float | None
    no_answer_score: float | None = None


class PassageRows:
    """Encodes questions with their passages.

    A passage is the row `[CLS] question [SEP] title [SEP] text`, cut to a limit, with token type 0.
    """

    def __init__(self, tokenizer: Tokenizer, limit: int) -> None:
        """Raises OptionError where a row has no space for a question, a title and a text."""
        self._tokenizer, self._limit = tokenizer, limit
        special = tokenizer.num_special_tokens(pair=True)
        self._capacity = limit - special
        if self._capacity < 4:
            rule = f"a question, a title and a text need at least {special + 4} tokens"
            raise OptionError("max_length", limit, rule)

    def __call__(self, examples: Sequence[Candidates]) -> list[EncodedExample | ExampleError]:
        """The rows of each question, one for each passage; or why it has none."""
        return map_valid((candidates_error(each) or each for each in examples), self._encoded)

    def _encoded(self, examples: list[Candidates]) -> Iterator[EncodedExample]:
        passages = [texts_of(text) for each in examples for text in each.documents]
        questions = self._tokenize([each.query for each in examples])
        titles = iter(self._tokenize([" ".join(passage[:-1]) for passage in passages]))
        texts = iter(self._tokenize([passage[-1] for passage in passages]))
        for question, each in zip(questions, examples, strict=True):
            rows = [self._row(question, next(titles), next(texts)) for _ in each.documents]
            yield EncodedExample(
                rows, EncodingCounts(texts=len(rows), cut=sum(row.is_cut for row in rows))
            )

    def _tokenize(self, texts: list[str]) -> list[Encoding]:
        return self._tokenizer.encode_batch(texts, add_special_tokens=False)

    def _row(self, question: Encoding, title: Encoding, text: Encoding) -> PassageWindow:
        start = question.part(0, self._capacity // 2)
        head = self._tokenizer.join([start, title.part(0, (self._capacity - len(start)) // 2)])
        kept = text.part(0, self._limit - len(head))
        passage = (len(head), len(head) + len(kept))
        return PassageWindow(
            ids=head.ids + kept.ids,
            tokens=head.tokens + kept.tokens,
            offsets=head.offsets + kept.offsets,
            word_ids=head.word_ids + kept.word_ids,
            type_ids=[0] * passage[1],
            special_tokens_mask=head.special_tokens_mask + [0] * len(kept),
            first=0,
            positions=passage,
            max_context=passage,
            passage=text,
            is_cut=len(kept) < len(text),
        )


class ReaderPredictor(CandidatesPredictor[ReadAnswer | None]):
    """The answer to each question; None if no passage has a token."""

    unit = "passages"
    default_length = DEFAULT_LENGTH

    def __init__(self, model: Model, options: BatchOptions) -> None:
        """Raises UserError where the model is no reader, or an option is out of range."""
        check_head(model, (HEAD,), "read passages")
        super().__init__(model, options)
        self._encode = PassageRows(model.tokenizer, self.limit)

    def encode(self, examples: Sequence[Candidates]) -> list[EncodedExample | ExampleError]:
        return self._encode(examples)

    def decode(
        self, example: Candidates, encoded: EncodedExample, outputs: list[ReaderOutput]
    ) -> ReadAnswer | None:
        return best_answer(example, encoded.rows, outputs)


def best_answer(
    example: Candidates, rows: Sequence[PassageWindow], outputs: Sequence[ReaderOutput]
) -> ReadAnswer | None:
    """The best span of the most relevant passage that has a token.

    Args:
        example: the question with K passages.
        rows: the row of each.
        outputs: logits of the tokens of each row, float32 [≥ T], and of the passage, float32.

    Raises:
        NotFiniteError: a logit is NaN or infinite.
    """
    relevance = np.array([output.relevance_logits for output in outputs])  # K
    check_finite(relevance, "the scores of a question's passages")
    for number in np.argsort(-relevance, kind="stable").tolist():
        logits = outputs[number].start_logits, outputs[number].end_logits
        text = texts_of(example.documents[number])[-1]
        spans = best_spans(text, [rows[number]], [logits], 1, _ANSWER_LENGTH)
        if spans.best:
            (span,) = spans.best
            return ReadAnswer(number, span, span.score, float(relevance[number]))
    return None


def to_record(example: Candidates, answer: ReadAnswer | None) -> Mapping[str, Any]:
    """The question, the answer and its position, as the fields of a JSON line."""
    if answer is None:
        return {"question": example.query, "answer": ""}
    span, relevance = answer.span, answer.relevance
    return {
        "question": example.query,
        "answer": span.text,
        "passage": answer.passage,
        "start": span.start,
        "end": span.end,
        "score": float32_repr(answer.score),
        **({} if relevance is None else {"relevance": float32_repr(relevance)}),
    }


@dataclasses.dataclass(frozen=True)
class ReaderPredictOptions(PredictOptions, RankingOptions):
    """The options of a prediction."""

    titles: str = "pair"


@contextlib.contextmanager
def _open(source: str | Path, options: RankingOptions) -> Iterator[Examples[Candidates]]:
    yield Examples(map(_with_id, read_passages(source, options)))


def _with_id(example: Example[Candidates]) -> Example[Candidates]:
    return dataclasses.replace(example, fields={"id": example.id})


PREDICT = PredictSpec(
    InputReader(PassageParser, _open),
    ReaderPredictOptions,
    ReaderPredictor,
    to_record,
    heads=(HEAD,),
)
"""What is read, and the predictions of an evaluation."""

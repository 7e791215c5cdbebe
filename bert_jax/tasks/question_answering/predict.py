"""Extractive question answering: answers are spans of passages (paper, sections 4.2 and 4.3)."""

import contextlib
import dataclasses
import functools
import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import flax.linen as nn
import jax
import numpy as np

from bert_jax.checkpoints.config_file import ModelDescription
from bert_jax.data.examples import Example, Examples, Question
from bert_jax.data.outputs import Layout, float32_repr
from bert_jax.data.readers.squad import (
    ANSWERS,
    SQUAD,
    QuestionOptions,
    QuestionParser,
    distinct,
    open_questions,
)
from bert_jax.data.windows.passages import PassageWindow, PassageWindows
from bert_jax.errors import UserError, require_at_least, require_between
from bert_jax.models.call import apply_model, model_inputs
from bert_jax.models.heads.question_answering import (
    JOINT,
    JOINT_SCOPE,
    QuestionAnsweringOptions,
    SpanBeam,
    span_beam,
)
from bert_jax.tasks.base.predict_spec import (
    InputReader,
    OutputFile,
    PredictOptions,
    PredictSpec,
    keeps_no_columns,
)
from bert_jax.tasks.base.predictor import (
    BatchOptions,
    EncodedExample,
    ExampleError,
    Model,
    Notes,
    Predictor,
    check_head,
    is_sequence_of_texts,
)
from bert_jax.tasks.question_answering.spans import Logits, SpanPrediction, best_spans

NULL_THRESHOLD = "null_score_diff_threshold"
"""The key of `config.json` with the value of `null_odds` above which there is no answer."""

# Maximum tokens of a window, unless the model takes fewer (run_squad.py of google-research/bert).
DEFAULT_LENGTH = 384


@dataclasses.dataclass(frozen=True)
class AnswerOptions:
    """How answers are searched; the lengths are tokens.

    Attributes:
        batch_size: maximum number of windows per batch.
        max_length: maximum number of tokens of a window; None: 384, or what the model takes.
        window_step: tokens from the start of a window to the next start, see `PassageWindows`.
        question_length: maximum number of tokens of a question.
        answer_length: maximum number of tokens of an answer.
        n_best: number of spans, all with different texts.
    """

    batch_size: int = 32
    max_length: int | None = None
    window_step: int = 128
    question_length: int = 64
    answer_length: int = 30
    n_best: int = 20

    def __post_init__(self) -> None:
        for name in ("window_step", "question_length", "answer_length", "n_best"):
            require_at_least(f"data.{name}", getattr(self, name), 1)
        BatchOptions(self.batch_size, self.max_length)  # which checks them


@dataclasses.dataclass(frozen=True, slots=True)
class Answer:
    """A span of a passage, or "" if the passage has no answer.

    Attributes:
        text: `passage[start:end]`.
        start: first character of the span in the passage.
        end: one past the last character.
        score: probability among the best answers, which include "" if it is allowed.
        no_answer_score: probability of ""; None if the model was trained to always find an answer.
    """

    text: str
    start: int
    end: int
    score: float
    no_answer_score: float | None = None


class SpanPredictor(Predictor[Question, Any]):
    """The best spans for each question."""

    unit = "questions"

    def __init__(self, model: Model, options: AnswerOptions = AnswerOptions()) -> None:
        """Raises UserError where the model does not answer questions, or an option is wrong."""
        check_head(model, PREDICT.heads, "answer questions", "question_answering")
        model.tokenizer.check_pairs(model.config.type_vocab_size, "questions")
        super().__init__(model, BatchOptions(options.batch_size, options.max_length))
        self._windows = PassageWindows(
            model.tokenizer, self.limit, options.window_step, options.question_length
        )
        self._span_options = options.n_best, options.answer_length

    @property
    def limit(self) -> int:
        limit = super().limit
        return min(DEFAULT_LENGTH, limit) if self.options.max_length is None else limit

    @property
    def text_limit(self) -> int:
        return self._windows.question_limit

    def encode(self, examples: Sequence[Question]) -> list[EncodedExample | ExampleError]:
        pairs = [(example.question, example.passage) for example in examples]
        windows = iter(self._windows([pair for pair in pairs if is_sequence_of_texts(pair)]))
        return [
            _encoded(pair, next(windows)) if is_sequence_of_texts(pair) else _no_text(pair)
            for pair in pairs
        ]

    def inputs(
        self, arrays: dict[str, np.ndarray], rows: Mapping[int, Any]
    ) -> dict[str, np.ndarray]:
        """With the joint head, also the ranges that limit its beam, int32 [B, 2]."""
        if self.model.config.of_head(QuestionAnsweringOptions).qa_head != JOINT:
            return arrays
        ranges = np.zeros((2, len(arrays["input_ids"]), 2), np.int32)
        for row, window in rows.items():
            ranges[:, row] = window.positions, window.max_context
        return {**arrays, "passages": ranges[0], "allowed_starts": ranges[1]}

    def compute(self, batch: dict[str, jax.Array]) -> Any:
        if self.model.config.of_head(QuestionAnsweringOptions).qa_head != JOINT:
            return super().compute(batch)
        _, answer_length = self._span_options
        # A longer answer leaves the row: one program for all such lengths.
        length = min(answer_length, batch["input_ids"].shape[-1])
        return _beam(
            self.model.compute_params, batch, module=self.model.module, answer_length=length
        )

    def decode(
        self,
        example: Question,
        encoded: EncodedExample,
        outputs: list[Logits | SpanBeam],
    ) -> Any:
        return best_spans(example.passage, encoded.rows, outputs, *self._span_options)

    def characters(self, example: Question) -> int:
        return super().characters((example.question, example.passage))

    def report(self, notes: Notes) -> Iterator[str]:
        yield from super().report(notes)
        if notes.empty:
            empty = f"{notes.empty} of {notes.texts} questions"
            yield f"{empty} were empty, or about an empty passage"


def _encoded(pair: tuple[str, str], windows: Sequence[PassageWindow]) -> EncodedExample:
    return EncodedExample(
        windows, Notes(cut=windows[0].is_cut, empty=not all(map(str.strip, pair)))
    )


def _no_text(pair: tuple[Any, Any]) -> ExampleError:
    wrong = next(text for text in pair if not isinstance(text, str))
    return ExampleError(f"{wrong!r:.80} is no text; give strings")


@functools.partial(jax.jit, static_argnames=("module", "answer_length"))
def _beam(
    params: Any, batch: dict[str, jax.Array], *, module: nn.Module, answer_length: int
) -> SpanBeam:
    hidden = apply_model(module, params, model_inputs(batch))
    return span_beam(
        params[JOINT_SCOPE], hidden, batch["passages"], batch["allowed_starts"], answer_length
    )


def best_answers(
    spans: SpanPrediction, null_threshold: float | None, top_k: int = 1
) -> list[Answer]:
    """The best answers, the final answer first.

    Args:
        spans: spans of the question.
        null_threshold: the answer is "" if `spans.null_odds` is above it; None: never.
        top_k: number of answers; fewer if the passage has fewer.
    """
    with_null = null_threshold is not None
    ranked = spans.n_best(with_null=with_null)
    null = next((chance for span, chance in ranked if with_null and span is spans.null), None)
    best = spans.answer(null_threshold)
    # With a threshold other than 0, the answer may not be the most probable span.
    ranked.sort(key=lambda item: item[0] is not best)
    return [
        Answer(span.text, span.start, span.end, chance, null) for span, chance in ranked[:top_k]
    ]


def question_inputs(question: str | Sequence[str], passage: str | Sequence[str]) -> list[Question]:
    """One or several questions; arguments are those of `LoadedModel.answer`.

    Raises:
        UserError: lists differ in length.
    """
    return [Question(text, about) for text, about in _pairs(question, passage)]


def _pairs(
    question: str | Sequence[str], passage: str | Sequence[str]
) -> Iterable[tuple[str, str]]:
    if isinstance(question, str) and isinstance(passage, str):
        return [(question, passage)]
    if isinstance(question, str):
        return [(question, about) for about in passage]
    if isinstance(passage, str):
        return [(text, passage) for text in question]
    if len(question) != len(passage):
        raise UserError(
            f"{len(question)} questions but {len(passage)} passages; give one passage for each, "
            "or one for all"
        )
    return zip(question, passage, strict=True)


def stored_threshold(description: ModelDescription) -> float | None:
    """The no-answer threshold of a model; None if its questions always have an answer.

    Raises:
        UserError: the value in `config.json` is not a number.
    """
    value = description.other.get(NULL_THRESHOLD)
    if value is None or (isinstance(value, int | float) and not isinstance(value, bool)):
        return value
    raise UserError(f"config.json: {NULL_THRESHOLD} is {value!r}; it must be a number")


@dataclasses.dataclass(frozen=True, slots=True)
class RankedSpans:
    """The prediction for a question, with the options of the output files.

    Attributes:
        spans: the best spans.
        null_threshold: see `SpanPrediction.answer`.
        top_k: number of answers in a record.
    """

    spans: SpanPrediction
    null_threshold: float | None
    top_k: int = 1


@dataclasses.dataclass(frozen=True)
class AnswerPredictOptions(PredictOptions, QuestionOptions):
    """The options of `bert-jax predict`.

    Attributes:
        top_k: number of answers; the file of the n best has 20 at least.
        null_threshold: no-answer threshold, see `LoadedModel.answer`; None: the model's.
        window_step, answer_length: see `AnswerOptions`.
    """

    top_k: int = 1
    null_threshold: float | None = None
    window_step: int = AnswerOptions.window_step
    answer_length: int = AnswerOptions.answer_length

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("top_k", "window_step", "answer_length"):
            require_at_least(name, getattr(self, name), 1)
        require_between("null_threshold", self.null_threshold, -math.inf, math.inf)


class _RankedSpanPredictor(SpanPredictor):
    """Predicts spans with the options of the output files."""

    def __init__(self, model: Model, options: AnswerPredictOptions) -> None:
        threshold = options.null_threshold
        self._threshold = stored_threshold(model.description) if threshold is None else threshold
        self._top_k = options.top_k
        super().__init__(
            model,
            AnswerOptions(
                options.batch_size,
                options.max_length,
                window_step=options.window_step,
                answer_length=options.answer_length,
                n_best=max(self._top_k, AnswerOptions.n_best),
            ),
        )

    def decode(
        self, example: Question, encoded: EncodedExample, outputs: list[Logits | SpanBeam]
    ) -> RankedSpans:
        spans = super().decode(example, encoded, outputs)
        return RankedSpans(spans, self._threshold, self._top_k)


@contextlib.contextmanager
def _open(source: str | Path, options: AnswerPredictOptions) -> Iterator[Examples[Question]]:
    """Opens SQuAD's JSON, or rows of a table or JSON lines (also from standard input).

    For SQuAD's output format, ids must be unique.
    """
    with open_questions(source, options, options.answer_columns(ANSWERS)) as examples:
        if options.output_format == SQUAD:
            yield Examples(distinct(examples), examples.fraction)
        else:
            yield examples


def as_record(answers: Sequence[Answer]) -> dict[str, Any]:
    """The fields of the first answer as JSON; several answers stand in the list "n_best"."""
    first, *_ = records = [
        {
            "answer": answer.text,
            "start": answer.start,
            "end": answer.end,
            "score": float32_repr(answer.score),
        }
        for answer in answers
    ]
    no_answer = answers[0].no_answer_score
    return {
        **first,
        **({} if no_answer is None else {"no_answer_score": float32_repr(no_answer)}),
        **({"n_best": records} if len(records) > 1 else {}),
    }


def _record(question: Question, prediction: RankedSpans) -> Mapping[str, Any]:
    return as_record(best_answers(prediction.spans, prediction.null_threshold, prediction.top_k))


def _squad(options: PredictOptions) -> Sequence[OutputFile[Question, RankedSpans]]:
    """`{id: text}`, the input of SQuAD's official scripts, and what is written beside it.

    Beside a file NAME.json these are nbest_NAME.json with the best spans of each question, as
    google-research/bert writes them, and, if a passage may have no answer, null_odds_NAME.json, the
    `--na-prob-file` of the 2.0 script.
    """
    keeps_no_columns(options, SQUAD)
    return (
        OutputFile(_answer_row, _json_object()),
        OutputFile(_best_row, _json_object("nbest")),
        OutputFile(_odds_row, _json_object("null_odds", empty=None)),
    )


def _answer_row(example: Example[Question], prediction: RankedSpans) -> str:
    return _key_and_value(example.id, prediction.spans.answer(prediction.null_threshold).text)


def _best_row(example: Example[Question], prediction: RankedSpans) -> str:
    spans = prediction.spans.n_best(with_null=prediction.null_threshold is not None)
    best = [
        {
            "text": span.text,
            "probability": chance,
            "start_logit": span.start_logit,
            "end_logit": span.end_logit,
        }
        for span, chance in spans
    ]
    return _key_and_value(example.id, best)


def _odds_row(example: Example[Question], prediction: RankedSpans) -> str | None:
    if prediction.null_threshold is None:
        return None
    return _key_and_value(example.id, prediction.spans.null_odds)


def _json_object(prefix: str = "", empty: str | None = "{}\n") -> Layout:
    return Layout(prefix, head="{\n ", separator=",\n ", tail="\n}\n", empty=empty)


def _key_and_value(key: str, value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False, indent=1).replace("\n", "\n ")
    return f"{json.dumps(key, ensure_ascii=False)}: {text}"


PREDICT = PredictSpec(
    InputReader(lambda options: QuestionParser(options, options.answer_columns(ANSWERS)), _open),
    AnswerPredictOptions,
    _RankedSpanPredictor,
    _record,
    {SQUAD: _squad},
    endings={".json": SQUAD},
    heads=("question_answering",),
)

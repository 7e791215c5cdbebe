"""Extractive question answering: answers are spans of passages (paper, sections 4.2 and 4.3)."""

import contextlib
import dataclasses
import functools
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Self

import flax.linen as nn
import jax
import numpy as np

from bert_jax.checkpoints.config_file import ModelDescription
from bert_jax.data.examples import Example, Examples, Question, each_example
from bert_jax.data.outputs import Layout, float32_repr
from bert_jax.data.pipeline import Batch
from bert_jax.data.readers.squad import (
    ANSWERS,
    SQUAD,
    QuestionOptions,
    QuestionParser,
    distinct_ids,
    open_questions,
)
from bert_jax.data.windows.passages import PassageWindows
from bert_jax.errors import UserError, require_at_least, require_between
from bert_jax.models.encoder_with_head import apply_model, model_inputs
from bert_jax.models.heads.question_answering import JOINT_SCOPE, SpanBeam, is_joint, span_beam
from bert_jax.tasks.base.predict_spec import (
    InputReader,
    OutputFile,
    PredictOptions,
    PredictSpec,
    without_columns,
)
from bert_jax.tasks.base.predictor import (
    BatchOptions,
    EncodedExample,
    EncodingCounts,
    ExampleError,
    Model,
    Predictor,
    RequestEncoder,
    check_head,
    not_one_string,
)
from bert_jax.tasks.base.text_rows import map_valid, text_error
from bert_jax.tasks.question_answering.options import DEFAULT_LENGTH, SpanOptions
from bert_jax.tasks.question_answering.spans import Answer, Logits, SpanPrediction, best_spans

NULL_THRESHOLD = "null_score_diff_threshold"
"""The key of `config.json` with the value of `null_odds` above which there is no answer."""


@dataclasses.dataclass(frozen=True)
class AnswerOptions(SpanOptions, BatchOptions):
    """The options of `LoadedModel.answer`.

    Attributes:
        batch_size: maximum number of windows per batch.
        max_length: maximum number of tokens of a window; None: 384, or what the model takes.
    """

    def __post_init__(self) -> None:
        super().__post_init__()
        BatchOptions.__post_init__(self)


@dataclasses.dataclass(frozen=True)
class AnswerPredictOptions(PredictOptions, QuestionOptions, SpanOptions):
    """The options of `bert-jax predict`.

    Attributes:
        top_k: number of answers; the file of the n best has `n_best` at least.
        null_threshold: no-answer threshold, see `LoadedModel.answer`; None: the model's.
    """

    REQUEST = ("window_step", "question_length", "n_best", "top_k", "null_threshold")

    top_k: int = 1
    null_threshold: float | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        SpanOptions.__post_init__(self)
        require_at_least("top_k", self.top_k, 1)
        require_between("null_threshold", self.null_threshold, -math.inf, math.inf)

    def shared(self) -> Self:
        """With `max_length` only where its windows are longer than those of other requests."""
        is_long = self.max_length is not None and self.max_length > DEFAULT_LENGTH
        max_length = self.max_length if is_long else None
        return dataclasses.replace(super().shared(), max_length=max_length)


@contextlib.contextmanager
def _open(source: str | Path, options: AnswerPredictOptions) -> Iterator[Examples[Question]]:
    """Opens SQuAD's JSON, or rows of a table or JSON lines (also from standard input).

    For SQuAD's output format, ids must be unique.
    """
    with open_questions(source, options, options.answer_columns(ANSWERS)) as examples:
        if options.output_format == SQUAD:
            yield each_example(distinct_ids(), examples)
        else:
            yield examples


def question_inputs(
    question: str | Sequence[str], passage: str | Sequence[str] | None
) -> list[Question]:
    """One or several questions, from the arguments of `LoadedModel.answer`.

    Raises:
        UserError: lists differ in length, one is a dict, or there is no passage.
    """
    if passage is None:
        raise UserError(
            f"{question!r:.60} has no passage beside it; give answer(question, passage)"
        )
    questions, passages = (
        [texts] if isinstance(texts, str) else list(not_one_string(texts, name))
        for texts, name in ((question, "questions"), (passage, "passages"))
    )
    if isinstance(question, str):
        questions *= len(passages)
    elif isinstance(passage, str):
        passages *= len(questions)
    if len(questions) != len(passages):
        raise UserError(
            f"{len(questions)} questions but {len(passages)} passages; give one passage for each, "
            "or one for all"
        )
    return list(map(Question, questions, passages))


def stored_threshold(description: ModelDescription) -> float | None:
    """The no-answer threshold of a model; None if its questions always have an answer.

    Raises:
        UserError: the value in `config.json` is not a number.
    """
    value = description.other.get(NULL_THRESHOLD)
    if value is None or (isinstance(value, int | float) and not isinstance(value, bool)):
        return value
    raise UserError(f"config.json: {NULL_THRESHOLD} is {value!r}; it must be a number")


class SpanPredictor(Predictor[Question, SpanPrediction]):
    """The best spans for each question."""

    unit = "questions"
    default_length = DEFAULT_LENGTH
    empty = "empty, or about an empty passage"

    def __init__(self, model: Model, options: AnswerPredictOptions) -> None:
        """Resolves the options.

        Raises:
            UserError: the model does not answer questions, or an option is out of range.
        """
        check_head(model, PREDICT.heads, "answer questions")
        model.tokenizer.check_pairs(model.config.type_vocab_size, "questions")
        super().__init__(model, options)
        self._answer_length = options.answer_length
        self._stored_threshold = stored_threshold(model.description)
        self._encoder = self.encoder(options)

    @property
    def text_limit(self) -> int:
        return self._encoder.text_limit

    def encode(self, examples: Sequence[Question]) -> Sequence[EncodedExample | ExampleError]:
        return self._encoder.encode(examples)

    def encoder(self, request: AnswerPredictOptions) -> RequestEncoder:
        length = request.max_length or self.limit
        require_between("max_length", length, 1, self.limit)
        how = length, request.window_step, request.question_length, self.most_tokens
        windows = PassageWindows(self.model.tokenizer, *how)

        def encoded(pairs: list[tuple[str, str]]) -> Iterator[EncodedExample]:
            for pair, rows in zip(pairs, windows(pairs), strict=True):
                counts = EncodingCounts(cut=rows[0].is_cut, empty=not all(map(str.strip, pair)))
                yield EncodedExample(rows, counts, request)

        def encode(examples: Sequence[Question]) -> list[EncodedExample | ExampleError]:
            pairs = ((example.question, example.passage) for example in examples)
            return map_valid((text_error(*pair) or pair for pair in pairs), encoded)

        return RequestEncoder(encode, windows.question_limit)

    def inputs(self, arrays: Batch, rows: Mapping[int, Any]) -> Batch:
        """With the joint head, also the ranges that limit its beam, int32 [B, 2]."""
        if not is_joint(self.model.config):
            return arrays
        ranges = np.zeros((2, len(arrays["input_ids"]), 2), np.int32)
        for row, window in rows.items():
            ranges[:, row] = window.positions, window.max_context
        return {**arrays, "passages": ranges[0], "allowed_starts": ranges[1]}

    def compute(self, batch: dict[str, jax.Array]) -> Any:
        if not is_joint(self.model.config):
            return super().compute(batch)
        # A longer answer leaves the row: one program for all such lengths.
        length = min(self._answer_length, batch["input_ids"].shape[-1])
        return _beam(
            self.model.compute_params, batch, module=self.model.module, answer_length=length
        )

    def decode(
        self, example: Question, encoded: EncodedExample, outputs: list[Logits | SpanBeam]
    ) -> SpanPrediction:
        request: Any = encoded.request
        count = max(request.top_k, request.n_best)
        spans = best_spans(example.passage, encoded.rows, outputs, count, self._answer_length)
        if (threshold := request.null_threshold) is None:
            threshold = self._stored_threshold
        return dataclasses.replace(spans, null_threshold=threshold, top_k=request.top_k)

    def characters(self, example: Question) -> int:
        return super().characters((example.question, example.passage))


@functools.partial(jax.jit, static_argnames=("module", "answer_length"))
def _beam(
    params: Any, batch: dict[str, jax.Array], *, module: nn.Module, answer_length: int
) -> SpanBeam:
    hidden = apply_model(module, params, model_inputs(batch))
    return span_beam(
        params[JOINT_SCOPE], hidden, batch["passages"], batch["allowed_starts"], answer_length
    )


def to_record(answers: Sequence[Answer]) -> dict[str, Any]:
    """The fields of the first answer as JSON; several answers are in the list "n_best"."""
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


def _answer_row(example: Example[Question], prediction: SpanPrediction) -> str:
    return _key_and_value(example.id, prediction.answer().text)


def _best_row(example: Example[Question], prediction: SpanPrediction) -> str:
    best = [
        {
            "text": span.text,
            "probability": probability,
            "start_logit": span.start_logit,
            "end_logit": span.end_logit,
        }
        for span, probability in prediction.n_best()
    ]
    return _key_and_value(example.id, best)


def _odds_row(example: Example[Question], prediction: SpanPrediction) -> str | None:
    if prediction.null_threshold is None:
        return None
    return _key_and_value(example.id, prediction.null_odds)


def _json_object(prefix: str = "", empty: str | None = "{}\n") -> Layout:
    return Layout(prefix, head="{\n ", separator=",\n ", tail="\n}\n", empty=empty)


def _key_and_value(key: str, value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False, indent=1).replace("\n", "\n ")
    return f"{json.dumps(key, ensure_ascii=False)}: {text}"


# `{id: text}`, the input of SQuAD's official scripts. Beside a file NAME.json are nbest_NAME.json
# with the best spans of each question, as google-research/bert writes them, and, if a passage may
# have no answer, null_odds_NAME.json, the `--na-prob-file` of the 2.0 script.
_squad = without_columns(
    OutputFile(_answer_row, _json_object()),
    OutputFile(_best_row, _json_object("nbest")),
    OutputFile(_odds_row, _json_object("null_odds", empty=None)),
)

PREDICT = PredictSpec(
    InputReader(lambda options: QuestionParser(options, options.answer_columns(ANSWERS)), _open),
    AnswerPredictOptions,
    SpanPredictor,
    lambda question, prediction: to_record(prediction.answers()),
    {SQUAD: _squad},
    endings={".json": SQUAD},
    heads=("question_answering",),
)

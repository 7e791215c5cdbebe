"""Answers to questions about passages, cut out of the passages (paper, section 4.2 and 4.3)."""

import contextlib
import dataclasses
import json
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import jax

from bert_jax.checkpoints.config_file import ModelDescription
from bert_jax.data.examples import Entries, Entry, Question
from bert_jax.data.readers.squad import ANSWERS, SQUAD, QuestionOptions, distinct, open_questions
from bert_jax.data.records import Output, open_output, shortest
from bert_jax.data.windows.passages import PassageWindow, PassageWindows
from bert_jax.errors import OptionError, UserError, renamed_options
from bert_jax.models.config import Head
from bert_jax.tasks.base.predict_task import (
    JSONL,
    PredictionTask,
    PredictOptions,
    Write,
    json_lines,
)
from bert_jax.tasks.base.predictor import (
    BatchOptions,
    ExampleError,
    Model,
    Predictor,
    apply_model,
    check_head,
)
from bert_jax.tasks.question_answering.spans import Logits, SpanPrediction, best_spans
from bert_jax.tokenization import Encoding

NULL_THRESHOLD = "null_score_diff_threshold"
"""The key of `config.json` with the `null_odds` above which a question has no answer."""

# The most tokens of a window, unless the model takes fewer (run_squad.py of google-research/bert).
_LENGTH = 384


@dataclasses.dataclass(frozen=True)
class AnswerOptions:
    """How answers are searched; the lengths are tokens.

    Attributes:
        batch_size: the most windows of a batch.
        max_length: the most tokens of a window; None: 384, or as many as the model takes.
        window_step: from the start of a window to that of the next, see `PassageWindows`.
        question_length: the most tokens of a question.
        answer_length: the most tokens of an answer.
        n_best: the number of spans, each of another text.
    """

    batch_size: int = 32
    max_length: int | None = None
    window_step: int = 128
    question_length: int = 64
    answer_length: int = 30
    n_best: int = 20

    def __post_init__(self) -> None:
        for name in ("window_step", "question_length", "answer_length", "n_best"):
            if getattr(self, name) < 1:
                raise OptionError(name, getattr(self, name), "it must be at least 1")


@dataclasses.dataclass(frozen=True, slots=True)
class Answer:
    """A part of a passage, or "" where the passage has no answer.

    Attributes:
        text: `passage[start:end]`.
        start: its first character.
        end: one past its last character.
        score: its probability among the best answers, of which "" is one if it is allowed.
        no_answer_score: that of ""; None where the model was trained to find an answer always.
    """

    text: str
    start: int
    end: int
    score: float
    no_answer_score: float | None = None


class SpanPredictor(Predictor[Question, Any]):
    """The best spans for each question."""

    def __init__(self, model: Model, options: AnswerOptions = AnswerOptions()) -> None:
        """Raises UserError where the model does not answer questions, or an option is wrong."""
        check_head(model, PREDICT.heads, "answer questions", "question_answering")
        model.tokenizer.check_pairs(model.config.type_vocab_size, "questions")
        length = options.max_length
        if length is None:
            length = min(_LENGTH, model.config.max_length)
        self.options = BatchOptions(options.batch_size, length)
        self.options.limit(model.config)
        with renamed_options(length="max_length"):
            self._windows = PassageWindows(
                model.tokenizer, length, options.window_step, options.question_length
            )
        self._model = model
        self._span_options = options.n_best, options.answer_length
        self._empty = 0

    def prepare(self, example: Question, index: int) -> Question:
        for text in (example.question, example.passage):
            if not isinstance(text, str):
                raise ExampleError(f"{text!r:.80} is no text; give strings", index)
        self._empty += not (example.question.strip() and example.passage.strip())
        return example

    def encode(self, examples: Sequence[Question]) -> list[list[Encoding]]:
        return [[*rows] for rows in self._windows([(q.question, q.passage) for q in examples])]

    def compute(self, batch: dict[str, jax.Array]) -> Any:
        return apply_model(self._model.params, batch, module=self._model.module)

    def decode(
        self, example: Question, encodings: list[Encoding], outputs: list[Logits]
    ) -> SpanPrediction:
        windows = [row for row in encodings if isinstance(row, PassageWindow)]
        return best_spans(example.passage, windows, outputs, *self._span_options)

    def characters(self, example: Question) -> int:
        return len(example.question) + len(example.passage)

    def report(self) -> None:
        limit = self._windows.question_limit
        for count, what in (
            (self._windows.cut_questions, f"were longer than {limit} tokens: cut"),
            (self._empty, "were empty, or about an empty passage"),
        ):
            if count:
                print(f"{count} of {self._windows.count} questions {what}", file=sys.stderr)


def best_answers(
    spans: SpanPrediction, null_threshold: float | None, top_k: int = 1
) -> list[Answer]:
    """The best answers; the first of them is the answer to the question.

    Args:
        spans: those of the question.
        null_threshold: "" is the answer where `spans.null_odds` is higher; None: never.
        top_k: the number of answers, fewer where the passage has no more.
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


def question_examples(
    question: str | Sequence[str], passage: str | Sequence[str]
) -> list[Question]:
    """The examples of one question or several; arguments are those of `LoadedModel.answer`.

    Raises:
        UserError: lists differ in length.
    """
    return [
        Question(text, about, None, str(number), f"question {number}")
        for number, (text, about) in enumerate(_pairs(question, passage))
    ]


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
    """The threshold of a model for questions that may have no answer; None for others.

    Raises:
        UserError: `config.json` has something else in its place.
    """
    value = description.other.get(NULL_THRESHOLD)
    if value is None or (isinstance(value, int | float) and not isinstance(value, bool)):
        return value
    raise UserError(f"config.json: {NULL_THRESHOLD} is {value!r}; it must be a number")


@dataclasses.dataclass(frozen=True, slots=True)
class RankedSpans:
    """The prediction for a question, as it is written to files.

    Attributes:
        spans: the best spans.
        null_threshold: see `SpanPrediction.answer`.
        top_k: the number of answers in a record.
    """

    spans: SpanPrediction
    null_threshold: float | None
    top_k: int = 1


class _RankedSpanPredictor(SpanPredictor):
    """Spans with the options of the files that they are written to."""

    def __init__(self, model: Model, options: PredictOptions) -> None:
        threshold = options.null_threshold
        self._threshold = stored_threshold(model.description) if threshold is None else threshold
        self._top_k = options.top_k or 1
        super().__init__(
            model,
            AnswerOptions(
                options.batch_size or AnswerOptions.batch_size,
                options.max_length,
                window_step=options.window_step,
                answer_length=options.answer_length,
                n_best=max(self._top_k, AnswerOptions.n_best),
            ),
        )

    def transform(self, decoded: Iterator[SpanPrediction]) -> Iterator[RankedSpans]:
        return (RankedSpans(spans, self._threshold, self._top_k) for spans in decoded)


@contextlib.contextmanager
def _open(source: str | Path, options: PredictOptions) -> Iterator[Entries[Question]]:
    """SQuAD's JSON, or rows of a table or of JSON lines, which standard input has, too.

    For SQuAD's output format no two questions may have the same id.
    """
    gold = (options.label_column,) if options.label_column else ANSWERS
    with open_questions(source, options.reading(QuestionOptions), gold=gold) as entries:
        if options.output_format == SQUAD:
            yield Entries(distinct(entries), entries.fraction)
        else:
            yield entries


def as_record(answers: Sequence[Answer]) -> dict[str, Any]:
    """The fields of the first answer as JSON; of several, all of them as "n_best"."""
    first, *_ = records = [
        {
            "answer": answer.text,
            "start": answer.start,
            "end": answer.end,
            "score": shortest(answer.score),
        }
        for answer in answers
    ]
    no_answer = answers[0].no_answer_score
    return {
        **first,
        **({} if no_answer is None else {"no_answer_score": shortest(no_answer)}),
        **({"n_best": records} if len(records) > 1 else {}),
    }


def _record(question: Question, prediction: RankedSpans) -> Mapping[str, Any]:
    return as_record(best_answers(prediction.spans, prediction.null_threshold, prediction.top_k))


@contextlib.contextmanager
def _squad(output: Output, options: PredictOptions) -> Iterator[Write[Question, RankedSpans]]:
    """`{id: text}`, the input of SQuAD's official scripts.

    With a file NAME.json come nbest_NAME.json with the best spans of each question, as
    google-research/bert writes them, and where a passage may have no answer, null_odds_NAME.json:
    the `--na-prob-file` of the 2.0 script.
    """
    with contextlib.ExitStack() as files:
        write_answer = files.enter_context(_json_object(output))
        write_best = files.enter_context(_beside(output, "nbest"))
        write_odds: _WriteValue | None = None

        def write(entry: Entry[Question], prediction: RankedSpans) -> None:
            nonlocal write_odds
            spans, threshold = prediction.spans, prediction.null_threshold
            write_answer(entry.id, spans.answer(threshold).text)
            write_best(
                entry.id,
                [
                    {
                        "text": span.text,
                        "probability": chance,
                        "start_logit": span.start_logit,
                        "end_logit": span.end_logit,
                    }
                    for span, chance in spans.n_best(with_null=threshold is not None)
                ],
            )
            if threshold is not None:
                write_odds = write_odds or files.enter_context(_beside(output, "null_odds"))
                write_odds(entry.id, spans.null_odds)

        yield write


_WriteValue = Callable[[str, Any], None]


@contextlib.contextmanager
def _beside(output: Output, name: str) -> Iterator[_WriteValue]:
    """A further file `<name>_<file>`; nothing where the output is no file."""
    if output.target is None:
        yield lambda key, value: None
        return
    target = output.target.with_name(f"{name}_{output.target.name}")
    with open_output(target) as other, _json_object(other) as write:
        yield write


@contextlib.contextmanager
def _json_object(output: Output) -> Iterator[_WriteValue]:
    """An object of JSON that is written key by key."""
    separator = "{\n "

    def write(key: str, value: Any) -> None:
        nonlocal separator
        text = json.dumps(value, ensure_ascii=False, indent=1).replace("\n", "\n ")
        output.write(f"{separator}{json.dumps(key, ensure_ascii=False)}: {text}")
        separator = ",\n "

    yield write
    output.write("{}\n" if separator.startswith("{") else "\n}\n")


PREDICT = PredictionTask(
    _open,
    _RankedSpanPredictor,
    {JSONL: json_lines(_record), SQUAD: _squad},
    endings={".json": SQUAD},
    heads=(Head.QUESTION_ANSWERING,),
)

"""Answers to questions about passages, cut out of the passages (paper, section 4.2 and 4.3)."""

import dataclasses
import functools
import sys
from collections.abc import Iterable, Sequence
from typing import Any

import flax.linen as nn
import jax

from bert_jax.checkpoints.config_file import ModelDescription
from bert_jax.data.examples import Question
from bert_jax.data.records import shortest
from bert_jax.data.windows.passage_windows import PassageWindow, PassageWindows, WindowOptions
from bert_jax.errors import UserError
from bert_jax.models.config import EncoderConfig, Head
from bert_jax.tasks.base.predictor import BatchOptions, ExampleError, Model, Predictor
from bert_jax.tasks.question_answering.spans import Logits, SpanOptions, Spans, best_spans
from bert_jax.tokenization import Encoding

NULL_THRESHOLD = "null_score_diff_threshold"
"""The key of `config.json` that says for how much better scores a passage has no answer."""


@dataclasses.dataclass(frozen=True)
class AnswerOptions:
    """How answers are looked for; the lengths are tokens.

    Attributes:
        batch_size: the most windows computed together.
        max_length: the most tokens of a window; None: 384, or as many as the model takes.
        window_step: from the begin of a window to that of the next, see `WindowOptions`.
        question_length: the most tokens of a question.
        answer_length: the most tokens of an answer.
        n_best: how many spans of different texts are looked for.
    """

    batch_size: int = 32
    max_length: int | None = None
    window_step: int = 128
    question_length: int = 64
    answer_length: int = 30
    n_best: int = 20

    def windows(self, config: EncoderConfig) -> WindowOptions:
        """How passages are cut for a model.

        Raises:
            UserError: the model has fewer positions, or a length is below 1.
        """
        most = config.max_position_embeddings
        length = min(WindowOptions.length, most) if self.max_length is None else self.max_length
        BatchOptions(self.batch_size, length).limit(config)
        return WindowOptions(length, self.window_step, self.question_length)

    def spans(self) -> SpanOptions:
        """Which answers are looked for."""
        return SpanOptions(self.n_best, self.answer_length)


@dataclasses.dataclass(frozen=True, slots=True)
class Answer:
    """A part of a passage, or "" where the passage has no answer.

    Attributes:
        text: `passage[start:end]`.
        start: its first character.
        end: behind its last character.
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
        _check_model(model)
        windows = options.windows(model.config)
        self.options = BatchOptions(options.batch_size, windows.length)
        self._model = model
        self._span_options = options.spans()
        self._question_limit = windows.question_limit
        self._rows = PassageWindows(model.tokenizer, windows)
        self._empty = 0

    def prepare(self, example: Question, index: int) -> Question:
        for text in (example.question, example.passage):
            if not isinstance(text, str):
                raise ExampleError(f"{text!r:.80} is no text; give strings", index)
        self._empty += not (example.question.strip() and example.passage.strip())
        return example

    def encode(self, examples: Sequence[Question]) -> list[list[Encoding]]:
        return [[*rows] for rows in self._rows([(q.question, q.passage) for q in examples])]

    def compute(self, batch: dict[str, jax.Array]) -> Any:
        return _logits(self._model.params, batch, module=self._model.module)

    def decode(self, example: Question, encodings: list[Encoding], outputs: list[Logits]) -> Spans:
        windows = [row for row in encodings if isinstance(row, PassageWindow)]
        return best_spans(example.passage, windows, outputs, self._span_options)

    def characters(self, example: Question) -> int:
        return len(example.question) + len(example.passage)

    def report(self) -> None:
        for count, what in (
            (self._rows.cut_questions, f"were longer than {self._question_limit} tokens: cut"),
            (self._empty, "were empty, or about an empty passage"),
        ):
            if count:
                print(f"{count} of {self._rows.count} questions {what}", file=sys.stderr)


def best_answers(found: Spans, null_threshold: float | None, top_k: int = 1) -> list[Answer]:
    """The best answers, the first of them the one to give.

    Args:
        found: the spans of a question.
        null_threshold: "" is the answer if its scores are so much better; None: never.
        top_k: how many, fewer where the passage has no more.
    """
    with_null = null_threshold is not None
    chances = found.n_best(with_null=with_null)
    null = next((chance for span, chance in chances if with_null and span is found.null), None)
    given = found.answer(null_threshold)
    # A threshold other than 0 may put another than the most probable one first.
    chances.sort(key=lambda chance: chance[0] is not given)
    return [
        Answer(span.text, span.start, span.end, chance, null) for span, chance in chances[:top_k]
    ]


def question_examples(
    question: str | Sequence[str], passage: str | Sequence[str]
) -> list[Question]:
    """The examples of one question or several; arguments are those of `LoadedModel.answer`.

    Raises:
        UserError: lists differ in length.
    """
    return [
        Question(one, about, None, str(number), f"question {number}")
        for number, (one, about) in enumerate(_pairs(question, passage))
    ]


def as_record(found: Sequence[Answer]) -> dict[str, Any]:
    """The fields of a record: those of the answer; of several, the others below "n_best"."""
    first, *_ = records = [
        {
            "answer": one.text,
            "start": one.start,
            "end": one.end,
            "score": shortest(one.score),
        }
        for one in found
    ]
    no_answer = found[0].no_answer_score
    return {
        **first,
        **({} if no_answer is None else {"no_answer_score": shortest(no_answer)}),
        **({"n_best": records} if len(records) > 1 else {}),
    }


def stored_threshold(description: ModelDescription) -> float | None:
    """The threshold of a model that knows questions without an answer; None for others.

    Raises:
        UserError: `config.json` has something else in its place.
    """
    value = description.other.get(NULL_THRESHOLD)
    if value is None or (isinstance(value, int | float) and not isinstance(value, bool)):
        return value
    raise UserError(f"config.json: {NULL_THRESHOLD} is {value!r}; it must be a number")


def _check_model(model: Model) -> None:
    if model.description.head is not Head.QUESTION_ANSWERING:
        raise UserError(
            f"this {model.description.class_name} does not answer questions; give the directory "
            'of a model that does, and load it with load(path, task="question_answering")'
        )
    model.tokenizer.check_pairs(model.config.type_vocab_size, "questions")


def _pairs(
    question: str | Sequence[str], passage: str | Sequence[str]
) -> Iterable[tuple[str, str]]:
    if isinstance(question, str) and isinstance(passage, str):
        return [(question, passage)]
    if isinstance(question, str):
        return [(question, about) for about in passage]
    if isinstance(passage, str):
        return [(one, passage) for one in question]
    if len(question) != len(passage):
        raise UserError(
            f"{len(question)} questions but {len(passage)} passages; give one passage for each, "
            "or one for all"
        )
    return zip(question, passage, strict=True)


@functools.partial(jax.jit, static_argnames="module")
def _logits(params: Any, batch: dict[str, jax.Array], *, module: nn.Module) -> Any:
    """A batch → scores of the first and of the last token, float32 [B, T] twice."""
    output: Any = module.apply(
        {"params": params}, batch["input_ids"], batch["token_type_ids"], batch["attention_mask"]
    )
    return tuple(output)

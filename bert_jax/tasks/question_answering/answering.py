"""Answers to questions about passages, cut out of the passages (paper, section 4.2 and 4.3)."""

import dataclasses
import functools
import sys
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import flax.linen as nn
import jax

from bert_jax.checkpoints.config_file import ModelDescription
from bert_jax.data.examples import Question
from bert_jax.data.windows.passage_windows import PassageWindow, PassageWindows, WindowOptions
from bert_jax.errors import UserError
from bert_jax.inference.batching import BatchOptions
from bert_jax.inference.interface import Advance, Model, TextError
from bert_jax.inference.records import shortest
from bert_jax.inference.streams import answers
from bert_jax.models.config import EncoderConfig
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


def spans(
    model: Model,
    questions: Iterable[Question],
    options: AnswerOptions = AnswerOptions(),
    *,
    advance: Advance | None = None,
) -> Iterator[Spans]:
    """The best spans for each question, in the order of the questions and in constant memory.

    At the end, a line on stderr says how many questions were cut, and how many were empty or had
    an empty passage.

    Args:
        model: answers questions.
        questions: read once, a window ahead.
        options: how answers are looked for.
        advance: told the number of questions after each batch.

    Raises:
        UserError: the model does not answer questions, or an option is wrong.
        TextError: a question or a passage is no text.
    """
    _check_model(model)
    windows = options.windows(model.config)
    wanted = options.spans()
    encode = PassageWindows(model.tokenizer, windows)
    empty = 0

    def checked() -> Iterator[Question]:
        nonlocal empty
        for index, question in enumerate(questions):
            for text in (question.question, question.passage):
                if not isinstance(text, str):
                    raise TextError(f"{text!r:.80} is no text; give strings", index)
            empty += not (question.question.strip() and question.passage.strip())
            yield question

    def read(question: Question, rows: list[Encoding], outputs: list[Logits]) -> Spans:
        of_question = [row for row in rows if isinstance(row, PassageWindow)]
        return best_spans(question.passage, of_question, outputs, wanted)

    found = answers(
        model,
        checked(),
        lambda asked: [[*rows] for rows in encode([(q.question, q.passage) for q in asked])],
        functools.partial(_logits, model.params, module=model.module),
        read,
        BatchOptions(options.batch_size, windows.length),
        characters=lambda question: len(question.question) + len(question.passage),
        advance=advance,
    )

    def reported() -> Iterator[Spans]:
        yield from found
        for count, what in (
            (encode.cut_questions, f"were longer than {windows.question_limit} tokens: cut"),
            (empty, "were empty, or about an empty passage"),
        ):
            if count:
                print(f"{count} of {encode.count} questions {what}", file=sys.stderr)

    return reported()


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


def answer(
    model: Model,
    question: str | Sequence[str],
    passage: str | Sequence[str],
    top_k: int = 1,
    *,
    null_threshold: float | None = None,
    options: AnswerOptions = AnswerOptions(),
) -> Answer | list[Answer] | list[Answer | list[Answer]]:
    """Answers a question or several; see `LoadedModel.answer`.

    Args:
        model: answers questions.
        question: one, or a list.
        passage: one for all questions, or a list with one for each; then one question may be asked
            of all.
        top_k: how many answers to each question.
        null_threshold: "" is the answer if its scores are so much better than those of the best
            span. None: what the model's `config.json` says; nothing there: there is an answer.
        options: how answers are looked for.

    Returns:
        An `Answer`, for `top_k` above 1 a list of them, the best first; for lists a list of these.

    Raises:
        UserError: the model does not answer questions, `top_k` is below 1, lists differ in length.
    """
    if top_k < 1:
        raise UserError(f"top_k is {top_k}; it must be at least 1")
    options = dataclasses.replace(options, n_best=max(top_k, options.n_best))
    threshold = stored_threshold(model.description) if null_threshold is None else null_threshold
    single = isinstance(question, str) and isinstance(passage, str)
    asked = [
        Question(one, about, None, str(number), f"question {number}")
        for number, (one, about) in enumerate(_pairs(question, passage))
    ]
    every: list[Answer | list[Answer]] = []
    for found in spans(model, asked, options):
        best = best_answers(found, threshold, top_k)
        every.append(best[0] if top_k == 1 else best)
    return every[0] if single else every


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
    if model.description.architecture != "BertForQuestionAnswering":
        raise UserError(
            f"this {model.description.architecture} does not answer questions; give the directory "
            'of a model that does, and load it with load(path, task="question_answering")'
        )
    if model.config.type_vocab_size < 2:
        raise UserError(
            "questions need a model that tells two texts apart, but this one has type_vocab_size "
            f"{model.config.type_vocab_size}; give another model"
        )


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

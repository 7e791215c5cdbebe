"""Answers that are parts of a passage: SQuAD 1.1 and 2.0 (paper, sections 4.2 and 4.3)."""

import dataclasses
import functools
import sys
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from ml_collections import ConfigDict

from bert_jax.data.examples import Question
from bert_jax.data.labelled_batches import LabelledBatches
from bert_jax.data.padding import Sequences
from bert_jax.data.pipeline import Batch
from bert_jax.data.readers.squad import QuestionOptions, distinct, read_questions
from bert_jax.data.windows.passages import PassageWindow, PassageWindows, find_answer, token_span
from bert_jax.errors import OptionError, UserError
from bert_jax.metrics.squad import best_f1_threshold, score_v1, score_v2
from bert_jax.models.config import Head
from bert_jax.models.kernels import MASK_VALUE
from bert_jax.options import from_keys, keys_of
from bert_jax.sharding.hosts import is_main_host
from bert_jax.tasks.base.labelled_task import (
    LabelledOptions,
    LabelledTask,
    TrainedModel,
    labelled_defaults,
    labelled_options,
    model_tokenizer,
)
from bert_jax.tasks.base.predictor import Model, Predictor, encode_in_chunks
from bert_jax.tasks.base.splits import EvalSet, Splits, read_splits
from bert_jax.tasks.base.task import ModelInit, Sums, TrainingTask, weighted_sums
from bert_jax.tasks.question_answering.predict import (
    NULL_THRESHOLD,
    PREDICT,
    AnswerOptions,
    RankedSpans,
    SpanPredictor,
    stored_threshold,
)
from bert_jax.tasks.question_answering.spans import SpanPrediction

VERSIONS = ("", "1.1", "2.0")

# What google-research/bert takes where the threshold is not tuned.
UNTUNED_THRESHOLD = 0.0

# How many places of left-out questions a message names.
_NAMED = 3


@dataclasses.dataclass(frozen=True)
class SpanRows:
    """The windows of all training questions, R rows.

    Attributes:
        sequences: their tokens.
        positions: int32 [R, 2], the first and the last token of the answer in each row; (0, 0),
            which is [CLS], where the row has no answer, or not all of it.
        report: a line for everything that a user should know.
    """

    sequences: Sequences
    positions: np.ndarray
    report: tuple[str, ...]

    @classmethod
    def of(cls, questions: Sequence[Question], windows: PassageWindows) -> "SpanRows":
        """Makes the rows of questions whose answers are known.

        Of several answers to a question, the first one that is in the passage counts.
        """
        used = [question for question in questions if _has_text(question)]
        empty = [question.place for question in questions if not _has_text(question)]
        without: list[str] = []  # places of questions
        moved: list[str] = []
        positions: list[tuple[int, int]] = []

        def encodings() -> Iterator[PassageWindow]:
            pairs = [(question.question, question.passage) for question in used]
            for question, rows in zip(used, encode_in_chunks(windows, pairs), strict=True):
                tokens, is_stated = _answer_tokens(question, rows[0])
                if question.answers and tokens is None:
                    without.append(question.place)
                    continue
                if not is_stated:
                    moved.append(question.place)
                positions.extend(row.answer_positions(tokens) for row in rows)
                yield from rows

        sequences = Sequences.of(encodings())
        total = f"of {len(questions)} training questions"
        report = [
            f"{len(places)} {total} {what}: left out ({_named(places)})"
            for places, what in (
                (empty, "are empty or have an empty passage"),
                (without, "have no answer that is in the passage"),
            )
            if places
        ]
        if moved:
            report.append(f"answers at another place than the file says: {len(moved)}")
        if windows.cut_questions:
            limit = windows.question_limit
            report.append(f"{windows.cut_questions} {total} were longer than {limit} tokens: cut")
        return cls(sequences, np.array(positions, np.int32).reshape(-1, 2), tuple(report))


def _has_text(question: Question) -> bool:
    return bool(question.question.strip() and question.passage.strip())


def _answer_tokens(
    question: Question, window: PassageWindow
) -> tuple[tuple[int, int] | None, bool]:
    """The tokens of the first answer that has any, and whether they are where the file says."""
    for answer in question.answers or ():
        place = find_answer(question.passage, answer)
        tokens = token_span(window.passage, place.start, place.stop) if place else None
        if place and tokens:
            # A start that the file does not give cannot be wrong.
            return tokens, place.is_stated or answer.start < 0
    return None, True


def _named(places: Sequence[str]) -> str:
    more = f" and {len(places) - _NAMED} more" if len(places) > _NAMED else ""
    return ", ".join(places[:_NAMED]) + more


class QuestionAnsweringTask(LabelledTask[Question, SpanPrediction]):
    """Extractive question answering; a prediction is the best spans of the passage."""

    PREDICT = PREDICT

    def __init__(
        self,
        splits: Splits[Question],
        model: TrainedModel,
        options: LabelledOptions,
        answer_options: AnswerOptions,
        *,
        tunes_threshold: bool,
    ) -> None:
        """See `LabelledTask`.

        Args:
            splits: the questions.
            model: what is trained; with a threshold in its description where questions may have no
                answer.
            options: of all labelled tasks.
            answer_options: how passages are cut and answers searched.
            tunes_threshold: whether an evaluation sets the threshold by the (first) validation
                file; else the model's own is used.
        """
        super().__init__(splits, model, options)
        self._answer_options = answer_options
        self._tunes_threshold = tunes_threshold

    @functools.cached_property
    def rows(self) -> SpanRows:
        """The windows of the training questions; this is where they are tokenised."""
        options = self._answer_options
        windows = PassageWindows(
            self.tokenizer, self.options.length, options.window_step, options.question_length
        )
        rows = SpanRows.of(self.splits.train, windows)
        if not len(rows.sequences.lengths):
            problem = "no training question has an answer that its passage has"
            raise OptionError("train", None, "give another file as {train}", problem)
        if is_main_host():
            for line in rows.report:
                print(line, file=sys.stderr)
        return rows

    @property
    def examples_per_epoch(self) -> int:
        """Windows: every one of them is an example, whether the answer is in it or not."""
        return len(self.rows.sequences.lengths)

    def make_batches(self) -> LabelledBatches:
        """Each window is an example."""
        rows = self.rows

        def make(chosen: np.ndarray, length: int) -> Batch:
            is_row = chosen >= 0
            # A position beyond the batch would give NaN, which a weight of 0 does not remove.
            positions = rows.positions[chosen] * is_row[:, None]  # B2
            return {
                **rows.sequences.pad(chosen, length, self.tokenizer),
                "start_positions": positions[:, 0],
                "end_positions": positions[:, 1],
                "weights": is_row.astype(np.float32),
            }

        return self.batches_of(rows.sequences.lengths, make)

    def loss_sums(self, params: Any, batch: dict[str, jax.Array], dropout_key: Any = None) -> Sums:
        """The mean cross-entropy of first and last token; and windows with both right.

        As in the original, all tokens of a row compete, those of the question among them; but not
        padding, so that a loss does not depend on the length of its batch.
        """
        output: Any = self.forward(params, batch, dropout_key)
        is_token = batch["attention_mask"] > 0  # BT
        start_logits = jnp.where(is_token, output.start_logits, MASK_VALUE)
        end_logits = jnp.where(is_token, output.end_logits, MASK_VALUE)
        start, end = batch["start_positions"], batch["end_positions"]
        cross_entropy = optax.softmax_cross_entropy_with_integer_labels
        losses = (cross_entropy(start_logits, start) + cross_entropy(end_logits, end)) / 2
        correct = (start_logits.argmax(-1) == start) & (end_logits.argmax(-1) == end)
        return {"": weighted_sums(batch["weights"], {"loss": losses, "accuracy": correct})}

    def predictor(self, model: Model) -> Predictor[Question, SpanPrediction]:
        return SpanPredictor(model, self._answer_options)

    def label_of(self, example: Question) -> list[str] | None:
        """The texts of the accepted answers."""
        return None if example.answers is None else [answer.text for answer in example.answers]

    def metrics(
        self, examples: list[Question], predictions: list[SpanPrediction]
    ) -> dict[str, float]:
        """The official ones, in percent; where questions may have no answer, for both kinds."""
        return self._scores(examples, _texts(examples, predictions), _odds(examples, predictions))

    def metric_names(self, examples: list[Question]) -> Iterable[str]:
        nothing = {question.id: "" for question in examples}
        return self._scores(examples, nothing, dict.fromkeys(nothing, 0.0))

    def _scores(
        self, examples: list[Question], texts: dict[str, str], odds: dict[str, float]
    ) -> dict[str, float]:
        gold, threshold = _gold_texts(examples), self._threshold
        if threshold is None:
            return score_v1(gold, texts)
        official = score_v2(gold, texts, odds, threshold=threshold)
        names = {
            "exact": "exact_match",
            "f1": "f1",
            "HasAns_exact": "has_answer_exact_match",
            "HasAns_f1": "has_answer_f1",
            "NoAns_f1": "no_answer_f1",
            "best_f1": "best_f1",
            "best_f1_thresh": "best_f1_threshold",
        }
        scores = {name: official[key] for key, name in names.items() if key in official}
        return {**scores, "null_threshold": threshold}

    def calibrate(self, examples: list[Question], predictions: list[SpanPrediction]) -> None:
        """Tunes the threshold above which a question has no answer."""
        if self._tunes_threshold and self._threshold is not None:
            threshold = best_f1_threshold(
                _gold_texts(examples), _texts(examples, predictions), _odds(examples, predictions)
            )
            other = {**self.description.other, NULL_THRESHOLD: threshold}
            self.description = dataclasses.replace(self.description, other=other)

    def baseline_metrics(self, examples: list[Question]) -> dict[str, float]:
        """`f1_no_answer`: no question is answered, where some have no answer."""
        if self._threshold is None:
            return {}
        unanswered = sum(not question.answers for question in examples)
        return {"f1_no_answer": 100.0 * unanswered / len(examples)}

    def examples_as_text(self, count: int) -> str:
        """Question, first answer and passage, one example a line."""
        return "\n".join(
            f"{row.question}\t{row.answers[0].text if row.answers else '-'}\t{row.passage}"
            for row in self.splits.train[:count]
        )

    def as_output(self, prediction: SpanPrediction) -> RankedSpans:
        return RankedSpans(prediction, self._threshold)

    def further_files(self, eval_set: EvalSet[Question]) -> Iterable[str]:
        """The input of SQuAD's official scripts; two more files are written beside it."""
        return [f"{eval_set.name}.json"]

    @property
    def _threshold(self) -> float | None:
        return stored_threshold(self.description)


def _gold_texts(questions: Sequence[Question]) -> dict[str, list[str]]:
    """The accepted answers of each question, by its id."""
    return {
        question.id: [answer.text for answer in question.answers or ()] for question in questions
    }


def _texts(questions: list[Question], predictions: list[SpanPrediction]) -> dict[str, str]:
    """The best answer to each question by its id, also where none would be better."""
    return {
        question.id: spans.answer(None).text
        for question, spans in zip(questions, predictions, strict=True)
    }


def _odds(questions: list[Question], predictions: list[SpanPrediction]) -> dict[str, float]:
    """`null_odds` of each question, by its id."""
    return {
        question.id: spans.null_odds for question, spans in zip(questions, predictions, strict=True)
    }


def defaults() -> dict[str, dict[str, Any]]:
    """The keys of this task, by section; those of `QuestionOptions` are keys of `data`.

    `version` is "2.0" where questions may have no answer, else "1.1"; "" leaves that to the data,
    or to the model that is evaluated. `window_step`, `question_length`, `answer_length`, `n_best`:
    see `AnswerOptions`.
    """
    return labelled_defaults(
        {
            **keys_of(QuestionOptions),
            **keys_of(AnswerOptions, omit=("batch_size", "max_length")),
            "length": 384,
            "version": "",
        },
        optimizer={"learning_rate": 5e-5},
    )


def create(config: ConfigDict, model_init: ModelInit) -> QuestionAnsweringTask:
    """The task of a config, see `bert_jax.config`."""
    data = config.data
    if data.version not in VERSIONS:
        raise OptionError("version", data.version, "known are 1.1 and 2.0")
    tokenizer = model_tokenizer(model_init)
    options = labelled_options(config, "f1")
    answer_options = from_keys(
        AnswerOptions, data, batch_size=options.batch_size, max_length=options.length
    )
    reading = from_keys(QuestionOptions, data)
    splits = read_splits(
        data,
        lambda source, split: distinct(read_questions(source, reading)),
        with_train=not model_init.is_finished,
    )
    evaluated = (question for eval_set in splits.validation for question in eval_set.examples)
    questions = [*splits.train, *evaluated]
    _check_answers(splits.train, questions, data.version)
    stored = stored_threshold(model_init.description) if model_init.description else None
    is_tuned = model_init.is_finished and stored is not None
    is_version_2 = data.version == "2.0" or any(question.answers == () for question in questions)
    other: dict[str, Any] = {}
    if data.version != "1.1" and (is_tuned or is_version_2):
        other[NULL_THRESHOLD] = stored if is_tuned else UNTUNED_THRESHOLD
    # Two outputs, first and last token: a base that was a classifier may have had others.
    description = model_init.describe(tokenizer, Head.QUESTION_ANSWERING, other=other)
    return QuestionAnsweringTask(
        splits,
        TrainedModel(tokenizer, description, model_init.execution),
        options,
        answer_options,
        tunes_threshold=not model_init.is_finished,
    )


def _check_answers(train: list[Question], questions: list[Question], version: str) -> None:
    for question in train:
        if question.answers is None:
            raise UserError(
                f"{question.place}: the question has no answers to train on; give them, or an "
                "empty list where the passage has none"
            )
    for question in questions if version == "1.1" else ():
        if question.answers == ():
            raise OptionError(
                "version",
                version,
                "set {version=2.0}",
                problem=f"{question.place}: the passage has no answer, which SQuAD 1.1 does not "
                "allow",
            )


TRAIN = TrainingTask(create, defaults)

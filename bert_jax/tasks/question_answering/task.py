"""Answers that are parts of a passage: SQuAD 1.1 and 2.0 (paper, sections 4.2 and 4.3)."""

import dataclasses
import functools
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from ml_collections import ConfigDict

from bert_jax.checkpoints.config_file import ModelDescription
from bert_jax.data.examples import Question
from bert_jax.data.labelled_batches import LabelledBatches
from bert_jax.data.pipeline import Batch
from bert_jax.data.readers.squad import QuestionOptions, distinct, read_questions
from bert_jax.data.windows.span_rows import SpanRows
from bert_jax.errors import UserError
from bert_jax.metrics.squad import best_f1_threshold, score_v1
from bert_jax.models.config import EncoderConfig, Head
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
from bert_jax.tasks.base.predictor import Model, Predictor
from bert_jax.tasks.base.splits import EvalSet, Splits, read_splits
from bert_jax.tasks.base.task import ModelInit, Sums, weighted_sums
from bert_jax.tasks.question_answering.answering import (
    NULL_THRESHOLD,
    AnswerOptions,
    SpanPredictor,
    stored_threshold,
)
from bert_jax.tasks.question_answering.files import write_squad_files
from bert_jax.tasks.question_answering.null_threshold import (
    UNTUNED_THRESHOLD,
    gold_texts,
    scores_v2,
)
from bert_jax.tasks.question_answering.predict import PREDICT, Found
from bert_jax.tasks.question_answering.spans import Spans

VERSIONS = ("", "1.1", "2.0")


class QuestionAnsweringTask(LabelledTask[Question, Spans]):
    """Extractive question answering; an answer is the best spans of the passage."""

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
            answer_options: how passages are cut and answers looked for.
            tunes_threshold: whether an evaluation sets the threshold by the (first) validation
                file; else the model's own is used.
        """
        super().__init__(splits, model, options)
        self._answer_options = answer_options
        self._tunes_threshold = tunes_threshold

    @functools.cached_property
    def rows(self) -> SpanRows:
        """The windows of the training questions; this is where they are tokenised."""
        windows = self._answer_options.windows(self.description.config)
        rows = SpanRows.of(self.splits.train, self.tokenizer, windows)
        if not len(rows.sequences.lengths):
            raise UserError("data.train: no question has an answer that its passage has; mend it")
        if is_main_host():
            for line in rows.report():
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
            # A position beyond the batch would be NaN, which no weight of 0 mends.
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

    def predictor(self, model: Model) -> Predictor[Question, Spans]:
        """The predictor of users."""
        return SpanPredictor(model, self._answer_options)

    def label_of(self, example: Question) -> list[str] | None:
        """The texts of the accepted answers."""
        return None if example.answers is None else [answer.text for answer in example.answers]

    def as_output(self, prediction: Spans) -> Found:
        return Found(prediction, self._threshold, 1)

    def metrics(self, examples: list[Question], answers: list[Spans]) -> dict[str, float]:
        """The official ones, in percent; where questions may have no answer, for both kinds."""
        gold, predictions = gold_texts(examples), _texts(examples, answers)
        if self._threshold is None:
            return score_v1(gold, predictions)
        return scores_v2(gold, predictions, _odds(examples, answers), self._threshold)

    def calibrate(self, examples: list[Question], answers: list[Spans]) -> None:
        """Tunes by how much no answer must be better than the best one."""
        if self._tunes_threshold and self._threshold is not None:
            predictions, odds = _texts(examples, answers), _odds(examples, answers)
            self._set_threshold(best_f1_threshold(gold_texts(examples), predictions, odds))

    def metric_names(self, examples: list[Question]) -> Iterable[str]:
        """Those of the official script."""
        gold, nothing = gold_texts(examples), {question.id: "" for question in examples}
        if self._threshold is None:
            return score_v1(gold, nothing)
        return scores_v2(gold, nothing, dict.fromkeys(nothing, 0.0), self._threshold)

    def baseline_metrics(self, examples: list[Question]) -> dict[str, float]:
        """`f1_no_answer`: what is right if no question is answered, where that may be."""
        if self._threshold is None:
            return {}
        return {"f1_no_answer": 100.0 * sum(not one.answers for one in examples) / len(examples)}

    def examples_as_text(self, count: int) -> str:
        """Question, first answer and passage, one example a line."""
        return "\n".join(
            f"{one.question}\t{one.answers[0].text if one.answers else '-'}\t{one.passage}"
            for one in self.splits.train[:count]
        )

    def write(self, directory: Path, part: EvalSet[Question], answers: list[Spans]) -> None:
        """`<part>.jsonl`, and the files of SQuAD, see `write_squad_files`."""
        super().write(directory, part, answers)
        identities = [question.id for question in part.examples]
        write_squad_files(directory, part.name, identities, answers, self._threshold)

    @property
    def _threshold(self) -> float | None:
        return stored_threshold(self.description)

    def _set_threshold(self, threshold: float) -> None:
        other = {**self.description.other, NULL_THRESHOLD: threshold}
        self.description = dataclasses.replace(self.description, other=other)


def _texts(questions: list[Question], answers: list[Spans]) -> dict[str, str]:
    """The best answer to each question by its id, also where none would be better."""
    return {
        question.id: found.answer(None).text
        for question, found in zip(questions, answers, strict=True)
    }


def _odds(questions: list[Question], answers: list[Spans]) -> dict[str, float]:
    """By how much none is better than that, by the id of the question."""
    return {
        question.id: found.null_odds for question, found in zip(questions, answers, strict=True)
    }


def defaults() -> dict[str, dict[str, Any]]:
    """The keys of this task, by section; those of `QuestionOptions` are keys of `data`.

    `version` is "2.0" where questions may have no answer, else "1.1"; "" leaves that to the data,
    or to the model that is judged. `window_step`, `question_length`, `answer_length`, `n_best`: see
    `AnswerOptions`.
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
        raise UserError(f"data.version {data.version!r} is unknown; known are 1.1 and 2.0")
    tokenizer = model_tokenizer(model_init)
    options = from_keys(QuestionOptions, data)
    splits = read_splits(
        data,
        lambda source, split: distinct(read_questions(source, options)),
        with_train=not model_init.is_finished,
    )
    _check_given(splits.train)
    if data.version == "1.1":
        _check_possible(_questions(splits))
    stored = stored_threshold(model_init.description) if model_init.description else None
    is_tuned = model_init.is_finished and stored is not None
    other: dict[str, Any] = {}
    if data.version != "1.1" and (is_tuned or _is_second(data.version, splits)):
        other[NULL_THRESHOLD] = stored if is_tuned else UNTUNED_THRESHOLD
    # Two outputs, first and last token: a base that was a classifier may have had others.
    architecture = dataclasses.replace(
        model_init.architecture(tokenizer), num_labels=EncoderConfig.num_labels
    )
    description = ModelDescription(architecture, Head.QUESTION_ANSWERING, other=other)
    options_of_all = labelled_options(config, ("f1", True))
    return QuestionAnsweringTask(
        splits,
        TrainedModel(tokenizer, description, model_init.execution),
        options_of_all,
        from_keys(
            AnswerOptions,
            data,
            batch_size=options_of_all.batch_size,
            max_length=options_of_all.length,
        ),
        tunes_threshold=not model_init.is_finished,
    )


def _is_second(version: str, splits: Splits[Question]) -> bool:
    """Whether the data are those of 2.0: some question has no answer."""
    if version:
        return version == "2.0"
    return any(question.answers == () for question in _questions(splits))


def _questions(splits: Splits[Question]) -> list[Question]:
    """All that are trained on or judged."""
    return [*splits.train, *(one for part in splits.validation for one in part.examples)]


def _check_given(questions: list[Question]) -> None:
    for question in questions:
        if question.answers is None:
            raise UserError(
                f"{question.place}: the question has no answers to train on; give them, or an "
                "empty list where the passage has none"
            )


def _check_possible(questions: list[Question]) -> None:
    for question in questions:
        if question.answers == ():
            raise UserError(
                f"{question.place}: the passage has no answer, which SQuAD 1.1 does not know; "
                "set data.version=2.0"
            )

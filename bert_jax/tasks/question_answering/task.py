"""Answers that are parts of a passage: SQuAD 1.1 and 2.0 (paper, sections 4.2 and 4.3)."""

import dataclasses
import functools
from collections.abc import Iterable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

from bert_jax.checkpoints.config_file import ModelDescription
from bert_jax.data.examples import Example, Question
from bert_jax.data.readers.squad import QuestionOptions, distinct_ids, read_questions
from bert_jax.data.windows.passages import PassageWindows
from bert_jax.errors import OptionError, UserError, require_one_of
from bert_jax.metrics.squad import best_f1_threshold, score_v1, score_v2
from bert_jax.models.attention_inputs import MASK_VALUE
from bert_jax.models.heads.question_answering import JOINT_SCOPE, is_joint, joint_scores
from bert_jax.options import from_keys
from bert_jax.tasks.base.distillable import Distillable
from bert_jax.tasks.base.labelled_evaluator import LabelledEvaluator
from bert_jax.tasks.base.labelled_options import (
    LabelledData,
    config_keys,
    labelled_defaults,
    labelled_options,
    model_tokenizer,
)
from bert_jax.tasks.base.labelled_task import LabelledTask, TrainingRows
from bert_jax.tasks.base.model_init import ModelInit
from bert_jax.tasks.base.predictor import EncodingCounts
from bert_jax.tasks.base.splits import EvalSet, read_splits
from bert_jax.tasks.base.summary import count_classes
from bert_jax.tasks.base.task import Sums, weighted_sums
from bert_jax.tasks.base.train_spec import TaskConfig, TrainSpec
from bert_jax.tasks.question_answering.options import DEFAULT_LENGTH, SpanOptions
from bert_jax.tasks.question_answering.predict import NULL_THRESHOLD, PREDICT, stored_threshold
from bert_jax.tasks.question_answering.spans import SpanPrediction, SpanRows

# The threshold of google-research/bert, used where it is not tuned.
UNTUNED_THRESHOLD = 0.0

VERSIONS = ("", "1.1", "2.0")


@dataclasses.dataclass(frozen=True)
class QuestionData(LabelledData, QuestionOptions, SpanOptions):
    """The section `data` of a config.

    Attributes:
        version: "2.0" if questions may have no answer, else "1.1"; "": decided by the data, or by
            the model that is evaluated.
    """

    version: str = ""

    def __post_init__(self) -> None:
        super().__post_init__()
        require_one_of("data.version", self.version, VERSIONS)
        SpanOptions.__post_init__(self)


# Weight of the loss of "no answer" with the joint head (google-research/electra,
# configure_finetuning.py, answerable_weight).
_NO_ANSWER_WEIGHT = 0.5


@dataclasses.dataclass(frozen=True, eq=False)
class QuestionEvaluator(LabelledEvaluator[Question, SpanPrediction]):
    """A prediction is the best spans of the passage.

    Attributes:
        span_options: how passages are read and answers are searched.
    """

    PREDICT = PREDICT

    span_options: SpanOptions

    @property
    def predict_options(self) -> Any:
        return dataclasses.replace(super().predict_options, **vars(self.span_options))

    def metrics(
        self, examples: list[Example[Question]], predictions: list[SpanPrediction]
    ) -> dict[str, float]:
        """The official metrics, in percent; if questions may have no answer, for both kinds."""
        return _scores(self.description, examples, *_texts_and_odds(examples, predictions))

    def metric_names(self, examples: list[Example[Question]]) -> Iterable[str]:
        nothing = {question.id: "" for question in examples}
        return _scores(self.description, examples, nothing, dict.fromkeys(nothing, 0.0))

    def calibrated(
        self, examples: list[Example[Question]], predictions: list[SpanPrediction]
    ) -> "QuestionEvaluator":
        """With the threshold above which a question has no answer; a finished model has its own."""
        if not self.splits.train or stored_threshold(self.description) is None:
            return self
        threshold = best_f1_threshold(
            _gold_texts(examples), *_texts_and_odds(examples, predictions)
        )
        other = {**self.description.other, NULL_THRESHOLD: threshold}
        return dataclasses.replace(
            self, description=dataclasses.replace(self.description, other=other)
        )

    def baseline_metrics(self, examples: list[Example[Question]]) -> dict[str, float]:
        """`f1_no_answer`: F1 if no question is answered; only where some have no answer."""
        if stored_threshold(self.description) is None:
            return {}
        unanswered = sum(not question.label for question in examples)
        return {"f1_no_answer": 100.0 * unanswered / len(examples)}

    def as_output(self, prediction: SpanPrediction) -> SpanPrediction:
        return dataclasses.replace(prediction, null_threshold=stored_threshold(self.description))

    def expected(self, example: Example[Question]) -> list[str]:
        return _answer_texts(example)

    def further_files(self, eval_set: EvalSet[Question]) -> Iterable[str]:
        """The input of SQuAD's official scripts, which brings two more files (see `_squad`)."""
        return [f"{eval_set.name}.json"]


@dataclasses.dataclass(eq=False, repr=False, kw_only=True)
class QuestionAnsweringTask(LabelledTask[Question], Distillable):
    """Extractive question answering.

    Attributes:
        span_options: how passages are read and answers are searched.
    """

    score_kind = "classes"
    scores_tokens = True
    unit = "questions"
    default_length = DEFAULT_LENGTH

    span_options: SpanOptions

    def make_evaluator(self) -> QuestionEvaluator:
        return QuestionEvaluator(self.splits, self.options, self.description, self.span_options)

    @functools.cached_property
    def _windows(self) -> SpanRows:
        """The windows of the training questions, tokenised at the first access."""
        options = self.span_options
        with config_keys():
            windows = PassageWindows(
                self.tokenizer, self.options.length, options.window_step, options.question_length
            )
        rows = SpanRows.from_questions(self.splits.train, windows, self.span_options.answer_length)
        if not len(rows.sequences.lengths):
            problem = "no training question has an answer that its passage has"
            raise OptionError("data.train", None, "give another file as {data.train}", problem)
        return rows

    def reading_report(self) -> tuple[str, ...]:
        return self._windows.report

    def make_rows(self) -> TrainingRows:
        """Each window is an example, whether it contains the answer or not."""
        rows = self._windows
        arrays = {"start_positions": rows.positions[:, 0], "end_positions": rows.positions[:, 1]}
        if is_joint(self.description.config):
            arrays |= {"passages": rows.passages, "without_answer": rows.without_answer}
        # Zeros for rows of padding (number -1): a position beyond the batch would give
        # NaN, which a weight of 0 does not remove.
        padded = {
            name: np.append(array, np.zeros_like(array[:1]), axis=0)
            for name, array in arrays.items()
        }
        return self.single_rows(rows.sequences, EncodingCounts(texts=0), **padded)

    def class_counts(self, examples: Iterable[Example[Question]]) -> dict[str, int]:
        """Questions with and without an answer, where some have none."""
        if stored_threshold(self.description) is None:
            return {}
        return count_classes("answer" if each.label else "no answer" for each in examples)

    def loss(self, params: Any, outputs: Any, batch: dict[str, jax.Array]) -> Sums:
        """Mean cross-entropy of first and last token, and the number of windows with both correct.

        As in the original, all tokens of a row compete, also the question's, but not padding, so
        that the loss does not depend on the length of the batch. With the joint head the passage
        and [CLS] compete, and the end is conditioned on the gold start.
        """
        outputs = self._scored(params, outputs, batch)
        start_logits, end_logits = jnp.unstack(_token_scores(batch, outputs), axis=1)  # BT
        start, end = batch["start_positions"], batch["end_positions"]
        cross_entropy = optax.softmax_cross_entropy_with_integer_labels
        losses = (cross_entropy(start_logits, start) + cross_entropy(end_logits, end)) / 2
        if is_joint(self.description.config) and stored_threshold(self.description) is not None:
            losses += _NO_ANSWER_WEIGHT * optax.sigmoid_binary_cross_entropy(
                outputs.no_answer_logits, batch["without_answer"]
            )
        correct = (start_logits.argmax(-1) == start) & (end_logits.argmax(-1) == end)
        return {"": weighted_sums(batch["weights"], {"loss": losses, "accuracy": correct})}

    def scores(self, params: Any, outputs: Any, batch: dict[str, jax.Array]) -> jax.Array:
        """Scores of the first and the last token, [B, 2, T]."""
        return _token_scores(batch, self._scored(params, outputs, batch))

    def _scored(self, params: Any, outputs: Any, batch: dict[str, jax.Array]) -> Any:
        """The outputs with scores, which the joint head has only for a start: the gold one."""
        if not is_joint(self.description.config):
            return outputs
        return joint_scores(
            params[JOINT_SCOPE], outputs, batch["passages"], batch["start_positions"]
        )

    def examples_as_text(self, count: int) -> str:
        """Question, first answer and passage, one example a line."""
        return "\n".join(
            "\t".join([row.input.question, *(_answer_texts(row)[:1] or "-"), row.input.passage])
            for row in self.splits.train[:count]
        )


def _scores(
    description: ModelDescription,
    examples: list[Example[Question]],
    texts: dict[str, str],
    odds: dict[str, float],
) -> dict[str, float]:
    gold, threshold = _gold_texts(examples), stored_threshold(description)
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


def _token_scores(batch: dict[str, jax.Array], outputs: Any) -> jax.Array:
    """Scores of start and end, [B, 2, T], the lowest finite number for padding."""
    scores = jnp.stack([outputs.start_logits, outputs.end_logits], axis=1)
    return jnp.where(batch["attention_mask"][:, None] > 0, scores, MASK_VALUE)


def _answer_texts(example: Example[Question]) -> list[str]:
    """The texts of the accepted answers."""
    return [answer.text for answer in example.label or ()]


def _gold_texts(questions: Sequence[Example[Question]]) -> dict[str, list[str]]:
    """The accepted answers of each question, by its id."""
    return {question.id: _answer_texts(question) for question in questions}


def _texts_and_odds(
    questions: list[Example[Question]], predictions: list[SpanPrediction]
) -> tuple[dict[str, str], dict[str, float]]:
    """The best answer to each question, even if "no answer" scores higher; `null_odds`; by id."""
    by_id = {row.id: each for row, each in zip(questions, predictions, strict=True)}
    texts = {name: (*each.best, each.null)[0].text for name, each in by_id.items()}
    return texts, {name: each.null_odds for name, each in by_id.items()}


def create(config: TaskConfig[QuestionData], model_init: ModelInit) -> QuestionAnsweringTask:
    """The task of a config."""
    data = config.data
    tokenizer = model_tokenizer(model_init)
    splits = read_splits(
        data,
        lambda source, split, report: map(distinct_ids(), read_questions(source, data, report)),
        with_train=not model_init.is_finished,
    )
    evaluated = (question for eval_set in splits.validation for question in eval_set.examples)
    questions = [*splits.all_train, *evaluated]
    _check_answers(splits.train, questions, data.version)
    stored = stored_threshold(model_init.description) if model_init.description else None
    is_tuned = model_init.is_finished and stored is not None
    is_version_2 = data.version == "2.0" or any(question.label == () for question in questions)
    other: dict[str, Any] = {}
    if data.version != "1.1" and (is_tuned or is_version_2):
        other[NULL_THRESHOLD] = stored if is_tuned else UNTUNED_THRESHOLD
    # Two outputs, first and last token; the initial model may have had another number of labels.
    description = model_init.describe(tokenizer, "question_answering", other=other)
    return QuestionAnsweringTask(
        splits=splits,
        tokenizer=tokenizer,
        description=description,
        execution=model_init.execution,
        options=labelled_options(config, "f1"),
        span_options=from_keys(SpanOptions, vars(data)),
    )


def _check_answers(
    train: list[Example[Question]], questions: list[Example[Question]], version: str
) -> None:
    for question in train:
        if question.label is None:
            raise UserError(
                f"{question.location}: the question has no answers to train on; give them, or an "
                "empty list where the passage has none"
            )
    for question in questions if version == "1.1" else ():
        if question.label == ():
            problem = f"{question.location}: the passage has no answer, which SQuAD 1.1 does not "
            raise OptionError("data.version", version, "set {data.version=2.0}", f"{problem}allow")


TRAIN = TrainSpec(
    QuestionData, create, defaults=labelled_defaults(optimizer={"learning_rate": 5e-5})
)

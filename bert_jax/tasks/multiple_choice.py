"""The right one of several endings or answers: SWAG and its relatives (paper, section 4.4).

Every choice is a row: `[CLS] prompt [SEP] question choice [SEP]`. A row that is too long is cut as
Hugging Face's examples cut it, from the longer of both sides: in practice the prompt, while the
choice stays whole as long as it takes no more than half of the row.
"""

import dataclasses
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from bert_jax.checkpoints.config_file import ModelDescription
from bert_jax.data.examples import Choices, Example, Text
from bert_jax.data.outputs import float32_repr
from bert_jax.data.pipeline import Batch
from bert_jax.data.readers.choices import (
    ANSWERS,
    ChoiceOptions,
    ChoiceParser,
    open_choices,
    read_choices,
)
from bert_jax.errors import UserError
from bert_jax.models.attention_inputs import MASK_VALUE
from bert_jax.models.config import EncoderConfig
from bert_jax.tasks.base.distillable import Distillable
from bert_jax.tasks.base.labelled_evaluator import LabelledEvaluator
from bert_jax.tasks.base.labelled_options import (
    LabelledData,
    labelled_defaults,
    labelled_options,
    model_tokenizer,
)
from bert_jax.tasks.base.labelled_task import LabelledTask, TrainingRows, encode_in_chunks
from bert_jax.tasks.base.model_init import ModelInit
from bert_jax.tasks.base.predict_spec import InputReader, PredictOptions, PredictSpec
from bert_jax.tasks.base.predictor import (
    BatchOptions,
    EncodedExample,
    ExampleError,
    Model,
    Predictor,
    check_finite,
    check_head,
    not_one_string,
    softmax,
)
from bert_jax.tasks.base.splits import read_splits
from bert_jax.tasks.base.task import Sums, classification_sums
from bert_jax.tasks.base.text_rows import TextEncoder, text_error
from bert_jax.tasks.base.train_spec import TaskConfig, TrainSpec
from bert_jax.tokenization import Encoding, Tokenizer


@dataclasses.dataclass(frozen=True)
class ChoicePredictOptions(PredictOptions, ChoiceOptions):
    """The options of `bert-jax predict`."""


@dataclasses.dataclass(frozen=True)
class ChoiceData(LabelledData, ChoiceOptions):
    """The section `data` of a config."""


@dataclasses.dataclass(frozen=True, slots=True)
class Choice:
    """The best of several choices.

    Attributes:
        index: number of the choice, from 0.
        choice: text of the choice.
        score: probability of the choice.
        probabilities: probabilities of all choices, in their order.
    """

    index: int
    choice: str
    score: float
    probabilities: tuple[float, ...]


class ChoiceEncoder:
    """Encodes examples as one row per choice, cut to a limit; each choice counts as a text."""

    def __init__(self, tokenizer: Tokenizer, config: EncoderConfig, limit: int) -> None:
        """Raises UserError where the model cannot tell the prompt from the choice."""
        tokenizer.check_pairs(config.type_vocab_size, "choices")
        self._texts = TextEncoder(tokenizer, config, limit)

    def __call__(self, examples: Sequence[Choices]) -> list[EncodedExample | ExampleError]:
        return self._texts.groups(list(map(_pairs, examples)))


def _pairs(example: Choices) -> list[Text] | ExampleError:
    """The two texts of each choice."""
    if error := text_error(example.prompt, example.question, *example.choices):
        return error
    if len(example.choices) < 2:
        return ExampleError(f"{len(example.choices)} choices; give two or more")
    question = f"{example.question} " if example.question else ""
    return [(example.prompt, question + choice) for choice in example.choices]


class ChoicePredictor(Predictor[Choices, np.ndarray]):
    """The scores of the choices of each example, float32 [K], before softmax; K may vary."""

    def __init__(self, model: Model, options: BatchOptions) -> None:
        """Raises UserError where the model does not score choices."""
        check_head(model, PREDICT.heads, "choose")
        super().__init__(model, options)
        self._encode = ChoiceEncoder(model.tokenizer, model.config, self.limit)

    def encode(self, examples: Sequence[Choices]) -> list[EncodedExample | ExampleError]:
        return self._encode(examples)

    def inputs(self, arrays: Batch, rows: Mapping[int, Encoding]) -> Batch:
        # Each row is an example of one choice, B1T.
        ids = ("input_ids", "token_type_ids", "attention_mask")
        return arrays | {key: arrays[key][:, None] for key in ids}

    def decode(self, example: Choices, encoded: EncodedExample, outputs: list[Any]) -> np.ndarray:
        scores = np.concatenate(outputs)
        return check_finite(scores, "the scores of the choices of an example")

    def characters(self, example: Choices) -> int:
        beginning = super().characters((example.prompt, example.question))
        return len(example.choices) * beginning + super().characters(example.choices)


def best_choice(choices: Sequence[str], scores: np.ndarray) -> Choice:
    """The choice with the highest score, float32 [K]; the first one of equal scores."""
    probabilities = softmax(scores)
    best = int(scores.argmax())
    return Choice(best, choices[best], float(probabilities[best]), tuple(probabilities.tolist()))


def choice_inputs(
    prompt: str | Sequence[str],
    choices: Sequence[str] | Sequence[Sequence[str]],
    question: str | Sequence[str] = "",
) -> list[Choices]:
    """The inputs of one or several prompts, from the arguments of `LoadedModel.choose`.

    Raises:
        UserError: lists differ in length, or one is a dict.
    """
    single = isinstance(prompt, str)
    prompts = [prompt] if isinstance(prompt, str) else list(not_one_string(prompt, "prompts"))
    all_choices: list[Any] = [choices] if single else list(not_one_string(choices, "choices"))
    several = [question] * len(prompts) if isinstance(question, str) else question
    questions = list(not_one_string(several, "questions"))
    if not len(prompts) == len(all_choices) == len(questions):
        raise UserError(
            f"{len(prompts)} prompts, {len(all_choices)} lists of choices, {len(questions)} "
            "questions; give one of each for each prompt"
        )
    return [
        Choices(text, tuple(not_one_string(prompt_choices, "choices")), about)
        for text, prompt_choices, about in zip(prompts, all_choices, questions, strict=True)
    ]


def to_record(example: Choices, scores: np.ndarray) -> Mapping[str, Any]:
    """The best choice and the probabilities of all choices, as the fields of a JSON line."""
    choice = best_choice(example.choices, scores)
    return {
        "index": choice.index,
        "choice": choice.choice,
        "score": float32_repr(choice.score),
        "probabilities": [float32_repr(probability) for probability in choice.probabilities],
    }


PREDICT = PredictSpec(
    InputReader(
        lambda options: ChoiceParser(options.answer_columns(ANSWERS)),
        lambda source, options: open_choices(source, options, options.answer_columns(ANSWERS)),
    ),
    ChoicePredictOptions,
    ChoicePredictor,
    to_record,
    heads=("multiple_choice",),
)


class ChoiceEvaluator(LabelledEvaluator[Choices, np.ndarray]):
    """A prediction is the scores of the choices, float32 [K]."""

    PREDICT = PREDICT

    def metrics(
        self, examples: list[Example[Choices]], predictions: list[np.ndarray]
    ) -> dict[str, float]:
        """Accuracy and mean cross-entropy."""
        losses, correct = [], []
        for scores, target in zip(predictions, _targets(examples), strict=True):
            exact = scores.astype(np.float64)
            losses.append(np.logaddexp.reduce(exact) - exact[target])
            correct.append(scores.argmax() == target)
        return {"loss": float(np.mean(losses)), "accuracy": float(np.mean(correct))}

    def metric_names(self, examples: list[Example[Choices]]) -> Iterable[str]:
        return "loss", "accuracy"

    def baseline_metrics(self, examples: list[Example[Choices]]) -> dict[str, float]:
        """`accuracy_majority`: always the most common number; `accuracy_chance`: a random guess."""
        labels = Counter(example.label for example in examples)
        guesses = [1 / len(example.input.choices) for example in examples]
        return {
            "accuracy_majority": max(labels.values()) / len(examples),
            "accuracy_chance": float(np.mean(guesses)),
        }


class MultipleChoiceTask(LabelledTask[Choices], Distillable):
    """A prompt and several choices, of which one is right."""

    score_kind = "classes"

    def make_evaluator(self) -> ChoiceEvaluator:
        return ChoiceEvaluator(self.splits, self.options, self.description)

    def make_rows(self) -> TrainingRows:
        """Each example has a row for each of its choices; `choice_mask`, bool [B, K], has these."""
        examples = self.splits.train
        encode = ChoiceEncoder(self.tokenizer, self.description.config, self.options.length)
        rows = self.several_rows_each(encode_in_chunks(encode, examples), _targets(examples))

        def make(chosen: np.ndarray, length: int) -> Batch:
            batch = rows.make(chosen, length)
            return {**batch, "choice_mask": batch["attention_mask"].max(axis=-1) > 0}

        return dataclasses.replace(rows, make=make)

    def loss(self, params: Any, outputs: Any, batch: dict[str, jax.Array]) -> Sums:
        """Cross-entropy over the choices of each example, and the number of correct predictions."""
        logits = self.scores(params, outputs, batch)
        return {"": classification_sums(logits, batch["labels"], batch["weights"])}

    def scores(self, params: Any, outputs: Any, batch: dict[str, jax.Array]) -> jax.Array:
        return jnp.where(batch["choice_mask"], outputs, MASK_VALUE)  # BK

    def examples_as_text(self, count: int) -> str:
        """The right choice, prompt, question, and all choices, one example a line."""
        return "\n".join(
            "\t".join(filter(None, (str(row.label), each.prompt, each.question, *each.choices)))
            for row, each in ((row, row.input) for row in self.splits.train[:count])
        )


def _targets(examples: list[Example[Choices]]) -> np.ndarray:
    """The numbers of the right choices, int32 [n]; all examples are labelled."""
    return np.array([example.label for example in examples], np.int32)


def create(config: TaskConfig[ChoiceData], model_init: ModelInit) -> MultipleChoiceTask:
    """The task of a config."""
    tokenizer = model_tokenizer(model_init)
    splits = read_splits(
        config.data,
        lambda source, split, report: read_choices(
            source, config.data, needs_labels=split == "train", report=report
        ),
        with_train=not model_init.is_finished,
    )
    return MultipleChoiceTask(
        splits=splits,
        tokenizer=tokenizer,
        description=_description(model_init, tokenizer),
        execution=model_init.execution,
        options=labelled_options(config, "accuracy"),
    )


def _description(model_init: ModelInit, tokenizer: Tokenizer) -> ModelDescription:
    """The model: one output, regardless of the labels of the initial model's head."""
    base = model_init.description
    if base is not None and base.head == "multiple_choice":
        return model_init.describe(
            tokenizer, "multiple_choice", num_labels=None, labels=base.labels
        )
    return model_init.describe(tokenizer, "multiple_choice")


TRAIN = TrainSpec(
    ChoiceData,
    create,
    defaults=labelled_defaults(optimizer={"learning_rate": 2e-5}, train={"global_batch_size": 16}),
)

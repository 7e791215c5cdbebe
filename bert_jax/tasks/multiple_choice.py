"""The right one of several endings or answers: SWAG and its relatives (paper, section 4.4).

Every choice is a row: `[CLS] prompt [SEP] question choice [SEP]`. A row that is too long is cut as
Hugging Face's examples cut it, from the longer of both sides: in practice the prompt, while the
choice stays whole as long as it takes no more than half of the row.
"""

import dataclasses
import itertools
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from ml_collections import ConfigDict

from bert_jax.checkpoints.config_file import ModelDescription
from bert_jax.data.examples import ChoiceExample, Entries
from bert_jax.data.labelled_batches import LabelledBatches
from bert_jax.data.padding import Sequences
from bert_jax.data.pipeline import Batch
from bert_jax.data.readers.choices import (
    ANSWERS,
    LAYOUTS,
    ChoiceOptions,
    open_choices,
    read_choices,
)
from bert_jax.data.records import shortest
from bert_jax.errors import UserError
from bert_jax.models.attention_inputs import MASK_VALUE
from bert_jax.models.config import EncoderConfig, Head
from bert_jax.options import from_keys, keys_of
from bert_jax.tasks.base.labelled_options import (
    check_labelled_options,
    labelled_defaults,
    labelled_options,
    model_tokenizer,
)
from bert_jax.tasks.base.labelled_task import LabelledTask, TrainedModel
from bert_jax.tasks.base.predict_spec import JSONL, PredictOptions, PredictSpec, json_lines
from bert_jax.tasks.base.predictor import (
    BatchOptions,
    ExampleError,
    Model,
    PredictionBatch,
    Predictor,
    check_finite,
    check_head,
    encode_in_chunks,
    not_one_string,
    softmax,
)
from bert_jax.tasks.base.splits import read_splits
from bert_jax.tasks.base.task import ModelInit, Sums, TrainSpec, weighted_sums
from bert_jax.tasks.base.text_rows import TextEncoder
from bert_jax.tokenization import Encoding, Tokenizer


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
    """Encodes examples as one row per choice, cut to a limit.

    Attributes:
        texts: the encoder of the rows, with its counts.
    """

    def __init__(self, tokenizer: Tokenizer, config: EncoderConfig, limit: int) -> None:
        """Raises UserError where the model cannot tell the prompt from the choice."""
        tokenizer.check_pairs(config.type_vocab_size, "choices")
        self.texts = TextEncoder(tokenizer, config, limit)

    def __call__(self, examples: Sequence[ChoiceExample]) -> list[list[Encoding]]:
        """One row for each choice of each example."""
        pairs = [
            (example.prompt, f"{example.question} {choice}" if example.question else choice)
            for example in examples
            for choice in example.choices
        ]
        rows = iter(self.texts(pairs))
        return [
            [row for (row,) in itertools.islice(rows, len(example.choices))] for example in examples
        ]

    def check(self, example: ChoiceExample, index: int) -> None:
        """Raises ExampleError if a part is not a text, or there are fewer than two choices."""
        for text in (example.prompt, example.question, *example.choices):
            if not isinstance(text, str):
                raise ExampleError(f"{text!r:.80} is no text; give strings", index)
        if len(example.choices) < 2:
            raise ExampleError(f"{len(example.choices)} choices; give two or more", index)

    def report(self) -> None:
        """Prints a line to stderr if rows were cut; each choice counts."""
        self.texts.report()


class ChoicePredictor(Predictor[ChoiceExample, np.ndarray]):
    """The scores of the choices of each example, float32 [C], before softmax; C may vary."""

    def __init__(self, model: Model, options: BatchOptions) -> None:
        """Raises UserError where the model does not score choices."""
        check_head(model, PREDICT.heads, "choose", "multiple_choice")
        super().__init__(model, options)
        self._rows = ChoiceEncoder(model.tokenizer, model.config, self.limit)

    def prepare(self, example: ChoiceExample, index: int) -> ChoiceExample:
        self._rows.check(example, index)
        return example

    def encode(self, examples: Sequence[ChoiceExample]) -> list[list[Encoding]]:
        return self._rows(examples)

    def inputs(self, batch: PredictionBatch[ChoiceExample]) -> dict[str, np.ndarray]:
        # Each row is an example of one choice, B1T.
        ids = ("input_ids", "token_type_ids", "attention_mask")
        return batch.arrays | {key: batch.arrays[key][:, None] for key in ids}

    def decode(
        self, example: ChoiceExample, encodings: Sequence[Encoding], outputs: list[Any]
    ) -> np.ndarray:
        scores = np.concatenate(outputs)
        return check_finite(scores, "the scores of the choices of an example")

    def characters(self, example: ChoiceExample) -> int:
        beginnings = len(example.choices) * (len(example.prompt) + len(example.question))
        return beginnings + sum(map(len, example.choices))

    def report(self) -> None:
        self._rows.report()


def best_choice(choices: Sequence[str], scores: np.ndarray) -> Choice:
    """The choice with the highest score, float32 [C]; the first one of equal scores."""
    probabilities = softmax(scores)
    best = int(scores.argmax())
    return Choice(best, choices[best], float(probabilities[best]), tuple(probabilities.tolist()))


def choice_examples(
    prompt: str | Sequence[str],
    choices: Sequence[str] | Sequence[Sequence[str]],
    question: str | Sequence[str] = "",
) -> list[ChoiceExample]:
    """The examples of one or several prompts; the arguments are those of `LoadedModel.choose`.

    Raises:
        UserError: lists differ in length.
    """
    single = isinstance(prompt, str)
    prompts = [prompt] if isinstance(prompt, str) else list(prompt)
    all_choices: list[Any] = [choices] if single else list(choices)
    questions = [question] * len(prompts) if isinstance(question, str) else list(question)
    if not len(prompts) == len(all_choices) == len(questions):
        raise UserError(
            f"{len(prompts)} prompts, {len(all_choices)} lists of choices, {len(questions)} "
            "questions; give one of each for each prompt"
        )
    return [
        ChoiceExample(
            text,
            tuple(not_one_string(of_prompt, "choices")),
            None,
            str(number),
            f"prompt {number}",
            about,
        )
        for number, (text, of_prompt, about) in enumerate(
            zip(prompts, all_choices, questions, strict=True)
        )
    ]


def _open(
    source: str | Path, options: PredictOptions
) -> AbstractContextManager[Entries[ChoiceExample]]:
    """Any of `LAYOUTS`, in a table or in JSON lines, which standard input has, too."""
    name = options.input_format or ""
    is_layout = name in LAYOUTS
    return open_choices(
        source,
        options.reading(ChoiceOptions, format=name if is_layout else ""),
        file_format="" if is_layout else name,
        gold=(options.label_column,) if options.label_column else ANSWERS,
    )


def _record(example: ChoiceExample, scores: np.ndarray) -> Mapping[str, Any]:
    choice = best_choice(example.choices, scores)
    return {
        "index": choice.index,
        "choice": choice.choice,
        "score": shortest(choice.score),
        "probabilities": [shortest(probability) for probability in choice.probabilities],
    }


PREDICT = PredictSpec(
    _open,
    lambda model, options: ChoicePredictor(model, options.batches()),
    {JSONL: json_lines(_record)},
    heads=(Head.MULTIPLE_CHOICE,),
)


class MultipleChoiceTask(LabelledTask[ChoiceExample, np.ndarray]):
    """Multiple choice; a prediction is the scores of the choices, float32 [C]."""

    PREDICT = PREDICT
    score_kind = "classes"

    def make_batches(self) -> LabelledBatches:
        """Each example has a row for each of its choices.

        C is that of the example with the most choices; the others are filled up with rows of
        padding, where `choice_mask` (bool [B, C]) is False.
        """
        examples = self.splits.train
        encode = ChoiceEncoder(self.tokenizer, self.description.config, self.options.length)
        of_examples = encode_in_chunks(encode, examples, encode.check)
        sequences = Sequences.of(row for rows in of_examples for row in rows)
        row_numbers = _row_numbers([len(example.choices) for example in examples])  # nC
        lengths = np.where(row_numbers < 0, 0, sequences.lengths[row_numbers]).max(axis=1)
        targets = _targets(examples)

        def make(chosen: np.ndarray, length: int) -> Batch:
            rows = np.where(chosen[:, None] < 0, -1, row_numbers[chosen])  # BC
            return {
                **sequences.pad(rows, length, self.tokenizer),
                "choice_mask": rows >= 0,
                "labels": targets[chosen],
                "weights": (chosen >= 0).astype(np.float32),
            }

        return self.batches_of(lengths, make, sequences, encode.texts)

    def content(self, example: ChoiceExample) -> Any:
        return example.prompt, example.question, example.choices

    def sums(self, params: Any, batch: dict[str, jax.Array], outputs: Any) -> Sums:
        """Cross-entropy over the choices of each example, and the number of correct predictions."""
        logits = self.scores(params, batch, outputs)
        labels = batch["labels"]
        losses = optax.softmax_cross_entropy_with_integer_labels(logits, labels)
        correct = logits.argmax(axis=-1) == labels
        return {"": weighted_sums(batch["weights"], {"loss": losses, "accuracy": correct})}

    def scores(self, params: Any, batch: dict[str, jax.Array], outputs: Any) -> jax.Array:
        return jnp.where(batch["choice_mask"], outputs, MASK_VALUE)  # BC

    def predictor(self, model: Model) -> Predictor[ChoiceExample, np.ndarray]:
        return ChoicePredictor(model, self.options.batches)

    def metrics(
        self, examples: list[ChoiceExample], predictions: list[np.ndarray]
    ) -> dict[str, float]:
        """Accuracy and mean cross-entropy."""
        losses, correct = [], []
        for scores, target in zip(predictions, _targets(examples), strict=True):
            exact = scores.astype(np.float64)
            losses.append(np.logaddexp.reduce(exact) - exact[target])
            correct.append(scores.argmax() == target)
        return {"loss": float(np.mean(losses)), "accuracy": float(np.mean(correct))}

    def metric_names(self, examples: list[ChoiceExample]) -> Iterable[str]:
        return "loss", "accuracy"

    def baseline_metrics(self, examples: list[ChoiceExample]) -> dict[str, float]:
        """`accuracy_majority`: always the most common number; `accuracy_chance`: a random guess."""
        labels = Counter(example.label for example in examples)
        chances = [1 / len(example.choices) for example in examples]
        return {
            "accuracy_majority": max(labels.values()) / len(examples),
            "accuracy_chance": float(np.mean(chances)),
        }

    def examples_as_text(self, count: int) -> str:
        """The right choice, prompt, question, and all choices, one example a line."""
        return "\n".join(
            "\t".join(filter(None, (str(row.label), row.prompt, row.question, *row.choices)))
            for row in self.splits.train[:count]
        )


def defaults() -> dict[str, dict[str, Any]]:
    """The keys of this task, by section; those of `ChoiceOptions` are keys of `data`."""
    return labelled_defaults(
        keys_of(ChoiceOptions),
        optimizer={"learning_rate": 2e-5},
        train={"global_batch_size": 16},
    )


def check_options(config: ConfigDict) -> None:
    """Raises OptionError where a key of the task is out of range; reads no file."""
    check_labelled_options(config)
    from_keys(ChoiceOptions, config.data)


def create(config: ConfigDict, model_init: ModelInit) -> MultipleChoiceTask:
    """The task of a config, see `bert_jax.config`."""
    tokenizer = model_tokenizer(model_init)
    options = from_keys(ChoiceOptions, config.data)
    splits = read_splits(
        config.data,
        lambda source, split, report: read_choices(
            source, options, needs_labels=split == "train", report=report
        ),
        with_train=not model_init.is_finished,
    )
    return MultipleChoiceTask(
        splits,
        TrainedModel(tokenizer, _description(model_init, tokenizer), model_init.execution),
        labelled_options(config, "accuracy"),
    )


def _description(model_init: ModelInit, tokenizer: Tokenizer) -> ModelDescription:
    """The model: one output, regardless of the labels of the initial model's head."""
    base = model_init.description
    if base is not None and base.head is Head.MULTIPLE_CHOICE:
        return model_init.describe(
            tokenizer, Head.MULTIPLE_CHOICE, num_labels=None, labels=base.labels
        )
    return model_init.describe(tokenizer, Head.MULTIPLE_CHOICE)


def _targets(examples: list[ChoiceExample]) -> np.ndarray:
    """The numbers of the right choices, int32 [n]; all examples are labelled."""
    return np.array([example.label for example in examples], np.int32)


def _row_numbers(counts: list[int]) -> np.ndarray:
    """Row numbers of n examples with `counts` rows each, int64 [n, C], -1 where there is none."""
    ends = np.cumsum(counts)[:, None]
    numbers = ends - np.array(counts)[:, None] + np.arange(max(counts))
    return np.where(numbers < ends, numbers, -1)


TRAIN = TrainSpec(create, defaults, check_options=check_options)

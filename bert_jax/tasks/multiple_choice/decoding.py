"""Which of several endings or answers fits best (paper, section 4.4).

Every choice is a row of its own: `[CLS] prompt [SEP] question choice [SEP]`. A row that is too long
is cut as Hugging Face's examples cut it, from the longer of both sides: in practice the prompt,
while the choice stays whole as long as it takes no more than half of the row.
"""

import dataclasses
import functools
import itertools
from collections.abc import Sequence
from typing import Any

import flax.linen as nn
import jax
import numpy as np

from bert_jax.data.examples import ChoiceExample
from bert_jax.data.records import shortest
from bert_jax.errors import UserError
from bert_jax.models.config import EncoderConfig, Head
from bert_jax.tasks.base.predictor import (
    BatchOptions,
    ExampleError,
    Model,
    Predictor,
    check_finite,
    softmax,
)
from bert_jax.tasks.base.text_rows import TextEncoder
from bert_jax.tokenization import Encoding, Tokenizer


@dataclasses.dataclass(frozen=True, slots=True)
class Choice:
    """The best of several choices.

    Attributes:
        index: which one it is, from 0.
        choice: its text.
        score: its probability.
        probabilities: of all choices, in their order.
    """

    index: int
    choice: str
    score: float
    probabilities: tuple[float, ...]


class ChoiceEncoder:
    """Makes the rows of examples, one for each of their choices, cut to a limit."""

    def __init__(self, tokenizer: Tokenizer, config: EncoderConfig, limit: int) -> None:
        """Raises UserError where the model cannot tell the prompt from the choice."""
        tokenizer.check_pairs(config.type_vocab_size, "choices")
        self._encode = TextEncoder(tokenizer, config, limit)

    def __call__(self, examples: Sequence[ChoiceExample]) -> list[list[Encoding]]:
        """One row for each choice of each example."""
        pairs = [
            (example.prompt, f"{example.question} {choice}" if example.question else choice)
            for example in examples
            for choice in example.choices
        ]
        rows = iter(self._encode(pairs))
        return [
            [row for (row,) in itertools.islice(rows, len(example.choices))] for example in examples
        ]

    def check(self, example: ChoiceExample, index: int) -> None:
        """Raises ExampleError where something is no text, or there is nothing to choose from."""
        for text in (example.prompt, example.question, *example.choices):
            if not isinstance(text, str):
                raise ExampleError(f"{text!r:.80} is no text; give strings", index)
        if len(example.choices) < 2:
            raise ExampleError(f"{len(example.choices)} choices; give two or more", index)

    def report(self) -> None:
        """A line on stderr, if rows were cut; each choice counts."""
        self._encode.report()


class ChoicePredictor(Predictor[ChoiceExample, np.ndarray]):
    """The scores of the choices of each example, float32 [C], before softmax.

    Each example may have another number of choices.
    """

    def __init__(self, model: Model, options: BatchOptions) -> None:
        """Raises UserError where the model does not score choices."""
        if model.description.head is not Head.MULTIPLE_CHOICE:
            raise UserError(
                f"this {model.description.class_name} does not choose; give the directory of a "
                'model that does, and load it with load(path, task="multiple_choice")'
            )
        self.options = options
        self._model = model
        self._rows = ChoiceEncoder(model.tokenizer, model.config, options.limit(model.config))

    def prepare(self, example: ChoiceExample, index: int) -> ChoiceExample:
        self._rows.check(example, index)
        return example

    def encode(self, examples: Sequence[ChoiceExample]) -> list[list[Encoding]]:
        return self._rows(examples)

    def compute(self, batch: dict[str, jax.Array]) -> jax.Array:
        return _scores(self._model.params, batch, module=self._model.module)

    def decode(
        self, example: ChoiceExample, encodings: list[Encoding], outputs: list[Any]
    ) -> np.ndarray:
        scores = np.array(outputs, np.float32)
        return check_finite(scores, "the scores of the choices of an example")

    def characters(self, example: ChoiceExample) -> int:
        beginnings = len(example.choices) * (len(example.prompt) + len(example.question))
        return beginnings + sum(map(len, example.choices))

    def report(self) -> None:
        if self.options.max_length is None:  # otherwise the cut was requested
            self._rows.report()


def best_choice(choices: Sequence[str], scores: np.ndarray) -> Choice:
    """What the scores of C choices, float32 [C], mean; of equal ones the first is chosen."""
    probabilities = softmax(scores)
    best = int(scores.argmax())
    return Choice(best, choices[best], float(probabilities[best]), tuple(probabilities.tolist()))


def choice_examples(
    prompt: str | Sequence[str],
    choices: Sequence[str] | Sequence[Sequence[str]],
    question: str | Sequence[str] = "",
) -> list[ChoiceExample]:
    """The examples of one prompt or several; arguments are those of `LoadedModel.choose`.

    Raises:
        UserError: lists differ in length.
    """
    single = isinstance(prompt, str)
    prompts = [prompt] if isinstance(prompt, str) else list(prompt)
    every = [choices] if single else list(choices)
    questions = [question] * len(prompts) if isinstance(question, str) else list(question)
    if not len(prompts) == len(every) == len(questions):
        raise UserError(
            f"{len(prompts)} prompts, {len(every)} lists of choices, {len(questions)} questions; "
            "give one of each for each prompt"
        )
    return [
        ChoiceExample(one, _as_choices(its), None, str(number), f"prompt {number}", about)
        for number, (one, its, about) in enumerate(zip(prompts, every, questions, strict=True))
    ]


def as_record(found: Choice) -> dict[str, Any]:
    """A choice as an object of JSON."""
    return {
        "index": found.index,
        "choice": found.choice,
        "score": shortest(found.score),
        "probabilities": [shortest(probability) for probability in found.probabilities],
    }


def _as_choices(choices: Any) -> tuple[str, ...]:
    if isinstance(choices, str):  # which is a list of letters, too
        raise UserError(f"the choices are one string, {choices!r:.40}; give a list of strings")
    return tuple(choices)


@functools.partial(jax.jit, static_argnames="module")
def _scores(params: Any, batch: dict[str, jax.Array], *, module: nn.Module) -> jax.Array:
    """A batch of rows → the score of each, float32 [B]; each is the one choice of its item."""
    one_choice = {key: array[:, None] for key, array in batch.items()}  # B1T
    found: Any = module.apply(
        {"params": params},
        one_choice["input_ids"],
        one_choice["token_type_ids"],
        one_choice["attention_mask"],
    )
    return found[:, 0]

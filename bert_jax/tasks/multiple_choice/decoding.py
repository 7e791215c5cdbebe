"""Which of several endings or answers fits best (paper, section 4.4).

Every choice is a row of its own: `[CLS] prompt [SEP] question choice [SEP]`. A row that is too long
is cut as Hugging Face's examples cut it, from the longer of both sides: in practice the prompt,
while the choice stays whole as long as it takes no more than half of the row.
"""

import dataclasses
import functools
import itertools
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import flax.linen as nn
import jax
import numpy as np

from bert_jax.data.examples import ChoiceExample
from bert_jax.errors import UserError
from bert_jax.inference.batching import BatchOptions
from bert_jax.inference.finite import finite
from bert_jax.inference.interface import Advance, Model, TextError
from bert_jax.inference.records import shortest
from bert_jax.inference.streams import answers
from bert_jax.inference.texts import TextEncoder
from bert_jax.models.config import EncoderConfig
from bert_jax.tasks.classification.decoding import softmax
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
    """Makes the rows of items, one for each of their choices, cut to a limit."""

    def __init__(self, tokenizer: Tokenizer, config: EncoderConfig, limit: int) -> None:
        """Begins to count.

        Raises:
            UserError: the model does not tell the prompt from the choice.
        """
        if config.type_vocab_size < 2:
            raise UserError(
                "choices need a model that tells two texts apart, but this one has type_vocab_size "
                f"{config.type_vocab_size}; give another model"
            )
        self._encode = TextEncoder(tokenizer, config, limit)

    def __call__(self, items: Sequence[ChoiceExample]) -> list[list[Encoding]]:
        """One row for each choice of each item."""
        pairs = [
            (item.prompt, f"{item.question} {choice}" if item.question else choice)
            for item in items
            for choice in item.choices
        ]
        rows = iter(self._encode(pairs))
        return [[row for (row,) in itertools.islice(rows, len(item.choices))] for item in items]

    def checked(self, items: Iterable[ChoiceExample]) -> Iterator[ChoiceExample]:
        """The same items, each one looked at before a window is made of it.

        Raises:
            TextError: something is no text, or there is nothing to choose from.
        """
        for index, item in enumerate(items):
            for text in (item.prompt, item.question, *item.choices):
                if not isinstance(text, str):
                    raise TextError(f"{text!r:.80} is no text; give strings", index)
            if len(item.choices) < 2:
                raise TextError(f"{len(item.choices)} choices; give two or more", index)
            yield item

    def report(self) -> None:
        """A line on stderr, if rows were cut; each choice counts."""
        self._encode.report()


def logits(
    model: Model,
    items: Iterable[ChoiceExample],
    *,
    batch_size: int = 32,
    max_length: int | None = None,
    advance: Advance | None = None,
) -> Iterator[np.ndarray]:
    """The scores of the choices of each item, float32 [C], before softmax.

    Items come and go in order and in constant memory; each may have another number of choices.

    Args:
        model: scores choices.
        items: read once, a window ahead.
        batch_size: the most choices computed together.
        max_length: the most tokens of a row; None for as many as the model takes.
        advance: told the number of items after each batch.

    Raises:
        NotFiniteError: a score is NaN or infinite.
        UserError: the model does not score choices, or an option is wrong.
        TextError: something is no text, or there is nothing to choose from.
    """
    if model.description.architecture != "BertForMultipleChoice":
        raise UserError(
            f"this {model.description.architecture} does not choose; give the directory of a model "
            'that does, and load it with load(path, task="multiple_choice")'
        )
    options = BatchOptions(batch_size, max_length)
    encode = ChoiceEncoder(model.tokenizer, model.config, options.limit(model.config))
    found = answers(
        model,
        encode.checked(items),
        encode,
        functools.partial(_scores, model.params, module=model.module),
        lambda item, encodings, scores: finite(
            np.array(scores, np.float32), "the scores of the choices of an item"
        ),
        options,
        characters=_characters,
        advance=advance,
    )

    def reported() -> Iterator[np.ndarray]:
        yield from found
        if max_length is None:  # else it was asked for
            encode.report()

    return reported()


def best_choice(choices: Sequence[str], scores: np.ndarray) -> Choice:
    """What the scores of C choices, float32 [C], mean; of equal ones the first is chosen."""
    probabilities = softmax(scores)
    best = int(scores.argmax())
    return Choice(best, choices[best], float(probabilities[best]), tuple(probabilities.tolist()))


def choose(
    model: Model,
    prompt: str | Sequence[str],
    choices: Sequence[str] | Sequence[Sequence[str]],
    question: str | Sequence[str] = "",
    *,
    batch_size: int = 32,
    max_length: int | None = None,
) -> Choice | list[Choice]:
    """Chooses once, or for each of several prompts; see `LoadedModel.choose`.

    Args:
        model: scores choices.
        prompt: a beginning, a passage, or a question; or a list of them.
        choices: the endings or answers to choose from; for a list of prompts, a list of such lists.
        question: asked about the prompt, if there is one besides; for a list of prompts a list, or
            the same for all.
        batch_size: the most choices computed together.
        max_length: the most tokens of a row; None for as many as the model takes.

    Returns:
        A `Choice`; for a list of prompts a list.

    Raises:
        UserError: the model does not score choices, lists differ in length, something is no text,
            or there is nothing to choose from.
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
    items = [
        ChoiceExample(one, _as_choices(of_one), None, str(number), f"prompt {number}", about)
        for number, (one, of_one, about) in enumerate(zip(prompts, every, questions, strict=True))
    ]
    found = logits(model, items, batch_size=batch_size, max_length=max_length)
    best = [best_choice(item.choices, scores) for item, scores in zip(items, found, strict=True)]
    return best[0] if single else best


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


def _characters(item: ChoiceExample) -> int:
    """Of all rows of an item."""
    beginnings = len(item.choices) * (len(item.prompt) + len(item.question))
    return beginnings + sum(map(len, item.choices))


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

"""A loaded model with more words, for longer texts, with fewer layers, or of another family."""

import dataclasses
from collections.abc import Sequence
from typing import Any, TypeVar

import jax

from bert_jax.errors import UserError, listed, require_at_least
from bert_jax.families.family import OtherModel, find_family
from bert_jax.models import surgery
from bert_jax.models.config import EncoderConfig
from bert_jax.models.parameter_sharding import state_shardings
from bert_jax.tasks.base.predictor import Model, not_one_string
from bert_jax.tokenization import Tokenizer

# Beyond the longest contexts of any encoder; a table of this many rows still fits in memory.
MOST_POSITIONS = 2**20

# `LoadedModel`, which has these functions as methods, and its subclasses.
ModelT = TypeVar("ModelT", bound=Model)


def add_words(model: ModelT, words: Sequence[str], *, whole: bool = False) -> ModelT:
    """A model with a tokenizer that has each word as one piece, see `Tokenizer.with_words`.

    A new row is the mean of the pieces that the word had before (`models.surgery.add_vocabulary`).
    Texts without new words keep their hidden states, bitwise.

    Args:
        model: the model, which is not changed; single-host only.
        words: words to add; known words are skipped.
        whole: whether they are markers such as "[E1]", which are matched before a text is split.

    Raises:
        UserError: `words` is a string, a word cannot be a single piece, the tokenizer cannot take
            words, or the mesh does not divide the larger table.
    """
    words = list(not_one_string(words, "words"))
    tokenizer = model.tokenizer.with_words(words, whole=whole)
    first_id = model.tokenizer.vocab_size
    before = model.tokenizer.encode_sentences(words)
    after = tokenizer.encode_sentences(words)
    pieces = {ids[0]: old for ids, old in zip(after, before, strict=True) if ids[0] >= first_id}
    params, config = surgery.add_vocabulary(
        model.params, model.config, [pieces[new] for new in sorted(pieces)], first_id
    )
    changed = _replaced(model, params, config, tokenizer)
    model.changes.append("add_words")
    return changed


def extend_positions(model: ModelT, length: int) -> ModelT:
    """A model for texts of `length` tokens (`models.surgery.extend_positions`).

    Texts that fit in the old length keep their hidden states, bitwise.

    Args:
        model: the model, which is not changed; single-host only.
        length: maximum number of tokens of a text, including special tokens.

    Raises:
        UserError: the model already takes longer texts, or the length is above `MOST_POSITIONS`.
    """
    require_at_least("length", length, 1, MOST_POSITIONS)
    params, config = surgery.extend_positions(model.params, model.config, length)
    unlimited = _without_limits(model)
    changed = _replaced(unlimited, params, config, unlimited.tokenizer)
    model.changes.append("extend_positions")
    return changed


def to_family(
    model: ModelT,
    model_type: str,
    *,
    positions: int | None = None,
    attention_window: int | None = None,
) -> ModelT:
    """A model of another family, for longer texts (`Family.from_other`).

    Texts of which each token sees all others keep their hidden states up to rounding: those of at
    most `attention_window` / 2 + 1 tokens. For longer ones continue training.

    Args:
        model: the model, which is not changed; single-host only.
        model_type: name of the family.
        positions: maximum number of tokens of a text, including special tokens; None: as published
            models of the family have.
        attention_window: an even number: a token sees half as many tokens on each side; None: as
            published.

    Raises:
        UserError: the family is none for longer texts, lacks the head of the model, or is not like
            that of the model; or the model already takes longer texts.
    """
    if positions is not None:
        require_at_least("positions", positions, 1, MOST_POSITIONS)
    family, description = find_family(model_type), model.description
    if family.from_other is None:
        raise UserError(f"no other models become {model_type} models; give another family")
    assert description.head is not None
    separator = model.tokenizer.special_id("sep", "attention with windows")
    other = OtherModel(description.family, description.head, model.params, model.config, separator)
    made = family.from_other(other, positions, attention_window)
    unlimited = _without_limits(model)
    keys = family.file_fields().values()
    others = {key: value for key, value in description.other.items() if key not in keys}
    description = dataclasses.replace(
        unlimited.description, family=family, other=others, mixed_dtypes={}
    )
    unlimited = dataclasses.replace(unlimited, description=description)
    changed = _replaced(unlimited, made.params, made.config, unlimited.tokenizer)
    model.changes.append("to_family")
    return changed


def _without_limits(model: ModelT) -> ModelT:
    """The model without the limits in its files, which belong to fewer positions."""
    unlimited = dataclasses.replace(model.tokenizer.description, model_max_length=None)
    if vectors := model.description.stored_vectors:
        vectors = dataclasses.replace(vectors, max_length=None)
        description = dataclasses.replace(model.description, stored_vectors=vectors)
        model = dataclasses.replace(model, description=description)
    return dataclasses.replace(model, tokenizer=model.tokenizer.with_description(unlimited))


def keep_layers(model: ModelT, layers: int | Sequence[int]) -> ModelT:
    """A smaller model with a part of the layers (`models.surgery.keep_layers`).

    Args:
        model: the model, which is not changed; single-host only.
        layers: numbers of the layers that stay, from 0; or how many, spread evenly.

    Raises:
        UserError: a layer does not exist, or appears twice.
    """
    params, config = surgery.keep_layers(model.params, model.config, layers)
    changed = _replaced(model, params, config, model.tokenizer)
    model.changes.append("keep_layers")
    return changed


def _replaced(model: ModelT, params: Any, config: EncoderConfig, tokenizer: Tokenizer) -> ModelT:
    if model.sides:
        rule = "change each alone, which `load` reads with its route, and join them again"
        raise UserError(f"this model has encoders of its own for {listed([*model.sides])}; {rule}")
    return dataclasses.replace(
        model,
        module=model.module.clone(config=config),
        params=jax.device_put(params, state_shardings(model.mesh, params)),
        tokenizer=tokenizer,
        description=dataclasses.replace(model.description, config=config),
    )

"""A loaded model with more words, or for longer texts."""

import dataclasses
from collections.abc import Sequence
from typing import Any, TypeVar

import jax

from bert_jax.models import surgery
from bert_jax.models.config import EncoderConfig
from bert_jax.sharding.rules import state_shardings
from bert_jax.tasks.base.predictor import Model
from bert_jax.tokenization import Tokenizer

# `LoadedModel`, whose methods call these functions, and whatever is derived from it.
AModel = TypeVar("AModel", bound=Model)


def add_words(model: AModel, words: Sequence[str]) -> AModel:
    """A model whose tokenizer has each word as one piece, as `Tokenizer.with_words` says.

    A word begins as the mean of the pieces that it had before (`models.surgery.add_vocabulary`).
    Texts in which no word begins with a new one get the hidden states that they got before, to the
    last bit.

    Args:
        model: stays as it is. Of several hosts, this is for one alone.
        words: words known already are passed over.

    Raises:
        UserError: a word can never be one piece, the tokenizer takes none, or the mesh does not
            divide the larger table.
    """
    words = list(words)
    tokenizer = model.tokenizer.with_words(words)
    first_id = model.tokenizer.vocab_size
    before = model.tokenizer.encode_sentences(words)
    after = tokenizer.encode_sentences(words)
    pieces = {ids[0]: old for ids, old in zip(after, before, strict=True) if ids[0] >= first_id}
    params, config = surgery.add_vocabulary(
        model.params, model.config, [pieces[new] for new in sorted(pieces)], first_id
    )
    return _replaced(model, params, config, tokenizer)


def extend_positions(model: AModel, length: int) -> AModel:
    """A model that takes texts of `length` tokens (`models.surgery.extend_positions`).

    Texts that it took before get the hidden states that they got before, to the last bit.

    Args:
        model: stays as it is. Of several hosts, this is for one alone.
        length: the most tokens of a text, special tokens counted.

    Raises:
        UserError: the model takes more already.
    """
    params, config = surgery.extend_positions(model.params, model.config, length)
    return _replaced(model, params, config, model.tokenizer)


def _replaced(model: AModel, params: Any, config: EncoderConfig, tokenizer: Tokenizer) -> AModel:
    fields: Any = model  # a dataclass, which a protocol cannot ask for
    changed: AModel = dataclasses.replace(
        fields,
        config=config,
        module=model.module.clone(config=config),
        params=jax.device_put(params, state_shardings(model.mesh, params)),
        tokenizer=tokenizer,
        description=dataclasses.replace(model.description, config=config),
    )
    return changed

"""Another vocabulary and longer texts for a model that is already trained.

Everything here takes the parameters of any of the models, as NumPy or JAX arrays, and gives a new
tree: changed tables are NumPy arrays, all other leaves are those of the old tree.
"""

import dataclasses
import re
from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np

from bert_jax.errors import UserError
from bert_jax.models.config import EncoderConfig
from bert_jax.sharding.rules import name_of

# The parameters with one row for each word, and those with one for each position.
WORD_ROWS = r"(word_embeddings/embedding|mlm_head/(decoder|bias))$"
_POSITION_ROWS = r"position_embeddings/embedding$"


def add_vocabulary(
    params: Any, config: EncoderConfig, pieces: Sequence[Sequence[int]], first_id: int
) -> tuple[Any, EncoderConfig]:
    """Rows for new words, each the mean of the rows of the pieces that the word had before.

    So a new word begins where the model has learned to look for it; one that was [UNK] begins as
    [UNK], and the model answers as before. This holds for the table of word embeddings, and for
    the scores of words: their bias and, where it is not the same table, their decoder.

    Tables grow only where they end: some have rows beyond the tokenizer's ids, to make their size
    even, and the new words take these first.

    Args:
        params: of any model.
        config: its architecture.
        pieces: the old ids of each new word.
        first_id: the id of the first new word; the others follow it.

    Returns:
        The parameters, and the config with their `vocab_size`.

    Raises:
        UserError: `first_id` would leave rows without a word, or a piece is not an older word.
    """
    if first_id > config.vocab_size:
        raise UserError(
            f"the first new word has id {first_id}, but the model has {config.vocab_size} rows: "
            "the tokenizer is of another model; give the one that it was trained with"
        )
    for index, ids in enumerate(pieces):
        if not ids or not all(0 <= piece < first_id for piece in ids):
            raise UserError(
                f"new word {index} has the pieces {list(ids)}; give at least one, each in "
                f"[0, {first_id})"
            )
    size = max(config.vocab_size, first_id + len(pieces))

    def grown(table: np.ndarray) -> np.ndarray:
        new = np.zeros((size, *table.shape[1:]), table.dtype)  # VD, the bias V
        new[: len(table)] = table
        for row, ids in enumerate(pieces, start=first_id):
            new[row] = table[list(ids)].mean(axis=0, dtype=np.float32)
        return new

    return _changed(params, WORD_ROWS, grown), dataclasses.replace(config, vocab_size=size)


def without_padding(params: Any, config: EncoderConfig) -> Any:
    """The parameters without the rows of `Execution.pad_vocab_to_multiple_of`."""
    return _changed(params, WORD_ROWS, lambda table: table[: config.vocab_size])


def extend_positions(params: Any, config: EncoderConfig, length: int) -> tuple[Any, EncoderConfig]:
    """A longer position table: the learned rows again and again (Longformer, section 5).

    Copies keep what attention has learned about near tokens, everywhere but at the seams (Beltagy
    et al., 2020, https://arxiv.org/abs/2004.05150). Texts within the old length give what they gave
    before; for longer ones train the model on, for a little.

    Args:
        params: of any model.
        config: its architecture.
        length: the new number of positions; at least the old one.

    Returns:
        The parameters, where row i is the old row i modulo the old number of positions, and the
        config with the new `max_position_embeddings`.

    Raises:
        UserError: `length` is smaller; rows would be lost, and shorter texts need no change.
    """
    if length < config.max_length:
        raise UserError(
            f"positions is {length}, but the model has {config.max_length} and none "
            f"is thrown away; give at least {config.max_length}"
        )
    offset = config.position_offset

    def grown(table: np.ndarray) -> np.ndarray:
        first, positions = table[:offset], table[offset:]
        return np.concatenate([first, positions[np.arange(length) % len(positions)]])

    longer = dataclasses.replace(config, max_position_embeddings=length + offset)
    return _changed(params, _POSITION_ROWS, grown), longer


def _changed(params: Any, pattern: str, change: Callable[[np.ndarray], np.ndarray]) -> Any:
    """The tree in which the leaves with a name that matches the pattern are changed."""

    def leaf_of(path: tuple[Any, ...], leaf: Any) -> Any:
        return change(np.asarray(leaf)) if re.search(pattern, name_of(path)) else leaf

    return jax.tree_util.tree_map_with_path(leaf_of, params)

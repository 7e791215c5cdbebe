"""More words, longer texts, larger images and fewer layers for a trained model.

The functions take the parameters of any model, as NumPy or JAX arrays, and return a new tree:
changed tables are NumPy arrays, all other leaves are shared with the old tree.
"""

import collections
import dataclasses
import re
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from bert_jax.errors import OptionError, UserError, require_at_least
from bert_jax.models.config import EncoderConfig
from bert_jax.models.image_options import ImageOptions, Size
from bert_jax.models.local_attention import global_every
from bert_jax.models.patch_embeddings import interpolated_positions
from bert_jax.sharding.rules import name_of

# Parameters with one row per word, and with one row per position.
WORD_ROWS = r"(word_embeddings/embedding|(mlm|lm)_head/(decoder(_extension)?|bias))$"
_POSITION_ROWS = r"position_embeddings/embedding$"
_PATCH_POSITIONS = r"embeddings/position_embeddings$"
_STACKED = r"\blayers/"
_STACKED_IN_ENCODER = rf"^(?!decoder/).*{_STACKED}"
_MIXED = r"(^|/)layer_mix/weights$"  # of the embeddings and of each layer


def add_vocabulary(
    params: Any, config: EncoderConfig, pieces: Sequence[Sequence[int]], first_id: int
) -> tuple[Any, EncoderConfig]:
    """Rows for new words, each the mean of the rows of the pieces that the word had before.

    So a new word starts with the meaning of its pieces, of [UNK] for an unknown word. Tables are
    the word embeddings, and for the logits of words their bias and, if it is untied, their decoder.

    Tables grow only beyond their end: some have rows beyond the tokenizer's ids, to make their size
    even, and new words use these rows first.

    Args:
        params: parameters of any model.
        config: architecture of the model.
        pieces: old ids of each new word.
        first_id: id of the first new word; the others follow.

    Returns:
        The parameters, and the config with the new `vocab_size`.

    Raises:
        UserError: `first_id` would leave rows without a word, or a piece is not an older word.
    """
    if first_id > config.vocab_size:
        raise UserError(
            f"the first new word has id {first_id}, but the model has {config.vocab_size} rows: "
            "the tokenizer is of another model; give the tokenizer that it was trained with"
        )
    for index, ids in enumerate(pieces):
        if not ids or not all(0 <= piece < first_id for piece in ids):
            raise UserError(
                f"new word {index} has the pieces {list(ids)}; give at least one, each in "
                f"[0, {first_id})"
            )
    size = max(config.vocab_size, first_id + len(pieces))

    def grown(table: np.ndarray) -> np.ndarray:
        new = np.zeros((size, *table.shape[1:]), table.dtype)  # VE, the bias V
        new[: len(table)] = table
        for row, ids in enumerate(pieces, start=first_id):
            new[row] = table[list(ids)].mean(axis=0, dtype=np.float32)
        return new

    return _changed(params, WORD_ROWS, grown), dataclasses.replace(config, vocab_size=size)


def without_padding(params: Any, config: EncoderConfig) -> Any:
    """The parameters without the rows of `Execution.pad_vocab_to_multiple_of`."""
    return _changed(params, WORD_ROWS, lambda table: table[: config.vocab_size])


def extend_positions(params: Any, config: EncoderConfig, length: int) -> tuple[Any, EncoderConfig]:
    """A longer position table, the learned rows repeated (Longformer, section 5).

    Positions without a table, sinusoids and T5's, get a higher limit alone.

    Copies keep the learned attention to nearby tokens, except at the boundaries between copies
    (Beltagy et al., 2020, https://arxiv.org/abs/2004.05150). Texts within the old length keep their
    outputs; for longer texts continue training for a few steps.

    Args:
        params: parameters of any model.
        config: architecture of the model.
        length: new number of positions; at least the old one.

    Returns:
        The parameters, where row i is the old row i modulo the old number of positions, and the
        config with the new `max_position_embeddings`.

    Raises:
        UserError: `length` is smaller; positions cannot be removed, and shorter texts need no
            change. Or the model reads images.
    """
    if config.images is not None:
        raise UserError(
            "the positions of a model of images are interpolated for images of another size, "
            "without a new table; for a training with such images set model.image_size"
        )
    if length < config.max_length:
        raise UserError(
            f"positions is {length}, but the model has {config.max_length} and "
            f"positions cannot be removed; give at least {config.max_length}"
        )
    offset = config.position_offset

    def grown(table: np.ndarray) -> np.ndarray:
        first, positions = table[:offset], table[offset:]
        return np.concatenate([first, positions[np.arange(length) % len(positions)]])

    rows = length + offset - config.extra_position_rows
    distances = config.distances if config.relative_attention else config.max_relative_positions
    longer = dataclasses.replace(
        config, max_position_embeddings=rows, max_relative_positions=distances
    )
    return _changed(params, _POSITION_ROWS, grown), longer


def resize_images(
    params: Any, config: EncoderConfig, image_size: Size
) -> tuple[Any, EncoderConfig]:
    """A position table for images of another size (ViT, section 3.2).

    The model then computes for images of that size what it has computed for them before.

    Args:
        params: parameters of a model that reads images.
        config: architecture of the model.
        image_size: new size.

    Returns:
        The parameters with interpolated positions, and the config with the new `image_size`.
    """
    old = config.head_options(ImageOptions)
    new = dataclasses.replace(old, image_size=image_size)

    def resized(table: np.ndarray) -> np.ndarray:
        return np.asarray(interpolated_positions(jnp.asarray(table), old, new.pixels))

    larger = dataclasses.replace(config, heads=(new, *config.heads))
    return _changed(params, _PATCH_POSITIONS, resized), larger


def chosen_layers(layers: int | Sequence[int], count: int) -> tuple[int, ...]:
    """The numbers, from 0, of the layers of a model that a smaller one keeps.

    Args:
        layers: these numbers, in increasing order; or how many: the first, the last, and others
            spread evenly between them, as 0, 2, 4, 7, 9, 11 of 12 (DistilBERT, Sanh et al., 2019).
        count: L, number of layers of the model.

    Raises:
        OptionError: a layer does not exist, or appears twice.
    """
    if isinstance(layers, int) and not isinstance(layers, bool):
        require_at_least("model.keep_layers", layers, 1, count)
        last = count - 1
        return tuple(round(last * index / max(layers - 1, 1)) for index in range(layers))
    numbers = tuple(layers) if isinstance(layers, Sequence) else (layers,)
    for number in numbers:
        require_at_least("model.keep_layers", number, 0, count - 1)
    if not numbers or list(numbers) != sorted(set(numbers)):
        rule = "give the numbers of the layers that stay, each once and in increasing order"
        raise OptionError("model.keep_layers", layers, rule)
    return tuple(numbers)


def keep_layers(
    params: Any, config: EncoderConfig, layers: int | Sequence[int]
) -> tuple[Any, EncoderConfig]:
    """A model with a part of the layers, of an encoder-decoder those of the encoder.

    The layers of a recurrent decoder begin with the states of the encoder's: the same ones stay.
    All other parameters stay.

    Args:
        params: parameters of any model.
        config: architecture of the model.
        layers: see `chosen_layers`.

    Returns:
        The parameters, and the config with the new number of layers, see `with_layers`.

    Raises:
        OptionError: see `with_layers`.
    """
    fewer, kept = with_layers(config, layers)
    mixed = [0, *(layer + 1 for layer in chosen_layers(layers, config.num_hidden_layers))]
    params = _changed(params, _MIXED, lambda weights: weights[mixed])
    stacked = _STACKED if config.is_recurrent else _STACKED_IN_ENCODER
    return _changed(params, stacked, lambda stack: stack[list(kept)]), fewer


def with_layers(
    config: EncoderConfig, layers: int | Sequence[int]
) -> tuple[EncoderConfig, tuple[int, ...]]:
    """The architecture with a part of the layers, and the rows of stacked parameters that stay.

    Args:
        config: architecture of the whole model.
        layers: see `chosen_layers`.

    Raises:
        OptionError: a layer does not exist, or appears twice; or of the groups whose layers share
            their parameters (ALBERT), some would keep more layers than others; or a model whose
            first layer and global layers differ from the others (ModernBERT) would lack the first,
            or the global ones would not follow each other regularly.
    """
    chosen = chosen_layers(layers, config.num_hidden_layers)
    every = global_every([config.is_global(layer) for layer in chosen])
    if every is None or (chosen[0] and not config.has_first_norm):
        rule = (
            f"keep the first layer, and of those after it one of {{model.global_attn_every_n_layers"
            f"={config.global_attn_every_n_layers}}} at equal distances"
        )
        raise OptionError("model.keep_layers", layers, rule)
    windows = config.attention_window
    fewer = dataclasses.replace(
        config,
        num_hidden_layers=len(chosen),
        num_hidden_groups=None,
        global_attn_every_n_layers=every,
        attention_window=windows and tuple(windows[layer] for layer in chosen),
    )
    groups = config.num_hidden_groups
    if groups is None:
        return fewer, chosen
    in_group = config.num_hidden_layers // groups
    kept = collections.Counter(layer // in_group for layer in chosen)
    if len(set(kept.values())) > 1:
        rule = (
            f"its {groups} groups of {in_group} layers share their parameters: keep as many layers "
            "of each group that stays"
        )
        raise OptionError("model.keep_layers", layers, rule)
    return dataclasses.replace(fewer, num_hidden_groups=len(kept)), tuple(kept)


def _changed(params: Any, pattern: str, change: Callable[[np.ndarray], np.ndarray]) -> Any:
    """The tree with changed leaves where the name matches the pattern."""

    def leaf_of(path: tuple[Any, ...], leaf: Any) -> Any:
        return change(np.asarray(leaf)) if re.search(pattern, name_of(path)) else leaf

    return jax.tree_util.tree_map_with_path(leaf_of, params)

"""The inputs of a comparison, drawn from a seed; a head draws its labels."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from bert_jax.errors import UserError
from bert_jax.models.comparison import Comparison, DrawnBatch
from bert_jax.models.config import EncoderConfig
from bert_jax.models.head import find_head
from bert_jax.models.image_options import ImageOptions
from bert_jax.tokenization import Tokenizer

# What encoders read, in the order of their arguments.
IMAGES = "pixel_values"
FEATURES = ("input_ids", "token_type_ids", "attention_mask", "global_attention_mask", IMAGES)

# How many tokens are global in a model with a window.
_GLOBAL = 0.2


@dataclasses.dataclass(frozen=True)
class ParityInput:
    """One batch. The encoder has B · K rows; K = 1 except for multiple choice.

    Attributes:
        name: name in the table.
        text: description of the input.
        features: arrays by `FEATURES`, without types that the model does not have, and the head's
            own, int32 [B, T] or, for multiple choice, [B, K, T]; images are float32 [B, height,
            width, channels].
        labels: int32 or float32, by argument of Hugging Face's class; for the bare encoder the
            coefficients of its linear form, `last_hidden_state` [B, T, D] and `pooler_output`
            [B, D].
    """

    name: str
    text: str
    features: Mapping[str, np.ndarray]
    labels: Mapping[str, np.ndarray]

    def rows(self, feature: str) -> np.ndarray:
        """A feature in the rows of the encoder, [B · K, T]."""
        values = self.features[feature]
        return values if feature == IMAGES else values.reshape(-1, values.shape[-1])

    @property
    def is_token(self) -> Any:
        """The index of what is not padding: bool [B · K, T], or of images everything."""
        return ... if IMAGES in self.features else self.rows("attention_mask").astype(bool)


def make_inputs(
    config: EncoderConfig, tokenizer: Tokenizer, head: str, problem_type: str, *, seed: int = 0
) -> tuple[ParityInput, ...]:
    """A short row, a padded batch and a row of maximum length; or images.

    Args:
        config: architecture of the model.
        tokenizer: tokenizer; its template defines the special tokens. There is a second segment if
            the model has the token types of a pair. For images it is not used.
        head: head of the model; its loss reads the labels.
        problem_type: problem type of a sequence classifier.
        seed: seed of the inputs.

    Raises:
        UserError: the model has too few positions for a word and the special tokens.
    """
    if config.images is not None:
        return _image_inputs(config, config.images, head, problem_type, seed)
    longest = config.max_length
    least = 1 + tokenizer.num_special_tokens(pair=False)
    if longest < least:
        raise UserError(
            f"the model takes {longest} tokens, but an input has at least {least}, a word and the "
            "special tokens: give another model"
        )
    plans = (  # name, lengths of the rows, and whether they are pairs of texts
        ("short", [min(12, longest)], False),
        ("padded", [min(length, longest) for length in (24, 17, 6)], True),
        ("full", [longest], True),
    )
    inputs = []
    for number, (name, lengths, with_pairs) in enumerate(plans):
        generator = np.random.default_rng((seed, number))
        maker = _Maker(config, tokenizer, find_head(head).compared, problem_type, generator)
        has_pairs = with_pairs and tokenizer.supports_pairs(config.type_vocab_size)
        inputs.append(maker.make(name, lengths, has_pairs=has_pairs))
    return tuple(inputs)


def _image_inputs(
    config: EncoderConfig, images: ImageOptions, head: str, problem_type: str, seed: int
) -> tuple[ParityInput, ...]:
    """An image, a batch, and images with interpolated positions where transformers has these."""
    height, width = images.pixels
    plans = [("one", 1, (height, width)), ("batch", 3, (height, width))]
    rows, columns = images.grid(images.pixels)
    if rows == columns and isinstance(images.patch_size, int):
        plans.append(("larger", 2, (height + 2 * images.patch_size, width + images.patch_size)))
    inputs = []
    for number, (name, count, pixels) in enumerate(plans):
        generator = np.random.default_rng((seed, number))
        shape = (count, *pixels, images.num_channels)
        values = generator.normal(size=shape).astype(np.float32)
        ids = np.zeros((count, images.num_tokens(pixels)), np.int32)
        no_word = np.zeros_like(ids, bool)
        draw = DrawnBatch(
            ids, np.ones_like(ids), no_word, config, problem_type, lambda: 0, generator
        )
        text = f"batch {count}, images of {pixels[0]} × {pixels[1]}, {ids.shape[1]} tokens"
        labels = find_head(head).compared.labels(draw)
        inputs.append(ParityInput(name, text, {IMAGES: values}, labels))
    return tuple(inputs)


@dataclasses.dataclass(frozen=True)
class _Maker:
    """Draws one input."""

    config: EncoderConfig
    tokenizer: Tokenizer
    comparison: Comparison
    problem_type: str
    generator: np.random.Generator

    def make(self, name: str, lengths: Sequence[int], *, has_pairs: bool) -> ParityInput:
        """A batch with one row of each length, or with one question of that many choices."""
        batch = len(lengths)
        comparison = self.comparison
        lengths = [length for length in lengths for _ in range(comparison.choices)]
        rows = [self._row(length, max(lengths), has_pairs) for length in lengths]
        ids, types, mask = map(np.stack, zip(*rows, strict=True))  # BT, or BK,T
        draw = DrawnBatch(
            ids,
            mask,
            self._is_word(ids),
            self.config,
            self.problem_type,
            lambda: self.tokenizer.special_id("mask", "parity of the words' head"),
            self.generator,
        )
        labels = comparison.labels(draw)
        features = dict(zip(FEATURES, (draw.ids, types, mask), strict=False))
        if not self.config.type_vocab_size:  # GPT in transformers would add word embeddings of them
            del features["token_type_ids"]
        if self.config.attention_window is not None:
            features[FEATURES[3]] = mask * (self.generator.random(mask.shape) < _GLOBAL)
        features |= comparison.features(draw)
        facts = [f"batch {batch}", f"{max(lengths)} tokens"]
        if comparison.choices > 1:
            shape = (batch, comparison.choices, -1)  # BKT
            features = {name: values.reshape(shape) for name, values in features.items()}
            facts.append(f"{comparison.choices} choices")
        if min(lengths) < max(lengths):
            facts.append(f"padding (rows of {', '.join(map(str, dict.fromkeys(lengths)))})")
        if has_pairs:
            facts.append("two segments")
        return ParityInput(name, ", ".join(facts), features, labels)

    def _row(
        self, length: int, width: int, is_pair: bool
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """One text or two, padded: ids, token types and mask, int32 [width]."""
        template = self.tokenizer.template
        is_pair = is_pair and length >= 2 + template.num_special_tokens(pair=True)
        words = length - template.num_special_tokens(pair=is_pair)
        sizes = {"A": (words + 1) // 2 if is_pair else words, "B": words // 2}
        ids = np.full(width, self.tokenizer.padding_id, np.int32)
        types, mask = np.zeros(width, np.int32), np.zeros(width, np.int32)
        ids[:length], mask[:length] = self._words(length), 1
        start = 0
        for name, type_id in template.parts(pair=is_pair):
            stop = start + sizes.get(name, 1)
            if name not in sizes:
                ids[start] = self.tokenizer.template_id(name)
            types[start:stop] = type_id
            start = stop
        return ids, types, mask

    def _words(self, count: int) -> np.ndarray:
        special = self.tokenizer.special_ids
        ordinary = np.setdiff1d(
            np.arange(self.config.vocab_size),
            [*special.known(), self.config.pad_token_id],
        )
        return self.generator.choice(ordinary if ordinary.size else [special.unk or 0], count)

    def _is_word(self, ids: np.ndarray) -> np.ndarray:
        special = self.tokenizer.special_ids
        around = [i for i in (special.cls, special.sep, special.pad) if i is not None]
        return ~np.isin(ids, around)

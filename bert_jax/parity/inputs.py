"""The inputs of a comparison: token ids and labels, drawn from a seed, as BERT has them."""

import dataclasses
from collections.abc import Mapping, Sequence

import numpy as np

from bert_jax.errors import UserError
from bert_jax.models.config import EncoderConfig, Head
from bert_jax.parity.heads import IGNORED_LABEL
from bert_jax.tokenization.interface import SpecialIds

# In the order in which our models take them.
FEATURES = ("input_ids", "token_type_ids", "attention_mask")

_CHOICES = 2
_MASKED = 0.15


@dataclasses.dataclass(frozen=True)
class ParityInput:
    """One batch. The encoder sees R rows: B, or B · C for multiple choice.

    Attributes:
        name: in the table.
        text: what is special about it.
        features: those of `FEATURES`, int32 [B, T] or, for multiple
            choice, [B, C, T].
        labels: int32 or float32, by the arguments of Hugging Face's class; of the bare encoder the
            coefficients of its linear form, `last_hidden_state` [B, T, D] and `pooler_output`
            [B, D].
    """

    name: str
    text: str
    features: Mapping[str, np.ndarray]
    labels: Mapping[str, np.ndarray]

    def rows(self, feature: str) -> np.ndarray:
        """A feature as the encoder sees it, [R, T]."""
        values = self.features[feature]
        return values.reshape(-1, values.shape[-1])


def make_inputs(
    config: EncoderConfig,
    special: SpecialIds,
    head: Head,
    problem_type: str,
    *,
    seed: int = 0,
) -> tuple[ParityInput, ...]:
    """A short row, a padded batch and the full length of the position table.

    Args:
        config: sizes; with one token type there is no second segment.
        special: ids of the tokens around and between the segments.
        head: of the model; the labels are those of its loss.
        problem_type: of a sequence classifier.
        seed: the same seed gives the same inputs.

    Raises:
        UserError: the position table has no room for a word between [CLS] and [SEP].
    """
    longest = config.max_position_embeddings
    if longest < 3:
        raise UserError(
            f"max_position_embeddings is {longest}; an input of BERT has at least 3 tokens, "
            "[CLS], a word and [SEP]: give another model"
        )
    inputs = []
    for number, (name, lengths, wants_two) in enumerate(_plans(longest)):
        generator = np.random.default_rng((seed, number))
        maker = _Maker(config, special, head, problem_type, generator)
        two_segments = wants_two and config.type_vocab_size > 1
        inputs.append(maker.make(name, lengths, two_segments=two_segments))
    return tuple(inputs)


def _plans(longest: int) -> tuple[tuple[str, list[int], bool], ...]:
    """Name, lengths of the rows, whether there are two segments."""
    return (
        ("short", [min(12, longest)], False),
        ("padded", [min(length, longest) for length in (24, 17, 6)], True),
        ("full", [longest], True),
    )


@dataclasses.dataclass(frozen=True)
class _Maker:
    """Draws one input."""

    config: EncoderConfig
    special: SpecialIds
    head: Head
    problem_type: str
    generator: np.random.Generator

    def make(self, name: str, lengths: Sequence[int], *, two_segments: bool) -> ParityInput:
        """A batch with one row of each length, or with one question of that many choices."""
        batch = len(lengths)
        if self.head is Head.MULTIPLE_CHOICE:
            lengths = [length for length in lengths for _ in range(_CHOICES)]
        rows = [self._row(length, max(lengths), two_segments) for length in lengths]
        ids, types, mask = (np.stack(parts) for parts in zip(*rows, strict=True))  # RT
        ids, labels = self._with_labels(ids, mask)
        if self.head is Head.MULTIPLE_CHOICE:
            ids, types, mask = (
                array.reshape(batch, _CHOICES, -1) for array in (ids, types, mask)
            )  # BCT
        facts = [f"batch {batch}", f"{max(lengths)} tokens"]
        if self.head is Head.MULTIPLE_CHOICE:
            facts.append(f"{_CHOICES} choices")
        if min(lengths) < max(lengths):
            facts.append(f"padding (rows of {', '.join(map(str, dict.fromkeys(lengths)))})")
        if two_segments:
            facts.append("two segments")
        features = dict(zip(FEATURES, (ids, types, mask), strict=True))
        return ParityInput(name, ", ".join(facts), features, labels)

    def _row(
        self, length: int, width: int, two_segments: bool
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """`[CLS] first [SEP] second [SEP]`, padded: ids, token types and mask, int32 [width]."""
        ids = np.full(width, self.special.pad, np.int32)
        types, mask = np.zeros(width, np.int32), np.zeros(width, np.int32)
        ids[:length] = self._words(length)
        ids[0], ids[length - 1] = self.special.cls, self.special.sep
        mask[:length] = 1
        if two_segments and length > 4:
            middle = length // 2
            ids[middle] = self.special.sep
            types[middle + 1 : length] = 1
        return ids, types, mask

    def _words(self, count: int) -> np.ndarray:
        ordinary = np.setdiff1d(
            np.arange(self.config.vocab_size),
            [*dataclasses.astuple(self.special), self.config.pad_token_id],
        )
        return self.generator.choice(ordinary if ordinary.size else [self.special.unk], count)

    def _with_labels(
        self, ids: np.ndarray, mask: np.ndarray
    ) -> tuple[np.ndarray, dict[str, np.ndarray]]:
        """[R, T] twice → the ids, some of them masked if words are asked for, and the labels."""
        rows, lengths = len(ids), mask.sum(1)
        match self.head:
            case Head.PRETRAINING:
                ids, words = self._mask_words(ids)
                return ids, {"labels": words, "next_sentence_label": self._one_class(rows, 2)}
            case Head.MASKED_LM:
                ids, words = self._mask_words(ids)
                return ids, {"labels": words}
            case Head.NEXT_SENTENCE:
                return ids, {"labels": self._one_class(rows, 2)}
            case Head.CLASSIFICATION:
                return ids, {"labels": self._targets(rows)}
            case Head.TAGGING:
                tags = self._classes(ids.size, self.config.num_labels).reshape(ids.shape)
                labels = np.where(self._is_word(ids), tags, IGNORED_LABEL)
                return ids, {"labels": labels.astype(np.int32)}
            case Head.QUESTION_ANSWERING:
                ends = np.sort(self.generator.integers(0, lengths, (2, rows)), axis=0)
                start, end = ends.astype(np.int32)
                return ids, {"start_positions": start, "end_positions": end}
            case Head.MULTIPLE_CHOICE:
                return ids, {"labels": self._classes(rows // _CHOICES, _CHOICES)}
            case _:
                return ids, self._linear_form(mask)

    def _mask_words(self, ids: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """[MASK] in the place of some words, and these words as labels; at least one in a row."""
        is_word = self._is_word(ids)
        chosen = is_word & (self.generator.random(ids.shape) < _MASKED)
        chosen[np.arange(len(ids)), is_word.argmax(1)] = True
        labels = np.where(chosen, ids, IGNORED_LABEL)
        return np.where(chosen, self.special.mask, ids).astype(np.int32), labels.astype(np.int32)

    def _is_word(self, ids: np.ndarray) -> np.ndarray:
        return ~np.isin(ids, [self.special.cls, self.special.sep, self.special.pad])

    def _classes(self, count: int, classes: int) -> np.ndarray:
        return self.generator.integers(0, classes, count).astype(np.int32)

    def _one_class(self, rows: int, classes: int) -> np.ndarray:
        """The same class for all rows: of several classes the gradients may cancel to rounding."""
        return np.repeat(self._classes(1, classes), rows)

    def _targets(self, rows: int) -> np.ndarray:
        """Labels of a sequence classifier: [B] classes or values, [B, C] switches or values."""
        labels = self.config.num_labels
        if self.problem_type == "single_label_classification":
            return self._one_class(rows, labels)
        if self.problem_type == "multi_label_classification":
            return self._classes(rows * labels, 2).reshape(rows, labels).astype(np.float32)
        values = self.generator.normal(size=(rows, labels)).astype(np.float32)
        return values[:, 0] if labels == 1 else values

    def _linear_form(self, mask: np.ndarray) -> dict[str, np.ndarray]:
        """Coefficients, none at padding."""
        width = self.config.hidden_size
        tokens = self.generator.normal(size=(*mask.shape, width)) * mask[..., None]
        pooled = self.generator.normal(size=(len(mask), width))
        return {
            "last_hidden_state": (tokens / tokens.size).astype(np.float32),
            "pooler_output": (pooled / pooled.size).astype(np.float32),
        }

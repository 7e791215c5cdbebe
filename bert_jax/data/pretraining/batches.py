"""Corpus → masked batches for pre-training; `examples` says which example is where."""

from typing import NamedTuple

import numpy as np

from bert_jax.data.pipeline import Batch
from bert_jax.data.pretraining import masking, pairs
from bert_jax.data.pretraining.corpus import CorpusSplit
from bert_jax.data.pretraining.examples import CorpusExamples
from bert_jax.data.pretraining.options import PretrainingOptions
from bert_jax.tokenization.interface import Tokenizer


class PretrainingBatches(CorpusExamples):
    """The batches of one split of a corpus.

    Every batch has these keys (B rows of this host, T `length`, P `max_predictions`):

    | key | dtype, shape | meaning |
    |---|---|---|
    | input_ids | int32 [B, T] | [CLS] first [SEP] second [SEP], masked, then [PAD] |
    | token_type_ids | int32 [B, T] | 1 for the second segment and its [SEP], else 0 |
    | attention_mask | int32 [B, T] | 1 for tokens, 0 for padding |
    | masked_lm_positions | int32 [B, P] | positions of masked tokens, ascending, filled with 0 |
    | masked_lm_ids | int32 [B, P] | original tokens at these positions, filled with 0 |
    | masked_lm_weights | float32 [B, P] | 1 for masked positions, 0 for the filling |

    Unless the objective is "none":

    | key | dtype, shape | meaning |
    |---|---|---|
    | next_sentence_labels | int32 [B] | nsp: 0 next, 1 random; sop: 0 in order, 1 swapped |
    | next_sentence_weights | float32 [B] | 1 |

    With `span_boundary`, for each masked token:

    | key | dtype, shape | meaning |
    |---|---|---|
    | span_left_positions | int32 [B, P] | position before its span, filled with 0 |
    | span_right_positions | int32 [B, P] | position after its span, filled with 0 |
    | span_weights | float32 [B, P] | 1; 0 for the filling, for what exceeds `max_span_targets`, |
    | | | and for a span beside a special token |

    Attributes:
        options: length, objective and masking.
        length: T, tokens of a row.
        padding_id: id of [PAD].
    """

    def __init__(
        self,
        split: CorpusSplit,
        tokenizer: Tokenizer,
        options: PretrainingOptions,
        *,
        weighted: bool = True,
    ) -> None:
        """Plans the examples; see `pairs.ExamplePlan` for `weighted` and the errors."""
        super().__init__(options.seed)
        self._tokens, self.options = split.tokens, options
        self._has_pairs = options.objective != "none"
        self._tokenizer, self._template = tokenizer, tokenizer.template
        self._continues_word = tokenizer.continuations()
        self._random_ids = _random_ids(options.random_tokens, tokenizer, split)
        self._special_tokens = tokenizer.num_special_tokens(pair=self._has_pairs)
        max_tokens = options.length - self._special_tokens
        self._plan = pairs.ExamplePlan(split, options, max_tokens, weighted=weighted)
        self.length = options.length
        self.padding_id = tokenizer.padding_id
        self._mask_id = tokenizer.special_id("mask", "pre-training")
        self.examples_per_epoch = self._plan.examples_per_epoch

    def examples(self, numbers: np.ndarray, *, length: int | None = None) -> Batch:
        """The examples with these numbers, see the table above.

        Args:
            numbers: int64 [B], numbers of examples, in any order.
            length: T of these rows, if less than `self.length` is known to suffice.
        """
        segments, keys = self._draw(numbers)
        rows = self._assemble(segments, length or self.length)
        masked = masking.choose_positions(
            rows.is_text, self._continues_word[rows.ids], rows.lengths, keys, self.options
        )
        input_ids, originals = masking.replace_tokens(
            rows.ids, masked, keys, self.options, self._mask_id, self._random_ids
        )
        batch = {
            "input_ids": input_ids,
            "token_type_ids": rows.type_ids,
            "attention_mask": rows.is_token.astype(np.int32),
            "masked_lm_positions": masked.positions.astype(np.int32),
            "masked_lm_ids": originals,
            "masked_lm_weights": masked.chosen.astype(np.float32),
        }
        if self._has_pairs:
            batch["next_sentence_labels"] = segments.labels.astype(np.int32)
            batch["next_sentence_weights"] = np.ones(len(numbers), np.float32)
        if self.options.span_boundary:
            left, right, usable = masking.span_boundaries(masked, rows.is_text)
            usable &= masked.positions - left <= self.options.max_span_targets
            batch["span_left_positions"] = left.astype(np.int32)
            batch["span_right_positions"] = right.astype(np.int32)
            batch["span_weights"] = usable.astype(np.float32)
        return batch

    def lengths(self, numbers: np.ndarray) -> np.ndarray:
        """Token counts of the examples with these numbers, int64 [B], without reading any text."""
        return self._lengths(self.segments(numbers))

    def segments(self, numbers: np.ndarray) -> pairs.Segments:
        """The token ranges and labels of the examples with these numbers; no text is read."""
        return self._draw(numbers)[0]

    def _draw(self, numbers: np.ndarray) -> tuple[pairs.Segments, np.ndarray]:
        """The token ranges of examples in the corpus, and the random key of each, uint64 [B]."""
        drawn = self._drawn(numbers)
        return self._plan.segments(*drawn), drawn.keys

    def _assemble(self, segments: pairs.Segments, length: int) -> "_Rows":
        """Reads the segments from the corpus and adds special tokens according to the template."""
        positions, rows = np.arange(length), np.arange(len(segments.labels))[:, None]
        begins = [segments.first_start[:, None], segments.second_start[:, None]]  # B1
        row_lengths = self._lengths(segments)
        second = (segments.second_end - segments.second_start)[:, None]
        first = row_lengths[:, None] - second - self._special_tokens
        parts = self._template.starts([first, second] if self._has_pairs else [first])

        is_token = positions < row_lengths[:, None]
        is_text, type_ids = is_token.copy(), np.zeros((1, 1), np.int8)
        is_separator = np.zeros((1, 1), bool)
        origins = begins[0]  # corpus position of column 0, if it contained a token of the text
        type_id = 0
        for part, start in parts:
            if part.name not in "AB":
                is_text[rows, start] = False
            elif part.name == "A":
                is_separator = self._separators(segments, start, length)
                origins = begins[0] - start - np.cumsum(is_separator, axis=1)
            else:
                origins = np.where(positions < start, origins, begins[1] - start)
            if part.type_id != type_id:
                type_ids = type_ids + (positions >= start) * np.int8(part.type_id - type_id)
                type_id = part.type_id
        is_text &= ~is_separator
        ids = self._tokens.take(origins + positions, mode="clip").astype(np.int32)
        ids[~is_text] = self.padding_id
        for part, start in parts:
            if part.name not in "AB":
                ids[rows, start] = self._tokenizer.template_id(part.name)
        if self.options.cross_documents:
            separator = self._tokenizer.special_id("sep", "data.cross_documents")
            np.copyto(ids, separator, where=is_separator)
        return _Rows(ids, is_text, is_token, (type_ids * is_token).astype(np.int32), row_lengths)

    def _separators(self, segments: pairs.Segments, start: int, length: int) -> np.ndarray:
        """The [SEP] between the documents of texts that begin at column `start`: bool [B, T]."""
        if not self.options.cross_documents:
            return np.zeros((1, 1), bool)
        before, exists = self._plan.separators(segments)
        is_separator = np.zeros((len(before), length), bool)
        row, number = np.nonzero(exists)
        is_separator[row, start + before[row, number]] = True
        return is_separator

    def _lengths(self, segments: pairs.Segments) -> np.ndarray:
        """Token counts of examples with their special tokens, int64 [B]."""
        lengths = segments.first_end - segments.first_start + self._special_tokens
        if self.options.cross_documents:
            lengths += self._plan.separators(segments)[1].sum(axis=1)
        return lengths + segments.second_end - segments.second_start


def _random_ids(kind: str, tokenizer: Tokenizer, split: CorpusSplit) -> np.ndarray:
    """The ids of which a random token is one, see `PretrainingOptions.random_tokens`."""
    if kind == "corpus":
        return split.tokens
    ids = np.arange(tokenizer.vocab_size)
    if kind == "non_special":
        return np.setdiff1d(ids, tokenizer.special_ids.known())
    return ids


class _Rows(NamedTuple):
    """Unmasked examples [B, T]: int32 ids and types, two bool masks; and their lengths [B]."""

    ids: np.ndarray
    is_text: np.ndarray
    is_token: np.ndarray
    type_ids: np.ndarray
    lengths: np.ndarray

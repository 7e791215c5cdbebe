"""Corpus → masked batches for pre-training.

The data position is one integer. Example n of a run is example n mod E of epoch n div E (E examples
in an epoch); its place in the corpus, its pair and its masks are a pure function of (seed, n).
Global batch g holds the examples g·B … g·B + B-1; a host makes only its own rows of it. So the
batches depend neither on the number of hosts and workers nor on where a run was resumed.
"""

import dataclasses
from typing import NamedTuple

import numpy as np

from bert_jax.data import randomness
from bert_jax.data.pipeline import Batch
from bert_jax.data.pretraining import masking, pairs
from bert_jax.data.pretraining.corpus import CorpusSplit
from bert_jax.errors import OptionError, renamed_options
from bert_jax.tokenization.interface import Tokenizer

# Streams of random numbers of an epoch.
_SHUFFLE, _PHASES, _EXAMPLES = 0, 1, 2


@dataclasses.dataclass(frozen=True)
class PretrainingOptions:
    """Length, objective and masking of the examples.

    Attributes:
        length: T, tokens of a sequence with [CLS], [SEP] and padding.
        objective: "nsp" (is the second sentence the next one?), "sop" (are the two in order?) or
            "none" (consecutive whole sentences of one document, RoBERTa's DOC-SENTENCES).
        masking: "token", "whole_word" or "span".
        max_predictions: P, the most masked tokens of a sequence.
        mask_fraction: share of the tokens that is masked.
        short_probability: share of examples with a shorter target length.
        seed: of all random choices.
    """

    length: int = 128
    objective: str = "nsp"
    masking: str = "token"
    max_predictions: int = 20
    mask_fraction: float = 0.15
    short_probability: float = 0.1
    seed: int = 0

    def __post_init__(self) -> None:
        if self.length < 8:
            raise OptionError("length", self.length, "it must be at least 8")


class PretrainingBatches:
    """The batches of one split of a corpus.

    Every batch has these keys (B rows of this host, T `length`, P `max_predictions`):

    | key | dtype, shape | meaning |
    |---|---|---|
    | input_ids | int32 [B, T] | [CLS] first [SEP] second [SEP], masked, then [PAD] |
    | token_type_ids | int32 [B, T] | 1 for the second segment and its [SEP], else 0 |
    | attention_mask | int32 [B, T] | 1 for tokens, 0 for padding |
    | masked_lm_positions | int32 [B, P] | where tokens were masked, ascending, filled with 0 |
    | masked_lm_ids | int32 [B, P] | the original tokens there, filled with 0 |
    | masked_lm_weights | float32 [B, P] | 1 for masked positions, 0 for the filling |
    | next_sentence_labels | int32 [B] | nsp: 0 next, 1 random; sop: 0 in order, 1 swapped |
    | next_sentence_weights | float32 [B] | 1, or 0 where there is no such label |

    Attributes:
        length: T.
        padding_id: the id of [PAD].
        masking: the options of masking.
        examples_per_epoch: E.
        rows_per_epoch: E, since each row is one example.
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
        self._tokens = split.tokens
        self._objective = options.objective
        self._special, self._template = tokenizer.special_ids, tokenizer.template
        self._continues_word = tokenizer.continuations()
        self._special_tokens = tokenizer.num_special_tokens(pair=options.objective != "none")
        self._plan = pairs.ExamplePlan(
            split,
            pairs.PairOptions(
                objective=options.objective,
                max_tokens=options.length - self._special_tokens,
                short_probability=options.short_probability,
            ),
            weighted=weighted,
        )
        self.length = options.length
        self.padding_id = self._special.pad
        with renamed_options(unit="masking"):
            self.masking = masking.MaskingOptions(
                unit=options.masking,
                max_predictions=options.max_predictions,
                mask_id=self._special.mask,
                vocab_size=tokenizer.vocab_size,
                mask_fraction=options.mask_fraction,
            )
        self._base_key = randomness.derive_key(options.seed)
        self.examples_per_epoch = self.rows_per_epoch = self._plan.examples_per_epoch

    def batch(self, number: int, rows: int, *, host: int = 0, hosts: int = 1) -> Batch:
        """This host's rows of global batch `number`.

        Args:
            number: which batch of the run, from 0.
            rows: rows of this host; the global batch has `rows * hosts`.
            host: index of this host; it makes the rows from `host * rows` on.
            hosts: number of hosts.
        """
        first = (number * hosts + host) * rows
        return self.examples(np.arange(first, first + rows))

    def evaluation_batch(self, number: int, rows: int, columns: np.ndarray) -> Batch:
        """Rows of batch `number` of an evaluation, which counts each example of an epoch once.

        Args:
            number: which batch, from 0.
            rows: examples of a batch.
            columns: int64 [B], index of each row in its batch. Rows past the end of the batch or of
                the epoch are padding: their weights are 0.
        """
        numbers = number * rows + columns
        inside = (columns < rows) & (numbers < self.examples_per_epoch)
        batch = self.examples(np.where(inside, numbers, 0))
        batch["masked_lm_weights"] *= inside[:, None]
        batch["next_sentence_weights"] *= inside
        return batch

    def examples(self, numbers: np.ndarray, *, length: int | None = None) -> Batch:
        """The examples with these numbers, see the table above.

        Args:
            numbers: int64 [B], in any order.
            length: T of these rows if it is known that less than `self.length` suffices.
        """
        segments, keys = self._draw(numbers)
        rows = self._assemble(segments, length or self.length)
        masked = masking.choose_positions(
            rows.is_text, self._continues_word[rows.ids], rows.lengths, keys, self.masking
        )
        input_ids, originals = masking.replace_tokens(rows.ids, masked, keys, self.masking)
        has_label = self._objective != "none"
        return {
            "input_ids": input_ids,
            "token_type_ids": rows.type_ids,
            "attention_mask": rows.is_token.astype(np.int32),
            "masked_lm_positions": masked.positions.astype(np.int32),
            "masked_lm_ids": originals,
            "masked_lm_weights": masked.chosen.astype(np.float32),
            "next_sentence_labels": segments.labels.astype(np.int32),
            "next_sentence_weights": np.full(len(numbers), has_label, np.float32),
        }

    def lengths(self, numbers: np.ndarray) -> np.ndarray:
        """Tokens of the examples with these numbers, int64 [B], without reading any text."""
        segments, _ = self._draw(numbers)
        return self._lengths(segments)

    def _draw(self, numbers: np.ndarray) -> tuple[pairs.Segments, np.ndarray]:
        """Token ranges of examples in the corpus, and the random key of each, uint64 [B]."""
        epochs, indices = np.divmod(numbers, self.examples_per_epoch)
        epoch_keys = randomness.random_bits(self._base_key, epochs)
        shuffle_keys = randomness.random_bits(epoch_keys, _SHUFFLE)
        indices = randomness.permute(indices, self.examples_per_epoch, shuffle_keys)
        phase_keys = randomness.random_bits(epoch_keys, _PHASES)
        keys = randomness.random_bits(randomness.random_bits(epoch_keys, _EXAMPLES), indices)

        return self._plan.segments(indices, phase_keys, keys), keys

    def _assemble(self, segments: pairs.Segments, length: int) -> "_Rows":
        """Reads the segments from the corpus and adds special tokens as the template says."""
        positions, rows = np.arange(length), np.arange(len(segments.labels))[:, None]
        begins = [segments.first_start[:, None], segments.second_start[:, None]]  # B1
        ends = [segments.first_end[:, None], segments.second_end[:, None]]
        texts = 1 if self._objective == "none" else 2
        parts = self._template.starts([ends[text] - begins[text] for text in range(texts)])

        lengths = self._lengths(segments)
        is_token = positions < lengths[:, None]
        is_text, type_ids = is_token.copy(), np.zeros((1, 1), np.int8)
        origins = begins[0]  # where column 0 would be in the corpus, if it had a token of the text
        type_id = 0
        for part, start in parts:
            if part.name not in "AB":
                is_text[rows, start] = False
            elif part.name == "A":
                origins = begins[0] - start
            else:
                origins = np.where(positions < start, origins, begins[1] - start)
            if part.type_id != type_id:
                type_ids = type_ids + (positions >= start) * np.int8(part.type_id - type_id)
                type_id = part.type_id
        ids = self._tokens.take(origins + positions, mode="clip").astype(np.int32)
        ids[~is_text] = self._special.pad
        for part, start in parts:
            if part.name not in "AB":
                ids[rows, start] = getattr(self._special, part.name)
        return _Rows(ids, is_text, is_token, (type_ids * is_token).astype(np.int32), lengths)

    def _lengths(self, segments: pairs.Segments) -> np.ndarray:
        first = segments.first_end - segments.first_start
        return first + segments.second_end - segments.second_start + self._special_tokens


class _Rows(NamedTuple):
    """Unmasked examples [B, T]: int32 ids and types, two bool masks; and their lengths [B]."""

    ids: np.ndarray
    is_text: np.ndarray
    is_token: np.ndarray
    type_ids: np.ndarray
    lengths: np.ndarray

"""Span corruption: T5's pre-training task (Raffel et al., 2020, section 3.1.4).

Random spans of a text are each replaced by a sentinel, and the target is what they were:

    text     Thank you for inviting me to your party last week .
    inputs   Thank you <X> me to your party <Y> week .
    targets  <X> for inviting <Y> last <Z>

The target is the text with the other tokens replaced in the same way. So it ends with a sentinel
<Z> if the text goes on after the last span, which it does not for the spans of `draw_noise`.
"""

import dataclasses

import numpy as np

from bert_jax.data import randomness
from bert_jax.data.padding import filled
from bert_jax.data.pipeline import Batch
from bert_jax.data.pretraining.corpus import CorpusSplit
from bert_jax.data.pretraining.examples import CorpusExamples
from bert_jax.data.pretraining.stream import TokenStream
from bert_jax.errors import OptionError, require_at_least, require_between

# Indices of the random numbers of an example.
_NOISE, _REST = 0, 1 << 20


@dataclasses.dataclass(frozen=True)
class SpanOptions:
    """Length and corruption of the examples.

    Attributes:
        length: T, tokens of the corrupted text, with its end.
        noise_fraction: fraction of the tokens that is replaced.
        mean_span_length: mean number of tokens of a span.
        cross_documents: whether a text goes on in the next document.
        seed: seed of all random choices.
    """

    length: int = 512
    noise_fraction: float = 0.15
    mean_span_length: float = 3.0
    cross_documents: bool = True
    seed: int = 0

    def __post_init__(self) -> None:
        require_at_least("data.length", self.length, 4)
        require_between(
            "data.noise_fraction", self.noise_fraction, 0, 1, without_low=True, without_high=True
        )
        require_between("data.mean_span_length", self.mean_span_length, 1)

    @property
    def lengths(self) -> tuple[int, int]:
        """Tokens of an uncorrupted text, and U, tokens of its target: 568 and 114 for T = 512.

        The text is the longest whose corrupted tokens, sentinels and end fit into T.
        """
        text = 2
        while self._corrupted(text + 1)[0] <= self.length:
            text += 1
        return text, self._corrupted(text)[1]

    def counts(self, lengths: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The number of replaced tokens and of spans in texts of 2 tokens or more, int64 [B]."""
        noise = np.rint(lengths * self.noise_fraction).astype(np.int64)
        noise = np.clip(noise, 1, lengths - 1)
        spans = np.rint(noise / self.mean_span_length).astype(np.int64)
        # Both kinds of tokens are divided into as many parts, of which none is empty.
        return noise, np.clip(spans, 1, np.minimum(noise, lengths - noise))

    def _corrupted(self, length: int) -> tuple[int, int]:
        """The tokens of the corrupted text and of the target of a text, each with its end."""
        (noise,), (spans,) = self.counts(np.array([length]))
        return int(length - noise + spans + 1), int(noise + spans + 1)


def draw_noise(lengths: np.ndarray, keys: np.ndarray, options: SpanOptions) -> np.ndarray:
    """The tokens to replace: bool [B, W], W the greatest length.

    Noise and rest are each divided at random into as many parts as there are spans, of which none
    is empty; the parts alternate, beginning with the rest. (Source: t5, preprocessors.py,
    random_spans_noise_mask.)

    Args:
        lengths: int64 [B], tokens of each text, at least 1. A text of one token has no noise.
        keys: uint64 [B], random key of each text.
        options: fraction and mean length of the noise.
    """
    width = int(lengths.max(initial=1))
    noise, spans = options.counts(np.maximum(lengths, 2))
    parts = np.empty((len(lengths), 2 * int(spans.max(initial=1))), np.int64)
    parts[:, 0::2] = _random_parts(np.maximum(lengths, 2) - noise, spans, keys, _REST)
    parts[:, 1::2] = _random_parts(noise, spans, keys, _NOISE)
    ends = np.minimum(np.cumsum(parts, axis=1), width)  # [B, 2 · spans]
    changes = np.zeros((len(lengths), width + 1), np.int64)
    np.add.at(changes, (np.arange(len(lengths))[:, None], ends), 1)
    is_noise = np.cumsum(changes, axis=1)[:, :width] % 2 == 1
    return is_noise & (np.arange(width) < lengths[:, None])


def _random_parts(
    totals: np.ndarray, counts: np.ndarray, keys: np.ndarray, stream: int
) -> np.ndarray:
    """Divides totals into non-empty parts, all divisions equally likely: int64 [B, most parts].

    Args:
        totals: int64 [B], numbers of tokens.
        counts: int64 [B], numbers of parts; the sizes of further parts are 0.
        keys: uint64 [B], random key of each division.
        stream: index of the first random number.
    """
    gaps = np.arange(int(totals.max()) - 1)  # gap g is before token g + 1
    bits = randomness.random_bits(keys[:, None], stream + gaps)
    bits[gaps >= totals[:, None] - 1] = np.iinfo(np.uint64).max
    # A part begins at the gaps with the lowest numbers, and at token 0.
    rank = np.argsort(np.argsort(bits, axis=1, kind="stable"), axis=1, kind="stable")
    begins = rank < counts[:, None] - 1
    number = np.cumsum(begins, axis=1)  # of the part of tokens 1, 2, …
    rows, tokens = np.nonzero(gaps < totals[:, None] - 1)
    parts = np.zeros((len(totals), int(counts.max(initial=1))), np.int64)
    parts[:, 0] = 1
    np.add.at(parts, (rows, number[rows, tokens]), 1)
    return parts


@dataclasses.dataclass(frozen=True)
class SpanTokens:
    """Ids of special tokens.

    Attributes:
        sentinels: one for each span, in the order of the spans.
        eos: the end of a text and of a target.
        start: the first token that the decoder reads.
        padding: fills the rows.
    """

    sentinels: tuple[int, ...]
    eos: int
    start: int
    padding: int


def replace_runs(
    ids: np.ndarray, in_run: np.ndarray, is_token: np.ndarray, tokens: SpanTokens, width: int
) -> tuple[np.ndarray, np.ndarray]:
    """Texts in which each run of tokens is one sentinel, followed by their end.

    Args:
        ids: int [B, W].
        in_run: bool [B, W], tokens of the runs, at most as many as there are sentinels.
        is_token: bool [B, W], False for padding.
        tokens: the special tokens.
        width: T, at least the length of each result.

    Returns:
        The texts with padding, int32 [B, T], and their lengths, int64 [B].
    """
    in_run = in_run & is_token
    begins = in_run.copy()
    begins[:, 1:] &= ~in_run[:, :-1]
    number = np.maximum(np.cumsum(begins, axis=1) - 1, 0)
    replaced = np.where(begins, np.array(tokens.sentinels)[number], ids)
    is_left = is_token & (begins | ~in_run)
    counts = is_left.sum(axis=1)
    texts = filled(np.arange(width) < counts[:, None], replaced[is_left], tokens.padding)
    texts[np.arange(len(ids)), counts] = tokens.eos
    return texts, counts + 1


class SpanExamples(CorpusExamples):
    """The corrupted texts of one split of a corpus, other spans in each epoch.

    The texts are consecutive windows of the stream of documents (see `stream`), of the length that
    fills a row once it is corrupted.

    Every batch has these keys (B rows of this host, T `length`, U as in `SpanOptions.lengths`):

    | key | dtype, shape | meaning |
    |---|---|---|
    | input_ids | int32 [B, T] | the text with sentinels instead of spans, its end, then padding |
    | attention_mask | int32 [B, T] | 1 for tokens, 0 for padding |
    | decoder/input_ids | int32 [B, U] | for each label the token before it, then padding |
    | decoder/labels | int32 [B, U] | sentinels, each before its span, the end, then padding |
    | decoder/weights | float32 [B, U] | 1 for tokens, 0 for padding |
    """

    def __init__(
        self,
        split: CorpusSplit,
        options: SpanOptions,
        tokens: SpanTokens,
        *,
        weighted: bool = True,
    ) -> None:
        """Plans the texts.

        Args:
            split: documents of the split.
            options: lengths and corruption.
            tokens: the special tokens.
            weighted: whether sources are repeated according to their weights (not in evaluation).

        Raises:
            UserError: the split has no documents, or there are too few sentinels.
        """
        super().__init__(options.seed)
        self.options, self._tokens = options, tokens
        self._longest, self._target_length = options.lengths
        spans = int(options.counts(np.array([self._longest]))[1][0])
        if spans > len(tokens.sentinels):
            problem = f"texts of {self._longest} tokens have {spans} spans, and the tokenizer has "
            problem += f"{len(tokens.sentinels)} sentinels <extra_id_0>, <extra_id_1>, …"
            rule = "use another tokenizer, raise {data.mean_span_length}, or lower {data.length}"
            raise OptionError("data.mean_span_length", options.mean_span_length, rule, problem)
        self._stream = TokenStream(
            split, self._longest, cross_documents=options.cross_documents, weighted=weighted
        )
        self.examples_per_epoch = self._stream.examples_per_epoch

    def examples(self, numbers: np.ndarray) -> Batch:
        """The examples with these numbers, int64 [B]."""
        drawn, tokens = self._drawn(numbers), self._tokens
        starts, ends = self._stream.windows(drawn.indices)
        lengths = ends - starts
        is_noise = draw_noise(lengths, drawn.keys, self.options)  # [B, W]
        ids, _ = self._stream.read(starts, is_noise.shape[1])
        is_token = np.arange(is_noise.shape[1]) < lengths[:, None]
        texts, text_lengths = replace_runs(ids, is_noise, is_token, tokens, self.options.length)
        labels, label_lengths = replace_runs(ids, ~is_noise, is_token, tokens, self._target_length)
        is_label = np.arange(self._target_length) < label_lengths[:, None]
        before = np.roll(labels, 1, axis=1)
        before[:, 0] = tokens.start
        return {
            "input_ids": texts,
            "attention_mask": (np.arange(texts.shape[1]) < text_lengths[:, None]).astype(np.int32),
            "decoder/input_ids": np.where(is_label, before, tokens.padding).astype(np.int32),
            "decoder/labels": labels,
            "decoder/weights": is_label.astype(np.float32),
        }

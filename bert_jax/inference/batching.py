"""Texts of an input of any length to padded batches of like length, in constant memory."""

import dataclasses
import sys
from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from bert_jax.errors import UserError
from bert_jax.inference.interface import Text, TextError
from bert_jax.models.config import BertConfig
from bert_jax.tokenization import Encoding, Tokenizer

# However long the texts are, a window of them with their encodings stays below some 100 MB.
WINDOW_CHARACTERS = 1_000_000


@dataclasses.dataclass(frozen=True)
class BatchOptions:
    """How texts are grouped.

    Attributes:
        batch_size: the most texts of a batch.
        max_length: the most tokens of a text, special tokens counted; None for as many as the
            model has positions.
        refuse_long: whether a longer text is an error; otherwise it is cut and counted.
        window: how many batches of texts are sorted by length together.
    """

    batch_size: int = 32
    max_length: int | None = None
    refuse_long: bool = False
    window: int = 64

    def __post_init__(self) -> None:
        if not isinstance(self.batch_size, int) or self.batch_size < 1:
            raise UserError(f"batch_size is {self.batch_size}; it must be at least 1")

    def limit(self, config: BertConfig) -> int:
        """The most tokens of a text.

        Raises:
            UserError: the model has fewer positions, or there is no room for text.
        """
        most = config.max_position_embeddings
        if self.max_length is None:
            return most
        if not 3 <= self.max_length <= most:
            raise UserError(
                f"max_length is {self.max_length}; this model takes 3 to {most} tokens, "
                "[CLS] and [SEP] counted"
            )
        return self.max_length


@dataclasses.dataclass(frozen=True)
class Batch:
    """Texts that are computed together.

    Attributes:
        indices: where each text stands in the input, counted from 0.
        texts: themselves.
        encodings: their tokens, unpadded.
        arrays: `input_ids`, `token_type_ids`, `attention_mask`, int32 [B, T], as `Bert` takes them;
            behind the texts there may be rows of padding alone.
    """

    indices: list[int]
    texts: list[Text]
    encodings: list[Encoding]
    arrays: dict[str, np.ndarray]


def make_batches(
    texts: Iterable[Text],
    tokenizer: Tokenizer,
    config: BertConfig,
    options: BatchOptions,
    row_multiple: int = 1,
) -> Iterator[Batch]:
    """Batches of texts of like length, the longest of each window first.

    Reads no further than one window. T and B take few values (`bucket_length`, `bucket_rows`), so a
    function under jit is compiled for few shapes. At the end, a line on stderr says how many texts
    were cut, unless that was asked for.

    Args:
        texts: read once.
        tokenizer: of the model.
        config: of the model.
        options: sizes.
        row_multiple: what divides B: the devices that share the rows.

    Raises:
        UserError: something is no text, or too long where that is refused.
    """
    limit = options.limit(config)
    texts_before = cut = 0
    for window in _windows(texts, options.batch_size * options.window, config):
        encodings, too_long = _encode(window, tokenizer, limit)
        if too_long and options.refuse_long:
            index, length = min(too_long.items())
            raise TextError(
                f"the text has {length} tokens, the model takes {limit}; shorten it, or give "
                "max_length to cut it",
                texts_before + index,
            )
        # Sorted is stable: equal lengths stay in the order of the input.
        order = sorted(range(len(window)), key=lambda index: -len(encodings[index]))
        for start in range(0, len(order), options.batch_size):
            chosen = order[start : start + options.batch_size]
            members = [encodings[index] for index in chosen]
            rows = bucket_rows(len(members), options.batch_size, row_multiple)
            yield Batch(
                indices=[texts_before + index for index in chosen],
                texts=[window[index] for index in chosen],
                encodings=members,
                arrays=pad(members, rows, bucket_length(len(members[0]), limit), tokenizer),
            )
        texts_before += len(window)
        cut += len(too_long)
    if cut and options.max_length is None:  # nobody asked for it
        print(
            f"{cut} of {texts_before} texts were longer than {limit} tokens: cut", file=sys.stderr
        )


def bucket_length(length: int, most: int) -> int:
    """The next of 16, 32, 48, 64, 96, 128, 192, 256, 384, 512, …, but not above `most`."""
    # Two to an octave: half of the next lower power of two.
    step = max(16, 1 << max((length - 1).bit_length() - 2, 0))
    return min(-(-length // step) * step, most)


def bucket_rows(rows: int, batch_size: int, multiple: int) -> int:
    """The next power of two, not above `batch_size`, rounded up to a multiple."""
    power = min(1 << (rows - 1).bit_length(), batch_size)
    return -(-power // multiple) * multiple


def pad(
    encodings: Sequence[Encoding], rows: int, length: int, tokenizer: Tokenizer
) -> dict[str, np.ndarray]:
    """The arrays of a `Batch`, [rows, length]; padding is masked."""
    input_ids = np.full((rows, length), tokenizer.special_ids.pad, np.int32)
    token_type_ids = np.zeros((rows, length), np.int32)
    attention_mask = np.zeros((rows, length), np.int32)
    for row, encoding in enumerate(encodings):
        input_ids[row, : len(encoding)] = encoding.ids
        token_type_ids[row, : len(encoding)] = encoding.type_ids
        attention_mask[row, : len(encoding)] = 1
    return {
        "input_ids": input_ids,
        "token_type_ids": token_type_ids,
        "attention_mask": attention_mask,
    }


def _windows(texts: Iterable[Text], most: int, config: BertConfig) -> Iterator[list[Text]]:
    window: list[Text] = []
    characters = 0
    for index, text in enumerate(texts):
        _check(text, index, config)
        window.append(text)
        characters += len(text) if isinstance(text, str) else len(text[0]) + len(text[1])
        if len(window) == most or characters >= WINDOW_CHARACTERS:
            yield window
            window, characters = [], 0
    if window:
        yield window


def _check(text: object, index: int, config: BertConfig) -> None:
    if isinstance(text, str):
        return
    if not isinstance(text, tuple) or [type(part) for part in text] != [str, str]:
        raise TextError(f"text {index} is {text!r:.80}; give a string or a pair of strings", index)
    if config.type_vocab_size < 2:
        raise TextError(
            f"text {index} is a pair, but the model knows one segment only "
            "(type_vocab_size 1); join the two texts",
            index,
        )


def _encode(
    texts: Sequence[Text], tokenizer: Tokenizer, limit: int
) -> tuple[list[Encoding], dict[int, int]]:
    """The encoding of each text, cut to the limit, and the lengths of those that were too long."""

    def encode(places: Sequence[int], max_length: int | None) -> list[Encoding]:
        firsts, seconds = [], []
        for place in places:
            text = texts[place]
            if isinstance(text, str):
                firsts.append(text)
            else:
                firsts.append(text[0])
                seconds.append(text[1])
        return tokenizer.encode_batch(firsts, seconds or None, max_length=max_length)

    found: dict[int, Encoding] = {}
    too_long: dict[int, int] = {}
    for kind in (str, tuple):
        places = [place for place, text in enumerate(texts) if isinstance(text, kind)]
        if not places:
            continue
        found |= zip(places, encode(places, None), strict=True)
        long = {place: len(found[place]) for place in places if len(found[place]) > limit}
        if long:
            # Where a pair is cut is the tokenizer's business.
            found |= zip(long, encode(list(long), limit), strict=True)
            too_long |= long
    return [found[place] for place in range(len(texts))], too_long

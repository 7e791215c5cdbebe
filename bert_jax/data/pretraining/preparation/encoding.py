"""Text → sentences → token ids, in batches of about a megabyte."""

import itertools
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from bert_jax.data.pretraining.corpus import SPLITS, token_dtype
from bert_jax.data.pretraining.options import PrepareOptions
from bert_jax.data.pretraining.sources import Source
from bert_jax.tokenization.interface import Tokenizer


class NumberedBlock(NamedTuple):
    """A block (`sources.Block`) with the number and the split of its document.

    Attributes:
        document: number of the document in its shard, from 0.
        split: "train" or "validation".
        text: text of the block.
    """

    document: int
    split: str
    text: str


def numbered_blocks(
    source: Source, options: PrepareOptions, limit: int | None
) -> Iterator[NumberedBlock]:
    """The blocks of at most `limit` documents of a source."""
    document, split = -1, ""
    for block in source.blocks():
        if block.starts_document:
            document += 1
            if document == limit:
                return
            split = options.split_of(block.text)
        yield NumberedBlock(document, split, block.text)


PIECE_CHARACTERS = 8192
"""The longest sentence in characters, and the longest input of the sentence splitter.

Such a sentence has far more tokens than a model has positions. The bound keeps
memory constant for a line of any length, and the splitter linear (measured with sentencex 1.0.32:
262,144 characters of Chinese take 6.3 s at once and 0.2 s in such pieces).
"""


def split_sentences(paragraph: str, mode: str = "split", language: str = "en") -> list[str]:
    """The sentences of a paragraph, without surrounding white space; empty ones are left out.

    Args:
        paragraph: text that UTF-8 can encode, without line ends.
        mode: see `PrepareOptions.sentences`.
        language: language code for "split"; for a language without rules, sentencex has
            the rules of a related language, or of English.

    Returns:
        Sentences of at most `PIECE_CHARACTERS` characters; a longer one is cut at white space, or
        at any character if it has none.
    """
    pieces = _pieces(paragraph, language if mode == "split" else None)
    return [sentence for piece in pieces if (sentence := piece.strip())]


def _pieces(paragraph: str, language: str | None) -> Iterator[str]:
    """The sentences, or pieces of one sentence if `language` is None."""
    import sentencex

    start = 0
    while start < len(paragraph):
        part = paragraph[start : start + PIECE_CHARACTERS]
        is_last = start + PIECE_CHARACTERS >= len(paragraph)
        sentences = [part] if language is None else sentencex.segment(language, part)
        if not is_last and len(sentences) > 1:
            # The last one may continue beyond the part, so the next part begins with it.
            sentences = sentences[:-1]
        elif not is_last:
            sentences = [part[: part.rfind(" ", 1) + 1] or part]
        yield from sentences
        start += sum(map(len, sentences))


SENTENCE_TOKENS = 512
"""A longer sentence is cut into pieces of this many tokens."""

# Sentences encoded in one call: the tokenizer's results need much memory.
_BATCH_SENTENCES = 4096


class EncodedBatch(NamedTuple):
    """The token ids of a batch of text, documents in order.

    Attributes:
        tokens: uint16 or uint32 [tokens], ids of all sentences.
        sentence_lengths: int64 [sentences], each in [1, 512].
        documents: int64 [documents, 6], for each document with at least one sentence: its number,
            the index of its split in `SPLITS`, and its numbers of sentences, tokens, unknown tokens
            and cut sentences.
    """

    tokens: np.ndarray
    sentence_lengths: np.ndarray
    documents: np.ndarray

    def in_split(self, split: str) -> "EncodedBatch":
        """The documents of one split."""
        chosen = self.documents[:, 1] == SPLITS.index(split)
        sentences = np.repeat(chosen, self.documents[:, 2])
        tokens = np.repeat(sentences, self.sentence_lengths)
        return EncodedBatch(
            self.tokens[tokens], self.sentence_lengths[sentences], self.documents[chosen]
        )


def encode_blocks(
    blocks: Sequence[NumberedBlock], tokenizer: Tokenizer, options: PrepareOptions
) -> EncodedBatch:
    """Splits blocks into sentences and encodes them; sentences without a token are dropped."""
    sentences: list[str] = []
    keys: list[tuple[int, int]] = []  # document and split of each sentence
    for block in blocks:
        for paragraph in block.text.split("\n"):
            sentences += split_sentences(paragraph, options.sentences, options.language)
        key = block.document, SPLITS.index(block.split)
        keys += [key] * (len(sentences) - len(keys))
    dtype = token_dtype(tokenizer.vocab_size)
    batches, all_lengths = [np.zeros(0, dtype)], [np.zeros(0, np.int64)]
    for start in range(0, len(sentences), _BATCH_SENTENCES):
        ids = tokenizer.encode_sentences(sentences[start : start + _BATCH_SENTENCES])
        all_lengths.append(np.fromiter(map(len, ids), np.int64, len(ids)))
        count = int(all_lengths[-1].sum())
        batches.append(np.fromiter(itertools.chain.from_iterable(ids), dtype, count))
    tokens, lengths = np.concatenate(batches), np.concatenate(all_lengths)
    is_unknown = np.concatenate([[0], np.cumsum(tokens == tokenizer.special_ids.unk)])
    ends = np.cumsum(lengths)
    unknown = is_unknown[ends] - is_unknown[ends - lengths]
    kept = lengths > 0
    lengths, unknown = lengths[kept], unknown[kept]
    pieces = -(-lengths // SENTENCE_TOKENS)
    cut_lengths = np.full(int(pieces.sum()), SENTENCE_TOKENS, np.int64)
    cut_lengths[np.cumsum(pieces) - 1] = lengths - (pieces - 1) * SENTENCE_TOKENS
    documents = np.array(keys, np.int64).reshape(-1, 2)[kept]
    _, first = np.unique(documents[:, 0], return_index=True)
    columns = np.stack([pieces, lengths, unknown, pieces > 1], axis=1)  # one row a sentence
    sums = np.add.reduceat(columns, first) if len(first) else columns
    return EncodedBatch(tokens, cut_lengths, np.hstack([documents[first], sums]))

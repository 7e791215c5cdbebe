"""Text → sentences → token ids.

One process reads all sources in order (`read_batches`): it numbers the documents, assigns them to
the splits, and cuts the text into batches of about a megabyte. Encoding such a batch
(`encode_batch`) is a pure function, run in worker processes or on other machines.
"""

import dataclasses
import hashlib
import itertools
import re
from collections.abc import Iterator, Sequence

import numpy as np

from bert_jax.data.pretraining.corpus import SPLITS, token_dtype
from bert_jax.data.pretraining.sources import Source
from bert_jax.errors import OptionError, require_one_of
from bert_jax.tokenization.interface import Tokenizer


@dataclasses.dataclass(frozen=True, slots=True)
class NumberedBlock:
    """A block (`sources.Block`) with the number and the split of its document.

    Attributes:
        document: number of the document, counted over all sources from 0.
        split: "train" or "validation".
        text: text of the block.
    """

    document: int
    split: str
    text: str


@dataclasses.dataclass(frozen=True, slots=True)
class TextBatch:
    """Consecutive blocks of one source.

    Attributes:
        source: index of the source.
        blocks: blocks of the batch, at least one.
        position: total bytes of all sources read up to the end of the batch.
    """

    source: int
    blocks: tuple[NumberedBlock, ...]
    position: int


@dataclasses.dataclass(frozen=True, slots=True)
class ValidationSplit:
    """The choice of the documents of the validation split.

    Attributes:
        fraction: expected fraction of documents, in [0, 1).
        seed: another seed chooses other documents.
    """

    fraction: float
    seed: int

    def split_of(self, text: str) -> str:
        """The split of a document, from the text of its first block.

        All copies of a document are in the same split.
        """
        key = self.seed.to_bytes(16, "little", signed=True)
        digest = hashlib.blake2b(text.encode(), digest_size=8, key=key).digest()
        is_validation = int.from_bytes(digest, "little") < self.fraction * 2**64
        return "validation" if is_validation else "train"


def read_batches(
    sources: Sequence[Source], validation: ValidationSplit, *, limit: int | None, characters: int
) -> Iterator[TextBatch]:
    """The text of all sources, one after the other.

    Args:
        sources: the opened sources.
        validation: assigns each document to a split.
        limit: maximum number of documents of each source; None for all.
        characters: size of a batch, which ends with the block that reaches this number.

    Raises:
        UserError: a source cannot be read or is empty.
    """
    document, read_before = 0, 0
    for index, source in enumerate(sources):
        first_document = document
        for batch in source_batches(
            source, validation, index, first_document, limit=limit, characters=characters
        ):
            document = batch.blocks[-1].document + 1
            yield dataclasses.replace(batch, position=read_before + batch.position)
        if document == first_document:
            raise source.spec.error("it has no text")
        read_before += source.size


def source_batches(
    source: Source,
    validation: ValidationSplit,
    index: int = 0,
    first_document: int = 0,
    *,
    limit: int | None,
    characters: int,
) -> Iterator[TextBatch]:
    """The text of one source, which may be empty.

    Args:
        source: the opened source.
        validation: assigns each document to a split.
        index: index of the source, see `TextBatch.source`.
        first_document: number of the first document.
        limit: maximum number of documents; None for all.
        characters: size of a batch, see `read_batches`.
    """
    document = first_document - 1
    split = "train"
    blocks: list[NumberedBlock] = []
    size = 0
    for block in source.blocks():
        if block.starts_document:
            if limit is not None and document + 1 - first_document == limit:
                break
            document += 1
            split = validation.split_of(block.text)
        blocks.append(NumberedBlock(document, split, block.text))
        size += len(block.text)
        if size >= characters:
            yield TextBatch(index, tuple(blocks), source.position)
            blocks, size = [], 0
    if blocks:
        yield TextBatch(index, tuple(blocks), source.size)


MODES = ("split", "lines")

PIECE_CHARACTERS = 8192
"""The longest sentence in characters, and the longest input of the sentence splitter.

Such a sentence has far more tokens than a model has positions. The bound keeps
memory constant for a line of any length, and the splitter linear (measured with sentencex 1.0.32:
262,144 characters of Chinese take 6.3 s at once and 0.2 s in such pieces).
"""

_LANGUAGE = re.compile(r"[a-z]{2,3}(-[A-Za-z0-9]{2,8})*")


def check_mode(mode: str, language: str) -> None:
    """Raises UserError for values that `split_sentences` does not accept."""
    require_one_of("sentences", mode, MODES)
    if not _LANGUAGE.fullmatch(language):
        rule = "it must be a language code such as 'en', 'de' or 'zh-hant'"
        raise OptionError("language", language, rule)


def split_sentences(paragraph: str, mode: str = "split", language: str = "en") -> list[str]:
    """The sentences of a paragraph, without surrounding white space; empty ones are left out.

    Args:
        paragraph: text that UTF-8 can encode, without line ends.
        mode: "split": split by the rules of the `sentencex` library; "lines": the paragraph is one
            sentence.
        language: language code for "split"; for a language without rules, sentencex uses those of a
            related language, or of English.

    Returns:
        Sentences of at most `PIECE_CHARACTERS` characters; a longer one is cut at white space, or
        at any place if it has none.
    """
    pieces = _pieces(paragraph, language if mode == "split" else None)
    return [sentence for piece in pieces if (sentence := piece.strip())]


def _pieces(paragraph: str, language: str | None) -> Iterator[str]:
    """The sentences, or pieces of one sentence if `language` is None."""
    import sentencex

    start = 0
    while start < len(paragraph):
        window = paragraph[start : start + PIECE_CHARACTERS]
        is_last = start + PIECE_CHARACTERS >= len(paragraph)
        sentences = [window] if language is None else sentencex.segment(language, window)
        if not is_last and len(sentences) > 1:
            # The last one may continue beyond the window, so the next window begins with it.
            sentences = sentences[:-1]
        elif not is_last:
            sentences = [window[: window.rfind(" ", 1) + 1] or window]
        yield from sentences
        start += sum(map(len, sentences))


SENTENCE_TOKENS = 512
"""A longer sentence is cut into pieces of this many tokens."""

# Sentences encoded in one call: the tokenizer's results need much memory.
_BATCH_SENTENCES = 4096


@dataclasses.dataclass(frozen=True, slots=True)
class EncodedSplit:
    """The token ids of one split of a text batch; M sentences, D documents.

    Attributes:
        tokens: uint16 or uint32 [tokens], ids of all sentences.
        sentence_lengths: int64 [sentences], each in [1, 512].
        documents: int64 [D, 5], for each document with at least one sentence: its number, and its
            numbers of sentences, tokens, unknown tokens and cut sentences.
    """

    tokens: np.ndarray
    sentence_lengths: np.ndarray
    documents: np.ndarray


def encode_batch(
    batch: TextBatch, tokenizer: Tokenizer, mode: str, language: str
) -> dict[str, EncodedSplit]:
    """Splits a batch into sentences and encodes them.

    Args:
        batch: the text.
        tokenizer: tokenizer of the corpus.
        mode: sentence mode, see `split_sentences`.
        language: language of the text, see `split_sentences`.

    Returns:
        The sentences of "train" and of "validation"; sentences without a token are dropped.
    """
    encoded = {}
    for split in SPLITS:
        sentences: list[str] = []
        documents: list[int] = []
        for block in batch.blocks:
            if block.split == split:
                for paragraph in block.text.split("\n"):
                    sentences += split_sentences(paragraph, mode, language)
                documents += [block.document] * (len(sentences) - len(documents))
        encoded[split] = _encode(sentences, np.array(documents, np.int64), tokenizer)
    return encoded


def _encode(sentences: list[str], documents: np.ndarray, tokenizer: Tokenizer) -> EncodedSplit:
    """Encodes sentences; `documents` int64 [sentences] are the numbers of their documents."""
    dtype = token_dtype(tokenizer.vocab_size)
    batches = [np.zeros(0, dtype)]
    lengths = np.zeros(len(sentences), np.int64)
    for start in range(0, len(sentences), _BATCH_SENTENCES):
        ids = tokenizer.encode_sentences(sentences[start : start + _BATCH_SENTENCES])
        batch_lengths = np.fromiter(map(len, ids), np.int64, len(ids))
        lengths[start : start + len(ids)] = batch_lengths
        batches.append(
            np.fromiter(itertools.chain.from_iterable(ids), dtype, int(batch_lengths.sum()))
        )
    tokens = np.concatenate(batches)
    is_unknown = tokens == tokenizer.special_ids.unk
    unknown = np.diff(np.concatenate([[0], np.cumsum(is_unknown)])[_offsets(lengths)])
    kept = lengths > 0
    lengths, unknown, documents = lengths[kept], unknown[kept], documents[kept]
    pieces = -(-lengths // SENTENCE_TOKENS)
    return EncodedSplit(
        tokens=tokens,
        sentence_lengths=_cut_lengths(lengths, pieces),
        documents=_document_rows(documents, [pieces, lengths, unknown, pieces > 1]),
    )


def _offsets(lengths: np.ndarray) -> np.ndarray:
    """The start of each sentence, and the end of the last one: int64 [sentences + 1]."""
    return np.concatenate([[0], np.cumsum(lengths)])


def _cut_lengths(lengths: np.ndarray, pieces: np.ndarray) -> np.ndarray:
    """The lengths of the pieces of cut sentences: int64 [sum(pieces)]."""
    cut = np.full(int(pieces.sum()), SENTENCE_TOKENS, np.int64)
    cut[np.cumsum(pieces) - 1] = lengths - (pieces - 1) * SENTENCE_TOKENS
    return cut


def _document_rows(documents: np.ndarray, columns: list[np.ndarray]) -> np.ndarray:
    """The sums of each column over the sentences of each document; see `EncodedSplit.documents`."""
    numbers, first = np.unique(documents, return_index=True)
    if not len(numbers):
        return np.zeros((0, 1 + len(columns)), np.int64)
    sums = [np.add.reduceat(column.astype(np.int64), first) for column in columns]
    return np.stack([numbers, *sums], axis=1)

"""Trains the tokenizer of a corpus from the documents of its train split, and checks one."""

import collections
import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from tqdm import tqdm

from bert_jax import tokenization
from bert_jax.data.pretraining.options import PrepareOptions, VocabularyOptions
from bert_jax.data.pretraining.preparation.encoding import numbered_blocks
from bert_jax.data.pretraining.sources import Source
from bert_jax.errors import OptionError, listed
from bert_jax.tokenization.interface import (
    BYTE_LEVEL_BPE,
    GPT2,
    MARIAN,
    SENTENCEPIECE,
    T5,
    WORDPIECE,
    Tokenizer,
)
from bert_jax.tokenization.wordpiece import MAX_CHARACTERS_PER_WORD

# The text that `unknown_pieces` encodes, and the share of [UNK] from which it warns.
_CHECKED_CHARACTERS = 1_000_000
_MOST_UNKNOWN = 0.001


def train_vocabulary(
    options: PrepareOptions,
    sources: Sequence[Source],
    *,
    limit: int | None,
    progress: bool,
    report: Callable[[OptionError], object],
) -> Tokenizer:
    """Trains a tokenizer from the documents of "train", the first ones of each source.

    Args:
        options: kind and size of the vocabulary; validation documents are left out.
        sources: the opened sources.
        limit: maximum number of documents of each source.
        progress: whether a progress bar is shown on stderr.
        report: is called if the alphabet does not fit into the vocabulary.

    Raises:
        UserError: a source cannot be read, or there is too little text for the vocabulary.
    """
    characters = options.vocabulary.train_characters
    with tqdm(
        total=characters,
        desc="vocabulary: at most",
        unit=" characters",
        unit_scale=True,
        disable=not progress,
    ) as bar:

        def texts() -> Iterator[str]:
            yield from _train_texts(characters, options, sources, limit, bar.update)
            # All is read: a small text is not 1 % of the limit.
            bar.total = bar.n
            bar.set_description("vocabulary")

        return train_tokenizer(texts(), options.vocabulary, report=report)


def train_tokenizer(
    texts: Iterable[str],
    options: VocabularyOptions,
    *,
    report: Callable[[OptionError], object],
) -> Tokenizer:
    """Trains a tokenizer of `options.kind` from texts; see `train_vocabulary`."""
    alphabet = {"lowercase": options.lowercase, "character_coverage": options.character_coverage}
    typed = {**alphabet, "model_type": options.model_type}
    trainers: dict[str, tuple[Callable[..., Tokenizer], dict[str, Any]]] = {
        WORDPIECE: (tokenization.train_wordpiece, {**alphabet, "report": report}),
        SENTENCEPIECE: (tokenization.train_sentencepiece, typed),
        BYTE_LEVEL_BPE: (tokenization.train_byte_level_bpe, {}),
        GPT2: (tokenization.train_gpt2, {}),
        T5: (tokenization.train_t5, alphabet),
        MARIAN: (tokenization.train_marian, typed),
    }
    train, others = trainers[options.kind]
    return train(texts, vocab_size=options.vocab_size, **others)


def unknown_pieces(
    tokenizer: Tokenizer,
    options: PrepareOptions,
    sources: Sequence[Source],
    *,
    limit: int | None,
    problems: Sequence[OptionError] | None,
) -> Iterator[str]:
    """Lines of text: the share of [UNK] at the beginning of the sources, if high with its cause.

    Args:
        tokenizer: tokenizer of the corpus.
        options: see `train_vocabulary`.
        sources: the opened sources.
        limit: maximum number of documents of each source.
        problems: what `train_vocabulary` has reported; None: the tokenizer was not trained here.
    """
    texts = list(_train_texts(_CHECKED_CHARACTERS, options, sources, limit, lambda size: None))
    unk = tokenizer.special_ids.unk
    if unk in (None, tokenizer.special_ids.eos):  # byte-level BPE knows all text
        return
    pieces = itertools.chain.from_iterable(tokenizer.encode_sentences(texts))
    counts = collections.Counter(pieces)
    share = counts[unk] / max(counts.total(), 1)
    characters = collections.Counter("".join(texts))
    name = tokenizer.readable_token(unk)
    yield f"{share:.2%} of the tokens of the first {characters.total():,} characters are {name}"
    if share <= _MOST_UNKNOWN:
        return
    by_count = [character for character, _ in characters.most_common()]
    unknown = [
        character
        for character, ids in zip(by_count, tokenizer.encode_sentences(by_count), strict=True)
        if unk in ids
    ]
    remedy = "leave tokenizer.path out to train one for this text"
    if problems is not None:
        cause = "".join(map(str, problems)) or "raise tokenizer.character_coverage"
        remedy = f"{cause}, or set tokenizer.kind=byte_level_bpe, tokenizer.lowercase=False"
    if 2 * sum(characters[character] for character in unknown) >= counts[unk]:
        yield (
            f"warning: the vocabulary does not have {len(unknown):,} of {len(by_count):,} "
            f"characters of the text, {listed(list(map(repr, unknown)))}: {remedy}"
        )
    else:
        yield (
            f"warning: most unknown words have more than {MAX_CHARACTERS_PER_WORD} characters, "
            "which WordPiece does not split: for text without spaces train "
            "tokenizer.kind=sentencepiece"
        )


def _train_texts(
    characters: int,
    options: PrepareOptions,
    sources: Sequence[Source],
    limit: int | None,
    update: Callable[[int], object],
) -> Iterator[str]:
    """Paragraphs of all sources; each source contributes a number of characters by its weight."""
    total_weight = sum(source.spec.weight for source in sources)
    for source in sources:
        left = characters * source.spec.weight / total_weight
        for block in numbered_blocks(source, options, limit):
            if block.split == "train":
                yield from block.text[: int(left)].split("\n")
                update(min(len(block.text), int(left)))
                left -= len(block.text)
                if left < 1:
                    break

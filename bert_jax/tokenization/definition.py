"""A `tokenizer.json`: what it may contain, checked before the tokenizers library reads it.

The library can do more than the tokenizers of this package need. Regular expressions of a file may
take exponential time, or end in a panic of its Rust code, which no `except Exception` catches.
"""

import contextlib
import json
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bert_jax.errors import UserError, first_line
from bert_jax.files import read_json_object
from bert_jax.process import say
from bert_jax.tokenization.interface import (
    BRACKETED,
    BYTE_LEVEL_BPE,
    MAX_VOCABULARY_SIZE,
    WORDPIECE,
    check_vocabulary_size,
    is_unicode,
)

if TYPE_CHECKING:
    import tokenizers

CONTINUATION_PREFIX = "##"

READ_REMEDY = "give a file that a tokenizer saved"
OTHER_MODEL = "give a model with another tokenizer"

# The kind of tokenizer of each kind of model.
KINDS = {"WordPiece": WORDPIECE, "BPE": BYTE_LEVEL_BPE}

# The normalisers and pre-tokenizers that are admitted for WordPiece, by the key of the file. None
# takes a pattern, and each takes time in proportion to the text. (Byte-level BPE has only the
# pre-tokenizer ByteLevel, whose pattern, that of GPT-2, is part of the library.)
STEPS = {
    "normalizer": ("BertNormalizer", "Lowercase", "StripAccents", "NFC", "NFD", "NFKC", "NFKD"),
    "pre_tokenizer": (
        "BertPreTokenizer",
        "Whitespace",
        "WhitespaceSplit",
        "Punctuation",
        "Digits",
    ),
}
# The key of the steps of a "Sequence".
_PARTS = {"normalizer": "normalizers", "pre_tokenizer": "pretokenizers"}
_MAX_STEPS = 32

# A word of n characters takes up to n² / 2 look-ups: a third of a second for 1,000 characters, and
# a minute and a half for 10,000.
MAX_CHARACTERS_PER_WORD_OF_FILE = 1000

# A piece may be made of several pairs.
_MOST_MERGES = 8
# Pieces that no merge makes are special tokens and a few that a vocabulary has for its size.
_MOST_UNMADE = 0.1
_FEW_UNMADE = 0.001

# Parts of the file that are set anew or not used, see `LibraryTokenizer._complete`.
_UNUSED = ("truncation", "padding", "post_processor", "decoder")


def read_definition(path: Path) -> dict[str, Any]:
    """Reads a `tokenizer.json`.

    Raises:
        UserError: the file cannot be read, is too large or not a JSON object.
    """
    return read_json_object(path, remedy=READ_REMEDY)


def model_type(definition: Mapping[str, Any]) -> str:
    """The kind of model; old files do not name it, but only WordPiece has this limit."""
    model = definition.get("model")
    if not isinstance(model, dict):
        return "missing"
    unnamed = "WordPiece" if "max_input_chars_per_word" in model else "of no known type"
    return str(model.get("type", unnamed))


def make_library_tokenizer(
    path: Path, definition: Mapping[str, Any], vocab_size: int | None
) -> "tokenizers.Tokenizer":
    """The tokenizer of the library for a WordPiece model, if everything in the file is admitted.

    Args:
        path: file to name in errors.
        definition: the content of the file.
        vocab_size: number of ids of the model; None: unknown.

    Raises:
        UserError: the file has something that is not admitted.
    """
    import tokenizers

    checked_pieces(path, definition["model"].get("vocab"), vocab_size)
    _check_wordpiece(path, definition["model"])
    for key in STEPS:
        _check_steps(path, key, definition.get(key))
    with library_errors(path):
        complete = json.dumps({**definition, **dict.fromkeys(_UNUSED)})
        return tokenizers.Tokenizer.from_str(complete)


def read_bpe(
    path: Path, definition: Mapping[str, Any], vocab_size: int | None
) -> tuple[dict[str, int], list[tuple[str, str]]]:
    """The vocabulary and the merges of byte-level BPE.

    Args:
        path: file to name in errors.
        definition: the content of the file.
        vocab_size: number of ids of the model; None: unknown.

    Raises:
        UserError: it is not byte-level BPE as in RoBERTa, or its merges do not fit its pieces.
    """
    model = definition["model"]
    _check_bpe(path, model)
    _check_byte_level(path, definition)
    return checked_pieces(path, model.get("vocab"), vocab_size), _read_merges(path, model)


def decoded_lines(path: Path, data: bytes) -> list[str]:
    """The lines of a file in UTF-8, with or without a byte order mark; they end in LF or CRLF.

    Raises:
        UserError: a byte is not UTF-8.
    """
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise UserError(
            f"{path}:{line}: byte 0x{data[error.start]:02x} is not UTF-8; copy the file again"
        ) from None
    return [line.removesuffix("\r") for line in text.split("\n")]


def checked_pieces(path: Path, vocabulary: Any, vocab_size: int | None) -> dict[str, int]:
    """The ids of the pieces of a WordPiece or BPE model.

    Args:
        path: file to name in errors.
        vocabulary: its `vocab`.
        vocab_size: number of ids of the model; None: unknown.

    Raises:
        UserError: it is no object of pieces and ids, or larger than the model's vocabulary.
    """
    if not isinstance(vocabulary, dict) or not is_unicode("".join(vocabulary)):
        raise UserError(f"{path}: the vocabulary is no object of pieces and ids; {READ_REMEDY}")
    for piece, token_id in vocabulary.items():
        if type(token_id) is not int or not 0 <= token_id < MAX_VOCABULARY_SIZE:
            raise UserError(
                f"{path}: the id of {piece!r:.80} is {token_id!r:.80}; give a number from 0 to "
                f"{MAX_VOCABULARY_SIZE - 1:,}: copy the file again"
            )
    check_vocabulary_size(path, len(vocabulary), vocab_size)
    return vocabulary


def check_prefix(path: Path, model: Mapping[str, Any]) -> None:
    """Raises UserError if pieces inside a word do not begin with "##"."""
    prefix = model.get("continuing_subword_prefix", CONTINUATION_PREFIX)
    if prefix != CONTINUATION_PREFIX:
        raise UserError(
            f"{path}: pieces inside a word begin with {prefix!r}; only {CONTINUATION_PREFIX!r} is "
            "supported"
        )


def _check_wordpiece(path: Path, model: Mapping[str, Any]) -> None:
    check_prefix(path, model)
    unknown = model.get("unk_token", BRACKETED[1])
    if unknown not in model["vocab"]:
        raise UserError(
            f"{path}: the vocabulary has no {unknown!r:.80}, which is the unk_token of the model; "
            "copy the file again"
        )
    limit = model.get("max_input_chars_per_word", 1)
    if type(limit) is not int or not 1 <= limit <= MAX_CHARACTERS_PER_WORD_OF_FILE:
        raise UserError(
            f"{path}: max_input_chars_per_word is {limit!r:.80}; give a number from 1 to "
            f"{MAX_CHARACTERS_PER_WORD_OF_FILE} (BERT's is 100)"
        )


def _check_bpe(path: Path, model: Mapping[str, Any]) -> None:
    """Raises UserError if the model is not that of RoBERTa."""
    for key in (
        *("dropout", "continuing_subword_prefix", "end_of_word_suffix"),
        *("fuse_unk", "byte_fallback", "ignore_merges"),
    ):
        if model.get(key):
            raise UserError(
                f"{path}: {key} of the BPE model is {model[key]!r:.80}; byte-level BPE as in "
                f"RoBERTa has none: {OTHER_MODEL}"
            )


def _read_merges(path: Path, model: Mapping[str, Any]) -> list[tuple[str, str]]:
    vocabulary, merges = model["vocab"], model.get("merges")
    if not isinstance(merges, list):
        raise UserError(f"{path}: the BPE model has no list of merges; {READ_REMEDY}")
    limit_merges(path, len(merges), vocabulary, READ_REMEDY)
    numbered = (
        (f": merge {number}", merge.split(" ") if isinstance(merge, str) else merge)
        for number, merge in enumerate(merges)
    )
    return checked_merges(path, numbered, vocabulary, READ_REMEDY)


def limit_merges(path: Path, count: int, vocabulary: Mapping[str, int], remedy: str) -> None:
    """Refuses a list with far more merges than pieces, before it is read."""
    limit = _MOST_MERGES * len(vocabulary) + 1
    if count > limit:
        raise UserError(
            f"{path}: {count:,} merges for {len(vocabulary):,} pieces; the limit is {limit:,}: "
            f"{remedy}"
        )


def checked_merges(
    path: Path,
    numbered: Iterable[tuple[str, Any]],
    vocabulary: Mapping[str, int],
    remedy: str,
    *,
    is_ended: bool = True,
) -> list[tuple[str, str]]:
    """The merges of BPE, with a line on stderr if they may be cut off.

    Args:
        path: file to name.
        numbered: the place of each merge in the file, and its two pieces.
        vocabulary: ids of all pieces.
        remedy: end of the message.
        is_ended: whether the last line of the file has a line end.

    Raises:
        UserError: a merge does not fit the vocabulary, or many are missing.
    """
    merges = []
    for place, pieces in numbered:
        if problem := _merge_problem(pieces, vocabulary):
            raise UserError(f"{path}{place} {problem}; {remedy}")
        merges.append((pieces[0], pieces[1]))
    made = {"".join(merge) for merge in merges}
    unmade = [piece for piece in vocabulary if len(piece) > 1 and piece not in made]
    words = [piece for piece in unmade if piece[0] not in "<["]
    if len(unmade) > _MOST_UNMADE * len(vocabulary) or (words and not (merges and is_ended)):
        raise UserError(
            f"{path}: no merge makes {len(unmade)} of the {len(vocabulary)} pieces, such as "
            f"{unmade[-1]!r:.80}; the limit is {_MOST_UNMADE:.0%}: the file is cut off, {remedy}"
        )
    if len(words) > _FEW_UNMADE * len(vocabulary):
        say(
            f"{path}: no merge makes {len(words):,} of the {len(vocabulary):,} pieces, such as "
            f"{words[-1]!r:.80}; if the file was cut off, copy it again"
        )
    return merges


def _merge_problem(pieces: Any, vocabulary: Mapping[str, int]) -> str | None:
    """What is wrong with a merge of BPE, as the end of a sentence; None if it is right."""
    is_pair = isinstance(pieces, list) and len(pieces) == 2
    if not is_pair or not all(isinstance(piece, str) for piece in pieces):
        return f"is {pieces!r:.80}, not two pieces with a space between"
    for piece in (*pieces, "".join(pieces)):
        if piece not in vocabulary:
            return f"({' '.join(pieces):.80}) needs {piece!r:.80}, which is not in the vocabulary"
    return None


def _check_byte_level(path: Path, definition: Mapping[str, Any]) -> None:
    """Raises UserError unless text is split as in GPT-2 and RoBERTa."""
    found = definition.get("pre_tokenizer")
    splitter = found if isinstance(found, dict) else {"type": found}
    kind = splitter.get("type")
    if kind != "ByteLevel" or splitter.get("use_regex", True) is not True:
        raise UserError(
            f"{path}: the pre_tokenizer of the BPE model is {kind!r:.80}; only ByteLevel with its "
            f"own pattern is supported, as in RoBERTa: {OTHER_MODEL}"
        )
    if definition.get("normalizer") is not None:
        raise UserError(
            f"{path}: the BPE model has a normalizer; byte-level BPE as in RoBERTa has none: "
            f"{OTHER_MODEL}"
        )


def _check_steps(path: Path, key: str, definition: Any) -> None:
    """Raises UserError unless a normaliser or pre-tokenizer, and all its parts, are admitted."""
    waiting, count = [definition], 0
    while waiting:
        step = waiting.pop()
        if step is None:
            continue
        kind = step.get("type") if isinstance(step, dict) else None
        parts = step.get(_PARTS[key]) if kind == "Sequence" else []
        if not isinstance(parts, list) or (kind != "Sequence" and kind not in STEPS[key]):
            known = ", ".join((*STEPS[key], "Sequence"))
            raise UserError(
                f"{path}: the {key} {kind!r:.80} is not supported; known are {known}: {OTHER_MODEL}"
            )
        waiting += parts
        count += 1
        if count > _MAX_STEPS:
            raise UserError(f"{path}: the {key} has more than {_MAX_STEPS} steps; {READ_REMEDY}")


@contextlib.contextmanager
def library_errors(path: Path) -> Iterator[None]:
    """Turns the errors and panics of the tokenizers library into a UserError of one line."""
    try:
        yield
    except BaseException as error:
        # The library raises plain Exceptions, and panics are no Exceptions at all.
        if not isinstance(error, Exception) and type(error).__name__ != "PanicException":
            raise
        raise UserError(
            f"{path}: the tokenizers library cannot read it: {first_line(error)}; {READ_REMEDY}"
        ) from None

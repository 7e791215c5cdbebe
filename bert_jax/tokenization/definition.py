"""A `tokenizer.json`: what it may contain, checked before the tokenizers library reads it.

The library can do more than the tokenizers of this package need. Regular expressions of a file may
take exponential time, or end in a panic of its Rust code, which no `except Exception` catches.
"""

import contextlib
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bert_jax.errors import UserError, first_line
from bert_jax.files import read_json_object
from bert_jax.tokenization.interface import (
    BRACKETED,
    BYTE_LEVEL_BPE,
    FAIRSEQ,
    WORDPIECE,
    check_vocabulary_size,
)

if TYPE_CHECKING:
    import tokenizers

CONTINUATION_PREFIX = "##"

READ_REMEDY = "give a file that a tokenizer saved"

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

_TOKEN_FLAGS = ("single_word", "lstrip", "rstrip", "normalized", "special")

# A word of n characters takes up to n² / 2 look-ups: a third of a second for 1,000 characters, and
# a minute and a half for 10,000.
MAX_CHARACTERS_PER_WORD_OF_FILE = 1000

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
    """The tokenizer of the library, if everything in the file is admitted.

    Args:
        path: file to name in errors.
        definition: the content of the file.
        vocab_size: number of ids of the model; None: unknown.

    Raises:
        UserError: the file has another model than those of `KINDS`, or something that is not
            admitted.
    """
    import tokenizers

    found = model_type(definition)
    if found not in KINDS:
        raise UserError(
            f"{path}: the model is {found}; only {' and '.join(KINDS)} are read from a {path.name} "
            "(SentencePiece: give the .model file)"
        )
    complete = {**definition, **dict.fromkeys(_UNUSED)}
    model = definition["model"]
    _check_vocabulary(path, model, vocab_size)
    if KINDS[found] == BYTE_LEVEL_BPE:
        _check_bpe(path, model)
        _check_byte_level(path, definition)
        # Without this, the library drops bytes that have no piece.
        complete["model"] = {**model, "unk_token": FAIRSEQ[1]}
    else:
        _check_wordpiece(path, model)
        for key in STEPS:
            _check_steps(path, key, definition.get(key))
    with library_errors(path):
        return tokenizers.Tokenizer.from_str(json.dumps(complete))


def _check_vocabulary(path: Path, model: Mapping[str, Any], vocab_size: int | None) -> None:
    vocabulary = model.get("vocab")
    if isinstance(vocabulary, dict):
        check_vocabulary_size(path, len(vocabulary), vocab_size)


def _check_wordpiece(path: Path, model: Mapping[str, Any]) -> None:
    prefix = model.get("continuing_subword_prefix", CONTINUATION_PREFIX)
    if prefix != CONTINUATION_PREFIX:
        raise UserError(
            f"{path}: pieces inside a word begin with {prefix!r}; only {CONTINUATION_PREFIX!r} is "
            "supported"
        )
    unknown = model.get("unk_token", BRACKETED[1])
    if unknown != BRACKETED[1]:
        raise UserError(
            f"{path}: unk_token is {unknown!r:.80}; only {BRACKETED[1]} can be read: rename it"
        )
    limit = model.get("max_input_chars_per_word", 1)
    if type(limit) is not int or not 1 <= limit <= MAX_CHARACTERS_PER_WORD_OF_FILE:
        raise UserError(
            f"{path}: max_input_chars_per_word is {limit!r:.80}; give a number from 1 to "
            f"{MAX_CHARACTERS_PER_WORD_OF_FILE} (BERT's is 100)"
        )


def _check_bpe(path: Path, model: Mapping[str, Any]) -> None:
    """Raises UserError if the model is not that of RoBERTa, or its merges do not fit its pieces."""
    if model.get("unk_token") not in (None, FAIRSEQ[1]):
        raise UserError(
            f"{path}: unk_token is {model['unk_token']!r:.80}; only {FAIRSEQ[1]} can be read: "
            "rename it"
        )
    for key in (
        *("dropout", "continuing_subword_prefix", "end_of_word_suffix"),
        *("fuse_unk", "byte_fallback", "ignore_merges"),
    ):
        if model.get(key):
            raise UserError(
                f"{path}: {key} of the BPE model is {model[key]!r:.80}; byte-level BPE as in "
                "RoBERTa has none: give a tokenizer without it"
            )
    vocabulary, merges = model.get("vocab"), model.get("merges")
    if isinstance(vocabulary, dict) and isinstance(merges, list):
        for number, merge in enumerate(merges):
            pieces = merge.split(" ") if isinstance(merge, str) else merge
            if problem := merge_problem(pieces, vocabulary):
                raise UserError(f"{path}: merge {number} {problem}; {READ_REMEDY}")


def merge_problem(pieces: Any, vocabulary: Mapping[str, int]) -> str | None:
    """What is wrong with a merge of BPE, as the end of a sentence; None if it is right.

    Args:
        pieces: the two pieces that are joined.
        vocabulary: ids of all pieces.
    """
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
            f"own pattern is supported, as in RoBERTa: {READ_REMEDY}"
        )
    if definition.get("normalizer") is not None:
        raise UserError(
            f"{path}: the BPE model has a normalizer; byte-level BPE as in RoBERTa has none: give "
            "a tokenizer without it"
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
                f"{path}: the {key} {kind!r:.80} is not supported; known are {known}: save the "
                "tokenizer with one of these, or give its vocab.txt"
            )
        waiting += parts
        count += 1
        if count > _MAX_STEPS:
            raise UserError(f"{path}: the {key} has more than {_MAX_STEPS} steps; {READ_REMEDY}")


def read_added_tokens(
    path: Path, config: Mapping[str, Any]
) -> list[tuple[int, "tokenizers.AddedToken"]]:
    """The tokens of a config's `added_tokens_decoder` with their ids, in the order of the ids.

    Args:
        path: file to name in errors.
        config: the content of a `tokenizer_config.json`.

    Raises:
        UserError: an entry is no token of the library.
    """
    entries = config.get("added_tokens_decoder", {})
    try:
        tokens = [(int(token_id), make_added_token(fields)) for token_id, fields in entries.items()]
    except (AttributeError, KeyError, TypeError, ValueError):
        raise UserError(
            f"{path}: added_tokens_decoder is not an object of ids and tokens; {READ_REMEDY}"
        ) from None
    return sorted(tokens, key=lambda token: token[0])


def make_added_token(fields: Mapping[str, Any]) -> "tokenizers.AddedToken":
    """An added token of a file; raises KeyError or TypeError if it is none."""
    from tokenizers import AddedToken

    return AddedToken(fields["content"], **{key: bool(fields.get(key)) for key in _TOKEN_FLAGS})


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

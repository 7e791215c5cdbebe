"""A `tokenizer.json`: what it may contain, checked before the tokenizers library reads it.

The library can do more than the tokenizers of this package need. Regular expressions of a file may
take exponential time, or end in a panic of its Rust code, which no `except Exception` catches.
"""

import contextlib
import json
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bert_jax.errors import UserError, first_line
from bert_jax.tokenization.encoding import TEXTS, Template, half_surrogate

if TYPE_CHECKING:
    import tokenizers

MAX_VOCABULARY_SIZE = 1 << 21
"""The limit of V: twice the largest known vocabulary (XLM-V)."""

READ_REMEDY = "give a file that a tokenizer saved"
OTHER_MODEL = "give a model with another tokenizer"

# The key of the steps of a "Sequence".
_PARTS = {"normalizer": "normalizers", "pre_tokenizer": "pretokenizers"}
# What a `tokenizer.json` may have as its `post_processor`, also several in a "Sequence".
_PROCESSORS = ("TemplateProcessing", "BertProcessing", "RobertaProcessing", "ByteLevel")


def model_type(definition: Mapping[str, Any] | None) -> str:
    """The kind of model; old files do not name it, but only WordPiece has this limit."""
    model = (definition or {}).get("model")
    if not isinstance(model, dict):
        return "missing"
    unnamed = "WordPiece" if "max_input_chars_per_word" in model else "of no known type"
    return str(model.get("type", unnamed))


def checked_model(path: Path, definition: Mapping[str, Any], needed: str) -> dict[str, Any]:
    """The model of a `tokenizer.json`.

    Raises:
        UserError: it is of another type than the class of the tokenizer needs.
    """
    known = model_type(definition)
    if known != needed:
        raise UserError(
            f"{path}: the model is {known}, but the class of the tokenizer needs {needed}; "
            f"{READ_REMEDY}"
        )
    model: dict[str, Any] = definition["model"]
    return model


def checked_pieces(path: Path, vocabulary: Any) -> dict[str, int]:
    """The ids of the pieces of a WordPiece or BPE model.

    Args:
        path: file to name in errors.
        vocabulary: its `vocab`.

    Raises:
        UserError: it is not an object of pieces and ids.
    """
    if not isinstance(vocabulary, dict) or half_surrogate("".join(vocabulary)):
        raise UserError(f"{path}: the vocabulary is not an object of pieces and ids; {READ_REMEDY}")
    for piece, token_id in vocabulary.items():
        if type(token_id) is not int or not 0 <= token_id < MAX_VOCABULARY_SIZE:
            raise UserError(
                f"{path}: the id of {piece!r:.80} is {token_id!r:.80}; give a number from 0 to "
                f"{MAX_VOCABULARY_SIZE - 1:,}: copy the file again"
            )
    return vocabulary


def check_unknown(origin: Any, unknown: Any, pieces: Collection[str]) -> None:
    """Raises UserError if a vocabulary lacks the token for unknown words."""
    if not isinstance(unknown, str) or unknown not in pieces:
        raise UserError(
            f"{origin}: the vocabulary has no {unknown or 'unk_token'!s:.80}; copy all files of "
            "the model's tokenizer, or name its token as unk_token in tokenizer_config.json"
        )


def checked_steps(
    path: Path, definition: Mapping[str, Any], key: str, known: Collection[str]
) -> list[dict[str, Any]]:
    """The steps of the normaliser or pre-tokenizer, in order, with each "Sequence" flattened.

    Args:
        path: file to name in errors.
        definition: the content of the file.
        key: "normalizer" or "pre_tokenizer".
        known: the types that are admitted.

    Raises:
        UserError: a step is of another type.
    """
    steps: list[dict[str, Any]] = []
    waiting = [definition[key]] if definition.get(key) is not None else []
    while waiting:
        step = waiting.pop(0)
        kind = step.get("type") if isinstance(step, dict) else None
        inner = step.get(_PARTS[key]) if kind == "Sequence" else None
        if isinstance(inner, list):
            waiting = inner + waiting
        elif kind in known:
            steps.append(step)
        else:
            names = ", ".join((*known, "Sequence"))
            raise UserError(
                f"{path}: the {key} {kind!r:.80} is not supported; for a model of type "
                f"{model_type(definition)}, known are {names}: {OTHER_MODEL}"
            )
    return steps


def read_template(
    path: Path, definition: Mapping[str, Any], names: Mapping[str, str | None]
) -> Template:
    """What the `post_processor` of a `tokenizer.json` adds to one text and to a pair.

    The library applies it to texts of one token each.

    Args:
        path: file to name in errors.
        definition: the content of the file.
        names: special tokens by their field of `SpecialIds`.

    Raises:
        UserError: it cannot be read, or gives a token another id than the vocabulary.
    """
    processor = definition.get("post_processor")
    try:
        _check_processor(processor)
        library = bare_library({"post_processor": processor})
        encodings = library.encode("x"), library.encode("x", "x")
        template = Template(*(" ".join(_template_words(each, names)) for each in encodings))
    except Exception:
        kind = processor.get("type") if isinstance(processor, dict) else processor
        raise UserError(
            f"{path}: the post_processor {kind!s:.80} cannot be read; known are "
            f"{', '.join(_PROCESSORS)}, with the first text before the second: give a file that a "
            "tokenizer saved"
        ) from None
    pieces = definition["model"]["vocab"]
    if isinstance(pieces, list):
        pieces = {piece: token_id for token_id, (piece, _) in enumerate(pieces)}
    pieces = pieces | {each["content"]: each["id"] for each in definition.get("added_tokens") or []}
    for encoding in encodings:
        for token, token_id, text in zip(
            encoding.tokens, encoding.ids, encoding.sequence_ids, strict=True
        ):
            if text is None and token_id != pieces.get(token, token_id):
                raise UserError(
                    f"{path}: the ids in the post_processor have {token_id} for {token!r:.80}, and "
                    f"the vocabulary has {pieces[token]}; save the tokenizer again"
                )
    return template


def _template_words(encoding: "tokenizers.Encoding", names: Mapping[str, str | None]) -> list[str]:
    """The words of a `Template` for an encoding of texts of one token each."""
    words = []
    for token, type_id, text in zip(
        encoding.tokens, encoding.type_ids, encoding.sequence_ids, strict=True
    ):
        if text is not None:
            name = TEXTS[text]
        elif token in (names["cls"], names["sep"]):
            name = "cls" if token == names["cls"] else "sep"
        elif ":" in token or token in (*TEXTS, *names) or len(token.split()) != 1:
            raise ValueError(token)
        else:
            name = token
        words.append(f"{name}:{type_id}" if type_id else name)
    return words


def _check_processor(processor: Any) -> None:
    """Raises an error for what the library takes for something else, or panics on."""
    if processor is not None:
        for step in processor.get("processors", [processor]):
            if step["type"] not in _PROCESSORS:
                raise ValueError(step["type"])
            if step["type"] == "TemplateProcessing":
                for key, texts in (("single", TEXTS[:1]), ("pair", TEXTS)):
                    used = [fields["id"] for part in step[key] for fields in part.values()]
                    if not set(used) <= {*texts, *step["special_tokens"]}:
                        raise ValueError(used)


def bare_library(parts: Mapping[str, Any]) -> "tokenizers.Tokenizer":
    """A tokenizer of the library with some parts of a `tokenizer.json`, and one piece, "x"."""
    import tokenizers

    unused = ("truncation", "padding", "normalizer", "pre_tokenizer", "post_processor", "decoder")
    content: dict[str, Any] = {
        **dict.fromkeys(unused),
        "version": "1.0",
        "added_tokens": [],
        "model": {"type": "WordLevel", "vocab": {"x": 0}, "unk_token": "x"},
        **parts,
    }
    return tokenizers.Tokenizer.from_str(json.dumps(content))


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


@contextlib.contextmanager
def library_errors(path: Path | str) -> Iterator[None]:
    """Turns the errors and panics of the tokenizers library into a UserError of one line."""
    try:
        yield
    except BaseException as error:
        # The library raises plain Exceptions, and panics are not Exceptions.
        if not isinstance(error, Exception) and type(error).__name__ != "PanicException":
            raise
        raise UserError(
            f"{path}: the tokenizers library cannot read it: {first_line(error)}; {READ_REMEDY}"
        ) from None

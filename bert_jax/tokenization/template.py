"""Where special tokens stand around one text or two, and the token types."""

import dataclasses
import functools
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from bert_jax.errors import UserError

# What a `tokenizer.json` may have as its `post_processor`, also several in a "Sequence".
_PROCESSORS = ("TemplateProcessing", "BertProcessing", "RobertaProcessing", "ByteLevel")

TEXTS = ("A", "B")
"""The names of the two texts in a template."""


class TemplatePart(NamedTuple):
    """One part of a template.

    Attributes:
        name: "A" or "B" for a text, else a field of `SpecialIds`, or the text of another token.
        type_id: token type of its tokens.
    """

    name: str
    type_id: int


@dataclasses.dataclass(frozen=True)
class Template:
    """The positions of special tokens and token types around one text, A, or two, A and B.

    Written as "cls A sep": the texts and tokens, each followed by a colon and its token type if
    that is not 0.
    """

    single: str
    pair: str

    def __post_init__(self) -> None:
        self.parts(pair=True)  # raises ValueError for what is no template

    def parts(self, *, pair: bool) -> tuple[TemplatePart, ...]:
        """The parts of the template for one text or for a pair."""
        return self._parts[pair]

    def num_special_tokens(self, *, pair: bool) -> int:
        """The number of special tokens around and between the texts."""
        return len(self._parts[pair]) - (2 if pair else 1)

    def num_token_types(self, *, pair: bool) -> int:
        """The number of token types that a model needs for the template."""
        return 1 + max(part.type_id for part in self._parts[pair])

    def without_token_types(self) -> "Template":
        """The template with type 0 everywhere."""
        texts = (" ".join(name for name, _ in parts) for parts in self._parts)
        return Template(*texts)

    def starts(self, lengths: Sequence[Any]) -> list[tuple[TemplatePart, Any]]:
        """Each part, and the position where it begins.

        Args:
            lengths: number of tokens of A, or of A and B: numbers, or arrays of one shape for many
                rows.
        """
        starts: list[tuple[TemplatePart, Any]] = []
        start: Any = 0
        for part in self.parts(pair=len(lengths) == 2):
            starts.append((part, start))
            start = start + (lengths[TEXTS.index(part.name)] if part.name in TEXTS else 1)
        return starts

    def text_starts(self, lengths: Sequence[int]) -> list[int]:
        """The position of the first token of each text; `lengths` as in `starts`."""
        return [start for part, start in self.starts(lengths) if part.name in TEXTS]

    @functools.cached_property
    def _parts(self) -> tuple[tuple[TemplatePart, ...], tuple[TemplatePart, ...]]:
        return _parse(self.single, TEXTS[:1]), _parse(self.pair, TEXTS)


def _parse(template: str, texts: Sequence[str]) -> tuple[TemplatePart, ...]:
    named = (word.partition(":") for word in template.split())
    parts = tuple(TemplatePart(name, int(type_id or 0)) for name, _, type_id in named)
    if [part.name for part in parts if part.name in TEXTS] != list(texts):
        raise ValueError(f"the template {template!r} must hold {' then '.join(texts)}")
    return parts


DEFAULT_TEMPLATE = Template(single="cls A sep", pair="cls A sep B:1 sep:1")
"""BERT's template, the default for a tokenizer that is loaded without a model."""

FAIRSEQ_TEMPLATE = Template(single="cls A sep", pair="cls A sep sep B sep")
"""The template of RoBERTa, CamemBERT and XLM-R: <s> A </s></s> B </s>, with one token type."""


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
    import tokenizers

    processor = definition.get("post_processor")
    content: dict[str, Any] = {
        **dict.fromkeys(("truncation", "padding", "normalizer", "pre_tokenizer", "decoder")),
        "version": "1.0",
        "added_tokens": [],
        "post_processor": processor,
        "model": {"type": "WordLevel", "vocab": {"x": 0}, "unk_token": "x"},
    }
    texts: list[list[str]] = [[], []]
    try:
        _check_processor(processor)
        library = tokenizers.Tokenizer.from_str(json.dumps(content))
        for words, encoding in zip(
            texts, (library.encode("x"), library.encode("x", "x")), strict=True
        ):
            for token, token_id, type_id, text in zip(
                *(encoding.tokens, encoding.ids, encoding.type_ids, encoding.sequence_ids),
                strict=True,
            ):
                if text is None:
                    _check_id(path, definition, token, token_id)
                name = _role(token, names) if text is None else TEXTS[text]
                words.append(f"{name}:{type_id}" if type_id else name)
        return Template(*map(" ".join, texts))
    except UserError:
        raise
    except Exception:
        kind = processor.get("type") if isinstance(processor, dict) else processor
        raise UserError(
            f"{path}: the post_processor {kind!s:.80} cannot be read; known are "
            f"{', '.join(_PROCESSORS)}, with the first text before the second: give a file that a "
            "tokenizer saved"
        ) from None


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


def _check_id(path: Path, definition: Mapping[str, Any], token: str, token_id: int) -> None:
    vocabulary = definition["model"]["vocab"]
    if isinstance(vocabulary, list):
        vocabulary = {piece: number for number, (piece, _) in enumerate(vocabulary)}
    added = {entry["content"]: entry["id"] for entry in definition.get("added_tokens") or []}
    known = added.get(token, vocabulary.get(token, token_id))
    if token_id != known:
        raise UserError(
            f"{path}: the ids in the post_processor have {token_id} for {token!r:.80}, and the "
            f"vocabulary has {known}; save the tokenizer again"
        )


def _role(token: str, names: Mapping[str, str | None]) -> str:
    """The field of `SpecialIds` of a token, else the token itself."""
    for role in ("cls", "sep"):
        if names[role] == token:
            return role
    if ":" in token or token in (*TEXTS, *names) or len(token.split()) != 1:
        raise ValueError(token)
    return token

"""Where special tokens stand around one text or two, and the token types."""

import dataclasses
import functools
from collections.abc import Sequence
from typing import Any, NamedTuple


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
            start = start + (lengths["AB".index(part.name)] if part.name in "AB" else 1)
        return starts

    @functools.cached_property
    def _parts(self) -> tuple[tuple[TemplatePart, ...], tuple[TemplatePart, ...]]:
        return _parse(self.single, "A"), _parse(self.pair, "AB")


def _parse(template: str, texts: str) -> tuple[TemplatePart, ...]:
    named = (word.partition(":") for word in template.split())
    parts = tuple(TemplatePart(name, int(type_id or 0)) for name, _, type_id in named)
    if [part.name for part in parts if part.name in ("A", "B")] != list(texts):
        raise ValueError(f"the template {template!r} must hold {' then '.join(texts)}")
    return parts


DEFAULT_TEMPLATE = Template(single="cls A sep", pair="cls A sep B:1 sep:1")
"""BERT's template, the default for a tokenizer that is loaded without a model."""

FAIRSEQ_TEMPLATE = Template(single="cls A sep", pair="cls A sep sep B sep")
"""The template of RoBERTa, CamemBERT and XLM-R: <s> A </s></s> B </s>, with one token type."""

"""Attention weights: all heads of all layers as small pictures, one in large with lines.

The page has the weights themselves, as multiples of 1/65535; its script draws them.
"""

import base64
import dataclasses
from collections.abc import Sequence

import numpy as np

from bert_jax.errors import UserError
from bert_jax.pictures.page import Page, asset, data, modules, text

# Weights of a text in a page: 11 MB of base64.
MOST_WEIGHTS = 4_000_000
# A weight is a number of 16 bits.
_STEPS = 65535
_TITLE_LENGTH = 80


@dataclasses.dataclass(frozen=True)
class AttentionMap:
    """The weights of one kind of attention for a text.

    Attributes:
        name: "encoder", "decoder" or "cross-attention".
        queries: T tokens that attend.
        keys: S tokens that they attend to.
        weights: float32 [L, N, T, S]; rows sum to 1.
        layers: the numbers of the L layers, from 1.
    """

    name: str
    queries: Sequence[str]
    keys: Sequence[str]
    weights: np.ndarray
    layers: Sequence[int]


@dataclasses.dataclass(frozen=True)
class AttentionOfText:
    """The attention weights of a text.

    Attributes:
        title: the text.
        maps: its kinds of attention.
    """

    title: str
    maps: Sequence[AttentionMap]

    def fields(self) -> list[dict[str, object]]:
        """The maps as values of JSON, which the script draws.

        Raises:
            UserError: there are more than `MOST_WEIGHTS`.
        """
        count = sum(each.weights.size for each in self.maps)
        if count > MOST_WEIGHTS:
            raise UserError(
                f"the text has {count:,} attention weights, a page takes {MOST_WEIGHTS:,}; choose "
                "fewer layers, or a smaller maximum length"
            )
        return [_fields(each) for each in self.maps]

    def element(self) -> str:
        """The element of the page with the weights; for errors see `fields`."""
        title = self.title[:_TITLE_LENGTH] + "…" * (len(self.title) > _TITLE_LENGTH)
        content = data(self.fields())
        mark = f'type="application/json" class="text" data-title="{text(title)}"'
        return f"<script {mark}>{content}</script>\n"


def _fields(attention: AttentionMap) -> dict[str, object]:
    steps = np.rint(attention.weights * _STEPS).astype("<u2")
    return {
        "name": attention.name,
        "queries": list(attention.queries),
        "keys": list(attention.keys),
        "layers": list(attention.layers),
        "heads": attention.weights.shape[1],
        "weights": base64.b64encode(steps.tobytes()).decode(),
    }


def attention_page(texts: Sequence[AttentionOfText] = ()) -> Page:
    """The page of some texts.

    Raises:
        UserError: a text has too many weights, see `AttentionOfText.fields`.
    """
    return Page(
        "Attention",
        "".join(each.element() for each in texts),
        asset("attention.css"),
        modules("elements.js", "attention.js", "attention_page.js"),
    )

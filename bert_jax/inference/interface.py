"""What the rooms of this folder need of a `LoadedModel`, and how they name texts."""

from collections.abc import Callable, Iterable
from typing import Any, Protocol

import flax.linen as nn
from jax.sharding import Mesh

from bert_jax.checkpoints.config_file import ModelDescription
from bert_jax.errors import UserError
from bert_jax.models.config import EncoderConfig
from bert_jax.tokenization import Tokenizer

Text = str | tuple[str, str]
"""A text, or a text and its pair."""

Advance = Callable[[int], None]
"""Called after each batch with the number of its texts."""


class Model(Protocol):
    """The attributes of `LoadedModel`, which stands above the functions that it calls."""

    @property
    def config(self) -> EncoderConfig:
        """The architecture."""

    @property
    def module(self) -> nn.Module:
        """The Linen module."""

    @property
    def params(self) -> Any:
        """Its parameters, on `mesh`."""

    @property
    def tokenizer(self) -> Tokenizer:
        """Text to ids."""

    @property
    def description(self) -> ModelDescription:
        """What its `config.json` says."""

    @property
    def mesh(self) -> Mesh:
        """The devices that it is computed on."""


class TextError(UserError):
    """One text of many cannot be answered.

    Attributes:
        index: which text of the input, counted from 0.
    """

    def __init__(self, message: str, index: int) -> None:
        super().__init__(message)
        self.index = index


def as_list(texts: Iterable[Text]) -> list[Text]:
    """Refuses one string, which is also a list of letters."""
    if isinstance(texts, str):
        raise UserError("the texts are one string; give a list of strings")
    return list(texts)

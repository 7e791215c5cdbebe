"""BERT in JAX and Flax: from raw text to a pre-trained, fine-tuned and exported model.

    import bert_jax
    model = bert_jax.load("runs/quick/model")
    model.fill_mask("The module defines a [MASK] for files.")

Importing the package is light; JAX comes with the first use.
"""

import importlib
from typing import TYPE_CHECKING, Any

from bert_jax.errors import UserError

if TYPE_CHECKING:
    from bert_jax import tokenization
    from bert_jax.inference.loading import load

__all__ = ["UserError", "load", "tokenization"]


def __getattr__(name: str) -> Any:
    """`load` and `tokenization`, which are imported when they are first used."""
    if name == "load":
        return importlib.import_module("bert_jax.inference.loading").load
    if name == "tokenization":
        return importlib.import_module("bert_jax.tokenization")
    raise AttributeError(f"module 'bert_jax' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})

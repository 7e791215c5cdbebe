"""BERT in JAX and Flax: from raw text to a pre-trained, fine-tuned and exported model.

    import bert_jax
    model = bert_jax.load("runs/quick/model")
    model.fill_mask("The module defines a [MASK] for files.")

Importing the package is light; JAX comes with the first use.
"""

from pathlib import Path
from typing import TYPE_CHECKING

from bert_jax.errors import UserError

if TYPE_CHECKING:
    from bert_jax.inference.model import LoadedModel

__all__ = ["UserError", "load"]


def load(path: str | Path) -> "LoadedModel":
    """A model directory in memory, see `bert_jax.inference.model.load`."""
    from bert_jax.inference import model

    return model.load(path)

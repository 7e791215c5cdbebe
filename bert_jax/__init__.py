"""BERT in JAX and Flax: from raw text to a pre-trained, fine-tuned and exported model.

    import bert_jax
    model = bert_jax.load("runs/quick/model")
    model.fill_mask("The module defines a [MASK] for files.")

Importing the package is light; JAX comes with the first use.
"""

import importlib
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

from bert_jax.errors import UserError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from jax.sharding import Mesh

    from bert_jax.inference.model import LoadedModel

__all__ = ["UserError", "load"]


def __getattr__(name: str) -> ModuleType:
    """`bert_jax.tokenization` without a separate import."""
    if name != "tokenization":
        raise AttributeError(f"module 'bert_jax' has no attribute {name!r}")
    return importlib.import_module("bert_jax.tokenization")


def load(
    path: str | Path,
    task: str | None = None,
    *,
    mesh: "Mesh | None" = None,
    precision: str = "float32",
    revision: str | None = None,
    seed: int = 0,
    hidden_act: str | None = None,
    labels: "Sequence[str] | None" = None,
) -> "LoadedModel":
    """A model directory or a model of the hub, see `bert_jax.inference.loading.load`."""
    from bert_jax.inference import loading

    return loading.load(
        path,
        task,
        mesh=mesh,
        precision=precision,
        revision=revision,
        seed=seed,
        hidden_act=hidden_act,
        labels=labels,
    )

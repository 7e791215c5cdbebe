"""BERT in JAX and Flax: from raw text to a pre-trained, fine-tuned and exported model.

    import bert_jax
    model = bert_jax.load("runs/quick/model")
    model.fill_mask("The module defines a [MASK] for files.")

Importing the package is light; JAX comes with the first use.
"""

import importlib
from typing import TYPE_CHECKING, Any

from bert_jax.errors import UserError
from bert_jax.sharding.runtime import quiet_libtpu

if TYPE_CHECKING:
    from bert_jax import tokenization
    from bert_jax.data.examples import Document
    from bert_jax.inference.index import Index
    from bert_jax.inference.index_options import IndexOptions
    from bert_jax.inference.loading import load
    from bert_jax.inference.open_qa import OpenQA
    from bert_jax.search.fusion import fuse_hits
    from bert_jax.training_call import FinishedRun, train

# What is imported when it is first used, and the module that has it.
_MODULES = {
    "Document": "bert_jax.data.examples",
    "FinishedRun": "bert_jax.training_call",
    "Index": "bert_jax.inference.index",
    "IndexOptions": "bert_jax.inference.index_options",
    "OpenQA": "bert_jax.inference.open_qa",
    "fuse_hits": "bert_jax.search.fusion",
    "load": "bert_jax.inference.loading",
    "train": "bert_jax.training_call",
}

__all__ = [
    "Document",
    "FinishedRun",
    "Index",
    "IndexOptions",
    "OpenQA",
    "UserError",
    "fuse_hits",
    "load",
    "tokenization",
    "train",
]


def __getattr__(name: str) -> Any:
    """The names of `_MODULES` and `tokenization`."""
    if name in _MODULES:
        quiet_libtpu()  # before JAX is imported
        return getattr(importlib.import_module(_MODULES[name]), name)
    if name == "tokenization":
        return importlib.import_module("bert_jax.tokenization")
    raise AttributeError(f"module 'bert_jax' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})

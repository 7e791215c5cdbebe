"""The interface of a head: all that is particular to what stands on an encoder.

A head is one module of `heads/` that defines `HEAD`. It is found by the module's name, under which
a family gives the class of Hugging Face; nothing has to be registered.
"""

import dataclasses
import importlib
import pkgutil
import re

import flax.linen as nn

import bert_jax.models.heads
from bert_jax.models.comparison import Comparison

ParameterAxes = tuple[tuple[str, tuple[str | None, ...]], ...]

ENCODER = "encoder"
"""The name of the bare encoder among the heads."""


@dataclasses.dataclass(frozen=True)
class Head:
    """One head.

    Names of parameters are patterns for the whole name, such as "classifier/(kernel|bias)", which
    begin with the name of a scope. Scopes seed initialisation and dropout, and runs are saved under
    them: they never change.

    Attributes:
        module: model of encoder and head, from an `EncoderConfig` and an `Execution`; None: the
            head exists in a training only, whose task has the model.
        axes: the parameters outside the encoder, each with the logical axes that the sharding
            rules split; the first match wins. LayerNorm needs none.
        decay: parameters that are neither kernel, bias nor LayerNorm: whether their weights decay.
        shown_by: alternative sets of parameters by which a file without a class name has this
            head; of several heads the one with the largest set.
        label_parameters: prefixes of the parameters whose meaning depends on the labels, and on the
            head of several that have these names.
        comparison: what `parity` compares; None: transformers has no class with this head.
    """

    module: type[nn.Module] | None = None
    axes: ParameterAxes = ()
    decay: tuple[tuple[str, bool], ...] = ()
    shown_by: tuple[tuple[str, ...], ...] = ()
    label_parameters: tuple[str, ...] = ()
    comparison: Comparison | None = None

    @property
    def compared(self) -> Comparison:
        """`comparison` of a head that a class of transformers has."""
        assert self.comparison is not None
        return self.comparison

    def make(self, *arguments: object) -> nn.Module:
        """The model, from the arguments of `module`."""
        assert self.module is not None, "a task has the model of this head"
        return self.module(*arguments)


def dense_axes(parameter: str) -> ParameterAxes:
    """The axes of affine maps of hidden states to a few outputs, by a pattern of their names."""
    return (rf"{parameter}/kernel", ("embed", None)), (rf"{parameter}/bias", ())


def find_head(name: str) -> Head:
    """The head of this name; a `ValueError` if there is none."""
    if name not in head_names():
        raise ValueError(f"unknown head {name!r}")
    head: Head = importlib.import_module(f"bert_jax.models.heads.{name}").HEAD
    return head


def head_names() -> list[str]:
    """The modules of `heads/`."""
    return sorted(module.name for module in pkgutil.iter_modules(bert_jax.models.heads.__path__))


def all_heads() -> dict[str, Head]:
    """Every head by its name."""
    return {name: find_head(name) for name in head_names()}


def head_parameters() -> str:
    """A pattern of the names of parameters that belong to a head, in any model."""
    axes = (pattern for head in all_heads().values() for pattern, _ in head.axes)
    scopes = dict.fromkeys(re.split(r"\W", pattern)[0] for pattern in axes)
    return f"^({'|'.join(scopes)})"


def label_parameters() -> tuple[str, ...]:
    """The prefixes of all parameters whose meaning depends on the labels."""
    prefixes = (prefix for head in all_heads().values() for prefix in head.label_parameters)
    return tuple(dict.fromkeys(prefixes))

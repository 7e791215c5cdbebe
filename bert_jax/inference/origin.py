"""The call that has loaded a model: what a pickled model is."""

import dataclasses
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import jax

from bert_jax.checkpoints.hub import model_files
from bert_jax.errors import UserError, listed
from bert_jax.files import state_of
from bert_jax.files.paths import FileState
from bert_jax.options import differing_names
from bert_jax.tasks.base.predictor import Model


@dataclasses.dataclass(frozen=True, repr=False)
class Origin:
    """The call that has loaded a model.

    Attributes:
        load: the call, without arguments; it can be pickled.
        directory: absolute path of the directory of the files.
        states: the files before the call, see `states_of`.
        parts: the model as it was loaded, see `parts_of`.
    """

    load: Callable[[], Model]
    directory: Path
    states: Mapping[str, FileState]
    parts: tuple[Any, ...]


def parts_of(model: Model) -> tuple[Any, ...]:
    """The objects that a model consists of; none is changed in place."""
    others = (part for each in model.sides.values() for part in parts_of(each))
    return (model.module, *model.content[::2], *jax.tree.leaves(model.params), *others)


def states_of(directory: Path) -> dict[str, FileState]:
    """Size and time of the files of a model, by name."""
    return {str(file.relative_to(directory)): state_of(file) for file in model_files(directory)}


def load_again(
    load: Callable[[], Model], directory: Path, states: Mapping[str, FileState]
) -> Model:
    """The model of a pickle, loaded again.

    Raises:
        UserError: its files have changed.
    """
    if changed := differing_names(states, states_of(directory)):
        raise UserError(
            f"{directory}: {listed(changed)} changed since the model was loaded that was pickled; "
            "load it again, and pickle that"
        )
    return load()

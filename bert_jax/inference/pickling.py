"""A model that is pickled as the call that loads its files again."""

import dataclasses
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import jax

from bert_jax.checkpoints.hub import model_files
from bert_jax.errors import UserError, listed
from bert_jax.files import state_of
from bert_jax.files.paths import FileState
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


@dataclasses.dataclass(frozen=True, repr=False)
class ModelOfFiles(Model):
    """A model that can be pickled.

    Attributes:
        origin: the call that has loaded it; None for one that was made in memory.
    """

    origin: Origin | None = dataclasses.field(default=None, compare=False, kw_only=True)

    def __reduce__(self) -> tuple[Callable[..., Model], tuple[Any, ...]]:
        """The unpickled model is on the first device of its process, in a "spawn" pool, too.

        Raises:
            UserError: the model was changed in memory. On loading: its files have changed.
        """
        origin = self.origin
        if origin is None or [*map(id, parts_of(self))] != [*map(id, origin.parts)]:
            raise UserError(
                "this model was made or changed in memory, and only the files of a model can be "
                "pickled; save it, and pickle the model that is loaded from there"
            )
        return _load_again, (origin.load, origin.directory, origin.states)


def parts_of(model: Model) -> tuple[Any, ...]:
    """The objects that make a model what it is; JAX's arrays never change."""
    return (model.module, model.tokenizer, model.description, *jax.tree.leaves(model.params))


def states_of(directory: Path) -> dict[str, FileState]:
    """Size and time of the files of a model, by name."""
    return {str(file.relative_to(directory)): state_of(file) for file in model_files(directory)}


def _load_again(
    load: Callable[[], Model], directory: Path, states: Mapping[str, FileState]
) -> Model:
    now = states_of(directory)
    if changed := sorted(name for name in {*states, *now} if states.get(name) != now.get(name)):
        raise UserError(
            f"{directory}: {listed(changed)} changed since the model was loaded that was pickled; "
            "load it again, and pickle that"
        )
    return load()

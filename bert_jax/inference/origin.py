"""A model that can be pickled, since it knows the files from which it can be loaded again."""

import dataclasses
from collections.abc import Callable
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
    """The call that has loaded a model, with the state of its files before.

    Attributes:
        load: the call, without arguments; it can be pickled.
        states: the files, see `states_of`.
        parts: the model as it was loaded, see `parts_of`.
    """

    load: Callable[[], Model]
    states: tuple[Path, dict[str, FileState]]
    parts: tuple[Any, ...]


@dataclasses.dataclass(frozen=True, repr=False)
class ModelOfFiles(Model):
    """A model that is pickled as the call that loads its files again.

    Attributes:
        origin: where the model was loaded from; None for one that was made in memory.
    """

    origin: Origin | None = dataclasses.field(default=None, compare=False, kw_only=True)

    def __reduce__(self) -> tuple[Callable[..., Model], tuple[Any, ...]]:
        """The unpickled model is on the first device of its process, in a "spawn" pool, too.

        Raises:
            UserError: the model was changed in memory. On loading: its files have changed.
        """
        origin = self.origin
        parts = parts_of(self)
        if (
            origin is None
            or len(parts) != len(origin.parts)
            or any(part is not old for part, old in zip(parts, origin.parts, strict=True))
        ):
            raise UserError(
                "this model was made or changed in memory, and only the files of a model can be "
                "pickled; save it, and pickle the model that is loaded from there"
            )
        return _load_again, (origin.load, *origin.states)


def parts_of(model: Model) -> tuple[Any, ...]:
    """The objects that make a model what it is; JAX's arrays never change."""
    return (model.module, model.tokenizer, model.description, *jax.tree.leaves(model.params))


def states_of(directory: Path) -> tuple[Path, dict[str, FileState]]:
    """The absolute path of a directory, and size and time of the files of a model in it."""
    directory = directory.absolute()
    return directory, {
        str(file.relative_to(directory)): state_of(file) for file in model_files(directory)
    }


def _load_again(load: Callable[[], Model], directory: Path, states: dict[str, FileState]) -> Model:
    _, now = states_of(directory)
    changed = sorted(name for name in {*states, *now} if states.get(name) != now.get(name))
    if changed:
        raise UserError(
            f"{directory}: {listed(changed)} changed since the model was loaded that was pickled; "
            "load it again, and pickle that"
        )
    return load()

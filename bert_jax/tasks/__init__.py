"""The tasks, one module (or folder) each, imported by name: nothing has to be registered.

A module of this package defines one or both of

    TRAIN      a `TrainSpec`: what a config with this `task` trains and evaluates
    PREDICT    a `PredictSpec`: what `bert-jax predict --task NAME` does

`tests/recipes` shows how to add one.
"""

import functools
import importlib
import pkgutil
from types import ModuleType

from bert_jax.errors import UserError

DEFAULT_TASK = "pretraining"
"""The task of a config that names none."""


def find_task(name: str, attribute: str = "TRAIN") -> ModuleType:
    """The module `tasks/<name>`.

    Args:
        name: name of the task, a config's `task` or the `--task` of `bert-jax predict`.
        attribute: attribute that the module must define, "TRAIN" or "PREDICT".

    Raises:
        UserError: no module of this name defines it.
    """
    if name in _module_names(*__path__) and hasattr(module := _import(name), attribute):
        return module
    raise UserError(f"task {name!r} is unknown; known are {', '.join(task_names(attribute))}")


def task_names(attribute: str = "TRAIN") -> list[str]:
    """The names of the tasks that define an attribute; imports all of them."""
    return [name for name in _module_names(*__path__) if hasattr(_import(name), attribute)]


@functools.cache  # every request asks for a task
def _module_names(*paths: str) -> list[str]:
    return sorted(module.name for module in pkgutil.iter_modules(paths))


def _import(name: str) -> ModuleType:
    return importlib.import_module(f"{__name__}.{name}")

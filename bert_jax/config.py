"""Configs: the known keys with their defaults, config files with arguments, overrides, checks.

A config file is Python with a function `get_config` that returns an `ml_collections.ConfigDict`
(or a mapping) of the keys that it sets. Its parameters are the file's arguments:
`configs/pretrain.py:size=mini,length=512` calls `get_config(size="mini", length=512)`.
"""

import ast
import difflib
import importlib
import importlib.util
import inspect
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from ml_collections import ConfigDict

from bert_jax.errors import UserError
from bert_jax.options import keys_of

TASKS = "bert_jax.tasks"


def default_config(task: str) -> ConfigDict:
    """Every known key with its default, for one task.

    Sections `model`, `optimizer`, `train` and `mesh` are the fields of `EncoderConfig` and
    `Execution`, `OptimizerOptions`, `TrainOptions` and `MeshShape`; what else there is, and other
    defaults, the task's own `defaults()` say. A model field that is None is as in `init_from`, else
    decided by `model.size` and the vocabulary; precision "auto", attention "auto" and
    `scan_layers` None are what is fastest on the device.
    """
    from bert_jax.models.config import EncoderConfig
    from bert_jax.sharding.mesh import MeshShape
    from bert_jax.training.optimizer import OptimizerOptions
    from bert_jax.training.options import TrainOptions

    config: dict[str, Any] = {
        "task": task,
        "seed": 0,
        "precision": "auto",
        "init_from": "",
        "model": {
            "size": "",
            "scan_layers": None,
            "remat": "none",
            "attention": "auto",
            # 128 for the matrix units, and 3 × 16 for every mesh.tensor that divides the heads of
            # a named size. It is not taken from the mesh: a run goes on with any other.
            "pad_vocab_to_multiple_of": 384,
            **dict.fromkeys(keys_of(EncoderConfig)),
        },
        "tokenizer": {"path": ""},
        "data": {},
        "optimizer": keys_of(OptimizerOptions),
        "train": keys_of(TrainOptions),
        "mesh": keys_of(MeshShape),
    }
    for section, keys in task_module(task).defaults().items():
        config[section] = {**config[section], **keys}
    return ConfigDict(config)


def load_config(specification: str, overrides: Sequence[tuple[str, str]] = ()) -> ConfigDict:
    """Reads a config file and puts its keys, then the overrides, on the defaults.

    Args:
        specification: `FILE` or `FILE:name=value,name=value`.
        overrides: dotted keys with values as text, the later one wins.

    Raises:
        UserError: the file, an argument, a key or a value is wrong.
    """
    path, _, arguments = specification.partition(":")
    given = _call(Path(path), arguments)
    return override_keys(complete_config(given, where=path), overrides)


def complete_config(given: Any, *, where: str) -> ConfigDict:
    """Puts the keys that a file sets on the defaults.

    Raises:
        UserError: it is no mapping, or a key or a value is wrong.
    """
    if not isinstance(given, Mapping | ConfigDict):
        raise UserError(f"{where}: the config is {given!r}, not a mapping of keys")
    config = default_config(given.get("task", "pretraining"))
    for key, value in _flat(given):
        set_key(config, key, value, where=where)
    return config


def override_keys(config: ConfigDict, overrides: Sequence[tuple[str, str]]) -> ConfigDict:
    """Sets dotted keys from text, as `--config.KEY=VALUE` gives them; returns the config.

    Raises:
        UserError: a key or a value is wrong.
    """
    known = dict(_flat(config))
    for key, text in overrides:
        old = known.get(key)
        # What is text stays text, even if it looks like a number; only a mixture is a literal.
        is_text = isinstance(old, str) and not text.startswith("[")
        value = text if is_text else _parse(text)
        if isinstance(old, tuple) and isinstance(value, str):
            value = tuple(filter(None, value.split(",")))
        set_key(config, key, value, where=f"--config.{key}")
    return config


def set_key(config: ConfigDict, key: str, value: Any, *, where: str) -> None:
    """Sets a dotted key that must be known, to a value of its kind.

    A key whose default is a tuple takes a list, or one value.

    Raises:
        UserError: the key is unknown (the nearest known one is named), or the value of another
            kind or out of range.
    """
    if (key, value) == ("mesh", "auto"):
        key, value = "mesh.auto", True
    known = dict(_flat(config))
    if key not in known:
        near = difflib.get_close_matches(key, known, n=1, cutoff=0.0)
        raise UserError(f"{where}: unknown key {key!r}; the nearest known is {near[0]!r}")
    old = known[key]
    if isinstance(old, float) and isinstance(value, int) and not isinstance(value, bool):
        value = float(value)
    if isinstance(old, tuple):
        value = tuple(value) if isinstance(value, list | tuple) else (value,)
        value = tuple(one for one in value if one != "")
    if value is None or type(value) is not type(old):
        # What is None by default says its kind to who reads it.
        is_open = dict(_flat(default_config(config.task)))[key] is None
        fits = is_open or (value is not None and key == "data.source")
    else:
        fits = True
    if not fits:
        raise UserError(
            f"{where}: {key} is {value!r}, a {type(value).__name__}; "
            f"it must be of type {type(old).__name__}, as {old!r} is"
        )
    if key == "seed" and not 0 <= value < 2**32:
        raise UserError(f"{where}: seed is {value}; it must lie between 0 and 2**32 - 1")
    section = config
    *sections, name = key.split(".")
    for part in sections:
        section = section[part]
    with section.ignore_type():
        section[name] = value


def task_module(name: str) -> Any:
    """The module `tasks/<name>.py`, with `defaults()` and `create(...)`.

    Raises:
        UserError: there is none.
    """
    if (
        not isinstance(name, str)
        or not name.isidentifier()
        or importlib.util.find_spec(f"{TASKS}.{name}") is None
    ):
        import pkgutil

        package = importlib.import_module(TASKS)
        names = ", ".join(module.name for module in pkgutil.iter_modules(package.__path__))
        raise UserError(f"task {name!r} is unknown; known are {names}")
    return importlib.import_module(f"{TASKS}.{name}")


def differing_keys(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[tuple[str, Any, Any]]:
    """Dotted keys whose values differ, with both values (None where a key is missing)."""
    before, after = dict(_flat(old)), dict(_flat(new))
    return [
        (key, before.get(key), after.get(key))
        for key in sorted(before | after)
        if before.get(key) != after.get(key)
    ]


def _call(path: Path, arguments: str) -> Any:
    """Runs `get_config` of a file with its arguments, as text turned to the parameters' types."""
    if not path.is_file():
        raise UserError(f"--config {path}: no such file")
    spec = importlib.util.spec_from_file_location("bert_jax_config", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except SyntaxError as error:
        raise UserError(f"{path}:{error.lineno}: {error.msg}") from error
    except Exception as error:  # whatever a file of the user's may raise
        raise UserError(f"{path}: {type(error).__name__}: {error}") from error
    if not callable(getattr(module, "get_config", None)):
        raise UserError(f"{path} has no function get_config")
    parameters = inspect.signature(module.get_config).parameters
    values = {}
    for item in filter(None, arguments.split(",")):
        name, equals, text = item.partition("=")
        if not equals or name not in parameters:
            raise UserError(
                f"{path}: argument {item!r} is not name=value of one of {', '.join(parameters)}"
            )
        default = parameters[name].default
        kind = str if default is inspect.Parameter.empty else type(default)
        value = text if kind is str else _parse(text)
        if kind is float and type(value) is int:
            value = float(value)
        if type(value) is not kind:
            raise UserError(f"{path}: argument {name} is {text!r}, it must be a {kind.__name__}")
        values[name] = value
    try:
        return module.get_config(**values)
    except Exception as error:
        raise UserError(f"{path}: get_config: {type(error).__name__}: {error}") from error


def _parse(text: str) -> Any:
    """A Python literal, else the text itself; `true` and `false` count as literals too."""
    lowered = {"true": True, "false": False}
    if text.lower() in lowered:
        return lowered[text.lower()]
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return text


def _flat(config: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in config.items():
        if isinstance(value, Mapping | ConfigDict):
            yield from _flat(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value

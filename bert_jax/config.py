"""Configs: the known keys with their defaults, config files with arguments, overrides, checks.

A config file is Python with a function `get_config` that returns an `ml_collections.ConfigDict`
(or a mapping) of the keys that it sets. Its parameters are the file's arguments:
`configs/pretrain.py:size=mini,length=512` calls `get_config(size="mini", length=512)`. A name
without folder and ending, `pretrain:size=mini`, is a config that comes with the package.
"""

import ast
import difflib
import functools
import importlib
import importlib.util
import inspect
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from ml_collections import ConfigDict

from bert_jax.distillation.options import DistillationOptions
from bert_jax.errors import OptionError, UserError
from bert_jax.models.head import model_keys
from bert_jax.options import keys_of
from bert_jax.presets import keys_of_preset
from bert_jax.process import say
from bert_jax.sharding.mesh import MeshShape
from bert_jax.tasks import find_task
from bert_jax.tasks.base.model_init import ModelOptions
from bert_jax.tasks.base.train_spec import TrainSpec
from bert_jax.training.optimizer import OptimizerOptions
from bert_jax.training.options import TrainOptions

# Keys of earlier versions; the error for one of them names the new one.
RENAMED_KEYS = {
    "data.development": "data.validation",
    "data.held_out": "data.validation_fraction",
}
# Pairs of keys of which one applies: one that is given sets the other to 0, unless both are given.
ALTERNATIVES = (
    ("train.steps", "train.epochs"),
    ("train.eval_every", "train.evaluate_per_epoch"),
    ("optimizer.warmup_steps", "optimizer.warmup_ratio"),
)
# Lists of texts, where 2026 and 1e3 are no numbers.
TEXT_LISTS = frozenset({"data.label_columns", "data.labels", "data.test", "data.validation"})


def default_config(task: str) -> ConfigDict:
    """Every known key with its default, for one task.

    A section has the fields of a dataclass as its keys: `model` those of `ModelOptions` and
    `EncoderConfig`, `optimizer`, `train`, `distillation` and `mesh` those of `OptimizerOptions`,
    `TrainOptions`, `DistillationOptions` and `MeshShape`; for the others see `TrainSpec`. A model
    field that is None is taken from `init_from`, else from `model.size` and the vocabulary.
    """
    spec: TrainSpec[Any] = find_task(task).TRAIN
    config: dict[str, Any] = {
        "task": task,
        "seed": 0,
        "precision": "auto",
        "preset": "",
        "init_from": "",
        "model": {
            **keys_of(ModelOptions, omit=("fields",)),
            **dict.fromkeys(model_keys()),
        },
        "data": keys_of(spec.data, omit=("seed",)),
        "optimizer": keys_of(OptimizerOptions) | dict(spec.defaults.get("optimizer", {})),
        "train": keys_of(TrainOptions) | dict(spec.defaults.get("train", {})),
        "distillation": keys_of(DistillationOptions),
        "mesh": keys_of(MeshShape),
        **{name: keys_of(options) for name, options in spec.sections.items()},
    }
    config["tokenizer"] = {"path": "", **config.get("tokenizer", {})}
    return ConfigDict(config)


def load_config(specification: str, overrides: Sequence[tuple[str, str]] = ()) -> ConfigDict:
    """Reads a config file and applies its keys, then the overrides, to the defaults.

    Args:
        specification: `FILE` or `FILE:name=value,name=value`; FILE may be the name of a config of
            the package, such as `glue`.
        overrides: dotted keys with values as text; of equal keys the last one wins.

    Raises:
        UserError: the file, an argument, a key or a value is wrong.
    """
    name, _, arguments = specification.partition(":")
    path = _config_file(name)
    return override_keys(complete_config(_call(path, arguments), where=str(path)), overrides)


def complete_config(keys: Any, *, where: str) -> ConfigDict:
    """Applies the keys that a file sets to the defaults.

    Raises:
        UserError: it is not a mapping, or a key or a value is wrong.
    """
    if not isinstance(keys, Mapping | ConfigDict):
        raise UserError(f"{where}: the config is {keys!r}, not a mapping of keys")
    config = default_config(keys.get("task", "pretraining"))
    return set_keys(config, dict(_flat(keys)), where=where)


def override_keys(config: ConfigDict, overrides: Sequence[tuple[str, str]]) -> ConfigDict:
    """Sets dotted keys from text, as in `--config.KEY=VALUE`, see `set_keys`; returns the config.

    Raises:
        UserError: a key or a value is wrong.
    """
    defaults, values = _flat_defaults(config.task), {}
    for key, text in overrides:
        default = defaults.get(key)
        is_text = isinstance(default, str) or (key in TEXT_LISTS and not text.startswith(_QUOTED))
        value = text if is_text else _parse(text)
        if isinstance(default, tuple) and isinstance(value, str):
            value = tuple(filter(None, value.split(",")))
        values[key] = value
    return set_keys(config, values, where="--config")


def set_keys(config: ConfigDict, values: Mapping[str, Any], *, where: str) -> ConfigDict:
    """Sets the keys of a preset, if one is among the values, then dotted keys, see `set_key`.

    One of `ALTERNATIVES` replaces the other; a line on stderr says so where the other is not the
    default.

    Returns:
        The config.
    """
    defaults = _flat_defaults(config.task)
    if preset := values.get("preset"):
        try:
            keys = keys_of_preset(preset, config.task)
        except OptionError as error:
            raise UserError(f"{where}: {error}") from error
        values = {key: value for key, value in keys.items() if key in defaults} | dict(values)
    for key, value in values.items():
        set_key(config, key, value, where=where)
    for pair in ALTERNATIVES:
        for key, other in (pair, pair[::-1]):
            section, _, name = other.partition(".")
            replaced = config[section][name]
            if key in values and other not in values and replaced:
                if replaced != defaults[other]:
                    say(f"{where}: {key} replaces {other}, which was {replaced}")
                config[section][name] = type(replaced)(0)
    return config


def set_key(config: ConfigDict, key: str, value: Any, *, where: str) -> None:
    """Sets a known dotted key to a value of its type.

    A key whose default is a tuple takes a list, or one value; one whose default is None takes
    anything, and the code that reads it checks it. `mesh=auto` sets the boolean key `mesh.auto`;
    the same holds for other sections.

    Raises:
        UserError: the key is unknown (the message names the new name of an old key, or the nearest
            known key), the value has another type, or the task is another one, which has other
            keys.
    """
    defaults = _flat_defaults(config.task)
    if isinstance(defaults.get(f"{key}.{value}"), bool):
        key, value = f"{key}.{value}", True
    if key not in defaults:
        if key in RENAMED_KEYS:
            raise UserError(f"{where}: {key!r} is called {RENAMED_KEYS[key]!r} now; rename it")
        (near,) = difflib.get_close_matches(key, defaults, n=1, cutoff=0.0)
        raise UserError(f"{where}: unknown key {key!r}; the nearest known is {near!r}")
    if key == "task" and value != config.task:
        raise UserError(
            f"{where}: this is a config of task {config.task}, not {value!r}; choose another "
            "--config"
        )
    default = defaults[key]
    if isinstance(default, float) and type(value) is int:
        value = float(value)
    if isinstance(default, tuple):
        value = tuple(value) if isinstance(value, list | tuple) else (value,)
        value = tuple(one for one in value if one != "")
        if key in TEXT_LISTS:
            value = tuple(map(str, value))
    if default is not None and type(value) is not type(default):
        raise UserError(
            f"{where}: {key} is {value!r}, a {type(value).__name__}; "
            f"it must be of type {type(default).__name__}, as {default!r} is"
        )
    section = config
    *sections, name = key.split(".")
    for part in sections:
        section = section[part]
    with section.ignore_type():
        section[name] = value


def differing_keys(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[tuple[str, Any, Any]]:
    """Dotted keys whose values differ, with both values (None where a key is missing)."""
    before, after = dict(_flat(old)), dict(_flat(new))
    return [
        (key, before.get(key), after.get(key))
        for key in sorted(before | after)
        if before.get(key) != after.get(key)
    ]


def _config_file(name: str) -> Path:
    """The file of that path, else the package's config of that name."""
    path = Path(name)
    if path.is_file():
        return path
    if path.name != name or path.suffix:
        raise UserError(f"--config {path}: no such file")
    package = Path(__file__).parent
    # The configs of an installed package, else those of a clone.
    directory = next(filter(Path.is_dir, (package / "configs", package.parent / "configs")), path)
    files = {file.stem: file for file in sorted(directory.glob("*.py"))}
    if name not in files:
        known = ", ".join(files)
        raise UserError(f"--config {name}: no such file, and no config of the package: {known}")
    return files[name]


def _call(path: Path, arguments: str) -> Any:
    """Calls `get_config` of a file; its arguments are parsed as the types of the parameters."""
    spec = importlib.util.spec_from_file_location("bert_jax_config", path)
    if spec is None or spec.loader is None:
        raise UserError(f"--config {path}: a config is a Python file; give FILE.py")
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
            rule = f"it must be of type {kind.__name__}"
            raise UserError(f"{path}: argument {name} is {text!r}; {rule}")
        values[name] = value
    try:
        return module.get_config(**values)
    except Exception as error:
        raise UserError(f"{path}: get_config: {type(error).__name__}: {error}") from error


# How the Python literal of a list of texts begins.
_QUOTED = ("[", "(", "'", '"')


def _parse(text: str) -> Any:
    """A Python literal, else the text itself; `true` and `false` count as literals too."""
    try:
        return ast.literal_eval(text.capitalize() if text.lower() in ("true", "false") else text)
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        return text


@functools.cache
def _flat_defaults(task: str) -> dict[str, Any]:
    return dict(_flat(default_config(task)))


def _flat(config: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in config.items():
        if isinstance(value, Mapping | ConfigDict):
            yield from _flat(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value

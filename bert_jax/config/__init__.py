"""Configs: known keys with defaults, config files with arguments, overrides, typed sections.

A config file is Python with a function `get_config` that returns an `ml_collections.ConfigDict`
(or a mapping) of the keys that it sets. Its parameters are the file's arguments:
`configs/pretrain.py:size=mini,length=512` calls `get_config(size="mini", length=512)`. A name
without folder and ending, `pretrain:size=mini`, is a config that comes with the package.
"""

import dataclasses
import difflib
import functools
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from ml_collections import ConfigDict

from bert_jax.config.files import call_config, config_path, package_configs, parse, with_point
from bert_jax.config.presets import keys_of_preset, model_fields
from bert_jax.distillation.options import DistillationOptions
from bert_jax.errors import OptionError, UserError, require_at_least
from bert_jax.families.family import family_names, find_family
from bert_jax.models.execution import Execution
from bert_jax.models.head import model_keys
from bert_jax.options import from_keys, keys_of
from bert_jax.process import say
from bert_jax.sharding.mesh import MeshShape
from bert_jax.tasks import DEFAULT_TASK, find_task, task_names
from bert_jax.tasks.base.model_init import ModelInit, ModelOptions, model_init
from bert_jax.tasks.base.train_spec import TaskConfig, TrainSpec
from bert_jax.training_options import ALTERNATIVES, OptimizerOptions, TrainOptions

# Keys of earlier versions; the error for one of them names the new one.
RENAMED_KEYS = {
    "data.development": "data.validation",
    "data.held_out": "data.validation_fraction",
}
# Lists of texts, where 2026 and 1e3 are not numbers.
TEXT_LISTS = frozenset({"data.label_columns", "data.labels", "data.test", "data.validation"})


def default_config(task: str) -> ConfigDict:
    """Every known key with its default, for one task.

    The keys of a section are the fields of a dataclass: of `ModelOptions` and `EncoderConfig` for
    `model`, `OptimizerOptions`, `TrainOptions`, `DistillationOptions` and `MeshShape` for
    `optimizer`, `train`, `distillation` and `mesh`; `TrainSpec` names the dataclass of each other
    section. A model field that is None is taken from `init_from`, else from `model.size` and the
    vocabulary.
    """
    spec: TrainSpec[Any] = find_task(task).TRAIN
    config: dict[str, Any] = {
        "task": task,
        "seed": 0,
        "precision": "auto",
        "preset": "",
        "init_from": "",
        "model": {**keys_of(ModelOptions, omit=("fields",)), **dict.fromkeys(_model_keys())},
        "data": keys_of(spec.data, omit=("seed",)),
        "optimizer": keys_of(OptimizerOptions) | dict(spec.defaults.get("optimizer", {})),
        "train": keys_of(TrainOptions) | dict(spec.defaults.get("train", {})),
        "distillation": keys_of(DistillationOptions),
        "mesh": keys_of(MeshShape),
        **{name: keys_of(options) for name, options in spec.sections.items()},
    }
    config["tokenizer"] = {"path": "", **config.get("tokenizer", {})}
    return ConfigDict(config)


def _model_keys() -> list[str]:
    """The fields of an encoder, and options of heads, that the files of any family have."""
    families = map(find_family, family_names())
    return model_keys({name for family in families for name in family.optional_fields})


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
    path = config_path(name)
    keys, _ = call_config(path, arguments)
    config = complete_config(keys, where=str(path))
    return override_keys(config, overrides, source=path)


def config_with(specification: str, values: Mapping[str, Any], *, where: str) -> ConfigDict:
    """The config of a file, or of a task that no config is named like, with some values.

    Args:
        specification: see `load_config`; or the name of a task, for its defaults.
        values: by the name of an argument of the file, by a dotted key, or by the last part of a
            key, such as `learning_rate`.
        where: what has the values, for errors.

    Raises:
        UserError: the file, a name or a value is wrong, or several keys end in the name.
    """
    name, _, arguments = specification.partition(":")
    if name in task_names() and not (name in package_configs() or Path(name).is_file()):
        config, taken, source = default_config(name), frozenset[str](), name
    else:
        path = config_path(name)
        keys, taken = call_config(path, arguments, values)
        config, source = complete_config(keys, where=str(path)), str(path)
    others = {
        _full_key(config, name, where): value for name, value in values.items() if name not in taken
    }
    announce_replaced(config, others, flag="", source=source)
    return set_keys(config, others, where=where)


def _full_key(config: ConfigDict, name: str, where: str) -> str:
    """The key of this name, else the only one with this last part; of an unknown one the name."""
    known = _flat_defaults(config.task)
    if name == "model":  # which is a section, too: in a call, the model to start from
        return "init_from"
    found = [key for key in known if key.rpartition(".")[2] == name]
    if name in known or not found:
        return name
    if len(found) > 1:
        both = " or ".join(f"**{{{key!r}: …}}" for key in found)
        raise UserError(f"{where}: several keys end in {name!r}; give {both}")
    return found[0]


def complete_config(keys: Any, *, where: str) -> ConfigDict:
    """Applies the keys that a file sets to the defaults.

    Raises:
        UserError: it is not a mapping, or a key or a value is wrong.
    """
    if not isinstance(keys, Mapping | ConfigDict):
        raise UserError(f"{where}: the config is {keys!r}, not a mapping of keys")
    config = default_config(keys.get("task", DEFAULT_TASK))
    return set_keys(config, dict(flat_keys(keys)), where=where)


def override_keys(
    config: ConfigDict, overrides: Sequence[tuple[str, str]], *, source: object = "the config"
) -> ConfigDict:
    """Sets dotted keys from text, as in `--config.KEY=VALUE`; returns the config.

    A line on stderr says which value of the config an override of `ALTERNATIVES` replaces.

    Args:
        config: the config, which is changed.
        overrides: dotted keys with values as text; of equal keys the last one wins.
        source: the file of the config, for messages.

    Raises:
        UserError: a key or a value is wrong.
    """
    values = {key: parse_value(key, text, config.task) for key, text in overrides}
    announce_replaced(config, values, flag="--config.", source=source)
    return set_keys(config, values, where="--config")


def parse_value(key: str, text: str, task: str) -> Any:
    """The value of a key from its text; `set_key` checks its type."""
    default = _flat_defaults(task).get(key)
    if isinstance(default, str) or (key in TEXT_LISTS and not text.startswith(_QUOTED)):
        value: Any = text
    else:
        value = parse(text)
    if isinstance(default, tuple) and isinstance(value, str):
        value = tuple(filter(None, value.split(",")))
    return value


def announce_replaced(
    config: ConfigDict, keys: Collection[str], *, flag: str, source: object
) -> None:
    """Says on stderr which values of a config new keys replace, except defaults."""
    defaults = _flat_defaults(config.task)
    for key, other, value in _replaced(config, keys):
        if value != defaults[other]:
            say(f"{flag}{key} replaces {other}={round(value, 6)} of {source}")


def set_keys(config: ConfigDict, values: Mapping[str, Any], *, where: str) -> ConfigDict:
    """Sets the keys of a preset, if one is among the values, then dotted keys, see `set_key`.

    One of `ALTERNATIVES` replaces the other; both together are refused with their section.

    Returns:
        The config.

    Raises:
        UserError: a preset or a key is unknown, or a value has another type, see `set_key`.
    """
    defaults = _flat_defaults(config.task)
    if preset := values.get("preset"):
        try:
            keys = keys_of_preset(preset, config.task)
        except OptionError as error:
            raise error.at(where) from error
        values = {key: value for key, value in keys.items() if key in defaults} | dict(values)
    for key, value in values.items():
        set_key(config, key, value, where=where)
    for _, other, value in _replaced(config, values):
        set_key(config, other, type(value)(0), where=where)
    return config


def _replaced(config: ConfigDict, keys: Collection[str]) -> list[tuple[str, str, Any]]:
    """Each key that replaces its alternative, the alternative and its value in a config."""
    pairs = [(key, other) for pair in ALTERNATIVES for key, other in (pair, pair[::-1])]
    return [
        (key, other, value)
        for key, other in pairs
        if key in keys and other not in keys and (value := get_key(config, other))
    ]


def get_key(config: ConfigDict, key: str) -> Any:
    """The value of a dotted key."""
    return functools.reduce(lambda section, name: section[name], key.split("."), config)


def set_key(config: ConfigDict, key: str, value: Any, *, where: str) -> None:
    """Sets a known dotted key to a value of its type.

    If the default is a tuple, the value may be a list or one item; if the default is None, any
    value is accepted here, and the code that reads the key checks it. `mesh=auto` sets the boolean
    key `mesh.auto`; the same holds for other sections.

    Raises:
        UserError: the key is unknown (the message names the new name of an old key, or the nearest
            known key), the value has another type, or the task differs.
    """
    defaults = _flat_defaults(config.task)
    if isinstance(defaults.get(f"{key}.{value}"), bool):
        key, value = f"{key}.{value}", True
    if key not in defaults:
        if key in RENAMED_KEYS:
            raise UserError(f"{where}: {key!r} is called {RENAMED_KEYS[key]!r} now; rename it")
        # First the keys that have the whole name, as train.global_batch_size has batch_size.
        known = [each for each in defaults if each.endswith(key)] or defaults
        (near,) = difflib.get_close_matches(key, known, n=1, cutoff=0.0)
        raise UserError(f"{where}: unknown key {key!r}; the nearest known is {near!r}")
    if key == "task" and value != config.task:
        raise UserError(
            f"{where}: this is a config of task {config.task}, not {value!r}; choose another "
            "--config"
        )
    default = defaults[key]
    if isinstance(default, float):
        value = with_point(value)
    if isinstance(default, tuple):
        value = tuple(value) if isinstance(value, list | tuple) else (value,)
        value = tuple(one for one in value if one != "")
        if key in TEXT_LISTS:
            value = tuple(map(str, value))
    if default is not None and type(value) is not type(default):
        raise UserError(
            f"{where}: {key} is {value!r:.80}, a {type(value).__name__}; "
            f"it must be of type {type(default).__name__}, as {default!r} is"
        )
    section = config
    *sections, name = key.split(".")
    for part in sections:
        section = section[part]
    with section.ignore_type():
        section[name] = value


def differing_keys(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[tuple[str, Any, Any]]:
    """Dotted keys with different values, and both values (None where a key is missing)."""
    before, after = dict(flat_keys(old)), dict(flat_keys(new))
    return [
        (key, before.get(key), after.get(key))
        for key in sorted(before | after)
        if before.get(key) != after.get(key)
    ]


@dataclasses.dataclass(frozen=True)
class Sections:
    """A config that was read.

    Attributes:
        name: the key `task`.
        keys: all keys and their values, as they are written to a run's `config.json`.
        spec: what the key `task` names.
        task: the sections and keys that a task reads.
        model, optimizer, train, distillation, mesh: the sections of these names.
    """

    name: str
    keys: dict[str, Any]
    spec: TrainSpec[Any]
    task: TaskConfig[Any]
    model: ModelOptions
    optimizer: OptimizerOptions
    train: TrainOptions
    distillation: DistillationOptions
    mesh: MeshShape

    @classmethod
    def read(cls, config: ConfigDict) -> "Sections":
        """Reads a config; opens no file and touches no device.

        Raises:
            UserError: a value is out of range.
        """
        keys = config.to_dict()
        name, seed = keys["task"], keys["seed"]
        spec: TrainSpec[Any] = find_task(name).TRAIN
        require_at_least("seed", seed, 0, 2**32 - 1)
        fields = {name: keys["model"][name] for name in _model_keys()}
        chosen = {name: value for name, value in fields.items() if value is not None}
        model = from_keys(ModelOptions, keys["model"] | {"fields": chosen})
        train = from_keys(TrainOptions, keys["train"])
        optimizer = from_keys(OptimizerOptions, keys["optimizer"])
        task = TaskConfig(
            from_keys(spec.data, keys["data"] | {"seed": seed}),
            train,
            optimizer,
            tuple(from_keys(options, keys[name]) for name, options in spec.sections.items()),
            keys["tokenizer"]["path"],
            seed,
        )
        distillation = from_keys(DistillationOptions, keys["distillation"])
        mesh = from_keys(MeshShape, keys["mesh"])
        return cls(name, keys, spec, task, model, optimizer, train, distillation, mesh)

    def execution(self, platform: str = "") -> Execution:
        """Dtype and kernels of the computation; "" means the platform of the local devices."""
        return self.model.execution(self.keys["precision"], platform)

    def model_init(self, platform: str = "") -> ModelInit:
        """The model that is trained, and what it starts from; reads the files of `init_from`."""
        return model_init(
            self.model,
            self.execution(platform),
            init_from=self.keys["init_from"],
            tokenizer_path=self.task.tokenizer_path,
            preset=model_fields(self.keys["preset"]),
        )


# The first character of a Python literal of a list of texts.
_QUOTED = ("[", "(", "'", '"')


@functools.cache
def _flat_defaults(task: str) -> dict[str, Any]:
    return dict(flat_keys(default_config(task)))


def flat_keys(config: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """The dotted keys of a config, as "train.steps", and their values."""
    for key, value in config.items():
        if isinstance(value, Mapping | ConfigDict):
            yield from flat_keys(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value

"""The model that a task trains or evaluates: described by a config, or finished."""

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from jax.sharding import Mesh
from ml_collections import ConfigDict

from bert_jax.checkpoints import model_directory
from bert_jax.checkpoints.config_file import ModelDescription
from bert_jax.checkpoints.hub import resolve
from bert_jax.checkpoints.sentence_transformers.layout import encoder_directory
from bert_jax.errors import OptionError, listed
from bert_jax.families.family import DEFAULT_MODEL_TYPE, Family, find_family
from bert_jax.models import surgery
from bert_jax.models.config import SWITCHES, EncoderConfig, check_fields
from bert_jax.models.execution import Execution, resolve_execution
from bert_jax.options import differing_names, keys_of
from bert_jax.presets import model_fields
from bert_jax.process import say
from bert_jax.sharding.hosts import fetch, is_main_host
from bert_jax.tasks.base.task import ModelInit, Task
from bert_jax.tokenization import Tokenizer

# Fields of the architecture that do not change the meaning of its parameters.
TRAINING_FIELDS = frozenset(
    {
        "hidden_dropout_prob",
        "attention_probs_dropout_prob",
        "classifier_dropout",
        "qa_dropout",
        "summary_last_dropout",
        "initializer_range",
        "num_labels",
        "use_crf",
        "qa_head",
    }
)

# Those in which a model may differ, too, that begins with the layers of another family: dropout and
# heads; and what it may leave out.
_OTHER_FAMILY_FIELDS = frozenset(
    {
        "attention_output_dropout",
        "feed_forward_dropout",
        "sentence_order_dropout",
        "classifier_act",
        "classifier_input_dropout",
        "choice_head",
        "tagging_dropout_of_hidden",
    }
)
_LEFT_OUT = {"type_vocab_size": 0, "has_pooler": False}

# The maximum number of names of tensors in a line.
_NAMES_SHOWN = 8


def of_config(config: ConfigDict, platform: str = "") -> ModelInit:
    """The model that a config describes, and the parameters that it starts from.

    Args:
        config: the whole config.
        platform: platform, see `execution`.

    Raises:
        UserError: `init_from` is not a model directory, or the config contradicts it.
    """
    description, tokenizer, directory = None, None, None
    if config.init_from:
        directory = resolve(config.init_from)
        description = model_directory.load_description(directory)
    name = config.model.family
    family = description.family if description else find_family(name or DEFAULT_MODEL_TYPE)
    if description and name not in (None, family.model_type):
        family = find_family(name)
    if config.tokenizer.path:
        tokenizer = family.load_tokenizer(config.tokenizer.path)
    if directory and description:
        model_tokenizer = family.load_tokenizer(
            encoder_directory(directory), config=description.config
        )
        if tokenizer is not None and tokenizer.fingerprint() != model_tokenizer.fingerprint():
            raise OptionError(
                "tokenizer.path",
                config.tokenizer.path,
                "leave tokenizer.path out",
                problem=f"the tokenizer {config.tokenizer.path} is another than that of the model "
                f"{directory}",
            )
        tokenizer = model_tokenizer
    if config.model.keep_layers is not None:
        description = _with_layers(description, config.model.keep_layers)
    base = _in_family(description, family) if description else None
    return ModelInit(
        execution=execution(config, platform),
        architecture=lambda tokenizer: model_config(config, tokenizer, family, base),
        family=family,
        tokenizer=tokenizer,
        description=description,
    )


def _with_layers(
    description: ModelDescription | None, layers: int | Sequence[int]
) -> ModelDescription:
    """The description of the model to start from, with a part of its layers."""
    if description is None:
        rule = "it chooses layers of the model init_from: give one, or leave model.keep_layers out"
        raise OptionError("model.keep_layers", layers, rule)
    fewer, _ = surgery.with_layers(description.config, layers)
    return dataclasses.replace(description, config=fewer)


def _in_family(description: ModelDescription, family: Family) -> EncoderConfig:
    """The architecture of a model of a family that begins with the layers of a finished one.

    Raises:
        OptionError: the layers of the two families, or their tokenizers, are of different kinds.
    """
    source, old = description.family, description.config
    if source.model_type == family.model_type:
        return old
    fields = {name: getattr(old, name) for name in family.file_fields()}
    fields |= {name: value for name, value in family.defaults.items() if name in TRAINING_FIELDS}
    new = EncoderConfig(**fields, **family.constants)
    differing = [
        name
        for name in differing_names(vars(old), vars(new))
        if name not in TRAINING_FIELDS | _OTHER_FAMILY_FIELDS
        and (name not in _LEFT_OUT or getattr(new, name) != _LEFT_OUT[name])
    ]
    if family.tokenizer_kind != source.tokenizer_kind:
        differing.append("kind of tokenizer")
    if differing:
        rule = f"init_from holds a model of the family {source.model_type}, with another "
        raise OptionError(
            "model.family", family.model_type, f"{rule}{', '.join(differing)}; leave it out"
        )
    return new


def initial_params(config: ConfigDict, init: ModelInit, task: Task, mesh: Mesh) -> Any:
    """Parameters of `init_from` for the model of a task, on a mesh; None if there is none.

    Raises:
        UserError: its files are damaged, or hold another model.
    """
    if init.description is None:
        return None
    directory = resolve(config.init_from)
    layers = config.model.keep_layers
    module: Any = task.module
    description = task.description
    if layers is not None:
        stored = model_directory.load_description(directory).config
        whole = dataclasses.replace(
            description.config,
            num_hidden_layers=stored.num_hidden_layers,
            num_hidden_groups=stored.num_hidden_groups,
        )
        module = module.clone(config=whole)
    params, report = model_directory.load_params(
        directory,
        init.description,  # which has the names of the tensors
        module,
        mesh=mesh,
        seed=config.seed,
        reinitialize=heads_to_reinitialize(init.description, description),
    )
    if is_main_host():
        if init.family.model_type != init.description.family.model_type:
            left_out = listed(report.unexpected_keys, _NAMES_SHOWN)
            say(f"a {init.family.model_type} model leaves out {left_out}")
            report = dataclasses.replace(report, unexpected_keys=())
        say(f"init_from {directory}: {report}")
    if layers is None:
        return params
    return surgery.keep_layers(fetch(params), module.config, layers)[0]


def of_model(config: ConfigDict, description: ModelDescription, directory: Path) -> ModelInit:
    """A finished model, to be evaluated unchanged.

    Args:
        config: precision and section `model`, see `execution`.
        description: description of the model.
        directory: directory of its tokenizer.
    """
    return ModelInit(
        execution=execution(config),
        architecture=lambda tokenizer: description.config,
        family=description.family,
        tokenizer=model_directory.load_tokenizer(directory, description),
        description=description,
        is_finished=True,
    )


def execution(config: ConfigDict, platform: str = "") -> Execution:
    """How the model is computed: as set in the config, else the fastest way on the device.

    Args:
        config: config with precision and section `model`.
        platform: "cpu", "gpu" or "tpu"; "" for the local devices.
    """
    model = config.model
    fastest = resolve_execution(
        config.precision, model.scan_layers, model.attention, platform=platform
    )
    return dataclasses.replace(
        fastest,
        remat=model.remat,
        pad_vocab_to_multiple_of=model.pad_vocab_to_multiple_of,
    )


def check_options(config: ConfigDict) -> None:
    """Raises OptionError where a key of section `model` is out of range; reads no file."""
    model = config.model
    fields = {name: model[name] for name in keys_of(EncoderConfig, omit=SWITCHES)}
    check_fields({name: value for name, value in fields.items() if value is not None})
    Execution(
        remat=model.remat, pad_vocab_to_multiple_of=model.pad_vocab_to_multiple_of
    )  # which checks them


def model_config(
    config: ConfigDict, tokenizer: Tokenizer, family: Family, base: EncoderConfig | None = None
) -> EncoderConfig:
    """The architecture of a config for a vocabulary.

    Args:
        config: config; sizes and fields are those of section `model`.
        tokenizer: tokenizer that defines the vocabulary.
        family: family of the model.
        base: architecture of the initial parameters; it supplies the fields that the config does
            not set.

    Raises:
        UserError: the config contradicts `base`.
    """
    fields = {
        name: config.model[name]
        for name in keys_of(EncoderConfig, omit=SWITCHES)
        if config.model[name] is not None
    }
    if base is not None and not config.model.size:
        described = dataclasses.replace(base, **fields)
    else:
        known = {
            "vocab_size": tokenizer.vocab_size,
            "pad_token_id": tokenizer.padding_id,
        }
        fields = {**_of_preset(config.preset, family), **known, **fields}
        described = family.new_config(config.model.size or "base", **fields)
    if base is None:
        return described
    for field in dataclasses.fields(EncoderConfig):
        old, new = getattr(base, field.name), getattr(described, field.name)
        if old != new and field.name not in TRAINING_FIELDS:
            raise OptionError(
                f"model.{field.name}",
                new,
                f"init_from has a model with {old!r}; give the same one, or leave section "
                "model out",
            )
    return described


def _of_preset(preset: str, family: Family) -> dict[str, Any]:
    """The fields of a preset that the family does not fix."""
    known = family.file_fields()
    return {name: value for name, value in model_fields(preset).items() if name in known}


def heads_to_reinitialize(source: ModelDescription, target: ModelDescription) -> tuple[str, ...]:
    """Prefixes of the names of parameters that have another meaning in the source model."""
    if source.problem_type == target.problem_type == "regression":
        return ()
    if (
        source.head is target.head
        and source.config.num_labels == target.config.num_labels
        and source.labels in ((), target.labels)
    ):
        return ()
    return target.family.label_parameters

"""The model that a task trains or evaluates: from a config, or a finished one."""

import dataclasses
from pathlib import Path

from ml_collections import ConfigDict

from bert_jax.checkpoints import model_directory
from bert_jax.checkpoints.config_file import ModelDescription
from bert_jax.checkpoints.hub import resolve
from bert_jax.errors import OptionError
from bert_jax.families.family import DEFAULT_MODEL_TYPE, Family, find_family
from bert_jax.models.config import FAMILY_FIELDS, EncoderConfig
from bert_jax.models.execution import Execution, resolve_execution
from bert_jax.options import keys_of
from bert_jax.tasks.base.task import ModelInit
from bert_jax.tokenization import Tokenizer

# Fields of the architecture that do not change what its parameters compute.
TRAINING_FIELDS = frozenset(
    {
        "hidden_dropout_prob",
        "attention_probs_dropout_prob",
        "classifier_dropout",
        "initializer_range",
        "num_labels",
        "use_crf",
    }
)


def of_config(config: ConfigDict, platform: str = "") -> ModelInit:
    """The model that a config describes, and the parameters that it starts from.

    Args:
        config: the whole config.
        platform: as for `execution`.

    Raises:
        UserError: `init_from` is no model directory, or the config contradicts it.
    """
    description, tokenizer, directory = None, None, None
    if config.init_from:
        directory = resolve(config.init_from)
        description = model_directory.load_description(directory)
    name = config.model.family
    family = description.family if description else find_family(name or DEFAULT_MODEL_TYPE)
    if name not in (None, family.model_type):
        rule = f"{{init_from}} holds a model of the family {family.model_type}; leave it out"
        raise OptionError("family", name, rule)
    if config.tokenizer.path:
        tokenizer = family.load_tokenizer(config.tokenizer.path)
    if directory:
        model_tokenizer = family.load_tokenizer(directory)
        if tokenizer is not None and tokenizer.fingerprint() != model_tokenizer.fingerprint():
            raise OptionError(
                "path",
                config.tokenizer.path,
                "leave {path} out",
                problem=f"the tokenizer {config.tokenizer.path} is another than that of the model "
                f"{directory}",
            )
        tokenizer = model_tokenizer
    base = description.config if description else None
    return ModelInit(
        execution=execution(config, platform),
        architecture=lambda tokenizer: model_config(config, tokenizer, family, base),
        family=family,
        tokenizer=tokenizer,
        description=description,
    )


def of_model(config: ConfigDict, description: ModelDescription, directory: Path) -> ModelInit:
    """A finished model, which is evaluated as it is.

    Args:
        config: precision and section `model`, see `execution`.
        description: of the model.
        directory: of its tokenizer.
    """
    return ModelInit(
        execution=execution(config),
        architecture=lambda tokenizer: description.config,
        family=description.family,
        tokenizer=description.family.load_tokenizer(directory),
        description=description,
        is_finished=True,
    )


def execution(config: ConfigDict, platform: str = "") -> Execution:
    """How the model is computed: as the config requires, else as is fastest on the device.

    Args:
        config: precision and section `model`.
        platform: "cpu", "gpu" or "tpu"; "" for the devices that are here.
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


def model_config(
    config: ConfigDict, tokenizer: Tokenizer, family: Family, base: EncoderConfig | None = None
) -> EncoderConfig:
    """The architecture that a config describes for a vocabulary.

    Args:
        config: sizes and fields are those of section `model`.
        tokenizer: of the vocabulary.
        family: of the model.
        base: the architecture that parameters are taken from; what the config does not say is as
            there.

    Raises:
        UserError: the config contradicts `base`.
    """
    fields = {
        name: config.model[name]
        for name in keys_of(EncoderConfig, omit=FAMILY_FIELDS)
        if config.model[name] is not None
    }
    if base is not None and not config.model.size:
        described = dataclasses.replace(base, **fields)
    else:
        known = {
            "vocab_size": tokenizer.vocab_size,
            "pad_token_id": tokenizer.special_ids.pad,
            "position_offset": family.position_offset,
        }
        described = EncoderConfig.from_size(config.model.size or "base", **(known | fields))
    if base is None:
        return described
    for field in dataclasses.fields(EncoderConfig):
        old, new = getattr(base, field.name), getattr(described, field.name)
        if old != new and field.name not in TRAINING_FIELDS:
            raise OptionError(
                field.name,
                new,
                f"{{init_from}} has a model with {old!r}; give the same one, or leave section "
                "model out",
            )
    return described

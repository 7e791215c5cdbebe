"""The model that a task trains or evaluates: as a config describes it, or finished."""

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

from jax.sharding import Mesh

from bert_jax.checkpoints import model_directory
from bert_jax.checkpoints.config_file import ModelDescription
from bert_jax.checkpoints.hub import resolve
from bert_jax.checkpoints.sentence_transformers.entries import encoder_directory
from bert_jax.errors import OptionError, listed
from bert_jax.families.family import DEFAULT_MODEL_TYPE, Family, check_padding, find_family
from bert_jax.models import surgery
from bert_jax.models.config import EncoderConfig, check_fields
from bert_jax.models.encoder_with_head import Classifier
from bert_jax.models.execution import Execution, resolve_execution
from bert_jax.models.head import (
    encoder_keys,
    fields_of,
    find_head,
    label_parameters,
    option_keys,
    with_fields,
)
from bert_jax.models.heads.masked_lm import MaskedLMOptions
from bert_jax.models.image_options import ImageOptions
from bert_jax.models.layer_mix import MIXES
from bert_jax.models.vectors import StoredVectors
from bert_jax.options import differing_names
from bert_jax.process import say
from bert_jax.sharding.hosts import fetch, is_main_host
from bert_jax.tasks.base.task import Task
from bert_jax.tokenization import Tokenizer

# Fields of the encoder that do not change the meaning of its parameters.
_TRAINING_FIELDS = frozenset(
    {
        "hidden_dropout_prob",
        "attention_probs_dropout_prob",
        "activation_dropout",
        "embedding_dropout",
        "classifier_dropout",
        "recurrent_dropout",
        "initializer_range",
        "num_labels",
    }
)

# No parameter depends on them: a training at longer rows may begin with other ones.
_ROTARY_BASES = frozenset({"global_rope_theta", "local_rope_theta"})

# A model that is initialised from the layers of another family may differ in these fields as well
# (the masked-LM head is compared apart), and may lack the parts of `_LEFT_OUT`.
_OTHER_FAMILY_FIELDS = frozenset(
    {"attention_output_dropout", "feed_forward_dropout", "classifier_activation", "heads"}
)
_LEFT_OUT = {"type_vocab_size": 0, "has_pooler": False}

# The maximum number of names of tensors in a line.
_NAMES_SHOWN = 8


@dataclasses.dataclass(frozen=True)
class ModelOptions:
    """The section `model` of a config.

    Attributes:
        family: a module of `families/`; None: the family of `init_from`, else BERT. A model of
            another family begins with the layers of `init_from`, if they are of one kind.
        size: a named size of the family, for a new model; "": "base".
        scan_layers: whether one program is compiled for all layers; None: the fastest on the
            device.
        remat: the values that the backward pass computes again, see `Execution`.
        attention: kernel of attention; "auto": the fastest on the device.
        pad_vocab_to_multiple_of: see `Execution`. 384 are 128 for the matrix units, and 3 × 16 for
            every `mesh.tensor` that divides the heads of a named size. It does not follow the mesh:
            a run may continue on another one.
        keep_layers: layers of `init_from` that the model starts from, see
            `models.surgery.chosen_layers`; None: all.
        fields: fields of `EncoderConfig` that the config sets; each is a key of the section.
    """

    family: str | None = None
    size: str = ""
    scan_layers: bool | None = None
    remat: str = "none"
    attention: str = "auto"
    pad_vocab_to_multiple_of: int = 384
    keep_layers: int | Sequence[int] | None = None
    fields: Mapping[str, Any] = dataclasses.field(default_factory=dict)

    def __post_init__(self) -> None:
        kinds = option_keys()
        check_fields({name: self.fields[name] for name in self.fields if name not in kinds})
        for kind in {kinds[name] for name in self.fields.keys() & kinds.keys()}:
            kind(**{name: self.fields[name] for name in kind.keys if name in self.fields})
        self._computed(Execution())

    def execution(self, precision: str, platform: str = "") -> Execution:
        """How the model is computed.

        Args:
            precision: "float32", "bfloat16", or "auto": the fastest on the device.
            platform: "cpu", "gpu" or "tpu"; "" for the local devices.
        """
        fastest = resolve_execution(precision, self.scan_layers, self.attention, platform=platform)
        return self._computed(fastest)

    def _computed(self, execution: Execution) -> Execution:
        return dataclasses.replace(
            execution, remat=self.remat, pad_vocab_to_multiple_of=self.pad_vocab_to_multiple_of
        )


@dataclasses.dataclass(frozen=True)
class ModelInit:
    """A task's model as the config and `init_from` describe it, before the task reads its data.

    Attributes:
        execution: how the model is computed.
        family: family of the model.
        tokenizer: tokenizer of the model, None where the data bring their own.
        description: the model that the training starts from, None for a randomly initialised one.
        is_finished: whether `description` is a finished model to evaluate: its labels stay, and no
            training data are needed.
        directory: directory of `description`.
        base: architecture that `description` has in the family, with the layers that are kept.
        options: section `model`.
        preset: fields of `EncoderConfig` for a new model, where the config does not set them.
    """

    execution: Execution
    family: Family = dataclasses.field(default_factory=lambda: find_family(DEFAULT_MODEL_TYPE))
    tokenizer: Tokenizer | None = None
    description: ModelDescription | None = None
    is_finished: bool = False
    directory: Path | None = None
    base: EncoderConfig | None = None
    options: ModelOptions = ModelOptions()
    preset: Mapping[str, Any] = dataclasses.field(default_factory=dict)

    def architecture(self, tokenizer: Tokenizer) -> EncoderConfig:
        """The encoder's config for a vocabulary.

        Raises:
            OptionError: the section `model` contradicts the model that the training starts from.
        """
        base, size, fields = self.base, self.options.size, self.options.fields
        if base is not None and not size:
            described = with_fields(base, self.family.with_same_key(fields))
        else:
            known = {"vocab_size": tokenizer.vocab_size}
            if "pad_token_id" not in self.family.constants:  # GPT's models do not know padding
                known["pad_token_id"] = tokenizer.padding_id
            in_family = self.family.file_fields()
            preset = {name: value for name, value in self.preset.items() if name in in_family}
            known = {name: value for name, value in known.items() if name in in_family}
            described = self.family.new_config(size or "base", **preset | known | dict(fields))
        if base is None:
            check_padding(f"model.family={self.family.model_type}", tokenizer, described)
            return described
        after, may_differ = fields_of(described), _training_fields() | _ROTARY_BASES
        for name, old in fields_of(base).items():
            if (new := after[name]) != old and name not in may_differ:
                raise OptionError(
                    f"model.{name}",
                    new,
                    f"{{init_from}} has a model with {old!r}; give the same one, or leave section "
                    "model out",
                )
        return described

    def describe(
        self,
        tokenizer: Tokenizer,
        head: str,
        *,
        num_labels: int | None = EncoderConfig.num_labels,
        labels: tuple[str, ...] = (),
        problem_type: str | None = None,
        add_pooling_layer: bool = True,
        other: Mapping[str, Any] = MappingProxyType({}),
        vectors: StoredVectors | None = None,
    ) -> ModelDescription:
        """The model that a task trains; see `ModelDescription` for the arguments.

        Args:
            tokenizer: tokenizer of the model.
            head: head of the model.
            num_labels: number of outputs of the head; None: as in the model that the training
                starts from.
            labels: names of these outputs.
            problem_type: problem type of a classifier.
            add_pooling_layer: whether a bare encoder has a pooler.
            other: further fields of `config.json`.
            vectors: how the model makes vectors; None: it is for another task.

        Raises:
            UserError: the family does not have the head, or the section `model` contradicts the
                model that the training starts from.
        """
        family = self.family.with_head(head)
        family.class_name(head)  # the family has this head
        mix, module = self.options.fields.get("layer_mix", MIXES[0]), find_head(head).module
        if mix != MIXES[0] and not (isinstance(module, type) and issubclass(module, Classifier)):
            rule = f"the head {head} reads the last layer alone: leave it out"
            raise OptionError("model.layer_mix", mix, rule)
        config = self.architecture(tokenizer)
        if num_labels is not None:
            config = dataclasses.replace(config, num_labels=num_labels)
        return ModelDescription(
            config,
            head,
            labels=labels,
            problem_type=problem_type,
            add_pooling_layer=add_pooling_layer,
            other=dict(other),
            family=family,
            stored_vectors=vectors,
        )


def model_init(
    options: ModelOptions,
    execution: Execution,
    *,
    init_from: str = "",
    tokenizer_path: str = "",
    preset: Mapping[str, Any] = MappingProxyType({}),
) -> ModelInit:
    """The model that a config describes, with the model that it starts from.

    Args:
        options: section `model`.
        execution: how the model is computed.
        init_from: model directory or hub id; "": a new model.
        tokenizer_path: tokenizer of a new model; "": the data bring their own.
        preset: see `ModelInit`.

    Raises:
        UserError: `init_from` is not a model directory, or the options contradict it.
    """
    description, tokenizer, directory = None, None, None
    if init_from:
        directory = resolve(init_from)
        description = model_directory.load_description(directory)
    default = description.family.model_type if description else DEFAULT_MODEL_TYPE
    family = find_family(options.family or default)
    if tokenizer_path:
        tokenizer = family.load_tokenizer(tokenizer_path)
    if directory and description:
        own = family.load_tokenizer(encoder_directory(directory), config=description.config)
        if tokenizer is not None and tokenizer.fingerprint() != own.fingerprint():
            raise OptionError(
                "tokenizer.path",
                tokenizer_path,
                "leave {tokenizer.path} out",
                problem=f"the tokenizer {tokenizer_path} differs from the tokenizer of the model "
                f"{directory}",
            )
        tokenizer = own
    if options.keep_layers is not None:
        description = _with_layers(description, options.keep_layers)
    base = _in_family(description, family) if description else None
    return ModelInit(
        execution,
        family,
        tokenizer,
        description,
        directory=directory,
        base=base,
        options=options,
        preset=preset,
    )


def _with_layers(
    description: ModelDescription | None, layers: int | Sequence[int]
) -> ModelDescription:
    """The description of the model to start from, with a part of its layers."""
    if description is None:
        rule = (
            "it chooses layers of the model {init_from}: give one, or leave {model.keep_layers} out"
        )
        raise OptionError("model.keep_layers", layers, rule)
    fewer, _ = surgery.with_layers(description.config, layers)
    return dataclasses.replace(description, config=fewer)


def _training_fields() -> set[str]:
    """The fields that may differ from `init_from`."""
    # Of an encoder's own parts only the size of images may differ: positions are interpolated.
    return {*_TRAINING_FIELDS, *option_keys()} - (encoder_keys() - {"image_size"})


def _in_family(description: ModelDescription, family: Family) -> EncoderConfig:
    """The architecture of a model of a family that begins with the layers of a finished one.

    Raises:
        OptionError: the layers of the two families, or their tokenizers, are of different kinds.
    """
    source, old = description.family, description.config
    if source.model_type == family.model_type:
        return old
    if family.from_other is not None:
        rule = (
            f"{{init_from}} holds a model of the family {source.model_type}: make it one first, by "
            f"bert-jax convert --to {family.model_type}, and leave {{model.family}} out"
        )
        raise OptionError("model.family", family.model_type, rule)
    fields = {name: fields_of(old)[name] for name in family.file_fields()}
    may_differ = _training_fields()
    fields |= {name: value for name, value in family.defaults.items() if name in may_differ}
    new = family.config(fields)
    differing = [
        name
        for name in differing_names(vars(old), vars(new))
        if name not in _TRAINING_FIELDS | _OTHER_FAMILY_FIELDS
        and (name not in _LEFT_OUT or getattr(new, name) != _LEFT_OUT[name])
    ]
    if old.head_options(MaskedLMOptions) != new.head_options(MaskedLMOptions):
        differing.append("masked-LM head")
    if family.tokenizer_kind != source.tokenizer_kind:
        differing.append("kind of tokenizer")
    if differing:
        rule = f"{{init_from}} holds a model of the family {source.model_type}, with another "
        raise OptionError(
            "model.family", family.model_type, f"{rule}{', '.join(differing)}; leave it out"
        )
    return new


def initial_params(init: ModelInit, task: Task, mesh: Mesh, seed: int) -> Any:
    """Parameters of `init_from` for the model of a task, on a mesh; None if there is none.

    Parameters that `init_from` lacks are drawn from `seed`.

    Raises:
        UserError: its files are damaged, or hold another model.
    """
    if init.description is None or init.directory is None:
        return None
    directory, layers = init.directory, init.options.keep_layers
    module: Any = task.module
    description = task.description
    if layers is not None:
        stored = model_directory.load_description(directory).config
        whole = dataclasses.replace(
            description.config,
            num_hidden_layers=stored.num_hidden_layers,
            num_hidden_groups=stored.num_hidden_groups,
            global_attn_every_n_layers=stored.global_attn_every_n_layers,
            attention_window=stored.attention_window,
        )
        module = module.clone(config=whole)
    stored_size, size = (
        one.config.head_options(ImageOptions).image_size for one in (init.description, description)
    )
    if size != stored_size:
        module = module.clone(config=with_fields(module.config, {"image_size": stored_size}))
    params, report = task.load_params(
        directory,
        init.description,  # which has the names of the tensors
        module,
        mesh=mesh,
        seed=seed,
        reinitialize=heads_to_reinitialize(init.description, description),
    )
    if is_main_host():
        is_another = init.family.model_type != init.description.family.model_type
        if is_another and report.unexpected_keys:
            left_out = listed(report.unexpected_keys, _NAMES_SHOWN)
            say(f"a {init.family.model_type} model leaves out {left_out}")
            report = dataclasses.replace(report, unexpected_keys=())
        say(f"init_from {directory}: {report}")
    if size is not None and size != stored_size:
        params, _ = surgery.resize_images(fetch(params), module.config, size)
    if layers is None:
        return params
    return surgery.keep_layers(fetch(params), module.config, layers)[0]


def finished_model(
    description: ModelDescription, directory: Path, execution: Execution
) -> ModelInit:
    """A finished model, to be evaluated unchanged; its tokenizer is read from a directory."""
    return ModelInit(
        execution,
        description.family,
        model_directory.load_tokenizer(directory, description),
        description,
        is_finished=True,
        base=description.config,
    )


def heads_to_reinitialize(source: ModelDescription, target: ModelDescription) -> tuple[str, ...]:
    """Prefixes of the names of parameters that have another meaning in the source model."""
    if source.problem_type == target.problem_type == "regression":
        return ()
    assert target.head is not None
    has_no_names = find_head(target.head).num_labels is not None
    are_same = source.labels in ((), target.labels) or has_no_names
    if (
        source.head == target.head
        and source.config.num_labels == target.config.num_labels
        and are_same
    ):
        return ()
    return label_parameters()

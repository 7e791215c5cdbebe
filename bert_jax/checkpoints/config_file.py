"""`config.json` of a model directory, read and written under Hugging Face's names."""

import dataclasses
import difflib
import json
from collections.abc import Mapping
from itertools import chain
from pathlib import Path
from typing import Any

import flax.linen as nn

from bert_jax.checkpoints.generation_config import GenerationDefaults
from bert_jax.errors import OptionError, UserError, listed, require_at_least
from bert_jax.families.family import (
    DEFAULT_MODEL_TYPE,
    FIXED_FIELDS,
    Family,
    family_names,
    find_class,
    find_family,
)
from bert_jax.files import read_json_object, write_atomically
from bert_jax.files.paths import DESCRIPTION
from bert_jax.models.config import EncoderConfig
from bert_jax.models.encoder import Encoder
from bert_jax.models.execution import Execution
from bert_jax.models.head import BARE_ENCODER, find_head, option_keys
from bert_jax.models.heads.text_vectors import TextVectors
from bert_jax.models.vectors import StoredVectors
from bert_jax.tokenization.encoding import half_surrogate

REGRESSION, SINGLE_LABEL, MULTI_LABEL = PROBLEM_TYPES = (
    "regression",
    "single_label_classification",
    "multi_label_classification",
)
LABEL_KEYS = ("id2label", "label2id")
DTYPES = ("float32", "float16", "bfloat16")

# Fields that are written from the description, not copied from the source.
_OWN = (
    "model_type",
    "architectures",
    *LABEL_KEYS,
    "num_labels",
    "problem_type",
    "dtype",
    "trained_length",
)

# Fields of every `config.json` of transformers that say nothing about the architecture.
_GENERIC = (
    "_name_or_path",
    "bos_token_id",
    "cls_token_id",
    "eos_token_id",
    "finetuning_task",
    "gradient_checkpointing",
    "sep_token_id",
    "torch_dtype",
    "transformers_version",
    "use_cache",
)


class HeadError(UserError):
    """The head of a model's files cannot be used; its encoder may be usable without it."""


@dataclasses.dataclass(frozen=True)
class ModelDescription:
    """The contents of a `config.json`, and of the files of sentence-transformers beside it.

    Attributes:
        config: architecture of the encoder.
        head: head of the model; None if the file does not name it.
        labels: names of the C labels; empty if they have none, or if `id2label` does not name each
            once: then it is in `other`, and what needs the names refuses it.
        problem_type: one of `PROBLEM_TYPES`, the loss that a classifier was trained with, or None;
            another value is refused where it is needed.
        dtype: dtype of the tensors on disk, one of `DTYPES`.
        mixed_dtypes: if tensors differ, the dtype of each, by name in the family's table.
        add_pooling_layer: for the bare encoder, whether it has a pooler.
        trained_length: maximum number of tokens of a row in the training; None: unknown. A key of
            bert_jax, `trained_length`.
        head_error: why the head of the files cannot be used; the model is then the bare encoder.
        other: fields that bert_jax does not use; `write_config` writes them back.
        family: family of the encoder.
        stored_vectors: how the model makes vectors, from the files beside it, as `TextVectors` or
            another kind; None: there are no such files.
        generation: how the model generates; None: it does not, or its files were not read.
    """

    config: EncoderConfig
    head: str | None
    labels: tuple[str, ...] = ()
    problem_type: str | None = None
    dtype: str = "float32"
    mixed_dtypes: Mapping[str, str] = dataclasses.field(default_factory=dict)
    add_pooling_layer: bool = True
    trained_length: int | None = None
    head_error: str = ""
    other: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    family: Family = dataclasses.field(default_factory=lambda: find_family(DEFAULT_MODEL_TYPE))
    stored_vectors: StoredVectors | None = None
    generation: GenerationDefaults | None = None

    def __post_init__(self) -> None:
        if self.labels and len(self.labels) != self.config.num_labels:
            raise UserError(
                f"{len(self.labels)} labels for {self.config.num_labels} outputs; name each once"
            )
        for label in self.labels:
            if problem := half_surrogate(label):
                raise UserError(f"label {label!r}, {problem}")

    @property
    def is_bare(self) -> bool:
        """Whether the model is an encoder without a head."""
        return self.head == BARE_ENCODER

    @property
    def route(self) -> str:
        """See `StoredVectors`."""
        return self.stored_vectors.route if self.stored_vectors else ""

    @property
    def class_name(self) -> str:
        """Hugging Face's class of this model; "" if the head is unknown."""
        return self.family.class_name(self.head) if self.head else ""

    @property
    def vectors(self) -> TextVectors:
        """How the model makes one vector of a text; without files, the family decides.

        Of a model with vectors of another kind, only the encoder's can be pooled: `chosen` of the
        result requires a pooling.
        """
        stored = self.stored_vectors
        if stored is None:
            return self.family.vectors
        if isinstance(stored, TextVectors):
            return stored
        return TextVectors(
            unsupported=f"the model makes other vectors, with the method {stored.method}"
        )

    def make_module(self, execution: Execution) -> nn.Module:
        """The model that the parameters belong to.

        Raises:
            UserError: the family does not have the head.
            HeadError: `other` says that the head computes something else.
        """
        if self.head is None:
            raise ValueError("the description names no head")
        self.family.class_name(self.head)  # the family has this head
        for key, value in self.family.fixed_fields_of_heads.get(self.head, {}).items():
            if self.other.get(key, value) != value:
                raise HeadError(
                    f"{DESCRIPTION}: {key} is {self.other[key]!r:.80}; the head {self.head} has "
                    f"only {value!r}: give another model"
                )
        if self.is_bare:
            return Encoder(self.config, execution, add_pooling_layer=self.add_pooling_layer)
        return find_head(self.head).make(self.config, execution)


def problem_type(description: ModelDescription) -> str:
    """Hugging Face's `problem_type` of a classifier; one output means regression.

    Raises:
        UserError: it is unknown.
    """
    stored = description.problem_type
    if stored not in (None, *PROBLEM_TYPES):
        known = ", ".join(PROBLEM_TYPES)
        raise UserError(f"config.json: problem_type is {stored!r}; known are {known}")
    if description.config.num_labels == 1 and stored != MULTI_LABEL:
        return REGRESSION
    return stored or SINGLE_LABEL


def read_config(path: Path, default_type: str = DEFAULT_MODEL_TYPE) -> ModelDescription:
    """Reads a `config.json`; `head` is None if the file names no known class.

    Args:
        path: the file.
        default_type: the `model_type` of a file without one that names no known class either, such
            as Google's.

    Raises:
        UserError: the file is missing, damaged or incomplete, or describes another model.
    """
    remedy = "give a model directory, which bert-jax convert makes of Google's and AllenNLP's files"
    fields = read_json_object(path, remedy=remedy)
    named = fields.get("architectures")
    class_names = named if isinstance(named, list) else []
    if not fields.get("model_type"):
        # Files of 2019 have classes alone.
        known_class = next(filter(None, map(find_class, class_names)), None)
        default_type = known_class[0].model_type if known_class else default_type
    family = _family(path, fields, default_type).with_own_fields(fields)
    family, head = family.with_class(class_names)
    for key, value in {**FIXED_FIELDS, **family.fixed_fields}.items():
        if key not in family.unread_fields and fields.get(key) not in (None, value):
            raise UserError(
                f"{path}: {key} is {fields[key]!r:.80}; only {value!r} is supported: give another "
                "model"
            )
    second_names = [name for name in family.synonyms if name in fields]
    fields |= {family.field_names[name]: fields.pop(name) for name in second_names}
    try:
        fields = family.read_fields(fields)
    except OptionError as error:
        raise error.at(path) from error
    keys = family.file_fields()
    missing = [keys[name] for name in family.required_fields if fields.get(keys[name]) is None]
    if missing:
        raise UserError(
            f"{path} lacks {', '.join(missing)}; give the whole {family.model_type} config"
        )
    named = fields.get("id2label") or None
    count = fields.get("num_labels")
    if isinstance(named, dict | list) and count not in (None, len(named)):
        named = None  # as in transformers; its version 2 wrote default names with any number
    labels = _labels(named)
    # What a file may lack, such as dropout, is as in a new model of the family, and in its class.
    known = dict(family.defaults)
    known |= {name: fields[key] for name, key in keys.items() if fields.get(key) is not None}
    if isinstance(named, dict | list):
        known["num_labels"] = len(named)
    if isinstance(fields.get(keys.get("hidden_act", "")), str):
        known["hidden_act"] = family.activation_names.get(known["hidden_act"], known["hidden_act"])
    try:
        config = family.config(known)
        require_at_least("trained_length", fields.get("trained_length"), 1)
    except OptionError as error:
        names = {f"model.{name}": key for name, key in keys.items()}
        raise error.renamed(lambda key: names.get(key, key)).at(path) from error
    owned = _OWN if labels or named is None else set(_OWN).difference(LABEL_KEYS)
    return ModelDescription(
        config=config,
        head=head,
        labels=labels,
        problem_type=fields.get("problem_type", family.problem_type),
        trained_length=fields.get("trained_length"),
        other={
            key: value
            for key, value in fields.items()
            if key not in (*keys.values(), *owned, "torch_dtype")
        },
        family=family,
    )


def _family(path: Path, fields: Mapping[str, Any], default_type: str) -> Family:
    """The family of a `config.json`.

    Raises:
        UserError: it is unknown; the nearest known one is named, and what the file has in addition.
    """
    model_type = fields.get("model_type") or default_type
    try:
        return find_family(model_type)
    except UserError as error:
        named = difflib.get_close_matches(str(model_type), family_names(), n=1, cutoff=0.5)
        nearest = find_family(named[0] if named else DEFAULT_MODEL_TYPE)
        fixed = {*nearest.fixed_fields, *chain(*nearest.fixed_fields_of_heads.values())}
        known = {*nearest.file_fields().values(), *fixed, *FIXED_FIELDS, *_OWN, *_GENERIC}
        unknown = sorted(set(fields) - known)
        lacking = f", which does not have {listed(unknown, 8)}" if unknown else ""
        raise UserError(
            f"{path}: {error}; the nearest is {nearest.model_type}{lacking}: give a model of a "
            "known family"
        ) from error


def write_config(path: Path, description: ModelDescription) -> None:
    """Writes a `config.json`; atomic."""
    write_atomically(path, config_bytes(description))


def config_bytes(description: ModelDescription) -> bytes:
    """The content of a `config.json` that `transformers` reads.

    Raises:
        OptionError: the family has one key for fields of `EncoderConfig` that differ.
    """
    family = description.family
    config = family.fields(description.config)
    num_labels = config["num_labels"]
    in_files = {name: spelled for spelled, name in family.activation_names.items()}
    config["hidden_act"] = in_files.get(config["hidden_act"], config["hidden_act"])
    keys = family.file_fields()
    keys.pop("num_labels")
    for name, default in family.own_options.items():
        if config[name] == default:
            keys.pop(name, None)
    for name in option_keys():
        if config[name] is None:  # transformers would read null as a value
            keys.pop(name, None)
    names: dict[str, str] = {}
    for name, key in keys.items():
        if config[name] != (value := config[first := names.setdefault(key, name)]):
            other = f"{{model.{first}={value}}}"
            rule = (
                f"files of {family.model_type} have one {key} for this and {other}: set both alike"
            )
            raise OptionError(f"model.{name}", config[name], rule)
    fields: dict[str, Any] = {
        "architectures": [description.class_name],
        "model_type": family.model_type,
        **{key: config[name] for name, key in keys.items()},
        "dtype": description.dtype,
        **family.own_fields,
    }
    # Hugging Face derives the number of labels from the names.
    needs_names = num_labels != EncoderConfig.num_labels and "id2label" not in description.other
    if description.labels or needs_names:
        labels = description.labels or tuple(f"LABEL_{label}" for label in range(num_labels))
        fields["id2label"] = {str(number): label for number, label in enumerate(labels)}
        fields["label2id"] = {label: number for number, label in enumerate(labels)}
    if description.problem_type not in (None, family.problem_type):
        fields["problem_type"] = description.problem_type
    if description.trained_length is not None:
        fields["trained_length"] = description.trained_length
    text = json.dumps({**description.other, **fields}, indent=2, ensure_ascii=False) + "\n"
    return text.encode(errors="backslashreplace")  # half of a surrogate pair, as JSON spells it


def _labels(named: Any) -> tuple[str, ...]:
    """The labels in the order of their numbers; empty unless each has one unique name."""
    try:
        by_number = {int(number): label for number, label in named.items()}
        labels = tuple(by_number[number] for number in range(len(by_number)))
    except (AttributeError, KeyError, TypeError, ValueError):
        return ()
    are_names = all(isinstance(label, str | int | float) for label in labels)
    return tuple(map(str, labels)) if are_names and len(set(map(str, labels))) == len(named) else ()

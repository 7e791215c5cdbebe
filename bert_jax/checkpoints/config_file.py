"""`config.json` of a model directory: what it says, read and written under Hugging Face's names."""

import dataclasses
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import flax.linen as nn

from bert_jax.errors import UserError, renamed_options
from bert_jax.families.family import DEFAULT_MODEL_TYPE, Family, find_family
from bert_jax.files import read_json_object, write_atomically
from bert_jax.models.architectures import MODULES
from bert_jax.models.config import FAMILY_FIELDS, EncoderConfig, Head
from bert_jax.models.encoder import Encoder
from bert_jax.models.execution import Execution

CONFIG = "config.json"

PROBLEM_TYPES = ("regression", "single_label_classification", "multi_label_classification")
DTYPES = ("float32", "float16", "bfloat16")

# Fields that are written from the description and not carried along.
_OWN = (
    "model_type",
    "architectures",
    "id2label",
    "label2id",
    "num_labels",
    "problem_type",
    "dtype",
)


@dataclasses.dataclass(frozen=True)
class ModelDescription:
    """All that a `config.json` says.

    Attributes:
        config: the function that the parameters compute.
        head: of the model; None where the file does not say.
        labels: names of the C labels; empty where they have none.
        problem_type: one of `PROBLEM_TYPES`, the loss that a classifier was made for, or None.
        dtype: of the tensors on disk, one of `DTYPES`.
        mixed_dtypes: where tensors differ, the dtype of each, by the names of the family's table.
        add_pooling_layer: for the bare encoder, whether it has a pooler.
        other: fields that bert_jax does not use; `write_config` writes them again.
        family: of the encoder.
    """

    config: EncoderConfig
    head: Head | None
    labels: tuple[str, ...] = ()
    problem_type: str | None = None
    dtype: str = "float32"
    mixed_dtypes: Mapping[str, str] = dataclasses.field(default_factory=dict)
    add_pooling_layer: bool = True
    other: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    family: Family = dataclasses.field(default_factory=lambda: find_family(DEFAULT_MODEL_TYPE))

    def __post_init__(self) -> None:
        if self.labels and len(self.labels) != self.config.num_labels:
            raise UserError(
                f"{len(self.labels)} labels for {self.config.num_labels} outputs; name each once"
            )

    @property
    def class_name(self) -> str:
        """Hugging Face's class of this model; "" where the head is unknown."""
        return self.family.class_name(self.head) if self.head else ""

    def make_module(self, execution: Execution) -> nn.Module:
        """The model that the parameters belong to."""
        if self.head is None:
            raise ValueError("the description names no head")
        self.family.class_name(self.head)  # the family has this head
        if self.head is Head.ENCODER:
            return Encoder(self.config, execution, add_pooling_layer=self.add_pooling_layer)
        return MODULES[self.head](self.config, execution)


def read_config(path: Path) -> ModelDescription:
    """Reads a `config.json`; `head` is None where the file names no known class.

    Raises:
        UserError: there is none, it is damaged or incomplete, or it describes another model.
    """
    fields = read_json_object(path, remedy="give a model directory")
    try:
        family = find_family(fields.get("model_type") or DEFAULT_MODEL_TYPE)
    except UserError as error:
        raise UserError(f"{path}: {error}") from error
    for key, value in family.fixed_fields.items():
        if fields.get(key) not in (None, value):
            raise UserError(
                f"{path}: {key} is {fields[key]!r}; only {value!r} is supported: give another model"
            )
    keys = {
        field.name: family.field_names.get(field.name, field.name)
        for field in dataclasses.fields(EncoderConfig)
        if field.name not in FAMILY_FIELDS
    }
    missing = [keys[name] for name in family.required_fields if fields.get(keys[name]) is None]
    if missing:
        raise UserError(
            f"{path} lacks {', '.join(missing)}; give the whole {family.model_type} config"
        )
    labels = _labels(path, fields)
    known = {name: fields[key] for name, key in keys.items() if fields.get(key) is not None}
    if labels:
        known["num_labels"] = len(labels)
    known["position_offset"] = family.position_offset
    try:
        with renamed_options(**family.field_names):
            config = EncoderConfig.from_fields(known)
    except UserError as error:
        raise UserError(f"{path}: {error}") from error
    problem_type = fields.get("problem_type")
    if problem_type not in (None, *PROBLEM_TYPES):
        raise UserError(
            f"{path}: problem_type is {problem_type!r}; known are {', '.join(PROBLEM_TYPES)}"
        )
    named = fields.get("architectures")
    architectures = named if isinstance(named, list) else []
    return ModelDescription(
        config=config,
        head=next(
            (head for head, name in family.class_names.items() if name in architectures), None
        ),
        labels=labels,
        problem_type=problem_type,
        other={
            key: value
            for key, value in fields.items()
            if key not in (*keys.values(), *family.fixed_fields, *_OWN, "torch_dtype")
        },
        family=family,
    )


def write_config(path: Path, description: ModelDescription) -> None:
    """Writes a `config.json` that `transformers` reads, whole or not at all."""
    config = dataclasses.asdict(description.config)
    num_labels = config.pop("num_labels")
    for name in FAMILY_FIELDS:
        config.pop(name)
    if not config["use_crf"]:
        config.pop("use_crf")  # no other library has it
    family = description.family
    fields: dict[str, Any] = {
        "architectures": [description.class_name],
        "model_type": family.model_type,
        **{family.field_names.get(name, name): value for name, value in config.items()},
        "dtype": description.dtype,
    }
    # Hugging Face counts the names to know how many labels there are.
    if description.labels or num_labels != EncoderConfig.num_labels:
        labels = description.labels or tuple(f"LABEL_{label}" for label in range(num_labels))
        fields["id2label"] = {str(number): label for number, label in enumerate(labels)}
        fields["label2id"] = {label: number for number, label in enumerate(labels)}
    if description.problem_type is not None:
        fields["problem_type"] = description.problem_type
    text = json.dumps({**description.other, **fields}, indent=2, ensure_ascii=False) + "\n"
    write_atomically(path, text.encode())


def _labels(path: Path, fields: Mapping[str, Any]) -> tuple[str, ...]:
    """The labels in the order of their numbers."""
    named = fields.get("id2label")
    if named is None:
        return ()
    try:
        by_number = {int(number): label for number, label in named.items()}
        labels = tuple(by_number[number] for number in range(len(by_number)))
    except (AttributeError, KeyError, TypeError, ValueError):
        raise UserError(
            f"{path}: id2label is {str(named)[:80]}; it must name the labels 0, 1, 2, … once each"
        ) from None
    return tuple(str(label) for label in labels)

"""What a family of encoders is: everything that differs between BERT and its relatives.

A family is one module of this package that defines `FAMILY`. The module's name is the `model_type`
of `config.json`, with "_" in place of "-"; nothing has to be registered.
"""

import dataclasses
import functools
import importlib
import pkgutil
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import bert_jax.families
from bert_jax.errors import UserError
from bert_jax.models.config import Head
from bert_jax.tokenization import Template, Tokenizer, load_tokenizer
from bert_jax.tokenization.interface import WORDPIECE

# Of a config.json that names none, such as Google's bert_config.json.
DEFAULT_MODEL_TYPE = "bert"


class Rule(NamedTuple):
    """How one parameter is stored in a file.

    A parameter of the encoder's layers holds all layers, [L, ...]; files have one tensor for each.
    Kernels are [in, out], with the attention heads as axes of their own; in files they are flat.

    Attributes:
        parameter: its name in the parameter tree, as "bert/pooler/dense/kernel".
        tensor: its name in a file; `{layer}` stands for the number of the layer.
        input_axes: for kernels, how many axes of the parameter are inputs; 0 for everything else.
        transposed: for kernels, whether the tensor is [out, in] instead of [in, out].
    """

    parameter: str
    tensor: str
    input_axes: int = 0
    transposed: bool = False

    @property
    def stacked(self) -> bool:
        """Whether the parameter holds all layers."""
        return "{layer}" in self.tensor


@dataclasses.dataclass(frozen=True)
class TensorNames:
    """How one file format names the parameters of a family.

    Attributes:
        rules: one for each parameter of any of the models.
        prefix: begins the names of the encoder's tensors; files of a bare encoder leave it out.
        ignored: a pattern of tensors that are no parameters: constants, optimizer slots.
        spellings: (regular expression, replacement) that turn older spellings into that of `rules`.
        aliases: other names of a tensor. Where a file holds both, the alias counts; it is written
            beside a decoder that is not tied to the word embeddings.
    """

    rules: tuple[Rule, ...]
    prefix: str = ""
    ignored: re.Pattern[str] | None = None
    spellings: tuple[tuple[str, str], ...] = ()
    aliases: Mapping[str, str] = dataclasses.field(default_factory=dict)

    def canonical(self, name: str) -> str | None:
        """The name in `rules` of a tensor of a file; None for what is no parameter."""
        if self.ignored and self.ignored.search(name):
            return None
        if name.startswith(self._bare_scopes):
            name = f"{self.prefix}{name}"
        for pattern, replacement in self.spellings:
            name = re.sub(pattern, replacement, name)
        return self.aliases.get(name, name)

    def rule(self, parameter: str) -> Rule:
        """The rule of a parameter.

        Raises:
            UserError: there is none: the format cannot hold this parameter.
        """
        if parameter not in self._by_parameter:
            raise UserError(
                f"no tensor name for the parameter {parameter}; add a rule to its family"
            )
        return self._by_parameter[parameter]

    @functools.cached_property
    def _by_parameter(self) -> dict[str, Rule]:
        return {rule.parameter: rule for rule in self.rules}

    @functools.cached_property
    def _bare_scopes(self) -> tuple[str, ...]:
        """What the encoder's tensors begin with in a file without the prefix."""
        inner = (
            rule.tensor.removeprefix(self.prefix)
            for rule in self.rules
            if self.prefix and rule.tensor.startswith(self.prefix)
        )
        return tuple({re.match(r"\w+\W", name)[0] for name in inner})  # type: ignore[index]


@dataclasses.dataclass(frozen=True)
class Family:
    """One family of encoders with its heads.

    Attributes:
        model_type: its name in `config.json`.
        class_names: the heads that it has, and Hugging Face's class of each.
        template: where special tokens and token types stand around one text and around two.
        huggingface: the names of tensors in Hugging Face's files.
        google: the names of variables in Google's checkpoints; None where there are none.
        required_fields: fields of `EncoderConfig` without which the sizes would be guesses.
        fixed_fields: keys of `config.json` with the only value that is supported.
        field_names: fields of `EncoderConfig` that have another key in `config.json`.
        heads_of_labels: heads with parameters of the same names and another meaning, in each of
            these heads and for every set of labels.
        label_parameters: beginnings of the names of these parameters.
        position_offset: see `EncoderConfig`.
        tokenizer_kind: "wordpiece" or "sentencepiece", which is read where files of both are.
    """

    model_type: str
    class_names: Mapping[Head, str]
    template: Template
    huggingface: TensorNames
    google: TensorNames | None = None
    required_fields: tuple[str, ...] = ()
    fixed_fields: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    field_names: Mapping[str, str] = dataclasses.field(default_factory=dict)
    heads_of_labels: tuple[Head, ...] = ()
    label_parameters: tuple[str, ...] = ()
    position_offset: int = 0
    tokenizer_kind: str = WORDPIECE

    def load_tokenizer(self, path: str | Path) -> Tokenizer:
        """The tokenizer of a model of this family, see `tokenization.load_tokenizer`."""
        return load_tokenizer(path, template=self.template, kind=self.tokenizer_kind)

    def class_name(self, head: Head) -> str:
        """Hugging Face's class of the model with a head.

        Raises:
            UserError: the family has no such head.
        """
        if head not in self.class_names:
            known = ", ".join(known.value for known in self.class_names)
            raise UserError(
                f"{self.model_type} models have no head {head.value}; choose one of {known}"
            )
        return self.class_names[head]


def find_family(model_type: str) -> Family:
    """The family with this `model_type`.

    Raises:
        UserError: there is none.
    """
    known = family_names()
    name = model_type.replace("-", "_") if isinstance(model_type, str) else ""
    if name not in known:
        raise UserError(f"model_type {model_type!r} is unknown; known are {', '.join(known)}")
    family: Family = importlib.import_module(f"bert_jax.families.{name}").FAMILY
    return family


def family_names() -> list[str]:
    """The modules of this package that define a family."""
    modules = pkgutil.iter_modules(bert_jax.families.__path__)
    return sorted(module.name for module in modules if module.name != "family")


def head_of_class(class_name: str) -> Head | None:
    """The head of one of Hugging Face's classes, of whatever family; None if no family has it."""
    for name in family_names():
        for head, known in find_family(name).class_names.items():
            if known == class_name:
                return head
    return None

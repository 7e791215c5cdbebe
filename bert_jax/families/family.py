"""The interface of a family of encoders: all differences between BERT and its relatives.

A family is one module of this package that defines `FAMILY`. The module's name is the `model_type`
of `config.json` in small letters, with "_" in place of "-"; nothing has to be registered.
"""

import dataclasses
import functools
import importlib
import pkgutil
import re
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import bert_jax.families
from bert_jax.errors import OptionError, UserError, require_one_of
from bert_jax.models.config import EncoderConfig
from bert_jax.models.head import fields_of, model_keys, option_keys, with_fields
from bert_jax.models.heads.text_vectors import TextVectors
from bert_jax.tokenization import Tokenizer, load_tokenizer
from bert_jax.tokenization.image_processor import IMAGES, read_image_processor
from bert_jax.tokenization.interface import WORDPIECE

# The default for a config.json without it, such as Google's bert_config.json.
DEFAULT_MODEL_TYPE = "bert"

# Keys of `config.json` in every family, with the only supported value; other values change the
# function in some version of transformers.
FIXED_FIELDS: Mapping[str, Any] = {
    "position_embedding_type": "absolute",
    "is_decoder": False,
    "add_cross_attention": False,
    "pruned_heads": {},
    "per_layer_config": {},
    "quantization_config": {},
}


class Rule(NamedTuple):
    """The storage of one parameter in a file.

    A parameter of the encoder's layers contains all layers, [L, ...]; files have one tensor per
    layer. Kernels are [in, out], with separate axes for the attention heads; in files they are
    flat.

    Attributes:
        parameter: name in the parameter tree, such as "bert/pooler/dense/kernel".
        tensor: name in a file; `{layer}` is replaced by the number of the layer.
        input_axes: for kernels, number of input axes of the parameter; 0 for all others.
        transposed: for kernels, whether the tensor is [out, in] instead of [in, out].
        part: (i, n): the kernel or bias is part i, from 0, of n equal parts of the tensor along its
            output axis, such as the keys of a tensor for queries, keys and values.
        is_row: for a bias, whether the tensor is a matrix of one row.
        first_layer: the first layer with a tensor; those before it do not use the parameter, a
            scale of 1.
    """

    parameter: str
    tensor: str
    input_axes: int = 0
    transposed: bool = False
    part: tuple[int, int] = (0, 1)
    is_row: bool = False
    first_layer: int = 0

    @property
    def stacked(self) -> bool:
        """Whether the parameter contains all layers."""
        return "{layer}" in self.tensor


@dataclasses.dataclass(frozen=True)
class TensorNames:
    """The names of a family's parameters in one file format.

    Attributes:
        rules: one rule for each parameter of any of the models.
        prefix: prefix of the encoder's tensors; files of a bare encoder leave it out.
        ignored: pattern of tensors that are not parameters: constants, optimizer slots.
        spellings: (regular expression, replacement) from older spellings to the names in `rules`.
        aliases: other names of a tensor. If a file contains both, the alias is used; it is written
            in addition if the decoder is not tied to the word embeddings.
    """

    rules: tuple[Rule, ...]
    prefix: str = ""
    ignored: re.Pattern[str] | None = None
    spellings: tuple[tuple[str, str], ...] = ()
    aliases: Mapping[str, str] = dataclasses.field(default_factory=dict)

    def canonical(self, name: str) -> str | None:
        """The name in `rules` of a tensor of a file; None if it is not a parameter."""
        if self.ignored and self.ignored.search(name):
            return None
        name = self._repeated_prefix.sub("", name)
        if name.startswith(self._bare_scopes):
            name = f"{self.prefix}{name}"
        for pattern, replacement in self.spellings:
            name = re.sub(pattern, replacement, name)
        return self.aliases.get(name, name)

    def rule(self, parameter: str) -> Rule:
        """The rule of a parameter.

        Raises:
            UserError: there is none: the format cannot store this parameter.
        """
        if parameter not in self._by_parameter:
            raise UserError(
                f"no tensor name for the parameter {parameter}; add a rule to its family"
            )
        return self._by_parameter[parameter]

    def tensor_of(self, parameter: str) -> str:
        """The name of a parameter in a file; "" if the format cannot store it."""
        rule = self._by_parameter.get(parameter)
        return rule.tensor if rule else ""

    @functools.cached_property
    def _by_parameter(self) -> dict[str, Rule]:
        return {rule.parameter: rule for rule in self.rules}

    @functools.cached_property
    def _repeated_prefix(self) -> re.Pattern[str]:
        """The encoder's prefix in front of a whole name, as in "bert.bert." or "bert.cls."."""
        first = [match[0] for rule in self.rules if (match := re.match(r"\w+\W?", rule.tensor))]
        scopes = "|".join(map(re.escape, dict.fromkeys(first)))
        return re.compile(f"^({re.escape(first[0])})+(?={scopes})")

    @functools.cached_property
    def _bare_scopes(self) -> tuple[str, ...]:
        """The first components of the encoder's tensor names in a file without the prefix."""
        inner = (
            rule.tensor.removeprefix(self.prefix)
            for rule in self.rules
            if self.prefix and rule.tensor.startswith(self.prefix)
        )
        return tuple({re.match(r"\w+\W", name)[0] for name in inner})  # type: ignore[index]


@dataclasses.dataclass(frozen=True)
class OtherModel:
    """A model that becomes one of another family, see `Family.from_other`.

    Attributes:
        family: its family.
        head: its head.
        params: its parameters.
        config: its architecture.
        separator: id of the separator of its tokenizer.
    """

    family: "Family"
    head: str
    params: Any
    config: EncoderConfig
    separator: int


@dataclasses.dataclass(frozen=True)
class Family:
    """One family of encoders with its heads.

    Attributes:
        model_type: value of `model_type` in `config.json`.
        class_names: supported heads, and Hugging Face's class of each.
        huggingface: names of tensors in Hugging Face's files.
        google: names of variables in Google's checkpoints; None if there are none.
        google_config: name of the file with the config beside them.
        google_gelu: the activation that Google's programs call "gelu".
        constants: fields of `EncoderConfig` with one value in the whole family, such as its
            switches; they are not in `config.json`.
        optional_fields: keys of `config.json` beside `models.head.COMMON_FIELDS`.
        required_fields: fields of `EncoderConfig` that a `config.json` must contain: in published
            files their values are not the defaults of transformers or of the encoder.
        fixed_fields: keys of `config.json` with the only supported value, beside `FIXED_FIELDS`.
        fixed_fields_of_heads: the same for keys that only one head reads.
        unread_fields: keys of `FIXED_FIELDS` that change nothing in this family.
        read_fields: the keys of a `config.json`, also those of another version of transformers, as
            the keys that are written; `OptionError` if they contradict each other.
        from_other: makes a model of this family of one of another, for longer texts: from the
            model, the number of positions and the window of its layers (None: as published);
            `UserError` if it cannot. None: there is no way.
        field_names: keys in `config.json` of fields of `EncoderConfig` with another name.
        activation_names: activations that its files name otherwise, by the name in the files.
        synonyms: those of `field_names` that are keys, too, which transformers reads first.
        intermediate_factor: `intermediate_size` where `config.json` has none, in multiples of
            `hidden_size`; 0: the default of `EncoderConfig`.
        sizes: fields of `EncoderConfig` for each named size of a new model.
        defaults: fields of a new model of any size.
        vectors: how a model makes vectors of texts where its files do not say.
        problem_type: `problem_type` of a classifier where `config.json` names none.
        tokenizer_kind: a kind of `tokenization.interface`, see `kind` of `load_tokenizer`; or
            `IMAGES`, of a family that reads images.
        token_types: whether its models tell two texts apart by token types; None: if their table
            has two.
        others: families of the same `model_type` whose classes have other tensor names.
        own_fields: keys of `config.json`, with their values, by which a file is of one of `others`;
            they are written, too.
    """

    model_type: str
    class_names: Mapping[str, str]
    huggingface: TensorNames
    sizes: Mapping[str, Mapping[str, Any]]
    google: TensorNames | None = None
    google_config: str = "bert_config.json"
    google_gelu: str = "gelu"
    defaults: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    constants: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    optional_fields: tuple[str, ...] = ()
    required_fields: tuple[str, ...] = ()
    fixed_fields: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    fixed_fields_of_heads: Mapping[str, Mapping[str, Any]] = dataclasses.field(default_factory=dict)
    unread_fields: tuple[str, ...] = ()
    read_fields: Callable[[dict[str, Any]], dict[str, Any]] = dataclasses.field(
        default_factory=lambda: dict
    )
    from_other: Callable[[OtherModel, int | None, int | None], OtherModel] | None = None
    field_names: Mapping[str, str] = dataclasses.field(default_factory=dict)
    activation_names: Mapping[str, str] = dataclasses.field(default_factory=dict)
    synonyms: tuple[str, ...] = ()
    intermediate_factor: int = 0
    vectors: TextVectors = dataclasses.field(default_factory=TextVectors)
    problem_type: str | None = None
    tokenizer_kind: str = WORDPIECE
    token_types: bool | None = True
    others: tuple["Family", ...] = ()
    own_fields: Mapping[str, Any] = dataclasses.field(default_factory=dict)

    def with_own_fields(self, fields: Mapping[str, Any]) -> "Family":
        """The family of this `model_type` whose `own_fields` a `config.json` has; else this one."""
        own = (other for other in self.others if other.own_fields)
        return next((each for each in own if each.own_fields.items() <= fields.items()), self)

    def with_class(self, class_names: Collection[str]) -> tuple["Family", str | None]:
        """The family of this `model_type` that has one of the classes, and that class's head.

        This family and None if none has.
        """
        for family in (self, *self.others):
            for head, name in family.class_names.items():
                if name in class_names:
                    return family, head
        return self, None

    def with_head(self, head: str) -> "Family":
        """The family of this `model_type` that has a head; this one if none has."""
        families = (self, *self.others)
        return next((family for family in families if head in family.class_names), self)

    def file_fields(self) -> dict[str, str]:
        """The fields of `EncoderConfig` that are in `config.json`, each with its key there."""
        return {
            name: self.field_names.get(name, name)
            for name in model_keys(self.optional_fields)
            if name not in self.constants
        }

    def new_config(self, size: str, **fields: Any) -> EncoderConfig:
        """The architecture of a new model of a named size.

        Args:
            size: one of `sizes`.
            fields: fields of `EncoderConfig` with another value.

        Raises:
            OptionError: the size is unknown, the family does not have a field, or a value is out of
                range.
        """
        require_one_of("model.size", size, self.sizes)
        known = self.file_fields()
        for name, value in fields.items():
            if name not in known:
                problem = f"{self.model_type} models have no {name}"
                raise OptionError(f"model.{name}", value, f"known are {', '.join(known)}", problem)
        return self.config({**self.defaults, **self.sizes[size], **self.with_same_key(fields)})

    def with_same_key(self, fields: Mapping[str, Any]) -> dict[str, Any]:
        """Fields, and with the same values the others that `config.json` has under their keys."""
        keys = self.file_fields()
        values = {keys[name]: value for name, value in fields.items() if name in keys}
        return {name: values[key] for name, key in keys.items() if key in values} | dict(fields)

    def config(self, fields: Mapping[str, Any]) -> EncoderConfig:
        """The architecture with these values of `models.head.model_keys`.

        Raises:
            OptionError: a value has another type, or is out of range.
        """
        if self.intermediate_factor and "hidden_size" in fields:
            width = self.intermediate_factor * fields["hidden_size"]
            fields = {"intermediate_size": width, **fields}
        return with_fields(EncoderConfig(**self.constants), fields)

    def fields(self, config: EncoderConfig) -> dict[str, Any]:
        """The values from which `config` makes an architecture."""
        return fields_of(config)

    @property
    def own_options(self) -> dict[str, Any]:
        """The options of heads that no other library has for this family, with their defaults."""
        return {
            name: getattr(options, name)
            for name, options in option_keys().items()
            if name not in self.optional_fields
        }

    @property
    def reads_images(self) -> bool:
        """Whether its models read images, and no text."""
        return self.tokenizer_kind == IMAGES

    def load_tokenizer(self, path: str | Path, *, config: EncoderConfig | None = None) -> Tokenizer:
        """The tokenizer of a model, see `tokenization.load_tokenizer`; or its `ImageProcessor`.

        Args:
            path: directory or file.
            config: architecture of the model; None: unknown.

        Raises:
            UserError: it cannot be read, or does not belong to the model.
        """
        if self.reads_images:
            return read_image_processor(path)
        tokenizer = load_tokenizer(
            path, kind=self.tokenizer_kind, vocab_size=config.vocab_size if config else None
        )
        has_types = config is not None and config.type_vocab_size > 1
        if not (has_types if self.token_types is None else self.token_types):
            tokenizer = tokenizer.without_token_types()
        count = tokenizer.template.num_token_types(pair=False)
        if config and count > max(1, config.type_vocab_size):
            raise UserError(
                f"{path}: the tokenizer gives a text token type {count - 1}, but the model has "
                f"type_vocab_size {config.type_vocab_size}; give the model's tokenizer"
            )
        if config:
            check_padding(path, tokenizer, config)
        return tokenizer

    def class_name(self, head: str) -> str:
        """Hugging Face's class of the model with a head.

        Raises:
            UserError: the family does not have this head.
        """
        if head not in self.class_names:
            known = ", ".join(self.class_names)
            raise UserError(f"{self.model_type} models have no head {head}; choose one of {known}")
        return self.class_names[head]


def set_field(fields: dict[str, Any], key: str, value: Any, source: str) -> None:
    """Sets a key of `config.json` that another one, the source, gives.

    Raises:
        OptionError: the file itself has another value of it.
    """
    if fields.setdefault(key, value) != value:
        raise OptionError(key, fields[key], f"{source} gives {value}: make both say the same")


def rope_theta(parameters: Mapping[str, Any]) -> Any:
    """The base of rotary positions in `rope_parameters` of transformers 5; None: there is none.

    Raises:
        OptionError: the angles are not those of this base alone.
    """
    if parameters.get("rope_type", "default") != "default":
        rule = "only the rope_type 'default' is supported: give another model"
        raise OptionError("rope_parameters", parameters, rule)
    return parameters.get("rope_theta")


def check_padding(origin: Any, tokenizer: Tokenizer, config: EncoderConfig) -> None:
    """Raises UserError if the model counts positions, or finds texts, by other ids."""
    expected = config.sep_token_id
    if expected is not None and (sep := tokenizer.special_ids.sep) != expected:
        raise UserError(
            f"{origin}: the tokenizer's separator has the id {sep}, but the model finds texts by "
            f"its sep_token_id, {expected}; give the model's tokenizer"
        )
    if config.positions_after_padding and (pad := tokenizer.padding_id) != config.pad_token_id:
        raise UserError(
            f"{origin}: the tokenizer's padding has the id {pad}, but positions of the model count "
            f"from its pad_token_id, {config.pad_token_id}; give the model's tokenizer"
        )


def find_family(model_type: str) -> Family:
    """The family with this `model_type`.

    Raises:
        UserError: the family is unknown.
    """
    known = family_names()
    name = model_type.replace("-", "_").lower() if isinstance(model_type, str) else ""
    if name not in known:
        raise UserError(f"model_type {model_type!r} is unknown; known are {', '.join(known)}")
    family: Family = importlib.import_module(f"bert_jax.families.{name}").FAMILY
    return family


def family_names() -> list[str]:
    """The modules of this package that define a family."""
    modules = pkgutil.iter_modules(bert_jax.families.__path__)
    return sorted(module.name for module in modules if module.name != "family")


def find_class(class_name: str) -> tuple[Family, str] | None:
    """The family and the head of one of Hugging Face's classes; None if no family has it."""
    for name in family_names():
        family, head = find_family(name).with_class([class_name])
        if head is not None:
            return family, head
    return None

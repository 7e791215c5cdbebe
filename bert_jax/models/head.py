"""The interface of a head: its model, its parameters, its options.

A head is one module of `heads/` that defines `HEAD`. It is imported by its name, under which a
family gives the class of Hugging Face; nothing has to be registered.
"""

import dataclasses
import importlib
import pkgutil
import re
from collections.abc import Callable, Collection, Mapping
from typing import Any

import flax.linen as nn

import bert_jax.models.heads
from bert_jax.models.character_cnn import CharacterOptions
from bert_jax.models.comparison import Comparison
from bert_jax.models.config import EncoderConfig
from bert_jax.models.execution import Execution
from bert_jax.models.head_options import HeadOptions
from bert_jax.models.image_options import ImageOptions
from bert_jax.models.projected_lstm import ProjectedLSTMOptions

# The options of parts of an encoder that few families have; only these have them in their files.
_ENCODER_OPTIONS: tuple[type[HeadOptions], ...] = (
    CharacterOptions,
    ImageOptions,
    ProjectedLSTMOptions,
)

COMMON_FIELDS = (
    *("vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads"),
    *("intermediate_size", "hidden_act", "hidden_dropout_prob", "attention_probs_dropout_prob"),
    *("max_position_embeddings", "type_vocab_size", "initializer_range", "layer_norm_eps"),
    *("pad_token_id", "tie_word_embeddings", "classifier_dropout", "num_labels"),
    *("layer_mix", "qa_head", "use_crf"),
)
"""The keys of `config.json` in all families; each has others, its `optional_fields`."""

ParameterAxes = tuple[tuple[str, tuple[str | None, ...]], ...]

BARE_ENCODER = "encoder"
"""The head of a model without one: any model's encoder can be loaded, trained and saved as it."""


@dataclasses.dataclass(frozen=True)
class Head:
    """One head.

    Names of parameters are patterns for the whole name, such as "classifier/(kernel|bias)", which
    begin with the name of a scope. Scopes seed initialisation and dropout, and runs are saved under
    them: they never change.

    Attributes:
        module: makes the model of encoder and head; None: the head exists in a training only; the
            task has its model.
        generates: whether the model writes texts.
        fills_masks: whether the model has scores of all words for each token, masks included.
        makes_vectors: whether its model also makes vectors of texts, as the files beside it say;
            None: its encoder makes some, though it was not trained for these.
        axes: the parameters outside the encoder, each with the logical axes that the sharding
            rules split; the first match wins. LayerNorm needs none.
        decay: parameters that are neither kernel, bias nor LayerNorm: whether their weights decay.
        shown_by: alternative sets of parameters by which a file without a class name has this
            head; of several heads the one with the largest set.
        shown_by_score: the same for a file with one output for labels, where `num_labels` is more.
        options: the class of its options; None: it has none.
        label_parameters: prefixes of the parameters that depend on the meaning of the labels, and
            on the head, of several heads with these names.
        label_kernels: alternative kernels with one output for each label; (): it has no labels.
        num_labels: `num_labels` of all its models; None: it depends on the model.
        comparison: outputs that `parity` compares; None: transformers has no class with this head.
    """

    module: Callable[[EncoderConfig, Execution], nn.Module] | None = None
    generates: bool = False
    fills_masks: bool = False
    makes_vectors: bool | None = None
    axes: ParameterAxes = ()
    decay: tuple[tuple[str, bool], ...] = ()
    shown_by: tuple[tuple[str, ...], ...] = ()
    shown_by_score: tuple[tuple[str, ...], ...] = ()
    options: type[HeadOptions] | None = None
    label_parameters: tuple[str, ...] = ()
    label_kernels: tuple[str, ...] = ()
    num_labels: int | None = None
    comparison: Comparison | None = None

    @property
    def compared(self) -> Comparison:
        """`comparison` of a head that a class of transformers has."""
        assert self.comparison is not None
        return self.comparison

    @property
    def output_keys(self) -> tuple[str, ...]:
        """The keys of its options that choose what the outputs are."""
        return self.options.output_keys if self.options else ()

    def make(self, config: EncoderConfig, execution: Execution | None = None) -> nn.Module:
        """The model of encoder and head."""
        assert self.module is not None, "a task has the model of this head"
        return self.module(config, execution or Execution())


def dense_axes(parameter: str) -> ParameterAxes:
    """The axes of linear layers to a few outputs, by a pattern of their names."""
    return (rf"{parameter}/kernel", ("embed", None)), (rf"{parameter}/bias", ())


def find_head(name: str) -> Head:
    """The head of this name, a module of `heads/`."""
    head: Head = importlib.import_module(f"bert_jax.models.heads.{name}").HEAD
    return head


def all_heads() -> dict[str, Head]:
    """Every head by its name, in the order of the names."""
    modules = pkgutil.iter_modules(bert_jax.models.heads.__path__)
    return {name: find_head(name) for name in sorted(module.name for module in modules)}


def heads_with(attribute: str) -> tuple[str, ...]:
    """The names of the heads with an attribute of `Head` that is true, such as "generates"."""
    return tuple(name for name, head in all_heads().items() if getattr(head, attribute))


def head_parameters() -> str:
    """A pattern of the names of parameters that belong to a head, in any model."""
    axes = (pattern for head in all_heads().values() for pattern, _ in head.axes)
    scopes = dict.fromkeys(re.split(r"\W", pattern)[0] for pattern in axes)
    return f"(^|/)({'|'.join(scopes)})"


def label_parameters() -> tuple[str, ...]:
    """The prefixes of all parameters that depend on the meaning of the labels."""
    prefixes = (prefix for head in all_heads().values() for prefix in head.label_parameters)
    return tuple(dict.fromkeys(prefixes))


def option_keys() -> dict[str, type[HeadOptions]]:
    """The options of heads and parts that are keys of files and configs, each with its class."""
    kinds = [head.options for head in all_heads().values() if head.options]
    kinds += _ENCODER_OPTIONS
    return {key: kind for kind in kinds for key in kind.keys}


def encoder_keys() -> set[str]:
    """Those among `option_keys` that are options of an encoder's parts."""
    return {key for kind in _ENCODER_OPTIONS for key in kind.keys}


def model_keys(optional: Collection[str]) -> list[str]:
    """The `COMMON_FIELDS` and these, among fields of an encoder and options of heads."""
    fields = (field.name for field in dataclasses.fields(EncoderConfig))
    names = [name for name in (*fields, *option_keys()) if name in (*COMMON_FIELDS, *optional)]
    return sorted(names, key=lambda name: name not in COMMON_FIELDS)


def fields_of(config: EncoderConfig) -> dict[str, Any]:
    """The fields of a config, with the keys among the options of heads instead of `heads`."""
    options = {key: getattr(config.head_options(kind), key) for key, kind in option_keys().items()}
    return {name: value for name, value in vars(config).items() if name != "heads"} | options


def with_fields(config: EncoderConfig, fields: Mapping[str, Any]) -> EncoderConfig:
    """The config with other values of some of `model_keys`.

    Raises:
        OptionError: a value has another type, or is out of range.
    """
    kinds = option_keys()
    own = {name: value for name, value in fields.items() if name not in kinds}
    config = dataclasses.replace(config, **own)
    chosen = [name for name in kinds if name in fields]
    for kind in dict.fromkeys(kinds[name] for name in chosen):  # a check may be of several keys
        values = {name: fields[name] for name in chosen if kinds[name] is kind}
        options = dataclasses.replace(config.head_options(kind), **values)
        config = dataclasses.replace(config, heads=(options, *config.heads))
    return config

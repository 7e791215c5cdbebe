"""ELMo: Peters et al., 2018 (https://arxiv.org/abs/1802.05365), words in a language model.

Characters make a vector of each word, `models.character_cnn`, and pairs of LSTMs read the vectors
in both directions, `models.projected_lstm`. A task reads a mix of all layers, `models.layer_mix`.

Published models are two files of AllenNLP, see `checkpoints.allennlp_files`; a model directory has
`model_type` "elmo". Sources: allenai/bilm-tf, README.md and bilm/model.py; allennlp,
modules/elmo.py, modules/elmo_lstm.py.
"""

from collections.abc import Mapping
from typing import Any

from bert_jax.errors import OptionError, require_one_of
from bert_jax.families import bert, lstm
from bert_jax.families.family import Family, Rule, TensorNames
from bert_jax.models.character_cnn import (
    MOST_CHARACTERS,
    MOST_FILTERS,
    MOST_HIGHWAY_LAYERS,
    CharacterOptions,
)
from bert_jax.models.config import ENCODER_SCOPE
from bert_jax.models.encoder_with_head import ClassifierOptions
from bert_jax.models.projected_lstm import DIRECTIONS, ProjectedLSTMOptions
from bert_jax.tokenization.interface import CHARACTERS

_EMBEDDINGS, _LAYERS = f"{ENCODER_SCOPE}/embeddings", f"{ENCODER_SCOPE}/encoder/layers"


def _pair(parameter: str, scope: str, name: str) -> tuple[Rule, Rule]:
    """A matrix and its bias, `W_name` and `b_name` of a scope."""
    return (
        Rule(f"{_EMBEDDINGS}/{parameter}/kernel", f"{scope}/W_{name}"),
        Rule(f"{_EMBEDDINGS}/{parameter}/bias", f"{scope}/b_{name}"),
    )


# Matrices are [in, out] in these files, as they are here.
_RULES = (
    Rule(f"{_EMBEDDINGS}/character_embeddings/embedding", "char_embed"),
    *(
        rule
        for number in range(MOST_FILTERS)
        for rule in _pair(f"character_convolution_{number}", "CNN", f"cnn_{number}")
    ),
    *(
        rule
        for layer in range(MOST_HIGHWAY_LAYERS)
        for name in ("carry", "transform")
        for rule in _pair(f"character_highway_{layer}_{name}", f"CNN_high_{layer}", name)
    ),
    *_pair("character_projection", "CNN_proj", "proj"),
    *(
        Rule(
            f"{_LAYERS}/{direction}/{parameter}",
            f"RNN_{number}/RNN/MultiRNNCell/Cell{{layer}}/LSTMCell/{tensor}",
        )
        for number, direction in enumerate(DIRECTIONS)
        for parameter, tensor in (
            ("kernel", "W_0"),
            ("bias", "B"),
            ("projection_kernel", "W_P_0"),
        )
    ),
)

ALLENNLP = TensorNames((*_RULES, *bert.TASK_HEAD_RULES))
"""The names of the data sets in AllenNLP's HDF5 files, which have no heads."""


def _own(rule: Rule) -> Rule:
    """The rule for a model directory: "elmo.", and the name of the parameter."""
    name = rule.parameter.removeprefix(f"{ENCODER_SCOPE}/").replace("/", ".")
    number = ".{layer}" if rule.stacked else ""
    return rule._replace(tensor=f"elmo.{name.replace('layers', f'layers{number}')}")


def config_fields(options: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """The fields of a `config.json` from the content of AllenNLP's `options.json`.

    Returns:
        The fields of the architecture; and those that say how the model was trained, as they are.

    Raises:
        OptionError: a key is missing or unknown, or its value is not supported.
    """
    known = dict(options)
    lstm, characters = (_section(known, name) for name in ("lstm", "char_cnn"))
    embedding = _section(characters, "embedding", "char_cnn.embedding")
    width = _taken(lstm, "lstm.projection_dim")
    if isinstance(width, bool) or not isinstance(width, int):
        raise OptionError("lstm.projection_dim", width, "it must be a whole number")
    fields = {
        "hidden_size": 2 * width,
        "num_hidden_layers": _taken(lstm, "lstm.n_layers"),
        "intermediate_size": _taken(lstm, "lstm.dim"),
        "cell_clip": lstm.pop("cell_clip", None),
        "projection_clip": lstm.pop("proj_clip", None),
        "skip_connections": lstm.pop("use_skip_connections", False),
        "hidden_act": _taken(characters, "char_cnn.activation"),
        "char_filters": _taken(characters, "char_cnn.filters"),
        "char_embedding_size": _taken(embedding, "char_cnn.embedding.dim"),
        "num_highway_layers": characters.pop("n_highway", None) or 0,
    }
    require_one_of("char_cnn.activation", fields["hidden_act"], ("relu", "tanh"))
    if not fields["char_filters"]:
        raise OptionError("char_cnn.filters", fields["char_filters"], "there must be some")
    # 261 in files of a training: then padding of rows has no id.
    only = (
        (characters, "char_cnn.n_characters", (261, 262)),
        (characters, "char_cnn.max_characters_per_token", (MOST_CHARACTERS,)),
        (known, "bidirectional", (True,)),
    )
    for section, key, values in only:
        value = section.pop(key.rpartition(".")[2], values[-1])
        if isinstance(value, bool) != isinstance(values[0], bool) or value not in values:
            names = " and ".join(map(str, values))
            raise OptionError(key, value, f"only {names} are supported: give another model")
    unknown = {f"lstm.{key}": value for key, value in lstm.items()}
    unknown |= {f"char_cnn.{key}": value for key, value in characters.items()}
    unknown |= {f"char_cnn.embedding.{key}": value for key, value in embedding.items()}
    unknown |= {key: value for key, value in known.items() if key not in _TRAINING}
    for key, value in unknown.items():
        raise OptionError(key, value, "the key is unknown: give another model")
    return fields, known


# Keys of bilm-tf about the training alone.
_TRAINING = {
    *("all_clip_norm_val", "batch_size", "dropout", "n_epochs", "n_negative_samples_batch"),
    *("n_tokens_vocab", "n_train_tokens", "unroll_steps"),
}


def _section(options: dict[str, Any], key: str, name: str = "") -> dict[str, Any]:
    section = options.pop(key, None)
    if not isinstance(section, dict):
        raise OptionError(name or key, section, "it must be an object with options")
    return dict(section)


def _taken(section: dict[str, Any], key: str) -> Any:
    name = key.rpartition(".")[2]
    if name not in section:
        raise OptionError(key, None, "give the whole file", problem=f"{key} is missing")
    return section.pop(name)


_FILTERS = ((1, 32), (2, 32), (3, 64), (4, 128), (5, 256), (6, 512), (7, 1024))


def _size(
    width: int, cell: int, highway: int, filters: tuple[tuple[int, int], ...] = _FILTERS
) -> dict[str, Any]:
    return {
        "num_hidden_layers": 2,
        "hidden_size": 2 * width,
        "intermediate_size": cell,
        "char_filters": filters,
        "char_embedding_size": 16,
        "num_highway_layers": highway,
        "cell_clip": 3.0,
        "projection_clip": 3.0,
        "skip_connections": True,
    }


FAMILY = Family(
    model_type="elmo",
    class_names={
        "encoder": "ElmoModel",
        "classification": "ElmoForSequenceClassification",
        "tagging": "ElmoForTokenClassification",
    },
    huggingface=TensorNames((*map(_own, _RULES), *bert.TASK_HEAD_RULES), prefix="elmo."),
    # small, medium and base are the published small, medium and original.
    sizes={
        "tiny": _size(64, 256, 1, _FILTERS[:4]),
        "small": _size(128, 1024, 1),
        "medium": _size(256, 2048, 1),
        "base": _size(512, 4096, 2),
    },
    defaults={
        "vocab_size": 4,
        "hidden_act": "relu",
        "classifier_dropout": 0.5,  # of the mix in AllenNLP
        "initializer_range": 0.05,
    },
    constants={
        **lstm.CONSTANTS,
        "layer_kind": "projected_lstm",
        "hidden_dropout_prob": 0.0,
        "pad_token_id": 0,
        "tie_word_embeddings": False,
        "heads": (ClassifierOptions(layer_mix="softmax"),),
    },
    optional_fields=(*CharacterOptions.keys, *ProjectedLSTMOptions.keys, "layer_mix"),
    required_fields=(
        *("hidden_size", "num_hidden_layers", "intermediate_size"),
        *(*CharacterOptions.keys, "skip_connections", "hidden_act"),
    ),
    tokenizer_kind=CHARACTERS,
    token_types=False,
)

"""Longformer: Beltagy et al., 2020 (https://arxiv.org/abs/2004.05150), `model_type` "longformer".

RoBERTa for long texts: a token sees those within a window, and global tokens, which depend on the
task. Source: Hugging Face transformers, models/longformer/modeling_longformer.py.
"""

import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np

from bert_jax.errors import OptionError, UserError
from bert_jax.families import bert, roberta
from bert_jax.families.family import Family, OtherModel
from bert_jax.models import surgery
from bert_jax.models.config import ENCODER_SCOPE, EncoderConfig
from bert_jax.models.encoder_with_head import ClassifierOptions
from bert_jax.models.heads.masked_lm import MaskedLMOptions

_GLOBAL = f"{ENCODER_SCOPE}/encoder/layers/global_attention"
_LAYER = "longformer.encoder.layer.{layer}"
_FIELDS = ("attention_window", "sep_token_id")
_SOURCES = ("bert", "roberta", "camembert", "xlm-roberta")

# As published.
_POSITIONS, _WINDOW = 4096, 512


class _Longformer(Family):
    def config(self, fields: Mapping[str, Any]) -> EncoderConfig:
        """The architecture; `attention_window` may be one for all layers."""
        widths, key = fields.get("attention_window"), "model.attention_window"
        if type(widths) is int:
            widths = (widths,) * fields.get("num_hidden_layers", EncoderConfig.num_hidden_layers)
        widths = tuple(widths) if isinstance(widths, list | tuple) else ()
        if not widths or not all(type(w) is int and w > 0 and w % 2 == 0 for w in widths):
            raise OptionError(key, fields.get("attention_window"), "it must be even, from 2")
        config = super().config({**fields, "attention_window": widths})
        if len(widths) != (layers := config.num_hidden_layers):
            rule = f"give one for each layer: {{model.num_hidden_layers}} is {layers}"
            raise OptionError(key, widths, rule)
        return config


def from_other(other: OtherModel, positions: int | None, window: int | None) -> OtherModel:
    """A BERT or RoBERTa as a Longformer (section 5 of the paper); see `Family.from_other`.

    The table of positions is repeated, and global tokens begin with the projections of all tokens.
    """
    if other.family.model_type not in _SOURCES:
        raise UserError(
            f"a {other.family.model_type} model cannot become a Longformer; give one of "
            f"{', '.join(_SOURCES)}"
        )
    FAMILY.class_name(other.head)  # it has this head
    act = other.config.head_options(MaskedLMOptions).act or other.config.hidden_act
    if other.head == "masked_lm" and act != "gelu":
        raise UserError(
            f"the head of masked words has the activation gelu in a Longformer, here {act}; give "
            "another model, or the task embedding"
        )
    params, config = surgery.extend_positions(
        other.params, other.config, _POSITIONS if positions is None else positions
    )
    is_bare = ENCODER_SCOPE not in params
    params, encoder = dict(params), dict(params if is_bare else params[ENCODER_SCOPE])
    stack, embeddings = encoder["encoder"], encoder["embeddings"]
    attention = stack["layers"]["attention"]
    copied = {name: attention[name] for name in ("query", "key", "value")}
    encoder["encoder"] = {**stack, "layers": {**stack["layers"], "global_attention": copied}}
    table = np.asarray(embeddings["position_embeddings"]["embedding"])
    if not config.positions_after_padding:
        rows = np.zeros((config.pad_token_id + 1, table.shape[1]), table.dtype)  # for padding
        table = np.concatenate([rows, table])
    encoder["embeddings"] = {**embeddings, "position_embeddings": {"embedding": table}}
    if other.head == "classification" and config.head_options(ClassifierOptions).act is None:
        # BERT's pooler is the hidden layer of this head.
        pooler = encoder.pop("pooler")
        params["classifier"] = {"dense": pooler["dense"], "out_proj": params["classifier"]}
    fields = FAMILY.fields(config) | {
        "max_position_embeddings": len(table),
        "attention_window": _WINDOW if window is None else window,
        "sep_token_id": other.separator,
    }
    known = FAMILY.file_fields()
    converted = FAMILY.config({name: fields[name] for name in known})
    heads = (*converted.heads, *config.heads)
    return dataclasses.replace(
        other,
        family=FAMILY,
        params=encoder if is_bare else {**params, ENCODER_SCOPE: encoder},
        config=dataclasses.replace(converted, heads=heads),
    )


FAMILY = _Longformer(
    model_type="longformer",
    class_names=roberta.class_names("Longformer"),
    huggingface=bert.names(
        *bert.encoder_rules("longformer."),
        *(
            rule
            for name in ("query", "key", "value")
            for rule in bert.dense(f"{_GLOBAL}/{name}", f"{_LAYER}.attention.self.{name}_global")
        ),
        *roberta.HEAD_RULES,
        prefix="longformer.",
        aliases=roberta.DECODER_BIAS,
    ),
    sizes=bert.SIZES,
    # As published; the defaults of transformers are BERT's.
    defaults={
        **roberta.FAMILY.defaults,
        "max_position_embeddings": _POSITIONS + 2,
        "attention_window": _WINDOW,
        "sep_token_id": 2,
    },
    # The dropout of a classifier is `hidden_dropout_prob`.
    constants={**roberta.FAMILY.constants, "classifier_dropout": None},
    optional_fields=_FIELDS,
    required_fields=(*roberta.FAMILY.required_fields, *_FIELDS),
    fixed_fields={"attention_dilation": None, "autoregressive": False},
    unread_fields=("position_embedding_type",),
    from_other=from_other,
    tokenizer_kind=roberta.FAMILY.tokenizer_kind,
    token_types=None,
)

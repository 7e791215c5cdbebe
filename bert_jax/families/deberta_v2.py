"""DeBERTa-v2 and v3: He et al., 2021 (https://arxiv.org/abs/2111.09543), `model_type` "deberta-v2".

BERT with disentangled attention, see `models.disentangled_attention`. Source: Hugging Face
transformers, models/deberta_v2/modeling_deberta_v2.py, whose defaults are those of no published
model.

The head of masked words has two forms in transformers. Published files have neither: their
`lm_predictions` of v2 belong to a decoder that transformers does not have, and v3 was trained to
recognise replaced tokens.
"""

import dataclasses
from collections.abc import Mapping
from typing import Any

from bert_jax.errors import OptionError
from bert_jax.families import bert
from bert_jax.families.family import Family, Rule, TensorNames
from bert_jax.models.config import ENCODER_SCOPE, EncoderConfig
from bert_jax.models.encoder_with_head import ClassifierOptions
from bert_jax.models.heads.multiple_choice import ChoiceHeadOptions
from bert_jax.models.heads.tagging import TaggingOptions
from bert_jax.tokenization.interface import DEBERTA_V2

_STACK = f"{ENCODER_SCOPE}/encoder"
_LAYER, _POSITIONS = "deberta.encoder.layer.{layer}.", f"{_STACK}/layers/attention/positions"
_RELATIVE, _CONVOLUTION = f"{_STACK}/relative_embeddings", f"{_STACK}/convolution"


def _names(head: str, transform: str, aliases: Mapping[str, str]) -> TensorNames:
    """The names of all tensors; those of the head of masked words begin with its arguments."""
    return bert.names(
        *bert.embedding_rules("deberta."),
        bert.kernel(f"{ENCODER_SCOPE}/embeddings/projection", "deberta.embeddings.embed_proj"),
        Rule(f"{_RELATIVE}/table/embedding", "deberta.encoder.rel_embeddings.weight"),
        *bert.layer_norm(f"{_RELATIVE}/layer_norm", "deberta.encoder.LayerNorm"),
        Rule(f"{_CONVOLUTION}/kernel", "deberta.encoder.conv.conv.weight"),
        Rule(f"{_CONVOLUTION}/bias", "deberta.encoder.conv.conv.bias"),
        *bert.layer_norm(f"{_CONVOLUTION}/output_norm", "deberta.encoder.conv.LayerNorm"),
        *bert.layer_rules(
            _LAYER, *(f"{name}_proj" for name in bert.LAYER_NAMES[:3]), *bert.LAYER_NAMES[3:]
        ),
        *bert.dense(f"{_POSITIONS}/query", f"{_LAYER}attention.self.pos_query_proj"),
        *bert.dense(f"{_POSITIONS}/key", f"{_LAYER}attention.self.pos_key_proj"),
        *bert.masked_lm_rules(head, f"{transform}dense", f"{transform}LayerNorm"),
        *bert.dense("classifier/dense", "pooler.dense"),
        *bert.dense("classifier/out_proj", "classifier"),
        *bert.TASK_HEAD_RULES,
        prefix="deberta.",
        aliases=aliases,
    )


# What other families do not have. A file has all of the needed ones: what it lacks has a default in
# transformers that no published model has.
_NEEDED = (
    "relative_attention",
    "position_biased_input",
    "pos_att_type",
    "share_att_key",
    "position_buckets",
    "norm_rel_ebd",
)
_FIELDS = (*_NEEDED, "max_relative_positions", "conv_kernel_size", "conv_act")
# The values of those that are not read without relative positions.
_WITHOUT_POSITIONS = {"share_att_key": True, "position_buckets": -1, "norm_rel_ebd": "none"}
_POOLER = {"pooler_hidden_act": "gelu", "pooler_dropout": 0}


def read_fields(fields: dict[str, Any]) -> dict[str, Any]:
    """The terms of the scores in one order and form, and lower case, as transformers reads them."""
    has_positions = fields.get("relative_attention") is not False
    fields = fields | ({} if has_positions else _WITHOUT_POSITIONS)
    kinds = fields.pop("pos_att_type", None) or ""
    named = kinds.lower().split("|") if isinstance(kinds, str) else kinds
    terms = sorted({str(name).strip() for name in named} - {"", "none"})
    if terms or not has_positions:
        fields["pos_att_type"] = "|".join(terms)
    if isinstance(norm := fields.get("norm_rel_ebd"), str):
        is_normalised = "layer_norm" in map(str.strip, norm.lower().split("|"))
        fields["norm_rel_ebd"] = "layer_norm" if is_normalised else norm
    width, pooler = fields.get("hidden_size"), fields.get("pooler_hidden_size")
    if pooler not in (None, width):
        raise OptionError("pooler_hidden_size", pooler, f"only hidden_size, {width}, is supported")
    if fields.get("conv_kernel_size") and not fields.get("conv_act"):
        raise OptionError("conv_act", None, "give the activation of the convolution")
    return fields


class _DebertaV2(Family):
    """Its files have widths that others leave out, instead of null."""

    def config(self, fields: Mapping[str, Any]) -> EncoderConfig:
        config = super().config(fields)
        same = config.embedding_size == config.hidden_size
        is_split = config.head_dim * config.num_attention_heads == config.hidden_size
        return dataclasses.replace(
            config,
            embedding_size=None if same else config.embedding_size,
            attention_head_size=None if is_split else config.attention_head_size,
        )

    def fields(self, config: EncoderConfig) -> dict[str, Any]:
        widths = {"embedding_size": config.embedding_width, "attention_head_size": config.head_dim}
        return super().fields(config) | widths


_LEGACY = _DebertaV2(
    model_type="deberta-v2",
    class_names=bert.class_names("DebertaV2", without=("pretraining", "next_sentence")),
    huggingface=_names("cls.predictions.", "transform.", bert.DECODER_BIAS),
    # xsmall to large: the second paper, table 1 and appendix; xlarge and xxlarge are of v2.
    sizes={
        "tiny": bert.size(2, 128, 2, 512),
        "xsmall": bert.size(12, 384, 6, 1536),
        "small": bert.size(6, 768, 12, 3072),
        "base": bert.size(12, 768, 12, 3072),
        "large": bert.size(24, 1024, 16, 4096),
        "xlarge": bert.size(24, 1536, 24, 6144),
        "xxlarge": bert.size(48, 1536, 24, 6144),
    },
    # As published in v3.
    defaults={
        "type_vocab_size": 0,
        "layer_norm_eps": 1e-7,
        "relative_attention": True,
        "position_biased_input": False,
        "pos_att_type": "c2p|p2c",
        "share_att_key": True,
        "position_buckets": 256,
        "norm_rel_ebd": "layer_norm",
    },
    constants={
        "has_pooler": False,
        "project_before_norm": True,
        "masks_padding": True,
        "heads": (
            ClassifierOptions("gelu"),
            ChoiceHeadOptions("classifier"),
            TaggingOptions(dropout_of_hidden=True),
        ),
    },
    optional_fields=("embedding_size", "attention_head_size", *_FIELDS),
    required_fields=(
        *bert.REQUIRED_IN_RELATIVES,
        "type_vocab_size",
        "layer_norm_eps",
        *_NEEDED,
    ),
    field_names={"classifier_dropout": "cls_dropout"},
    fixed_fields={"conv_groups": 1},
    fixed_fields_of_heads={"classification": _POOLER, "multiple_choice": _POOLER},
    read_fields=read_fields,
    tokenizer_kind=DEBERTA_V2,
    token_types=None,
    own_fields={"legacy": True},
)

FAMILY = dataclasses.replace(
    _LEGACY,
    others=(
        dataclasses.replace(
            _LEGACY,
            huggingface=_names("lm_predictions.lm_head.", "", {}),
            fixed_fields={**_LEGACY.fixed_fields, "tie_word_embeddings": True},
            own_fields={"legacy": False},
        ),
    ),
)

"""MobileBERT: Sun et al., 2020 (https://arxiv.org/abs/2004.02984), `model_type` "mobilebert".

Source: Hugging Face transformers, models/mobilebert/modeling_mobilebert.py. Without LayerNorm its
hidden states exceed the range of float16; bfloat16 has the range of float32.
"""

from bert_jax.families import bert
from bert_jax.families.family import Family, Rule
from bert_jax.models.config import ENCODER_SCOPE
from bert_jax.models.field_ranges import MOST_FEEDFORWARD_NETWORKS
from bert_jax.models.heads.masked_lm import MaskedLMOptions

_EMBEDDINGS, _LAYERS = f"{ENCODER_SCOPE}/embeddings", f"{ENCODER_SCOPE}/encoder/layers"
_LAYER = "mobilebert.encoder.layer.{layer}"
# What other families do not have; a file has all of it.
_FIELDS = (
    *("embedding_size", "intra_bottleneck_size"),
    *("num_feedforward_networks", "classifier_activation"),
)


def _feed_forward(parameter: str, tensor: str) -> tuple[Rule, ...]:
    return (
        *bert.dense(f"{parameter}intermediate", f"{tensor}intermediate.dense"),
        *bert.dense(f"{parameter}contraction", f"{tensor}output.dense"),
        *bert.layer_norm(f"{parameter}contraction_norm", f"{tensor}output.LayerNorm"),
    )


def _bottleneck(parameter: str, tensor: str) -> tuple[Rule, ...]:
    return (
        *bert.dense(parameter, f"{tensor}.dense"),
        *bert.layer_norm(f"{parameter}_norm", f"{tensor}.LayerNorm"),
    )


HUGGINGFACE = bert.names(
    *bert.embedding_rules("mobilebert."),
    *bert.dense(f"{_EMBEDDINGS}/transformation", "mobilebert.embeddings.embedding_transformation"),
    *_bottleneck(f"{_LAYERS}/bottleneck_input", f"{_LAYER}.bottleneck.input"),
    *_bottleneck(f"{_LAYERS}/bottleneck_attention", f"{_LAYER}.bottleneck.attention"),
    *bert.layer_rules(f"{_LAYER}.", *bert.LAYER_NAMES[:5]),
    *(
        rule
        for number in range(MOST_FEEDFORWARD_NETWORKS - 1)
        for rule in _feed_forward(f"{_LAYERS}/feed_forward_{number}_", f"{_LAYER}.ffn.{number}.")
    ),
    *_feed_forward(f"{_LAYERS}/", f"{_LAYER}."),
    *bert.dense(f"{_LAYERS}/output", f"{_LAYER}.output.bottleneck.dense"),
    *bert.layer_norm(f"{_LAYERS}/output_norm", f"{_LAYER}.output.bottleneck.LayerNorm"),
    *bert.dense(f"{ENCODER_SCOPE}/pooler/dense", "mobilebert.pooler.dense"),
    *bert.HEAD_RULES,
    # [D - E, V] in the file.
    Rule("mlm_head/decoder_extension", "cls.predictions.dense.weight", 1, transposed=True),
    prefix="mobilebert.",
    aliases=bert.DECODER_BIAS,
)


def _size(layers: int, width: int, narrow: int) -> dict[str, int]:
    widths = {"intra_bottleneck_size": narrow, "embedding_size": narrow}
    return bert.size(layers, width, 4, 4 * narrow) | widths


FAMILY = Family(
    model_type="mobilebert",
    class_names=bert.class_names("MobileBert"),
    huggingface=HUGGINGFACE,
    sizes={"tiny": _size(4, 128, 32), "base": _size(24, 512, 128)},  # base is the paper's
    defaults={
        "num_feedforward_networks": 4,
        "hidden_act": "relu",
        "hidden_dropout_prob": 0.0,
        "classifier_activation": False,
    },
    constants={
        "trigram_input": True,
        "layer_kind": "bottleneck",
        "normalization_type": "no_norm",
        "heads": (MaskedLMOptions(extended_decoder=True),),
    },
    optional_fields=_FIELDS,
    required_fields=(*bert.REQUIRED_IN_RELATIVES, *_FIELDS, "type_vocab_size"),
    fixed_fields={
        "normalization_type": "no_norm",
        "trigram_input": True,
        "use_bottleneck": True,
        "use_bottleneck_attention": False,
        "key_query_shared_bottleneck": True,
    },
)

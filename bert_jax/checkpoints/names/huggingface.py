"""The name table of Hugging Face's BERT, and the spellings that its files have had over the years.

Source: transformers, models/bert/modeling_bert.py.
"""

import re

from bert_jax.checkpoints.names.rule import NameTable, Rule


def _dense(ours: str, theirs: str, input_axes: int = 1) -> tuple[Rule, Rule]:
    return (
        Rule(f"{ours}/kernel", f"{theirs}.weight", input_axes, transposed=True),
        Rule(f"{ours}/bias", f"{theirs}.bias"),
    )


def _norm(ours: str, theirs: str) -> tuple[Rule, Rule]:
    return Rule(f"{ours}/scale", f"{theirs}.weight"), Rule(f"{ours}/bias", f"{theirs}.bias")


_EMBEDDINGS, _LAYERS = "bert/embeddings", "bert/encoder/layers"
_THEIR_LAYER = "bert.encoder.layer.{layer}"

_RULES: tuple[Rule, ...] = (
    *(
        Rule(f"{_EMBEDDINGS}/{table}/embedding", f"bert.embeddings.{table}.weight")
        for table in ("word_embeddings", "position_embeddings", "token_type_embeddings")
    ),
    *_norm(f"{_EMBEDDINGS}/layer_norm", "bert.embeddings.LayerNorm"),
    *_dense(f"{_LAYERS}/attention/query", f"{_THEIR_LAYER}.attention.self.query"),
    *_dense(f"{_LAYERS}/attention/key", f"{_THEIR_LAYER}.attention.self.key"),
    *_dense(f"{_LAYERS}/attention/value", f"{_THEIR_LAYER}.attention.self.value"),
    *_dense(f"{_LAYERS}/attention/output", f"{_THEIR_LAYER}.attention.output.dense", 2),
    *_norm(f"{_LAYERS}/attention_norm", f"{_THEIR_LAYER}.attention.output.LayerNorm"),
    *_dense(f"{_LAYERS}/intermediate", f"{_THEIR_LAYER}.intermediate.dense"),
    *_dense(f"{_LAYERS}/output", f"{_THEIR_LAYER}.output.dense"),
    *_norm(f"{_LAYERS}/output_norm", f"{_THEIR_LAYER}.output.LayerNorm"),
    *_dense("bert/pooler/dense", "bert.pooler.dense"),
    *_dense("mlm_head/dense", "cls.predictions.transform.dense"),
    *_norm("mlm_head/layer_norm", "cls.predictions.transform.LayerNorm"),
    Rule("mlm_head/decoder", "cls.predictions.decoder.weight"),
    Rule("mlm_head/bias", "cls.predictions.bias"),
    *_dense("nsp_head", "cls.seq_relationship"),
    *_dense("classifier", "classifier"),
    *_dense("qa_outputs", "qa_outputs"),
    # Not Hugging Face's: the names of the package pytorch-crf, which is commonly put on its models.
    Rule("crf_transitions", "crf.transitions"),
    Rule("crf_start", "crf.start_transitions"),
    Rule("crf_end", "crf.end_transitions"),
)

WORD_EMBEDDINGS = "bert.embeddings.word_embeddings.weight"
DECODER = "cls.predictions.decoder.weight"
# The decoder is a PyTorch Linear with a bias of its own, which `BIAS` is tied to. Where a file
# holds both, it is this one that PyTorch computes with.
BIAS, DECODER_BIAS = "cls.predictions.bias", "cls.predictions.decoder.bias"

# Constants that some versions of transformers saved with the parameters.
_BUFFERS = re.compile(r"embeddings\.(position_ids|token_type_ids)$")


def _canonical(name: str) -> str | None:
    """Settles the spelling: files of the bare encoder, LayerNorm of 2018, the decoder's bias."""
    if _BUFFERS.search(name):
        return None
    if name.startswith(("embeddings.", "encoder.", "pooler.")):
        name = f"bert.{name}"
    if name == DECODER_BIAS:
        return BIAS
    # Only under LayerNorm: "gamma" may be part of somebody's own head.
    name = re.sub(r"\bLayerNorm\.gamma$", "LayerNorm.weight", name)
    return re.sub(r"\bLayerNorm\.beta$", "LayerNorm.bias", name)


def _canonical_of_tied(name: str) -> str | None:
    """As `_canonical`; a decoder in the file is a copy of the word embeddings."""
    return None if name == DECODER else _canonical(name)


TABLE = NameTable(_RULES, _canonical)
TIED_TABLE = NameTable(_RULES, _canonical_of_tied)

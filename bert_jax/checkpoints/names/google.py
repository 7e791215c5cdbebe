"""The name table of google-research/bert: the variables of its TensorFlow 1 checkpoints.

Source: google-research/bert, modeling.py; the heads of run_pretraining.py, run_classifier.py and
run_squad.py. Kernels of dense layers are [in, out], as ours; the `output_weights` of the heads are
[out, in].
"""

import re

from bert_jax.checkpoints.names.rule import NameTable, Rule


def _dense(ours: str, theirs: str, input_axes: int = 1) -> tuple[Rule, Rule]:
    return (
        Rule(f"{ours}/kernel", f"{theirs}/kernel", input_axes),
        Rule(f"{ours}/bias", f"{theirs}/bias"),
    )


def _norm(ours: str, theirs: str) -> tuple[Rule, Rule]:
    return Rule(f"{ours}/scale", f"{theirs}/gamma"), Rule(f"{ours}/bias", f"{theirs}/beta")


def _head(ours: str, scope: str) -> tuple[Rule, Rule]:
    return (
        Rule(f"{ours}/kernel", f"{scope}output_weights", 1, transposed=True),
        Rule(f"{ours}/bias", f"{scope}output_bias"),
    )


_EMBEDDINGS, _LAYERS = "bert/embeddings", "bert/encoder/layers"
_THEIR_LAYER = "bert/encoder/layer_{layer}"

_RULES: tuple[Rule, ...] = (
    *(
        Rule(f"{_EMBEDDINGS}/{table}/embedding", f"{_EMBEDDINGS}/{table}")
        for table in ("word_embeddings", "position_embeddings", "token_type_embeddings")
    ),
    *_norm(f"{_EMBEDDINGS}/layer_norm", f"{_EMBEDDINGS}/LayerNorm"),
    *_dense(f"{_LAYERS}/attention/query", f"{_THEIR_LAYER}/attention/self/query"),
    *_dense(f"{_LAYERS}/attention/key", f"{_THEIR_LAYER}/attention/self/key"),
    *_dense(f"{_LAYERS}/attention/value", f"{_THEIR_LAYER}/attention/self/value"),
    *_dense(f"{_LAYERS}/attention/output", f"{_THEIR_LAYER}/attention/output/dense", 2),
    *_norm(f"{_LAYERS}/attention_norm", f"{_THEIR_LAYER}/attention/output/LayerNorm"),
    *_dense(f"{_LAYERS}/intermediate", f"{_THEIR_LAYER}/intermediate/dense"),
    *_dense(f"{_LAYERS}/output", f"{_THEIR_LAYER}/output/dense"),
    *_norm(f"{_LAYERS}/output_norm", f"{_THEIR_LAYER}/output/LayerNorm"),
    *_dense("bert/pooler/dense", "bert/pooler/dense"),
    *_dense("mlm_head/dense", "cls/predictions/transform/dense"),
    *_norm("mlm_head/layer_norm", "cls/predictions/transform/LayerNorm"),
    Rule("mlm_head/bias", "cls/predictions/output_bias"),
    *_head("nsp_head", "cls/seq_relationship/"),
    # run_classifier.py opens no scope for its head; the scripts of others for tagging and multiple
    # choice, made after it, do not either.
    *_head("classifier", ""),
    *_head("qa_outputs", "cls/squad/"),
)

# Beside every weight stand its optimizer slots: those that google-research/bert names, those of
# `tf.train.Optimizer`, LAMB's. Counters and loss scales stand alone or in a scope.
_SLOTS = r".+/((adam|lamb)_[mv]|(Adam|LAMB|AdamWeightDecayOptimizer|LAMBOptimizer)(_1)?)"
_COUNTERS = r"(.+/)?(global_step|(good|bad)_steps|(current_)?loss_scale|beta[12]_power)"
_TRAINING = re.compile(f"{_SLOTS}|{_COUNTERS}")


def _canonical(name: str) -> str | None:
    """Leaves out what belongs to the training and not to the model."""
    return None if _TRAINING.fullmatch(name) else name


WORD_EMBEDDINGS = "bert/embeddings/word_embeddings"
TABLE = NameTable(_RULES, _canonical)

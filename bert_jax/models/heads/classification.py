"""The head of a classifier of a text or a pair (BERT paper, section 4.1)."""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from bert_jax.models.comparison import (
    Arrays,
    Comparison,
    DrawnBatch,
    Labels,
    cross_entropy,
    sigmoid_cross_entropy,
)
from bert_jax.models.config import ENCODER_SCOPE
from bert_jax.models.encoder import EncoderOutput, RequestedOutputs
from bert_jax.models.encoder_with_head import Classifier, ClassifierOptions, ModelInputs
from bert_jax.models.head import Head, dense_axes
from bert_jax.models.packed_rows import EncoderInputs


class ClassificationModel(Classifier):
    """Logits of the labels of a text or a pair; with one label, a regression."""

    global_tokens = "first"

    def _has_transform(self) -> bool:
        return self.config.head_options(ClassifierOptions).act is not None

    def _has_pooler(self) -> bool:
        return not self._has_transform() and not self._reads_last_token()

    def _has_bias(self) -> bool:
        return not self._reads_last_token()

    def _reads_last_token(self) -> bool:
        return self.config.head_options(ClassifierOptions).of_last_token

    def _apply(
        self, inputs: ModelInputs, deterministic: bool, requested: RequestedOutputs | None
    ) -> tuple[Any, EncoderOutput]:
        if self._reads_last_token():  # the head is then applied to this position alone
            last = _last_tokens(inputs)[:, None]
            inputs = dataclasses.replace(inputs, masked_lm_positions=last)
        return super()._apply(inputs, deterministic, requested)

    def _head(self, encoded: EncoderOutput, deterministic: bool) -> jax.Array:
        """Logits, float32 [B, C]."""
        if self._reads_last_token():
            return self._classify(encoded.last_hidden_state[:, 0], deterministic)
        return self._classify_text(encoded, deterministic)


def _last_tokens(inputs: EncoderInputs) -> jax.Array:
    """The position of the last token of each row that is not padding, int32 [B]."""
    ids, mask = inputs.input_ids, inputs.attention_mask
    positions = jnp.broadcast_to(jnp.arange(ids.shape[1]), ids.shape)  # BT
    return jnp.max(positions if mask is None else jnp.where(mask != 0, positions, 0), axis=1)


def _labels(draw: DrawnBatch) -> Labels:
    """[B] classes or values, [B, C] flags or values."""
    rows, labels = len(draw.ids), draw.config.num_labels
    if draw.problem_type == "single_label_classification":
        return {"labels": draw.one_class(labels)}
    if draw.problem_type == "multi_label_classification":
        flags = draw.classes(rows * labels, 2).reshape(rows, labels)
        return {"labels": flags.astype(np.float32)}
    values = draw.generator.normal(size=(rows, labels)).astype(np.float32)
    return {"labels": values[:, 0] if labels == 1 else values}


def _loss(logits: Arrays, labels: Arrays, problem_type: str) -> list[jax.Array]:
    outputs, targets = logits["logits"], labels["labels"]
    if problem_type == "regression":
        return [jnp.mean(jnp.square(outputs - targets.reshape(outputs.shape)))]
    if problem_type == "multi_label_classification":
        return [sigmoid_cross_entropy(outputs, targets)]
    return [cross_entropy(outputs, targets)]


HEAD = Head(
    ClassificationModel,
    makes_vectors=False,
    axes=(
        *dense_axes("classifier(/dense|/out_proj)?"),
        ("prediction_head/dense/kernel", ("embed", None)),
        ("layer_mix/(weights|scale)", ()),
    ),
    decay=(("layer_mix/(weights|scale)", False),),
    shown_by=(
        ("classifier/dense/kernel", "classifier/out_proj/kernel"),
        ("prediction_head/dense/kernel", "classifier/kernel"),
        (f"{ENCODER_SCOPE}/pooler/dense/kernel", "classifier/kernel"),
    ),
    options=ClassifierOptions,
    label_parameters=("classifier/",),
    label_kernels=("classifier/out_proj/kernel", "classifier/kernel"),
    comparison=Comparison(
        ("logits",), ("classification",), _labels, loss=_loss, reads_problem_type=True
    ),
)

"""Classifiers of vectors: dropout and a dense map, or two dense maps."""

import dataclasses
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp

from bert_jax.models.activations import ACTIVATIONS
from bert_jax.models.config import EncoderConfig, HeadOptions
from bert_jax.models.dropout import Dropout
from bert_jax.models.encoder import EncoderOutput
from bert_jax.models.encoder_with_head import EncoderWithHead
from bert_jax.models.execution import Execution
from bert_jax.models.layers import dense


@dataclasses.dataclass(frozen=True)
class ClassifierOptions(HeadOptions):
    """The head of classification.

    Attributes:
        act: activation of a dense map of [CLS] in the head; None: it takes the pooler's output.
        input_dropout: whether there is dropout before that dense map, too.
    """

    act: str | None = None
    input_dropout: bool = False


class TransformedOutput(nn.Module):
    """Dense, activation, and a dense map to some outputs, with dropout before either.

    Attributes:
        config: architecture of the model.
        execution: how it is computed.
        outputs: number of outputs.
        act: activation.
        input_rate: rate of the dropout before the first map.
        rate: rate of the dropout before the second map.
    """

    config: EncoderConfig
    execution: Execution
    outputs: int
    act: str
    input_rate: float = 0.0
    rate: float = 0.0

    @nn.compact
    def __call__(self, vectors: jax.Array, deterministic: bool) -> jax.Array:
        """[..., D] → float32 [..., outputs]."""
        vectors = Dropout(self.input_rate)(vectors, deterministic=deterministic)
        vectors = dense(self.config, self.execution, self.config.hidden_size, "dense")(vectors)
        vectors = ACTIVATIONS[self.act](vectors)
        vectors = Dropout(self.rate)(vectors, deterministic=deterministic)
        outputs = dense(self.config, self.execution, self.outputs, "out_proj")(vectors)
        return outputs.astype(jnp.float32)


def classifier_dropout(config: EncoderConfig) -> float:
    """The rate of the dropout before a classifier."""
    rate = config.classifier_dropout
    return config.hidden_dropout_prob if rate is None else rate


class Classifier(EncoderWithHead):
    """Dropout and a dense layer on vectors of the encoder."""

    def setup(self) -> None:
        super().setup()
        options = self.config.of_head(ClassifierOptions)
        if self._has_transform():
            assert options.act is not None
            rate = classifier_dropout(self.config)
            self.classifier: Any = TransformedOutput(
                self.config,
                self.execution,
                self._num_outputs(),
                options.act,
                input_rate=rate if options.input_dropout else 0.0,
                rate=rate,
            )
        else:
            self.dropout = Dropout(self._rate())
            self.classifier = self._dense(self._num_outputs(), "classifier")

    def _num_outputs(self) -> int:
        return self.config.num_labels

    def _rate(self) -> float:
        return classifier_dropout(self.config)

    def _has_transform(self) -> bool:
        """Whether a dense map of [CLS] belongs to the head, in place of the pooler."""
        return False

    def _classify(self, vectors: jax.Array, deterministic: bool) -> jax.Array:
        """[..., D] → float32 [..., C]."""
        vectors = self.dropout(vectors, deterministic=deterministic)
        return self.classifier(vectors).astype(jnp.float32)

    def _classify_text(self, encoded: EncoderOutput, deterministic: bool) -> jax.Array:
        """Float32 [B, C]."""
        if self._has_transform():
            return self.classifier(encoded.last_hidden_state[:, 0], deterministic)
        return self._classify(encoded.pooled, deterministic)

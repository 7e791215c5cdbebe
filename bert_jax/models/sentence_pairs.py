"""A model that compares texts (Sentence-BERT, Reimers and Gurevych, 2019, section 3)."""

from typing import Any, NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp

from bert_jax.models.config import ENCODER_SCOPE, EncoderConfig
from bert_jax.models.encoder import Encoder, RequestedOutputs
from bert_jax.models.execution import Execution
from bert_jax.models.heads.text_vectors import TextPooling
from bert_jax.models.layers import dense
from bert_jax.models.packed_rows import EncoderInputs


class PairOutput(NamedTuple):
    """The output of `SentencePairs` for B examples of K texts.

    Attributes:
        vectors: float32 [B, K, X]; zeros for a text without tokens.
        logits: float32 [B, C], logits of the labels; None without a classifier.
    """

    vectors: jax.Array
    logits: jax.Array | None


class SentencePairs(nn.Module):
    """An encoder of the K texts of each example, and a classifier of pairs, for training only.

    The encoder has no pooler: no loss would reach it, and weight decay alone would change it.

    Attributes:
        config: architecture of the encoder.
        execution: how the encoder is computed.
        text_vectors: token vectors → text vector; the name is the scope of its parameters.
        labels: C, number of classes of a classifier of (u, v, |u - v|), of the first and the last
            text; 0: no classifier.
    """

    config: EncoderConfig
    execution: Execution
    text_vectors: TextPooling
    labels: int = 0

    def setup(self) -> None:
        self.encoder = Encoder(
            self.config, self.execution, add_pooling_layer=False, name=ENCODER_SCOPE
        )
        if self.labels:
            self.classifier = dense(self.config, self.execution, self.labels, "classifier")

    def __call__(
        self,
        *arrays: Any,
        deterministic: bool = True,
        encoder_outputs: RequestedOutputs | None = None,
        **named: Any,
    ) -> Any:
        """Takes `EncoderInputs` of int32 [B, K, T], see `from_call`.

        Returns:
            `PairOutput`; with `encoder_outputs`, and the `EncoderOutput` of all B · K rows.
        """
        inputs = EncoderInputs.from_call(*arrays, **named)
        leading = inputs.input_ids.shape[:-1]
        inputs = inputs.as_rows()
        encoded = self.encoder.encode(inputs, deterministic, encoder_outputs)
        vectors = self.text_vectors(encoded.last_hidden_state, inputs.visible.astype(bool))
        vectors = vectors.reshape(*leading, -1)  # BKX
        output = PairOutput(vectors, None)
        if self.labels:
            logits = self.classifier(pair_features(vectors[..., 0, :], vectors[..., -1, :]))
            output = PairOutput(vectors, logits.astype(jnp.float32))
        return output if encoder_outputs is None else (output, encoded)


def pair_features(u: jax.Array, v: jax.Array) -> jax.Array:
    """The input of the classifier of pairs: two [..., X] → (u, v, |u - v|), [..., 3 X]."""
    return jnp.concatenate([u, v, jnp.abs(u - v)], axis=-1)

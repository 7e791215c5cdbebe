"""Models that encode queries and documents apart, by one encoder or by two.

Source of two: DPR (Karpukhin et al., 2020, https://arxiv.org/abs/2004.04906), section 3.1.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

import flax.linen as nn
import jax
from flax import struct

from bert_jax.models.config import ENCODER_SCOPE, EncoderConfig
from bert_jax.models.encoder import Encoder
from bert_jax.models.execution import Execution
from bert_jax.models.heads.text_vectors import TextPooling
from bert_jax.models.packed_rows import EncoderInputs
from bert_jax.models.vectors import DOCUMENT, QUERY, SIDES, Module

DOCUMENT_TOWER = "document_tower"
"""The scope of the parameters of a separate encoder of documents."""


class RankedVectors(NamedTuple):
    """What a model makes of B queries with K documents each.

    Attributes:
        query: arrays [B, …].
        document: the same arrays of the documents, [B, K, …].
    """

    query: Any
    document: Any


@struct.dataclass
class VectorInputs(EncoderInputs):
    """Texts, and the tokens that their vectors are made of.

    Attributes:
        vector_mask: int32 [B, …, T], 0 for tokens that do not count; None: `attention_mask`.
    """

    vector_mask: jax.Array | None = None


class Towers(nn.Module):
    """An encoder of queries and documents, or one for each; subclasses define the vectors.

    The parameters of the encoder of queries have the names of the exported model. Those of a
    separate encoder of documents have the same names in the scope `DOCUMENT_TOWER`.

    Attributes:
        config: architecture of the encoder.
        execution: how it is computed.
        towers: 1: one encoder for both; 2: one for each.
    """

    config: EncoderConfig
    execution: Execution = Execution()
    towers: int = 1

    def setup(self) -> None:
        self.encoder = Encoder(
            self.config, self.execution, add_pooling_layer=False, name=ENCODER_SCOPE
        )
        if self.towers == 2:
            self.document_tower = self.clone(towers=1)  # the name is DOCUMENT_TOWER

    def __call__(
        self,
        texts: Mapping[str, VectorInputs] | EncoderInputs | jax.Array,
        *,
        deterministic: bool = True,
    ) -> RankedVectors:
        """The vectors of queries and documents.

        Args:
            texts: inputs of both `SIDES`, with arrays [B, T] and [B, K, S]; or `EncoderInputs`, or
                `input_ids`, of both, to initialise parameters.
            deterministic: False for training, with dropout from the RNG stream "dropout".
        """
        if not isinstance(texts, Mapping):
            texts = dict.fromkeys(SIDES, VectorInputs.from_call(texts))
        document_encoder = self.document_tower if self.towers == 2 else self
        return RankedVectors(
            self.encode(texts[QUERY], deterministic=deterministic),
            document_encoder.encode(texts[DOCUMENT], deterministic=deterministic),
        )

    def encode(self, *arrays: Any, deterministic: bool = True, **named: Any) -> Any:
        """The vectors of texts of one kind: the arrays of `vectors`, [B, …].

        The inputs are `VectorInputs`, [B, …, T], see `from_call`.
        """
        inputs = VectorInputs.from_call(*arrays, **named)
        mask = inputs.visible if inputs.vector_mask is None else inputs.vector_mask
        encoded = self.encoder.encode(inputs.as_rows(), deterministic)
        leading, length = mask.shape[:-1], mask.shape[-1]
        mask = mask.reshape(-1, length).astype(bool)
        vectors = self.vectors(encoded.last_hidden_state, mask)
        return jax.tree.map(lambda array: array.reshape(*leading, *array.shape[1:]), vectors)

    def vectors(self, hidden: jax.Array, mask: jax.Array) -> Any:
        """The vectors of R rows: arrays [R, …].

        Args:
            hidden: [R, T, D], last hidden states.
            mask: bool [R, T], the tokens that the vectors are made of.
        """
        raise NotImplementedError


class DualEncoder(Towers):
    """One vector for each text, float32 [B, X]; zeros for a row of padding.

    Attributes:
        poolings, modules, truncate_dim: see `TextVectors`.
    """

    poolings: tuple[str, ...] = ("mean",)
    modules: tuple[Module, ...] = ()
    truncate_dim: int | None = None

    def setup(self) -> None:
        super().setup()
        self.text_vectors = TextPooling(self.poolings, self.modules, truncate_dim=self.truncate_dim)

    def vectors(self, hidden: jax.Array, mask: jax.Array) -> jax.Array:
        vectors: jax.Array = self.text_vectors(hidden, mask)
        return vectors

"""Models that encode queries and documents apart, by one encoder or by two.

Source of two: DPR (Karpukhin et al., 2020, https://arxiv.org/abs/2004.04906), section 3.1.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp

from bert_jax.models.config import ENCODER_SCOPE, EncoderConfig
from bert_jax.models.encoder import Encoder
from bert_jax.models.execution import Execution
from bert_jax.models.heads.text_vectors import TextPooling
from bert_jax.models.packed_rows import EncoderInputs, PackedRows
from bert_jax.models.vectors import Module

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
        self, query: Any, document: Mapping[str, Any] | None = None, *, deterministic: bool = True
    ) -> RankedVectors:
        """The vectors of queries and documents.

        Args:
            query: arguments of `encode`, by name; or its `input_ids`, to initialise parameters.
            document: the same of the documents, with arrays [B, K, S]; None: those of `query`.
            deterministic: False for training, with dropout from the RNG stream "dropout".
        """
        rows = query if isinstance(query, Mapping) else {"input_ids": query}
        of_documents = self.document_tower if self.towers == 2 else self
        return RankedVectors(
            self.encode(**rows, deterministic=deterministic),
            of_documents.encode(
                **(rows if document is None else document), deterministic=deterministic
            ),
        )

    def encode(
        self,
        input_ids: jax.Array,
        token_type_ids: jax.Array | None = None,
        attention_mask: jax.Array | None = None,
        *,
        vector_mask: jax.Array | None = None,
        packed_rows: PackedRows | None = None,
        row_indices: jax.Array | None = None,
        deterministic: bool = True,
    ) -> Any:
        """The vectors of texts of one kind.

        Args:
            input_ids: int32 [B, …, T].
            token_type_ids: int32 [B, …, T].
            attention_mask: int32 [B, …, T], 0 for padding.
            vector_mask: int32 [B, …, T], 0 for tokens that the vectors are not made of; None:
                `attention_mask`.
            packed_rows: if set, the encoder computes several texts in one row, see `EncoderInputs`.
            row_indices: int32 [B], index of each row in the global batch, for dropout.
            deterministic: False for training, with dropout from the RNG stream "dropout".

        Returns:
            The arrays of `vectors`, [B, …].
        """
        leading, length = input_ids.shape[:-1], input_ids.shape[-1]
        if attention_mask is None:
            attention_mask = jnp.ones_like(input_ids)
        if vector_mask is None:
            vector_mask = attention_mask
        inputs = EncoderInputs(
            input_ids,
            token_type_ids,
            attention_mask,
            packed_rows=packed_rows,
            row_indices=row_indices,
        )
        encoded = self.encoder.encode(inputs.of_rows(), deterministic)
        mask = vector_mask.reshape(-1, length).astype(bool)
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

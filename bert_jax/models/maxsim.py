"""Scores of late interaction: for each token of a query, its most similar token of a document.

Source: ColBERT (Khattab and Zaharia, 2020, https://arxiv.org/abs/2004.12832), section 3.3. Masks
and empty documents are as in sentence-transformers 6.
"""

import jax
import jax.numpy as jnp

from bert_jax.metrics.similarity import NO_TOKENS

# Documents that are compared with all queries at once.
_DOCUMENTS = 16


def jax_maxsim(
    queries: jax.Array, query_mask: jax.Array, documents: jax.Array, document_mask: jax.Array
) -> jax.Array:
    """The sum over the tokens of a query of the greatest dot product with a token of a document.

    Documents are compared in blocks, also where gradients are computed, so the products of all
    tokens are never in memory together. For cosines, pass vectors of length 1.

    Args:
        queries: [B, T, X].
        query_mask: bool [B, T], False for a token that does not count.
        documents: [M, S, X].
        document_mask: bool [M, S].

    Returns:
        float32 [B, M], each query with each document.
    """
    queries = queries.astype(jnp.float32)

    @jax.checkpoint
    def scores_of(document: tuple[jax.Array, jax.Array]) -> jax.Array:
        tokens, mask = document  # SX, S
        products = jnp.einsum(
            "BTX,SX->BTS", queries, tokens.astype(jnp.float32), precision=jax.lax.Precision.HIGHEST
        )
        best = jnp.where(mask, products, jnp.finfo(jnp.float32).min).max(axis=-1)  # BT
        scores = jnp.where(query_mask & mask.any(), best, 0).sum(axis=-1)
        return jnp.where(mask.any(), scores, NO_TOKENS)

    return jax.lax.map(scores_of, (documents, document_mask), batch_size=_DOCUMENTS).T

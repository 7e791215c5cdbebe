"""The layouts by the `model_type` in `config_sentence_transformers.json`."""

from bert_jax.checkpoints.sentence_transformers import (
    multi_vector_encoder,
    sentence_transformer,
    sparse_encoder,
)
from bert_jax.checkpoints.sentence_transformers.layout import Layout
from bert_jax.models.vectors import StoredVectors

SENTENCE_TRANSFORMER = "SentenceTransformer"
"""The type of files without `model_type`."""

LAYOUTS: dict[str, Layout] = {
    SENTENCE_TRANSFORMER: sentence_transformer.LAYOUT,
    "SparseEncoder": sparse_encoder.LAYOUT,
    "MultiVectorEncoder": multi_vector_encoder.LAYOUT,
    "ColBERT": multi_vector_encoder.PYLATE,  # is written as the layout before it
}


def layout_of(vectors: StoredVectors) -> tuple[str, Layout]:
    """The `model_type` of a description, and its layout."""
    return next(item for item in LAYOUTS.items() if isinstance(vectors, item[1].vectors))

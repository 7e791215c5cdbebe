"""Sparse vectors for search (SPLADE v2: https://arxiv.org/abs/2109.10086, section 3)."""

from bert_jax.tasks.sparse_retrieval.task import TRAIN

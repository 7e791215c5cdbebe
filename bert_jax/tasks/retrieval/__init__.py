"""A vector for each query and each document, for search (DPR: Karpukhin et al., 2020)."""

from bert_jax.tasks.retrieval.task import TRAIN

"""Re-ranking: a cross-encoder scores the documents of a query."""

from bert_jax.tasks.ranking.task import TRAIN

"""Vectors of sentences that can be compared (Sentence-BERT)."""

from bert_jax.tasks.similarity.predict import PREDICT
from bert_jax.tasks.similarity.task import TRAIN

"""Pre-training: masked language models, with sentence pairs or span boundaries."""

from bert_jax.tasks.pretraining.create import TRAIN

"""Answers from several passages of a question, of which the reader also chooses one."""

from bert_jax.tasks.reader.task import TRAIN

"""Answers that are parts of a passage: SQuAD 1.1 and 2.0."""

from bert_jax.tasks.question_answering.predict import PREDICT
from bert_jax.tasks.question_answering.task import TRAIN

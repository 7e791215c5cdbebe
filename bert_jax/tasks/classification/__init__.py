"""Classes or a number for texts and pairs of texts: GLUE, and users' files."""

from bert_jax.tasks.classification.predict import PREDICT
from bert_jax.tasks.classification.task import TRAIN

"""A tag for every word of a sentence: names in texts, parts of speech."""

from bert_jax.tasks.tagging.predict import PREDICT
from bert_jax.tasks.tagging.task import TRAIN

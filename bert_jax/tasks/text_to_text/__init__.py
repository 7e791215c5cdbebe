"""Translation, summarisation and any other text that an encoder-decoder writes for a text."""

from bert_jax.tasks.text_to_text.task import TRAIN

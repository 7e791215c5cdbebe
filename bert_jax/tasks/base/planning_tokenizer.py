"""The tokenizer of a task that is planned or timed before its data are there."""

from bert_jax.data.pretraining.corpus import synthetic_tokenizer
from bert_jax.process import say
from bert_jax.tasks.base.model_init import ModelInit
from bert_jax.tokenization import Tokenizer


def planning_tokenizer(init: ModelInit, key: str, usual: int) -> Tokenizer:
    """The model's tokenizer; else one of any words, as many as `model.vocab_size` says.

    Args:
        init: the model.
        key: the key of the config that sets the size if `model.vocab_size` does not.
        usual: its value, which a line names as an assumption.
    """
    if init.tokenizer:
        return init.tokenizer
    size = init.options.fields.get("vocab_size")
    if size is None:
        say(f"without a tokenizer, a vocabulary of {usual:,} is assumed ({key})")
    return synthetic_tokenizer(size or usual)

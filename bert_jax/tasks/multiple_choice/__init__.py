"""The right one of several endings or answers: SWAG and its relatives."""

from bert_jax.tasks.multiple_choice.predict import PREDICT
from bert_jax.tasks.multiple_choice.task import create, defaults

__all__ = ["PREDICT", "create", "defaults"]

"""The task."""

from bert_jax.tasks.multiple_choice.task import create, defaults

__all__ = ["create", "defaults"]

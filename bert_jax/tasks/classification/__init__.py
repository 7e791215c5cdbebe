"""The task."""

from bert_jax.tasks.classification.task import create, defaults

__all__ = ["create", "defaults"]

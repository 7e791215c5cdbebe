"""The task."""

from bert_jax.tasks.similarity.task import create, defaults

__all__ = ["create", "defaults"]

"""The task."""

from bert_jax.tasks.tagging.task import create, defaults

__all__ = ["create", "defaults"]

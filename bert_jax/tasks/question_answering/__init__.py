"""The task."""

from bert_jax.tasks.question_answering.task import create, defaults

__all__ = ["create", "defaults"]

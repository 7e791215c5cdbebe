"""The tasks of `bert-jax predict` by their names, and the one that a model is for."""

from typing import Any

from bert_jax.errors import UserError
from bert_jax.models.config import Head
from bert_jax.tasks.base import text_predictors as texts
from bert_jax.tasks.base.predict_task import PredictionTask
from bert_jax.tasks.classification import predictor as classification
from bert_jax.tasks.multiple_choice import predictor as multiple_choice
from bert_jax.tasks.question_answering import predictor as question_answering
from bert_jax.tasks.similarity import predictor as similarity
from bert_jax.tasks.tagging import predictor as tagging

TASKS: dict[str, PredictionTask[Any, Any]] = {
    "embed": texts.EMBED,
    "fill_mask": texts.FILL_MASK,
    "hidden_states": texts.HIDDEN_STATES,
    "attentions": texts.ATTENTIONS,
    "classification": classification.TASK,
    "tagging": tagging.TASK,
    "question_answering": question_answering.TASK,
    "multiple_choice": multiple_choice.TASK,
    "similarity": similarity.TASK,
}

# What a model is asked where nobody says.
_DEFAULTS: dict[Head | None, str] = {
    Head.ENCODER: "embed",
    **{head: name for name, task in TASKS.items() for head in task.heads},
}


def find_task(name: str) -> PredictionTask[Any, Any]:
    """A task by its name.

    Raises:
        UserError: there is none of that name.
    """
    if name not in TASKS:
        raise UserError(f"task {name!r} is unknown; known are {', '.join(TASKS)}")
    return TASKS[name]


def task_of(head: Head | None, name: str | None) -> PredictionTask[Any, Any]:
    """A task that a model can do: the named one, else the one that it is for.

    Raises:
        UserError: there is no such task, or the model cannot do it.
    """
    kind = head.value if head else "unknown"
    if name is None and head not in _DEFAULTS:
        raise UserError(f"the model's head is {kind}; give a task: one of {', '.join(TASKS)}")
    name = name or _DEFAULTS[head]
    task = find_task(name)
    if task.heads and head not in task.heads:
        needed = " or ".join(head.value for head in task.heads)
        raise UserError(
            f"task {name!r} needs a model with the head {needed}, but this model's head is {kind}; "
            "give one that is trained for the task"
        )
    return task

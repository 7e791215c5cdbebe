"""Our own routes: each task of `bert-jax predict`, with the records that it reads and writes."""

import functools
import json
from collections.abc import Mapping
from typing import Any

from pydantic import Field

from bert_jax.data.readers.tables import Record
from bert_jax.errors import OptionError, UserError
from bert_jax.serving.endpoints import Endpoint, Reply, RequestForm
from bert_jax.serving.errors import RequestError, from_user_error, unprocessable
from bert_jax.serving.service import Service
from bert_jax.tasks import task_names

# The methods of a model that have a task of another name.
_METHODS = {
    "classify": "classification",
    "tag": "tagging",
    "answer": "question_answering",
    "choose": "multiple_choice",
}
_SAME_NAME = ("fill_mask", "generate", "attentions", "hidden_states", "token_vectors")


class TaskRequest(RequestForm):
    """Records, and options of the task."""

    records: list[dict[str, Any] | str] = Field(
        description="objects as in the JSON lines that `bert-jax predict` reads; a string is a text"
    )
    model: str | None = Field(None, description="name of a model; by default, the first that can")
    options: dict[str, Any] = Field(
        default_factory=dict, description="options of the task, as the flags of `bert-jax predict`"
    )
    truncate: bool = Field(True, description="cut texts that are too long; else refuse them")


async def predict(
    service: Service, body: TaskRequest, path: Mapping[str, str], *, task: str = ""
) -> Reply:
    """The records that `bert-jax predict` writes for these records."""
    task = task or path["task"]
    if task not in task_names("PREDICT"):
        known = ", ".join(task_names("PREDICT"))
        raise unprocessable(f"task {task!r:.80} is unknown; known are {known}", "task")
    served = service.models.named(body.model, task)
    chosen = service.models.task_engine(served, task, body.options, name=_option)
    service.check_count(len(body.records), "records")

    def parsed() -> list[Any]:
        examples, place = [], "options"
        try:
            parse = chosen.spec.reader.parser(chosen.options)
            for number, record in enumerate(body.records):
                place = f"records[{number}]"
                examples.append(parse(Record(_fields(record, place), place), number))
        except UserError as error:
            raise _refused(error, place) from error
        return examples

    examples = await service.in_thread(parsed)
    predicted = await service.predict(
        chosen.engine,
        [example.input for example in examples],
        field="records",
        truncate=body.truncate,
        encoder=chosen.encoder,
    )

    def records() -> list[dict[str, Any]]:
        pairs = zip(examples, predicted.predictions, strict=True)
        return [chosen.spec.record(*pair, chosen.options.keep_columns) for pair in pairs]

    try:
        return Reply({"predictions": await service.in_thread(records)}, predicted.cut)
    except UserError as error:
        raise from_user_error(error, "records", _option) from error


def _option(key: str) -> str:
    return f"options.{key}"


def _refused(error: UserError, place: str) -> RequestError:
    """The error of a record, whose remedy is never an option: those about files are not given."""
    if isinstance(error, OptionError) and error.problem:
        return unprocessable(error.problem, place)
    return from_user_error(error, place, _option)


def _fields(record: dict[str, Any] | str, place: str) -> dict[str, Any]:
    if isinstance(record, str):
        return {"text": record}
    try:
        json.dumps(record, allow_nan=False)  # the answer has its fields again
    except ValueError as error:
        raise unprocessable(f"{place}: JSON has no number that is not finite", place) from error
    return record


GROUP = "bert_jax"
ENDPOINTS = (
    Endpoint("/tasks/{task}", TaskRequest, predict, "Records of any task", GROUP),
    *(
        Endpoint(
            f"/{name}",
            TaskRequest,
            functools.partial(predict, task=task),
            f"Records of the task {task}",
            GROUP,
        )
        for name, task in (_METHODS | dict(zip(_SAME_NAME, _SAME_NAME, strict=True))).items()
    ),
)

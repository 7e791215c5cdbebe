"""Errors of requests, and the forms in which clients expect them."""

import http
import re
from collections.abc import Callable, Mapping
from typing import Any

from pydantic import ValidationError

from bert_jax.errors import OptionError, UserError, one_line


class RequestError(Exception):
    """A request that is not answered.

    Attributes:
        status: status of HTTP.
        message: the problem and its remedy, one line.
        field: the field of the request that is wrong; "": none.
        headers: further headers of the answer.
    """

    def __init__(
        self, status: int, message: str, field: str = "", headers: Mapping[str, str] | None = None
    ) -> None:
        super().__init__(message)
        self.status, self.message, self.field = status, one_line(message), field
        self.headers = dict(headers or {})


def too_large(message: str, field: str = "") -> RequestError:
    """A request, or a text, that is above a limit."""
    return RequestError(http.HTTPStatus.REQUEST_ENTITY_TOO_LARGE, message, field)


def unprocessable(message: str, field: str) -> RequestError:
    """A field with a wrong value."""
    return RequestError(http.HTTPStatus.UNPROCESSABLE_ENTITY, message, field)


FieldName = Callable[[str], str]
"""An option of the package → the field of a request that has it."""


def from_user_error(error: UserError, field: str, name: FieldName = str) -> RequestError:
    """An error of the package: its option, or the field that is being read, is wrong."""
    if isinstance(error, OptionError):
        error = error.renamed(lambda key: name(key.removeprefix("data.")))
        field = error.key
    return unprocessable(str(error), field)


# Pydantic's names of the types of a field that may have several.
_TYPE = re.compile(r"(str|int|float|bool|(list|dict)\[.*)$")


def from_validation_error(error: ValidationError, parent: str = "") -> RequestError:
    """A problem of a body, or of its field `parent`, that does not have its form."""
    problems = error.errors(include_url=False, include_context=False, include_input=False)
    # A field of several types has a problem with each; the deepest is with the one that was meant.
    deepest = max(problems, key=lambda problem: len(problem["loc"]))
    if deepest["type"] == "json_invalid":
        return RequestError(http.HTTPStatus.BAD_REQUEST, f"the body is no JSON: {deepest['msg']}")
    field = parent
    for part in deepest["loc"]:
        if isinstance(part, int):
            field += f"[{part}]"
        elif not _TYPE.match(part):
            field += f".{part}" if field else part
    return unprocessable(f"{field}: {deepest['msg']}" if field else deepest["msg"], field)


ErrorForm = Callable[[RequestError], dict[str, Any]]
"""An error as the JSON that a client expects."""

# What text-embeddings-inference calls the errors with these statuses.
_TYPES = {
    401: "Unauthorized",
    424: "Backend",
    429: "Overloaded",
    500: "Backend",
    503: "Unhealthy",
    504: "Overloaded",
}


def of_embeddings_inference(error: RequestError) -> dict[str, Any]:
    """The form of text-embeddings-inference, whose `error` Hugging Face's clients show, too."""
    field = {"field": error.field} if error.field else {}
    return {
        "error": error.message,
        "error_type": _TYPES.get(error.status, "Validation"),
        **field,
    }


def of_openai(error: RequestError) -> dict[str, Any]:
    """The form of OpenAI."""
    kinds = {401: "authentication_error", 424: "server_error", 429: "rate_limit_error"}
    by_class = "invalid_request_error" if error.status < 500 else "server_error"
    kind = kinds.get(error.status, by_class)
    param = error.field or None
    return {"error": {"message": error.message, "type": kind, "param": param, "code": None}}
